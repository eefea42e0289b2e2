//! Go's regular expressions, which CRDs use: classes such as `\d` are ASCII-only, and brackets nest less.
//!
//! A short pattern can take any amount of memory: `\pL{500}` takes 30 MB. So a pattern is limited, and so are all patterns
//! of a CRD together; each is compiled and kept only once.

use std::{collections::HashMap, sync::Arc};

use regex::{Regex, RegexBuilder};

/// Limit on the length of a pattern, in bytes.
const MAX_LENGTH: usize = 64 * 1024;

/// What a compiled pattern counts as, in bytes: the smallest of these that it fits into.
const SIZES: [usize; 4] = [SMALL, 256 << 10, 2 << 20, 4 << 20];
const SMALL: usize = 32 << 10;

/// Limit on the size of all distinct patterns of a CRD.
const MAX_TOTAL: usize = 32 << 20;

/// Limit on what a match keeps for the next one, in bytes, for each direction.
const MAX_MATCH_CACHE: usize = 128 << 10;

/// A compiled pattern.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: Box<str>,
    regex: Regex,
    size: usize,
}

impl Pattern {
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The most work that matching a text can take, in bytes of the text times bytes of the pattern. Nothing for a small
    /// pattern.
    pub(super) fn cost(&self, text: &str) -> u64 {
        if self.size == SMALL {
            return 0;
        }
        (text.len() as u64).saturating_mul(self.size as u64)
    }
}

/// The distinct patterns of a CRD.
#[derive(Debug)]
pub(crate) struct Patterns {
    by_text: HashMap<Box<str>, Arc<Pattern>>,
    /// The size that is left for others.
    left: usize,
}

impl Default for Patterns {
    fn default() -> Self {
        Self {
            by_text: HashMap::new(),
            left: MAX_TOTAL,
        }
    }
}

impl Patterns {
    /// Compiles a pattern, or returns Go's error message. Go allows larger ones.
    pub(crate) fn compile(&mut self, pattern: &str) -> Result<Arc<Pattern>, String> {
        if let Some(known) = self.by_text.get(pattern) {
            return Ok(known.clone());
        }
        if pattern.len() > MAX_LENGTH {
            return Err("error parsing regexp: expression too large".to_owned());
        }
        let translated = to_rust_syntax(pattern);
        for size in SIZES {
            if size > self.left {
                let limit = MAX_TOTAL >> 20;
                return Err(format!(
                    "error parsing regexp: all expressions together take more than {limit} MiB"
                ));
            }
            let regex = RegexBuilder::new(&translated)
                .size_limit(size)
                .dfa_size_limit(MAX_MATCH_CACHE)
                .build();
            match regex {
                Ok(regex) => {
                    let compiled = Arc::new(Pattern {
                        text: pattern.into(),
                        regex,
                        size,
                    });
                    self.left -= size;
                    self.by_text.insert(pattern.into(), compiled.clone());
                    return Ok(compiled);
                }
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(error) => return Err(go_error_message(pattern, &error.to_string())),
            }
        }
        // It took as long as one that fits.
        self.left -= SIZES[SIZES.len() - 1];
        Err("error parsing regexp: expression too large".to_owned())
    }
}

/// Compiles a pattern, or returns Go's error message.
#[cfg(test)]
fn compile(pattern: &str) -> Result<Arc<Pattern>, String> {
    Patterns::default().compile(pattern)
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
    fn equal_patterns_are_compiled_once() {
        let mut patterns = Patterns::default();
        let first = patterns.compile(r"\pL{10}").expect("valid");
        let left = patterns.left;
        assert!(Arc::ptr_eq(&first, &patterns.compile(r"\pL{10}").expect("valid")));
        assert_eq!(patterns.left, left);
    }

    #[test]
    fn patterns_are_limited_in_size_each_and_together() {
        let mut patterns = Patterns::default();
        for huge in [r"\pL{900}", r"(\pL{30}){30}", &"a".repeat(100_000)] {
            let error = patterns.compile(huge).expect_err(huge);
            assert_eq!(error, "error parsing regexp: expression too large");
        }
        let mut patterns = Patterns::default();
        let compiled =
            (0..10_000).take_while(|index| patterns.compile(&format!(r"\pL{{30}}{index}")).is_ok());
        let compiled = compiled.count();
        assert!((8..=1024).contains(&compiled), "{compiled}");
        let error = patterns.compile("new").expect_err("nothing is left");
        assert_eq!(
            error,
            "error parsing regexp: all expressions together take more than 32 MiB"
        );
        assert!(patterns.compile(r"\pL{30}0").is_ok(), "it is compiled already");
    }

    #[test]
    fn ordinary_patterns_are_small() {
        for pattern in [
            r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
            r"^((25[0-5]|(2[0-4]|1\d|[1-9]|)\d)\.?\b){4}$",
            r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
            r"^([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)*[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$",
        ] {
            assert_eq!(compile(pattern).expect(pattern).size, SMALL, "{pattern}");
        }
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
