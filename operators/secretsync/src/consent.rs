//! Which source namespaces a namespace accepts copies from.

use std::{collections::BTreeSet, sync::Arc};

use windlass::{api::naming::is_dns_label, kube::api::ObjectMeta};

/// The source namespaces that a namespace accepts copies from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Consent {
    anywhere: bool,
    /// The operator's source namespace.
    configured: bool,
    from: BTreeSet<Arc<str>>,
    /// The parse error; then there is no consent.
    pub(crate) error: Option<String>,
}

impl Consent {
    /// Parses the namespace's annotation and label of this name; either is enough.
    pub(crate) fn from_metadata(namespace: &ObjectMeta, name: &str) -> Self {
        let mut consent = Self::default();
        let annotation = namespace.annotations.as_ref().and_then(|all| all.get(name));
        let label = namespace.labels.as_ref().and_then(|all| all.get(name));
        for value in annotation.into_iter().chain(label) {
            if let Err(invalid) = consent.parse(value) {
                return Self {
                    error: Some(format!(
                        "invalid value `{value}` of `{name}`: `{invalid}` is not a valid namespace name: use `true`, names \
                         separated by commas, or `*`"
                    )),
                    ..Self::default()
                };
            }
        }
        consent
    }

    fn parse<'a>(&mut self, value: &'a str) -> Result<(), &'a str> {
        match value.trim() {
            "" | "true" => self.configured = true,
            "false" => {}
            "*" => self.anywhere = true,
            list => {
                for name in list.split(',').map(str::trim) {
                    if !is_dns_label(name) {
                        return Err(name);
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
        for value in ["team-*", ".*", "team-a,", "Team", "-a", "a/b", "team-a;team-b"] {
            let consent = consent(Some(value), Some("true"));
            assert!(!consent.allows("team-a", "home") && !consent.allows("home", "home"));
            assert!(consent.error.expect(value).contains("not a valid namespace name"));
        }
    }
}
