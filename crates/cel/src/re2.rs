//! Regular expressions with RE2's syntax, as Go has it, on the `regex` crate.
//!
//! The crate differs: its `\d`, `\w`, `\s` and `\b` know Unicode, its classes have set operations, and it has no
//! `\Q…\E`. [`translate`] rewrites a pattern so that it means the same.

use std::fmt::Write;

use regex::{Regex, RegexBuilder};

use crate::{EvalError, equality::Work};

/// The greatest memory of a compiled expression.
const SIZE_LIMIT: usize = 4 << 20;

/// Classes of the memory of compiled expressions; the last is [`SIZE_LIMIT`]. Compiling one of the first class costs
/// nothing beyond its call.
const SIZE_CLASSES: [usize; 3] = [16 << 10, 256 << 10, SIZE_LIMIT];

/// Bytes of a larger compiled expression per unit of cost. The largest one costs a fifteenth of the limit for one
/// expression.
const BYTES_PER_COST: u64 = 64;

/// RE2 refuses greater counts of a repetition.
const MAX_REPEAT: u32 = 1000;

/// Compiles a pattern; the error has Go's message where it is a common one.
pub(crate) fn compile(pattern: &str) -> Result<Regex, EvalError> {
    let failed = |why: String| EvalError::new(format!("error parsing regexp: {why}"));
    let translated = translate(pattern).map_err(failed)?;
    build(&translated, SIZE_LIMIT).map_err(|_| failed(format!("invalid syntax: `{pattern}`")))
}

fn build(translated: &str, size_limit: usize) -> Result<Regex, regex::Error> {
    RegexBuilder::new(translated)
        .size_limit(size_limit)
        .nest_limit(250)
        .build()
}

/// Compiles a pattern that is not a constant, during an evaluation. Kubernetes charges only for its text; but a few
/// letters can take megabytes and many milliseconds, so large ones are charged here.
pub(crate) fn compile_charged(pattern: &str, work: &mut Work) -> Result<Regex, EvalError> {
    let failed = |why: String| EvalError::new(format!("error parsing regexp: {why}"));
    let translated = translate(pattern).map_err(failed)?;
    for size in SIZE_CLASSES {
        if size > SIZE_CLASSES[0] {
            work.check()?;
            work.charge(size as u64 / BYTES_PER_COST);
        }
        match build(&translated, size) {
            Ok(regex) => return Ok(regex),
            Err(regex::Error::CompiledTooBig(_)) => {}
            Err(_) => break,
        }
    }
    Err(failed(format!("invalid syntax: `{pattern}`")))
}

/// Compiles a pattern that is kept, and returns a bound of its memory too. A few characters, such as `\pL{100}`, may take
/// megabytes.
pub(crate) fn compile_measured(pattern: &str) -> Result<(Regex, usize), EvalError> {
    let regex = compile(pattern)?;
    let Ok(translated) = translate(pattern) else {
        return Ok((regex, SIZE_LIMIT));
    };
    let fits = |limit: &usize| build(&translated, *limit).is_ok();
    let class = SIZE_CLASSES
        .iter()
        .copied()
        .find(|limit| *limit == SIZE_LIMIT || fits(limit));
    Ok((regex, class.unwrap_or(SIZE_LIMIT)))
}

