//! Field selectors: `metadata.name=a,spec.nodeName!=b`.

/// One condition of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldTerm {
    /// The field as written. Whether it exists depends on the resource.
    pub field: String,
    /// The value that the field is compared with, unescaped.
    pub value: String,
    /// Whether the field must equal the value (`=`, `==`) or not (`!=`).
    pub equal: bool,
}

impl FieldTerm {
    /// Parses a selector into its conditions, all of which must hold. Errors have the API server's text.
    ///
    /// Backslashes escape `,`, `=` and themselves in values. Terms are sorted by their text, as the API server sorts
    /// them.
    pub fn parse_all(selector: &str) -> Result<Vec<Self>, String> {
        let mut texts = split(selector);
        texts.sort_unstable();
        let mut terms = Vec::new();
        for text in texts.into_iter().filter(|text| !text.is_empty()) {
            let Some((field, equal, value)) = operands(text) else {
                return Err(format!(
                    "invalid selector: '{selector}'; can't understand '{text}'"
                ));
            };
            terms.push(Self {
                field: field.to_owned(),
                value: unescape(value)?,
                equal,
            });
        }
        Ok(terms)
    }
}

/// Returns the parts between commas that no backslash escapes.
fn split(selector: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (index, letter) in selector.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&selector[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&selector[start..]);
    terms
}

/// Splits a term at its first operator.
fn operands(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.find('=')?;
    let field = &term[..at];
    if let Some(field) = field.strip_suffix('!') {
        return Some((field, false, &term[at + 1..]));
    }
    let value = &term[at + 1..];
    Some((field, true, value.strip_prefix('=').unwrap_or(value)))
}

fn unescape(value: &str) -> Result<String, String> {
    let mut unescaped = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => unescaped.push(escaped),
                other => {
                    let sequence: String = ['\\'].into_iter().chain(other).collect();
                    return Err(format!(
                        "invalid field selector: invalid escape sequence: {sequence}"
                    ));
                }
            },
            ',' | '=' => {
                return Err(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(letter)
                ));
            }
            letter => unescaped.push(letter),
        }
    }
    Ok(unescaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(selector: &str) -> Result<Vec<String>, String> {
        let terms = FieldTerm::parse_all(selector)?;
        let text = |term: FieldTerm| {
            let sign = if term.equal { "=" } else { "!=" };
            format!("{}{sign}{}", term.field, term.value)
        };
        Ok(terms.into_iter().map(text).collect())
    }

    #[test]
    fn selector_parses_into_sorted_terms() {
        for (selector, expected) in [
            ("", &[][..]),
            (",,", &[]),
            ("a=1", &["a=1"]),
            ("b==2,a=1", &["a=1", "b=2"]),
            ("a!=1", &["a!=1"]),
            ("a=", &["a="]),
            ("=1", &["=1"]),
            (r"a=1\,b\=2\\", &[r"a=1,b=2\"]),
            (r"a=1\\,b=2", &[r"a=1\", "b=2"]),
            (" a=1", &[" a=1"]),
        ] {
            let expected: Vec<_> = expected.iter().map(|term| (*term).to_owned()).collect();
            assert_eq!(read(selector), Ok(expected), "{selector}");
        }
    }

    #[test]
    fn invalid_selector_fails_with_the_server_error() {
        for (selector, why) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("b=1,a", "invalid selector: 'b=1,a'; can't understand 'a'"),
            // The operator is `!=`, and the value starts with `=`.
            (
                "a!==1",
                "invalid field selector: unescaped character in value: 61",
            ),
            (
                "a=1=2",
                "invalid field selector: unescaped character in value: 61",
            ),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
            (r"a=1\", r"invalid field selector: invalid escape sequence: \"),
        ] {
            assert_eq!(read(selector), Err(why.to_owned()), "{selector}");
        }
    }
}
