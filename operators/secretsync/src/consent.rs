//! Which source namespaces a namespace accepts copies from.

use std::{collections::BTreeSet, sync::Arc};

use windlass::{api::naming::is_dns_label, kube::api::ObjectMeta};

/// Words that people write for yes and no, and for all and none. As the name of a namespace they are taken for a mistake.
const WORDS: [&str; 19] = [
    "0", "1", "all", "allow", "any", "deny", "disabled", "enabled", "false", "n", "never", "no", "none",
    "null", "off", "on", "true", "y", "yes",
];

/// Those of them that people write for no. `false` is the only one that is taken for it.
const NEGATIONS: [&str; 11] = [
    "0", "deny", "disable", "disabled", "false", "n", "never", "no", "none", "null", "off",
];

/// Maximum length of a value that is quoted in a message: an annotation may be very long.
const MAX_QUOTED: usize = 100;

/// The source namespaces that a namespace accepts copies from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Consent {
    anywhere: bool,
    /// The operator's source namespace.
    configured: bool,
    from: BTreeSet<Arc<str>>,
    /// Why the value is taken for a mistake. Then nothing new is allowed, and nothing is withdrawn.
    pub(crate) error: Option<String>,
}

impl Consent {
    /// Parses the namespace's annotation and label of this name; either is enough.
    pub(crate) fn from_metadata(namespace: &ObjectMeta, name: &str) -> Self {
        let mut consent = Self::default();
        let annotation = namespace.annotations.as_ref().and_then(|all| all.get(name));
        let label = namespace.labels.as_ref().and_then(|all| all.get(name));
        for value in annotation.into_iter().chain(label) {
            if let Err(mistake) = consent.parse(value) {
                let value = quote(value);
                return Self {
                    error: Some(format!(
                        "invalid value {value} of `{name}`: {mistake}; use `true`, names separated by commas, or `*`; to withdraw \
                         the consent, use `false` or remove it; until then nothing is copied, updated or removed because of it"
                    )),
                    ..Self::default()
                };
            }
        }
        consent
    }

    /// Returns whether the value is taken for a mistake.
    pub(crate) fn is_unclear(&self) -> bool {
        self.error.is_some()
    }

    fn parse(&mut self, value: &str) -> Result<(), String> {
        match value.trim() {
            "" | "true" => self.configured = true,
            "false" => {}
            "*" => self.anywhere = true,
            list => {
                for name in list.split(',').map(str::trim) {
                    if WORDS.contains(&name) || name == "*" {
                        return Err(format!("`{name}` is not taken for the name of a namespace"));
                    }
                    if !is_dns_label(name) {
                        return Err(format!("{} is not a valid namespace name", quote(name)));
                    }
                    self.from.insert(name.into());
                }
            }
        }
        Ok(())
    }

    /// Returns whether it accepts copies from this namespace; `configured` is the operator's source namespace.
    pub(crate) fn allows(&self, source: &str, configured: &str) -> bool {
        self.anywhere || self.from.contains(source) || self.configured && source == configured
    }
}

/// Returns the beginning of a text, in backticks.
pub(crate) fn quote(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}

/// Returns whether people write this for no, in upper or lower case.
pub(crate) fn is_negation(value: &str) -> bool {
    NEGATIONS.iter().any(|word| word.eq_ignore_ascii_case(value))
}

pub(crate) fn is_system(namespace: &str) -> bool {
    namespace.starts_with("kube-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consent(annotation: Option<&str>, label: Option<&str>) -> Consent {
        let map = |value: Option<&str>| {
            value.map(|value| [("sync".to_owned(), value.to_owned())].into_iter().collect())
        };
        let meta = ObjectMeta {
            annotations: map(annotation),
            labels: map(label),
            ..ObjectMeta::default()
        };
        Consent::from_metadata(&meta, "sync")
    }

    #[test]
    fn consent_names_the_allowed_source_namespaces() {
        let allowed = |annotation, label| {
            let consent = consent(annotation, label);
            ["home", "team-a", "team-b"].map(|source| consent.allows(source, "home"))
        };
        for (annotation, label, expected) in [
            (None, None, [false, false, false]),
            (Some(""), None, [true, false, false]),
            (Some("true"), None, [true, false, false]),
            (None, Some("true"), [true, false, false]),
            (Some("false"), None, [false, false, false]),
            (Some("team-a"), None, [false, true, false]),
            (Some("team-a, team-b"), None, [false, true, true]),
            (Some("team-a"), Some("team-b"), [false, true, true]),
            (Some("*"), None, [true, true, true]),
        ] {
            assert_eq!(allowed(annotation, label), expected, "{annotation:?} {label:?}");
        }
    }

    #[test]
    fn invalid_consent_allows_nothing_and_reports_an_error() {
        let long = "x".repeat(100_000);
        for (value, expected) in [
            ("team-*", "`team-*` is not a valid namespace name"),
            (".*", "`.*` is not a valid"),
            ("team-a,", "`` is not a valid"),
            ("True", "`True` is not a valid"),
            ("-a", "`-a` is not a valid"),
            ("a/b", "`a/b` is not a valid"),
            ("team-a;team-b", "`team-a;team-b` is not a valid"),
            ("true,team-a", "`true` is not taken for the name"),
            ("team-a, false", "`false` is not taken for the name"),
            ("*,team-a", "`*` is not taken for the name"),
            ("no", "`no` is not taken for the name"),
            ("yes", "`yes` is not taken for the name"),
            (&long, "…` is not a valid"),
        ] {
            let consent = consent(Some(value), Some("true"));
            assert!(!consent.allows("team-a", "home") && !consent.allows("home", "home"));
            let error = consent.error.expect(value);
            assert!(error.contains(expected) && error.len() < 1000, "{error}");
        }
    }
}