/// Rewrites a pattern; the error is why RE2 refuses it.
fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    // Where the current class begins.
    let mut class: Option<&str> = None;
    let mut groups = 0_usize;
    while let Some(sign) = rest.chars().next() {
        let here = rest;
        rest = &rest[sign.len_utf8()..];
        match sign {
            '\\' => rest = translate_escape(&mut out, here, class.is_some())?,
            '[' if class.is_none() => {
                class = Some(here);
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
                let end = rest.find(":]").map_or(rest.len(), |end| end + 2);
                out.push('[');
                out.push_str(&rest[..end]);
                rest = &rest[end..];
            }
            '[' => out.push_str("\\["),
            ']' if class.is_some() => {
                class = None;
                out.push(']');
            }
            '&' | '~' if class.is_some() => {
                out.push('\\');
                out.push(sign);
            }
            // Two hyphens in a row are a set operation.
            '-' if class.is_some() && (rest.starts_with('-') || rest.starts_with(']')) => out.push_str("\\-"),
            _ if class.is_some() => out.push(sign),
            '(' => {
                groups += 1;
                if ["?=", "?!", "?<=", "?<!"]
                    .iter()
                    .any(|look| rest.starts_with(look))
                {
                    let end = if rest.starts_with("?<") { 4 } else { 3 };
                    return Err(format!("invalid or unsupported Perl syntax: `{}`", &here[..end]));
                }
                if let Some(flags) = rest.strip_prefix('?')
                    && let Some(end) = flags.find([':', ')'])
                    && !flags.starts_with(['P', '<'])
                    && flags[..end].contains(|flag: char| !"imsU-".contains(flag))
                {
                    return Err(format!(
                        "invalid or unsupported Perl syntax: `{}`",
                        &here[..here.len().min(3)]
                    ));
                }
                out.push('(');
            }
            ')' => {
                groups = groups
                    .checked_sub(1)
                    .ok_or_else(|| format!("unexpected ): `{pattern}`"))?;
                out.push(')');
            }
            '*' | '+' if is_repeated(&out, here, pattern) => {
                let start = pattern.len() - here.len() - 1;
                return Err(format!(
                    "invalid nested repetition operator: `{}`",
                    &pattern[start..start + 2]
                ));
            }
            '*' | '+' | '?' if out.is_empty() || out.ends_with('(') && sign != '?' => {
                return Err(format!("missing argument to repetition operator: `{sign}`"));
            }
            '{' => match repetition(rest) {
                Some((counts, _)) if counts.split(',').any(is_too_many) => {
                    return Err(format!("invalid repeat count: `{{{counts}}}`"));
                }
                Some(_) => out.push('{'),
                None => out.push_str("\\{"),
            },
            _ => out.push(sign),
        }
    }
    if let Some(class) = class {
        return Err(format!("missing closing ]: `{class}`"));
    }
    if groups > 0 {
        return Err(format!("missing closing ): `{pattern}`"));
    }
    Ok(out)
}

/// Whether the operator at the start of `here` repeats a repetition.
fn is_repeated(out: &str, here: &str, pattern: &str) -> bool {
    let before = &pattern[..pattern.len() - here.len()];
    let is_escaped = before
        .bytes()
        .rev()
        .skip(1)
        .take_while(|byte| *byte == b'\\')
        .count()
        % 2
        == 1;
    !is_escaped && before.ends_with(['*', '+', '?']) && !out.ends_with(['(', '|', '[']) && before.len() > 1
}

/// The counts of a repetition after its brace, if it is one, and what follows.
fn repetition(rest: &str) -> Option<(&str, &str)> {
    let (counts, after) = rest.split_once('}')?;
    let is_count = counts.starts_with(|sign: char| sign.is_ascii_digit())
        && counts.bytes().all(|byte| byte.is_ascii_digit() || byte == b',')
        && counts.matches(',').count() <= 1;
    is_count.then_some((counts, after))
}

fn is_too_many(count: &str) -> bool {
    !count.is_empty() && count.parse::<u32>().map_or(true, |count| count > MAX_REPEAT)
}

/// Rewrites the escape at the start of `here`, and returns what follows it.
fn translate_escape<'p>(out: &mut String, here: &'p str, in_class: bool) -> Result<&'p str, String> {
    let after = &here[1..];
    let Some(escaped) = after.chars().next() else {
        return Err("trailing backslash at end of expression: ``".to_owned());
    };
    let rest = &after[escaped.len_utf8()..];
    match escaped {
        'Q' => {
            let (literal, end) = rest.split_once("\\E").unwrap_or((rest, ""));
            out.push_str(&regex::escape(literal));
            return Ok(end);
        }
        // A property with its name in braces.
        'p' | 'P' => {
            out.push('\\');
            out.push(escaped);
            if let Some((name, end)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
                out.push('{');
                out.push_str(name);
                out.push('}');
                return Ok(end);
            }
        }
        'x' => {
            out.push_str("\\x");
            if let Some((digits, end)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
                out.push('{');
                out.push_str(digits);
                out.push('}');
                return Ok(end);
            }
        }
        // Octal, of up to three digits.
        '0' => {
            let length = after
                .bytes()
                .take(3)
                .take_while(|byte| (b'0'..=b'7').contains(byte))
                .count();
            let value = u32::from_str_radix(&after[..length], 8).unwrap_or_default();
            let _ = write!(out, "\\x{{{value:x}}}");
            return Ok(&after[length..]);
        }
        'a' | 'f' | 't' | 'n' | 'r' | 'v' | 'd' | 'D' | 'w' | 'W' | 's' | 'S' => {
            push_escape(out, escaped, in_class);
        }
        'b' | 'B' | 'A' | 'z' if !in_class => push_escape(out, escaped, in_class),
        _ if escaped.is_ascii_punctuation() => push_escape(out, escaped, in_class),
        _ => return Err(format!("invalid escape sequence: `\\{escaped}`")),
    }
    Ok(rest)
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
            assert_eq!(
                compile(pattern).unwrap().is_match(text),
                matches,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn patterns_that_re2_refuses_are_errors() {
        for pattern in [r"a{1001}", r"(", r"\C", r"a(?=b)"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
