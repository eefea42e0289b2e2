//! Whether an existing object of a target namespace may become a copy.
//!
//! | the sync's policy | required consent of the target |
//! |---|---|
//! | `Never` | nothing is adopted |
//! | `Always` | [`ADOPT_ANNOTATION`] names the source's namespace, on the namespace or on the object |
//! | `IfIdentical` | [`ADOPT_ANNOTATION`] names the source's namespace, on the object itself |
//!
//! The result of a comparison shows in the sync's status, to users who may not read the object. So a comparison needs
//! the consent of the object itself; without it the content is not even read. An adoption never deletes.

use std::sync::Arc;

use windlass::kube::api::ObjectMeta;

use crate::{
    api::{ADOPT_ANNOTATION, AdoptionPolicy, SourceKind},
    consent::{Consent, Stance},
};

/// A target namespace's consent to adoption by the syncs of one source namespace.
#[derive(Clone)]
pub(crate) struct Adoption {
    /// The sync's namespace.
    pub(crate) source: Arc<str>,
    /// The operator's source namespace.
    pub(crate) configured: Arc<str>,
    /// What the namespace says for all of its objects.
    pub(crate) by_namespace: Stance,
}

/// Whether the target consents to an object that is adopted already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdoptionConsent {
    Given,
    /// The value is taken for a mistake: the object stays adopted, and is not updated.
    Unclear,
    Withdrawn,
}

/// What may be done to an existing object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    /// Its content may not even be read.
    Denied,
    /// It may be overwritten, but not compared.
    Overwrite,
    /// It may be compared, and adopted if it is identical.
    Compare,
    /// It may be overwritten; if that is impossible it may be compared.
    OverwriteOrCompare,
}

impl Adoption {
    /// Combines the sync's policy with the target's consent.
    pub(crate) fn permission(&self, policy: AdoptionPolicy, object: &ObjectMeta) -> Permission {
        let by_object = self.by_object(&Consent::from_metadata(object, ADOPT_ANNOTATION));
        match policy {
            AdoptionPolicy::IfIdentical if by_object => Permission::Compare,
            AdoptionPolicy::Always if by_object => Permission::OverwriteOrCompare,
            AdoptionPolicy::Always if self.by_namespace == Stance::Allows => Permission::Overwrite,
            _ => Permission::Denied,
        }
    }

    /// Returns whether an adopted object may stay adopted. `object` is the object's own consent; `exists` is whether a namespace
    /// of this name exists.
    pub(crate) fn consent_to_adopted(
        &self,
        object: Option<&Consent>,
        exists: impl Fn(&str) -> bool,
    ) -> AdoptionConsent {
        let by_object = object.map(|consent| consent.stance(&self.source, &self.configured, exists));
        let stances = [Some(self.by_namespace), by_object];
        if stances.contains(&Some(Stance::Allows)) {
            AdoptionConsent::Given
        } else if stances.contains(&Some(Stance::Unclear)) {
            AdoptionConsent::Unclear
        } else {
            AdoptionConsent::Withdrawn
        }
    }

    fn by_object(&self, object: &Consent) -> bool {
        object.allows(&self.source, &self.configured)
    }
}

/// ConfigMaps that cluster components publish in every namespace, from which pods take certificates.
const PUBLISHED_CONFIG_MAPS: [&str; 4] = [
    "extension-apiserver-authentication",
    "istio-ca-root-cert",
    "kube-root-ca.crt",
    "openshift-service-ca.crt",
];

/// Prefixes of names that belong to one tool: Helm releases (in Secrets or ConfigMaps) and bootstrap tokens.
const RESERVED_PREFIXES: [&str; 2] = ["bootstrap-token-", "sh.helm.release.v1."];

/// Returns whether objects of this name are never copied and never written, whatever the consent: they belong to the
/// cluster or a tool, and a copy that is created first would take their place.
pub(crate) fn is_reserved(kind: SourceKind, name: &str) -> bool {
    RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || kind == SourceKind::ConfigMap && PUBLISHED_CONFIG_MAPS.contains(&name)
}

/// Returns whether this is the metadata of a service account token, which is never adopted.
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
            annotations: adopt.map(|value| [(ADOPT_ANNOTATION.to_owned(), value.to_owned())].into()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn permission_needs_policy_and_target_consent() {
        use AdoptionPolicy::{Always, IfIdentical, Never};
        for (policy, by_namespace, adopt, expected) in [
            (Never, true, Some("*"), Permission::Denied),
            (IfIdentical, false, None, Permission::Denied),
            (IfIdentical, true, None, Permission::Denied),
            (IfIdentical, true, Some("other"), Permission::Denied),
            (IfIdentical, false, Some("team-a"), Permission::Compare),
            (Always, false, None, Permission::Denied),
            (Always, false, Some("true"), Permission::Denied),
            (Always, false, Some("No Name"), Permission::Denied),
            (Always, true, None, Permission::Overwrite),
            (Always, true, Some("other"), Permission::Overwrite),
            (
                Always,
                false,
                Some("other, team-a"),
                Permission::OverwriteOrCompare,
            ),
            (Always, true, Some("*"), Permission::OverwriteOrCompare),
        ] {
            let adoption = Adoption {
                source: "team-a".into(),
                configured: "home".into(),
                by_namespace: if by_namespace {
                    Stance::Allows
                } else {
                    Stance::Silent
                },
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
        for (by_namespace, object, expected) in [
            (Stance::Allows, None, AdoptionConsent::Given),
            (Stance::Silent, Some("team-a"), AdoptionConsent::Given),
            (Stance::Unclear, Some("team-a"), AdoptionConsent::Given),
            (Stance::Refuses, Some("other"), AdoptionConsent::Withdrawn),
            (Stance::Silent, None, AdoptionConsent::Withdrawn),
            (Stance::Unclear, None, AdoptionConsent::Unclear),
            (Stance::Silent, Some("no,team-a"), AdoptionConsent::Unclear),
            (Stance::Silent, Some("tema-a"), AdoptionConsent::Unclear),
        ] {
            let object =
                object.map(|value| Consent::from_metadata(&self::object(Some(value)), ADOPT_ANNOTATION));
            let found = adoption(by_namespace).consent_to_adopted(object.as_ref(), |name| name != "tema-a");
            assert_eq!(found, expected, "{by_namespace:?} {object:?}");
        }
    }

    #[test]
    fn cluster_and_tool_names_are_reserved() {
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
