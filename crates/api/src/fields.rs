//! Field selectors, as in apimachinery's package `fields`: `metadata.name=a,spec.nodeName!=b`.
//!
//! ```
//! use windlass_api::fields::Selector;
//!
//! let selector: Selector = "spec.nodeName=n1,status.phase!=Failed".parse()?;
//! assert!(selector.matches(|field| if field == "spec.nodeName" { "n1" } else { "" }));
//! # Ok::<_, windlass_api::fields::InvalidSelector>(())
//! ```

use std::str::FromStr;

/// A selector that does not parse; displays kube-apiserver's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSelector(String);

/// Selects objects by their fields; all requirements must hold. The default selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

/// A requirement on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The field as written. Whether it exists depends on the resource.
    pub field: String,
    /// The value that the field is compared with, unescaped.
    pub value: String,
    /// Whether the field must equal the value (`=`, `==`) or not (`!=`).
    pub equal: bool,
}

impl Requirement {
    /// Whether a field with this value meets the requirement. An absent field is empty.
    pub fn matches(&self, value: &str) -> bool {
        (self.value == value) == self.equal
    }
}

impl Selector {
    /// Whether the fields meet all requirements. `field` returns the value of a field, empty if it is absent.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> &'a str) -> bool {
        self.0
            .iter()
            .all(|requirement| requirement.matches(field(&requirement.field)))
    }

    /// Returns the value that a field must equal, if the selector requires one.
    pub fn required_value(&self, field: &str) -> Option<&str> {
        let found = self
            .0
            .iter()
            .find(|requirement| requirement.equal && requirement.field == field);
        found.map(|requirement| &*requirement.value)
    }
}

impl IntoIterator for Selector {
    type Item = Requirement;
    type IntoIter = std::vec::IntoIter<Requirement>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Backslashes escape `,`, `=` and themselves in values. Requirements are sorted by their text, as the API server sorts
/// them.
impl FromStr for Selector {
    type Err = InvalidSelector;

    fn from_str(selector: &str) -> Result<Self, InvalidSelector> {
        let mut texts = split(selector);
        texts.sort_unstable();
        let mut requirements = Vec::new();
        for text in texts.into_iter().filter(|text| !text.is_empty()) {
            let Some((field, equal, value)) = operands(text) else {
                return Err(InvalidSelector(format!(
                    "invalid selector: '{selector}'; can't understand '{text}'"
                )));
            };
            requirements.push(Requirement {
                field: field.to_owned(),
                value: unescape(value).map_err(InvalidSelector)?,
                equal,
            });
        }
        Ok(Self(requirements))
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
        let selector: Selector = selector
            .parse()
            .map_err(|error: InvalidSelector| error.to_string())?;
        let text = |term: Requirement| {
            let sign = if term.equal { "=" } else { "!=" };
            format!("{}{sign}{}", term.field, term.value)
        };
        Ok(selector.into_iter().map(text).collect())
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
    fn selector_matches_by_value() {
        let field = |name: &str| if name == "a" { "1" } else { "" };
        for (selector, expected) in [
            ("", true),
            ("a=1", true),
            ("a=2", false),
            ("a!=1", false),
            ("a!=2", true),
            ("b=", true),
            ("b!=x,a=1", true),
            ("b=x,a=1", false),
        ] {
            let selector: Selector = selector.parse().expect(selector);
            assert_eq!(selector.matches(field), expected, "{selector:?}");
        }
        let selector: Selector = "b!=1,a=2,a=1".parse().expect("valid");
        assert_eq!(selector.required_value("a"), Some("1"), "the first by text");
        assert_eq!(selector.required_value("b"), None);
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
