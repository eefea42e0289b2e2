//! Regular expressions with RE2's syntax, as Go has it, on the `regex` crate.
//!
//! The crate differs: its `\d`, `\w`, `\s` and `\b` know Unicode, its classes have set operations, and it has no
//! `\Q…\E`. [`translate`] rewrites a pattern so that it means the same.

use regex::{Regex, RegexBuilder};

use crate::EvalError;

/// The greatest memory of a compiled expression.
const SIZE_LIMIT: usize = 4 << 20;

/// RE2 refuses greater counts of a repetition.
const MAX_REPEAT: u32 = 1000;

/// Compiles a pattern.
pub(crate) fn compile(pattern: &str) -> Result<Regex, EvalError> {
    let failed = |what: &str| EvalError::new(format!("error parsing regexp: {what}: `{pattern}`"));
    let translated = translate(pattern).ok_or_else(|| failed("invalid repeat count"))?;
    RegexBuilder::new(&translated)
        .size_limit(SIZE_LIMIT)
        .nest_limit(250)
        .build()
        .map_err(|_| failed("invalid syntax"))
}

/// Rewrites a pattern, or returns `None` if RE2 refuses it.
fn translate(pattern: &str) -> Option<String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(sign) = rest.chars().next() {
        let after = &rest[sign.len_utf8()..];
        rest = after;
        match sign {
            '\\' => {
                let Some(escaped) = after.chars().next() else {
                    out.push('\\');
                    break;
                };
                rest = &after[escaped.len_utf8()..];
                match escaped {
                    'Q' => {
                        let (literal, end) = rest.split_once("\\E").unwrap_or((rest, ""));
                        out.push_str(&regex::escape(literal));
                        rest = end;
                    }
                    'C' => return None,
                    _ => push_escape(&mut out, escaped, in_class),
                }
            }
            '[' if !in_class => {
                in_class = true;
                out.push('[');
                if let Some(inner) = rest.strip_prefix('^') {
                    out.push('^');
                    rest = inner;
                }
                // A bracket in the first place is itself.
                if let Some(inner) = rest.strip_prefix(']') {
                    out.push_str("\\]");
                    rest = inner;
                }
            }
            '[' if rest.starts_with(':') && rest.contains(":]") => {
                // A named class such as `[:alpha:]`.
                let end = rest.find(":]")? + 2;
                out.push('[');
                out.push_str(&rest[..end]);
                rest = &rest[end..];
            }
            '[' => out.push_str("\\["),
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(sign);
            }
            // Two hyphens in a row are a set operation.
            '-' if in_class && (rest.starts_with('-') || rest.starts_with(']')) => out.push_str("\\-"),
            '{' if !in_class => {
                if let Some(end) = rest.find('}') {
                    let counts = &rest[..end];
                    let is_count = !counts.is_empty()
                        && counts.bytes().all(|byte| byte.is_ascii_digit() || byte == b',')
                        && counts.starts_with(|sign: char| sign.is_ascii_digit());
                    if is_count {
                        let too_many = |count: &str| !count.is_empty() && count.parse::<u32>().map_or(true, |count| count > MAX_REPEAT);
                        if counts.split(',').any(too_many) {
                            return None;
                        }
                        out.push('{');
                        continue;
                    }
                }
                out.push_str("\\{");
            }
            _ => out.push(sign),
        }
    }
    Some(out)
}

/// Writes a backslash and a letter. Outside of classes, classes of letters are ASCII.
fn push_escape(out: &mut String, escaped: char, in_class: bool) {
    const DIGITS: &str = "0-9";
    const WORDS: &str = "0-9A-Za-z_";
    const SPACES: &str = "\\t\\n\\x0c\\r\\x20";
    let (members, negated) = match escaped {
        'd' => (DIGITS, false),
        'D' => (DIGITS, true),
        'w' => (WORDS, false),
        'W' => (WORDS, true),
        's' => (SPACES, false),
        'S' => (SPACES, true),
        'b' if !in_class => return out.push_str("(?-u:\\b)"),
        _ => {
            out.push('\\');
            return out.push(escaped);
        }
    };
    match (in_class, negated) {
        (true, false) => out.push_str(members),
        (_, true) => {
            out.push_str("[^");
            out.push_str(members);
            out.push(']');
        }
        (false, false) => {
            out.push('[');
            out.push_str(members);
            out.push(']');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::compile;

    #[test]
    fn patterns_mean_what_they_mean_in_re2() {
        for (pattern, text, matches) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "\u{661}", false),
            (r"^\w+$", "\u{e9}", false),
            (r"^[\w-]+$", "a-b", true),
            (r"^[a&&b]$", "&", true),
            (r"^[[]$", "[", true),
            (r"^[[:alpha:]]+$", "ab", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^a{2}$", "aa", true),
            (r"^{a}$", "{a}", true),
            (r"\bfoo\b", "a foo b", true),
            (r"a\z", "ba", true),
        ] {
            assert_eq!(compile(pattern).unwrap().is_match(text), matches, "{pattern} {text}");
        }
    }

    #[test]
    fn patterns_that_re2_refuses_are_errors() {
        for pattern in [r"a{1001}", r"(", r"\C", r"a(?=b)"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
