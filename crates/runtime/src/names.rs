//! Names and labels as the server takes them: to say what is wrong with one in the words of whoever wrote it, before the
//! server says it about an object that they never saw.

/// A text that cannot be what it was meant to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {what}: {rule}")]
pub struct InvalidName {
    text: String,
    what: &'static str,
    rule: &'static str,
}

/// Whether most kinds take this as an object's name.
///
/// ```
/// use windlass_runtime::names::check_name;
/// assert!(check_name("web").is_ok());
/// let error = check_name("Web").unwrap_err();
/// assert!(error.to_string().starts_with("`Web` is no name: use at most 253 lower-case letters"));
/// ```
pub fn check_name(text: &str) -> Result<(), InvalidName> {
    check(is_domain(text), text, "name", NAME_RULE)
}

/// Whether this can be the value of a label. The empty one can.
///
/// ```
/// use windlass_runtime::names::check_label_value;
/// assert!(check_label_value("Salted_Caramel").is_ok());
/// assert!(check_label_value("salted caramel").is_err());
/// ```
pub fn check_label_value(text: &str) -> Result<(), InvalidName> {
    check(text.is_empty() || is_word(text), text, "label value", WORD_RULE)
}

/// Whether this can be the name of a label or an annotation: a word, or a domain, `/` and a word.
///
/// ```
/// use windlass_runtime::names::check_label_key;
/// assert!(check_label_key("example.com/team").is_ok());
/// assert!(check_label_key("my team").is_err());
/// ```
pub fn check_label_key(text: &str) -> Result<(), InvalidName> {
    let holds = match text.split_once('/') {
        Some((domain, word)) => is_domain(domain) && is_word(word),
        None => is_word(text),
    };
    check(holds, text, "name of a label or annotation", KEY_RULE)
}

const KEY_RULE: &str = "use at most 63 letters, digits, `-`, `_` and `.`, a letter or digit first and last, as in `team` or `example.com/team`";
const NAME_RULE: &str = "use at most 253 lower-case letters, digits, `-` and `.`, each part with a letter or digit first and last";
const WORD_RULE: &str = "use at most 63 letters, digits, `-`, `_` and `.`, a letter or digit first and last";

fn check(holds: bool, text: &str, what: &'static str, rule: &'static str) -> Result<(), InvalidName> {
    if holds {
        return Ok(());
    }
    Err(InvalidName {
        text: text.to_owned(),
        what,
        rule,
    })
}

/// A DNS domain. As the server does, only the whole is held to a length.
pub(crate) fn is_domain(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_part = |part: &str| {
        part.bytes().all(is_inner) && !part.is_empty() && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_part)
}

/// What labels, finalizers and the like are made of.
pub(crate) fn is_word(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    bytes.len() <= 63 && is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(is_inner)
}

/// Whether this stays one part of a path. A name goes into the address of its object as it is, and one from a spec may
/// have been chosen to lead somewhere else: `../secrets/x`, `x/status`, `x?force=true`.
pub(crate) fn is_path_segment(text: &str) -> bool {
    // What RFC 3986 allows in a segment, without escapes.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte);
    !matches!(text, "" | "." | "..") && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_what_the_server_takes() {
        let long = "a".repeat(63);
        let longer = format!("{long}a");
        for (text, name, label) in [
            ("", false, true),
            ("web", true, true),
            ("web.example.com", true, true),
            ("9", true, true),
            ("Web", false, true),
            ("a_b", false, true),
            ("-a", false, false),
            ("a-", false, false),
            ("a..b", false, true),
            ("a b", false, false),
            ("ä", false, false),
            ("a/b", false, false),
            (&long, true, true),
            (&longer, true, false),
            (&"a".repeat(254), false, false),
        ] {
            assert_eq!(
                (check_name(text).is_ok(), check_label_value(text).is_ok()),
                (name, label),
                "{text}"
            );
        }
    }

    #[test]
    fn a_label_is_called_as_the_server_takes_it() {
        for text in ["team", "Team_1", "example.com/team", "a/b"] {
            assert!(check_label_key(text).is_ok(), "{text}");
        }
        let long = "a".repeat(64);
        for text in [
            "",
            "a b",
            "/a",
            "a/",
            "Example.com/a",
            "a/b/c",
            "a/b c",
            "-a",
            &long,
        ] {
            assert!(check_label_key(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_segment_does_not_lead_elsewhere() {
        for text in ["web", "system:node:a", "A_b", "..."] {
            assert!(is_path_segment(text), "{text}");
        }
        for text in [
            "", ".", "..", "a/b", "../b", "a?b", "a#b", "a%2fb", "a b", "a\nb", "a\\b", "ä",
        ] {
            assert!(!is_path_segment(text), "{text}");
        }
    }
}
