//! The rules for names, label keys and label values.
//!
//! There are three forms of each rule: a predicate such as [`is_dns_subdomain`]; a check such as [`check_name`], whose
//! error tells a user what to write, to report an invalid name where the user wrote it rather than as a rejected write of
//! a generated object; and a function such as [`subdomain`], which returns kube-apiserver's messages.

mod problems;

pub use problems::{
    cidr, config_key, domain_path, ip_address, label, label_1035, label_value, path_segment, percent,
    port_name, qualified, subdomain, wildcard,
};

/// An invalid name, label value or label key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {what} {text:?}: {rule}")]
pub struct InvalidName {
    text: String,
    what: &'static str,
    rule: &'static str,
}

impl InvalidName {
    /// The invalid text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is allowed instead.
    pub fn rule(&self) -> &'static str {
        self.rule
    }
}

/// Checks an object name, by the rules of most kinds.
///
/// ```
/// use windlass_api::naming::check_name;
/// assert!(check_name("web").is_ok());
/// let error = check_name("Web").unwrap_err();
/// assert!(error.to_string().starts_with("invalid name \"Web\": use at most 253 lower-case letters"));
/// ```
pub fn check_name(text: &str) -> Result<(), InvalidName> {
    check(is_dns_subdomain(text), text, "name", NAME_RULE)
}

/// Checks a label value. It may be empty.
///
/// ```
/// use windlass_api::naming::check_label_value;
/// assert!(check_label_value("Salted_Caramel").is_ok());
/// assert!(check_label_value("salted caramel").is_err());
/// ```
pub fn check_label_value(text: &str) -> Result<(), InvalidName> {
    check(
        text.is_empty() || is_qualified_name(text),
        text,
        "label value",
        LABEL_VALUE_RULE,
    )
}

/// Checks the key of a label or an annotation: a name, or a DNS domain, `/` and a name.
///
/// ```
/// use windlass_api::naming::check_label_key;
/// assert!(check_label_key("example.com/team").is_ok());
/// assert!(check_label_key("my team").is_err());
/// ```
pub fn check_label_key(text: &str) -> Result<(), InvalidName> {
    let holds = match text.split_once('/') {
        Some((domain, word)) => is_dns_subdomain(domain) && is_qualified_name(word),
        None => is_qualified_name(text),
    };
    check(holds, text, "label or annotation key", LABEL_KEY_RULE)
}

const LABEL_KEY_RULE: &str = "use at most 63 letters, digits, `-`, `_` and `.`, a letter or digit first and last, as in `team` or `example.com/team`";
const NAME_RULE: &str = "use at most 253 lower-case letters, digits, `-` and `.`, each part with a letter or digit first and last";
const LABEL_VALUE_RULE: &str =
    "use at most 63 letters, digits, `-`, `_` and `.`, a letter or digit first and last";

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

/// Whether this is an RFC 1123 subdomain, the rule of most names. Like the API server, it limits only the total length.
pub fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && has_subdomain_form(text)
}

/// Whether this is an RFC 1123 label, such as the name of a namespace.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && has_label_form(text)
}

/// Whether this is a label value that is not empty, or the name part of a label key or a finalizer.
pub fn is_qualified_name(text: &str) -> bool {
    text.len() <= 63 && has_name_form(text)
}

/// Labels separated by dots, of any length.
fn has_subdomain_form(text: &str) -> bool {
    text.split('.').all(has_label_form)
}

/// Lower-case letters, digits and `-`, with a letter or digit at both ends.
fn has_label_form(text: &str) -> bool {
    let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    has_form(text, is_end, |byte| is_end(byte) || *byte == b'-')
}

/// Letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn has_name_form(text: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    has_form(text, u8::is_ascii_alphanumeric, is_inner)
}

fn has_form(text: &str, is_end: impl Fn(&u8) -> bool, is_inner: impl Fn(&u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(&is_end) && bytes.last().is_some_and(&is_end) && bytes.iter().all(is_inner)
}

/// Whether this is one segment of a URL path. Names go into request paths unescaped, and one from a spec may try to reach
/// another resource: `../secrets/x`, `x/status`, `x?force=true`.
pub fn is_path_segment(text: &str) -> bool {
    // Characters that RFC 3986 allows in a segment, without escapes.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte);
    !matches!(text, "" | "." | "..") && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_label_values_follow_the_servers_rules() {
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
    fn label_keys_follow_the_servers_rules() {
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
    fn path_segment_rejects_separators_and_escapes() {
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
