//! Which keys, labels and annotations of a source are copied.

use std::collections::BTreeMap;

use crate::api::{Filter, GROUP};

/// Contains all values, so it is never copied.
pub(crate) const LAST_APPLIED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Labels and annotations by which deployment tools track their objects: a tool would prune or take over a copy that
/// has them.
const TRACKING_KEYS: [&str; 15] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "applyset.kubernetes.io/part-of",
    "argocd.argoproj.io/",
    "config.k8s.io/owning-inventory",
    "config.kubernetes.io/",
    "helm.sh/",
    "helm.toolkit.fluxcd.io/",
    "kapp.k14s.io/",
    "kpt.dev/",
    "kustomize.toolkit.fluxcd.io/",
    "meta.helm.sh/",
    "objectset.rio.cattle.io/",
    "olm.owner",
    "operatorframework.io/",
];

impl Filter {
    /// Returns whether a name passes.
    pub(crate) fn admits(&self, name: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches_pattern(pattern, name));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }

    /// Returns the labels or annotations that are copied. `ours` is the key of the annotation on sources.
    pub(crate) fn copied(&self, all: &BTreeMap<String, String>, ours: &str) -> BTreeMap<String, String> {
        let is_never = |name: &str| {
            let domain = name.split_once('/').map_or("", |(domain, _)| domain);
            domain == GROUP || name == ours || name == LAST_APPLIED_ANNOTATION
        };
        let is_named = |name: &str| self.include.iter().any(|pattern| pattern == name);
        all.iter()
            .filter(|(name, _)| !is_never(name) && (!is_tracking(name) || is_named(name)))
            .filter(|(name, _)| self.admits(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    }
}

fn is_tracking(name: &str) -> bool {
    TRACKING_KEYS.iter().any(|known| match known.strip_suffix('/') {
        Some(domain) => name.split_once('/').is_some_and(|(found, _)| found == domain),
        None => name == *known,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> Filter {
        let all = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Filter {
            include: all(include),
            exclude: all(exclude),
        }
    }

    #[test]
    fn filter_matches_names_and_prefixes() {
        for (include, exclude, expected) in [
            (&[][..], &[][..], [true, true, true]),
            (&["tls.*"], &[], [true, true, false]),
            (&["tls.key"], &[], [false, true, false]),
            (&[], &["tls.key"], [true, false, true]),
            (&["tls.*"], &["*.key", "tls.key"], [true, false, false]),
            (&["*"], &["*"], [false, false, false]),
        ] {
            let filter = filter(include, exclude);
            let found = ["tls.crt", "tls.key", "ca"].map(|name| filter.admits(name));
            assert_eq!(found, expected, "{include:?} {exclude:?}");
        }
    }

    #[test]
    fn tracking_metadata_and_our_own_are_not_copied() {
        let names = [
            "app",
            "app.kubernetes.io/instance",
            "argocd.argoproj.io/tracking-id",
            "example.com/helm.sh",
            "meta.helm.sh/release-name",
            "my/sync",
            "secretsync.windlass.dev/hash",
            LAST_APPLIED_ANNOTATION,
        ];
        let all: BTreeMap<_, _> = names.map(|name| (name.to_owned(), String::new())).into();
        let copied = |filter: Filter| filter.copied(&all, "my/sync").into_keys().collect::<Vec<_>>();
        assert_eq!(copied(filter(&[], &[])), ["app", "example.com/helm.sh"]);
        assert_eq!(copied(filter(&["*"], &["app"])), ["example.com/helm.sh"]);
        let explicit = filter(
            &[
                "app.kubernetes.io/instance",
                "secretsync.windlass.dev/hash",
                LAST_APPLIED_ANNOTATION,
                "my/sync",
            ],
            &[],
        );
        assert_eq!(copied(explicit), ["app.kubernetes.io/instance"]);
    }
}
