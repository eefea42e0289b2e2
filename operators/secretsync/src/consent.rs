//! Which source namespaces a namespace accepts copies from.

use std::{collections::BTreeSet, sync::Arc};

use windlass::{api::naming::is_dns_label, kube::api::ObjectMeta};

/// What people write for no. `false` is the only one that is taken for it.
const NEGATIONS: [&str; 14] = [
    "0", "deny", "disable", "disabled", "f", "false", "forbid", "n", "never", "no", "none", "null", "off",
    "refuse",
];

/// What people write for yes, and for all.
const AFFIRMATIONS: [&str; 13] = [
    "1",
    "accept",
    "all",
    "allow",
    "any",
    "enable",
    "enabled",
    "everything",
    "on",
    "t",
    "true",
    "y",
    "yes",
];

/// Maximum number of names in a message.
const MAX_NAMES: usize = 5;

/// Maximum length of a value that is quoted in a message: an annotation may be very long.
const MAX_QUOTED: usize = 100;

/// The source namespaces that a namespace accepts copies from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Consent {
    anywhere: bool,
    /// The operator's source namespace.
    configured: bool,
    from: BTreeSet<Arc<str>>,
    /// The annotation or the label is `false`, or names namespaces.
    is_explicit: bool,
    /// Why the value is taken for a mistake. Then nothing new is allowed, and nothing is withdrawn.
    error: Option<String>,
}

/// What a target says about copies from a source namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stance {
    Allows,
    /// The value is taken for a mistake: nothing is withdrawn.
    Unclear,
    /// There is no value, or no more; or it is only empty or `true`, which says nothing about source namespaces other than the
    /// configured one: an unset variable in a script looks the same.
    Silent,
    /// `false`, or the names of other namespaces only, all of which exist: this cannot be a mistake.
    Refuses,
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
                         the consent, use `false`; until then nothing is copied, updated or removed because of it"
                    )),
                    ..Self::default()
                };
            }
        }
        consent
    }

    /// Returns what it says about copies from a namespace. `exists` is whether a namespace of this name exists: the name of none is
    /// taken for a mistake where it would withdraw something.
    pub(crate) fn stance(&self, source: &str, configured: &str, exists: impl Fn(&str) -> bool) -> Stance {
        if self.allows(source, configured) {
            Stance::Allows
        } else if self.error.is_some() || self.unknown(exists).next().is_some() {
            Stance::Unclear
        } else if self.is_explicit {
            Stance::Refuses
        } else {
            Stance::Silent
        }
    }

    /// Returns why the value, or a part of it, is taken for a mistake. `name` is that of the annotation.
    pub(crate) fn mistake(&self, name: &str, exists: impl Fn(&str) -> bool) -> Option<String> {
        if let Some(error) = &self.error {
            return Some(error.clone());
        }
        let mut unknown = self.unknown(exists).map(|name| &**name);
        let mut names: Vec<_> = unknown.by_ref().take(MAX_NAMES).collect();
        if unknown.next().is_some() {
            names.push("…");
        }
        (!names.is_empty()).then(|| {
            format!(
                "invalid value of `{name}`: there is no namespace {}; correct it, or create the namespace; to withdraw the \
                 consent, use `false`; until then nothing is removed because of it",
                quote(&names.join("`, `"))
            )
        })
    }

    /// Returns the names in it that are those of no namespace.
    fn unknown(&self, exists: impl Fn(&str) -> bool) -> impl Iterator<Item = &Arc<str>> {
        self.named().filter(move |name| !exists(name))
    }

    /// Returns the namespaces that it names.
    pub(crate) fn named(&self) -> impl Iterator<Item = &Arc<str>> {
        self.from.iter()
    }

    fn parse(&mut self, value: &str) -> Result<(), String> {
        match value.trim() {
            "" | "true" => self.configured = true,
            "false" => self.is_explicit = true,
            "*" => self.anywhere = true,
            list => {
                self.is_explicit = true;
                for name in list.split(',').map(str::trim) {
                    if NEGATIONS.contains(&name) || AFFIRMATIONS.contains(&name) || name == "*" {
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
            assert_eq!(
                consent.stance("team-a", "home", |_| true),
                Stance::Unclear,
                "{value}"
            );
            let error = consent.mistake("sync", |_| true).expect(value);
            assert!(error.contains(expected) && error.len() < 1000, "{error}");
        }
    }

    #[test]
    fn label_and_annotation_refuse_together() {
        for (annotation, label, expected) in [
            ("", "true", Stance::Silent),
            ("true", "false", Stance::Refuses),
            ("", "team-b", Stance::Refuses),
            ("", "team-a", Stance::Allows),
        ] {
            let consent = consent(Some(annotation), Some(label));
            assert_eq!(
                consent.stance("team-a", "home", |_| true),
                expected,
                "{annotation} {label}"
            );
        }
    }

    #[test]
    fn only_an_unmistakable_value_refuses() {
        use Stance::{Allows, Refuses, Silent, Unclear};
        let exists = |name: &str| ["home", "team-a", "team-b", "team-c"].contains(&name);
        for (value, expected) in [
            (Some("team-a"), Allows),
            (Some("team-a,team-d"), Allows),
            (Some("*"), Allows),
            (None, Silent),
            (Some("false"), Refuses),
            (Some("true"), Silent),
            (Some(""), Silent),
            (Some(" "), Silent),
            (Some("team-b"), Refuses),
            (Some("team-b,team-c"), Refuses),
            (Some("ture"), Unclear),
            (Some("enable"), Unclear),
            (Some("secretsnyc"), Unclear),
            (Some("team-b,team-d"), Unclear),
        ] {
            let consent = consent(value, None);
            assert_eq!(consent.stance("team-a", "home", exists), expected, "{value:?}");
            let is_reported = consent.mistake("sync", exists).is_some();
            assert_eq!(
                is_reported,
                value.is_some_and(|value| value.contains("team-d")) || expected == Unclear
            );
        }
        for word in NEGATIONS
            .iter()
            .chain(&AFFIRMATIONS)
            .filter(|word| **word != "true" && **word != "false")
        {
            assert_eq!(
                consent(Some(word), None).stance("team-a", "home", |_| true),
                Unclear,
                "{word}"
            );
            assert_eq!(is_negation(word), NEGATIONS.contains(word));
        }
    }
}
