//! Which keys, labels and annotations of a source its copies have.

use std::collections::BTreeMap;

use crate::api::{Filter, GROUP};

/// Holds the values of what was applied, so it is never copied.
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// By what deployment tools know their own objects: a copy that had it would be pruned or taken over by them.
const TRACKING: [&str; 15] = [
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
    /// Whether a name passes.
    pub(crate) fn admits(&self, name: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| fits(pattern, name));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }

    /// Of a source's labels or annotations, those that are copied. `ours` is the name of the annotation on sources.
    pub(crate) fn copied(&self, all: &BTreeMap<String, String>, ours: &str) -> BTreeMap<String, String> {
        let is_never = |name: &str| {
            let domain = name.split_once('/').map_or("", |(domain, _)| domain);
            domain == GROUP || name == ours || name == LAST_APPLIED
        };
        let is_named = |name: &str| self.include.iter().any(|pattern| pattern == name);
        all.iter()
            .filter(|(name, _)| !is_never(name) && (!is_tracking(name) || is_named(name)))
            .filter(|(name, _)| self.admits(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    }
}

fn is_tracking(name: &str) -> bool {
    TRACKING.iter().any(|known| match known.strip_suffix('/') {
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
    fn a_filter_takes_names_and_beginnings() {
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
    fn what_tools_track_by_and_what_is_ours_is_not_copied() {
        let names = [
            "app",
            "app.kubernetes.io/instance",
            "argocd.argoproj.io/tracking-id",
            "example.com/helm.sh",
            "meta.helm.sh/release-name",
            "my/sync",
            "secretsync.windlass.dev/hash",
            LAST_APPLIED,
        ];
        let all: BTreeMap<_, _> = names.map(|name| (name.to_owned(), String::new())).into();
        let copied = |filter: Filter| filter.copied(&all, "my/sync").into_keys().collect::<Vec<_>>();
        assert_eq!(copied(filter(&[], &[])), ["app", "example.com/helm.sh"]);
        assert_eq!(copied(filter(&["*"], &["app"])), ["example.com/helm.sh"]);
        let explicit = filter(
            &[
                "app.kubernetes.io/instance",
                "secretsync.windlass.dev/hash",
                LAST_APPLIED,
                "my/sync",
            ],
            &[],
        );
        assert_eq!(copied(explicit), ["app.kubernetes.io/instance"]);
    }
}
