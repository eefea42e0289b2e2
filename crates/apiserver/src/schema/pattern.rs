//! Go's regular expressions, which CRDs use: classes such as `\d` are ASCII-only, and brackets nest less.

use regex::Regex;

/// Compiles a pattern, or returns Go's error message.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    Regex::new(&to_rust_syntax(pattern)).map_err(|error| go_error_message(pattern, &error.to_string()))
}

/// Translates a pattern to the dialect of the `regex` crate.
fn to_rust_syntax(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars().peekable();
    // Position in a character class: `None` outside, zero at its start.
    let mut class: Option<usize> = None;
    while let Some(c) = chars.next() {
        match (c, class) {
            ('\\', inside) => {
                let Some(escaped) = chars.next() else {
                    out.push('\\');
                    break;
                };
                match (perl_class(escaped), escaped, inside) {
                    (Some((members, false)), _, Some(_)) => out.push_str(members),
                    (Some((members, false)), _, None) => out.extend(["[", members, "]"]),
                    (Some((members, true)), ..) => out.extend(["[^", members, "]"]),
                    (None, 'b', None) => out.push_str(r"(?-u:\b)"),
                    (None, 'Q', None) => {
                        let mut literal = String::new();
                        while let Some(c) = chars.next() {
                            if c == '\\' && chars.next_if_eq(&'E').is_some() {
                                break;
                            }
                            literal.push(c);
                        }
                        out.push_str(&regex::escape(&literal));
                    }
                    _ => out.extend(['\\', escaped]),
                }
                class = inside.map(|place| place + 1);
            }
            ('[', None) => {
                out.push('[');
                if chars.peek() == Some(&'^') {
                    out.extend(chars.next());
                }
                class = Some(0);
            }
            (']', Some(0)) => {
                out.push_str(r"\]");
                class = Some(1);
            }
            (']', Some(_)) => {
                out.push(']');
                class = None;
            }
            ('[', Some(place)) => {
                if chars.peek() == Some(&':') {
                    out.push('[');
                    for c in chars.by_ref() {
                        out.push(c);
                        if c == ']' {
                            break;
                        }
                    }
                } else {
                    out.push_str(r"\[");
                }
                class = Some(place + 1);
            }
            // Doubled, these are class operations in the `regex` crate but literals in Go.
            ('&' | '~', Some(place)) => {
                out.extend(['\\', c]);
                class = Some(place + 1);
            }
            (c, inside) => {
                out.push(c);
                class = inside.map(|place| place + 1);
            }
        }
    }
    out
}

/// The members of `\d` and its like, and whether the class is negated.
fn perl_class(name: char) -> Option<(&'static str, bool)> {
    Some(match name {
        'd' => ("0-9", false),
        'D' => ("0-9", true),
        'w' => ("0-9A-Za-z_", false),
        'W' => ("0-9A-Za-z_", true),
        's' => (r"\t\n\x0C\r ", false),
        'S' => (r"\t\n\x0C\r ", true),
        _ => return None,
    })
}

fn go_error_message(pattern: &str, error: &str) -> String {
    let look_around = ["(?=", "(?!", "(?<=", "(?<!"]
        .into_iter()
        .find(|syntax| pattern.contains(syntax));
    let why = if let Some(syntax) = look_around {
        format!("invalid or unsupported Perl syntax: `{}`", &syntax[..3])
    } else if error.contains("unclosed group") {
        format!("missing closing ): `{pattern}`")
    } else if error.contains("unopened group") {
        format!("unexpected ): `{pattern}`")
    } else if error.contains("unclosed character class") {
        let class = pattern.rfind('[').map_or(pattern, |at| &pattern[at..]);
        format!("missing closing ]: `{class}`")
    } else if error.contains("repetition operator missing expression") {
        let operator = pattern
            .find(['*', '+', '?', '{'])
            .map_or("", |at| &pattern[at..=at]);
        format!("missing argument to repetition operator: `{operator}`")
    } else if error.contains("incomplete escape") {
        "trailing backslash at end of expression: ``".to_owned()
    } else {
        let last = error.lines().last().unwrap_or_default();
        last.strip_prefix("error: ").unwrap_or(last).to_owned()
    };
    format!("error parsing regexp: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each used to be a level of recursion, and a copy of the rest.
    #[test]
    fn many_literals_are_translated_on_a_small_stack() {
        let text = r"\Qa\E".repeat(500_000);
        assert_eq!(to_rust_syntax(&text), "a".repeat(500_000));
    }

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, good, bad) in [
            (r"^\d+$", "12", "٣"),
            (r"^[\w-]+$", "a-b", "é"),
            (r"^[^\s]+$", "ab", "a b"),
            (r"^\S+$", "ab", "a b"),
            (r"^[[]$", "[", "]"),
            (r"^[]a]+$", "]a", "b"),
            (r"^[a&&b]+$", "a&b", "c"),
            (r"^[[:alpha:]]+$", "ab", "1"),
            (r"^\Qa.b\E+$", "a.bb", "axb"),
            (r"^\Qa.\Ex\Q\\E$", r"a.x\", "abx"),
            (r"^\Q[\E[b]\Qc$", "[bc$", "[bc"),
            (r"\bfoo\b", "a foo b", "afoo"),
            (r"^a{2,3}$", "aaa", "a"),
        ] {
            let regex = compile(pattern).expect(pattern);
            assert!(regex.is_match(good), "{pattern} {good}");
            assert!(!regex.is_match(bad), "{pattern} {bad}");
        }
    }

    #[test]
    fn invalid_patterns_have_gos_error_messages() {
        for (pattern, why) in [
            ("(", "missing closing ): `(`"),
            (")", "unexpected ): `)`"),
            ("a[b", "missing closing ]: `[b`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("^(?!x)", "invalid or unsupported Perl syntax: `(?!`"),
            ("a\\", "trailing backslash at end of expression: ``"),
        ] {
            let error = compile(pattern).expect_err(pattern);
            assert_eq!(error, format!("error parsing regexp: {why}"));
        }
    }
}
