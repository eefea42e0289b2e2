//! Whether an object that a target namespace had before may become a copy: what the target has to say about it.
//!
//! | the sync's policy | what the target must say |
//! |---|---|
//! | `Never` | nothing is adopted |
//! | `Always` | [`ADOPT`] names the source's namespace, on the namespace or on the object |
//! | `IfIdentical` | [`ADOPT`] names the source's namespace, on the object itself |
//!
//! The outcome of a comparison shows in the sync's status, to people who may not read the object. So a comparison needs the
//! consent of the object itself, and without it the object's content is not even read. An adoption never deletes.

use std::sync::Arc;

use windlass::kube::api::ObjectMeta;

use crate::{
    api::{ADOPT, AdoptionPolicy, SourceKind},
    consent::Consent,
};

/// What a target namespace says about adoption by the syncs of one source namespace.
#[derive(Clone)]
pub(crate) struct Adoption {
    /// The sync's namespace.
    pub(crate) source: Arc<str>,
    /// The operator's source namespace.
    pub(crate) configured: Arc<str>,
    /// The namespace consents for all of its objects.
    pub(crate) by_namespace: bool,
}

/// What may be done to an object that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    /// Its content may not even be read.
    Nothing,
    /// It may be overwritten, and must not be compared.
    Overwrite,
    /// It may be compared, and adopted if it is identical.
    Compare,
    /// It may be overwritten; where that is impossible it may be compared.
    Both,
}

impl Adoption {
    /// What the sync's policy and the target's consent allow together.
    pub(crate) fn permission(&self, policy: AdoptionPolicy, object: &ObjectMeta) -> Permission {
        let by_object = self.by_object(&Consent::of(object, ADOPT));
        match policy {
            AdoptionPolicy::IfIdentical if by_object => Permission::Compare,
            AdoptionPolicy::Always if by_object => Permission::Both,
            AdoptionPolicy::Always if self.by_namespace => Permission::Overwrite,
            _ => Permission::Nothing,
        }
    }

    /// Whether an object that was adopted may stay so. `object` is what it says itself.
    pub(crate) fn holds_for(&self, object: Option<&Consent>) -> bool {
        self.by_namespace || object.is_some_and(|consent| self.by_object(consent))
    }

    fn by_object(&self, object: &Consent) -> bool {
        object.allows(&self.source, &self.configured)
    }
}

/// ConfigMaps that a cluster's own components publish in every namespace, and that pods take certificates from.
const PUBLISHED: [&str; 4] = [
    "extension-apiserver-authentication",
    "istio-ca-root-cert",
    "kube-root-ca.crt",
    "openshift-service-ca.crt",
];

/// How names begin that belong to one tool: Helm's releases (kept in Secrets or ConfigMaps), and bootstrap tokens.
const PREFIXES: [&str; 2] = ["bootstrap-token-", "sh.helm.release.v1."];

/// Whether an object of this name is never copied and never written, whoever consents: its content is the cluster's or a
/// tool's, and a copy that comes first would take its place.
pub(crate) fn is_reserved(kind: SourceKind, name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || kind == SourceKind::ConfigMap && PUBLISHED.contains(&name)
}

/// Whether this is the metadata of a service account's token, which is never adopted.
pub(crate) fn is_token(metadata: &ObjectMeta) -> bool {
    let annotations = metadata.annotations.iter().flatten();
    annotations
        .into_iter()
        .any(|(name, _)| name == "kubernetes.io/service-account.uid")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(adopt: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            annotations: adopt.map(|value| [(ADOPT.to_owned(), value.to_owned())].into()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn permission_needs_policy_and_target_consent() {
        use AdoptionPolicy::{Always, IfIdentical, Never};
        for (policy, by_namespace, adopt, expected) in [
            (Never, true, Some("*"), Permission::Nothing),
            (IfIdentical, false, None, Permission::Nothing),
            (IfIdentical, true, None, Permission::Nothing),
            (IfIdentical, true, Some("other"), Permission::Nothing),
            (IfIdentical, false, Some("team-a"), Permission::Compare),
            (Always, false, None, Permission::Nothing),
            (Always, false, Some("true"), Permission::Nothing),
            (Always, false, Some("No Name"), Permission::Nothing),
            (Always, true, None, Permission::Overwrite),
            (Always, true, Some("other"), Permission::Overwrite),
            (Always, false, Some("other, team-a"), Permission::Both),
            (Always, true, Some("*"), Permission::Both),
        ] {
            let adoption = Adoption {
                source: "team-a".into(),
                configured: "home".into(),
                by_namespace,
            };
            assert_eq!(
                adoption.permission(policy, &object(adopt)),
                expected,
                "{policy:?} {by_namespace} {adopt:?}"
            );
        }
    }

    #[test]
    fn consent_to_an_adopted_object_can_be_withdrawn() {
        let adoption = |by_namespace| Adoption {
            source: "team-a".into(),
            configured: "home".into(),
            by_namespace,
        };
        let says = |value| Consent::of(&object(Some(value)), ADOPT);
        assert!(adoption(true).holds_for(None));
        assert!(adoption(false).holds_for(Some(&says("team-a"))));
        assert!(!adoption(false).holds_for(Some(&says("other"))));
        assert!(!adoption(false).holds_for(None));
    }

    #[test]
    fn names_of_the_cluster_and_of_tools_are_reserved() {
        for (kind, name, expected) in [
            (SourceKind::ConfigMap, "kube-root-ca.crt", true),
            (SourceKind::Secret, "kube-root-ca.crt", false),
            (SourceKind::ConfigMap, "kube-root-ca.crt.bak", false),
            (SourceKind::ConfigMap, "sh.helm.release.v1.shop.v1", true),
            (SourceKind::Secret, "sh.helm.release.v1.shop.v1", true),
            (SourceKind::Secret, "bootstrap-token-abcdef", true),
            (SourceKind::Secret, "registry", false),
        ] {
            assert_eq!(is_reserved(kind, name), expected, "{kind:?} {name}");
        }
    }
}
