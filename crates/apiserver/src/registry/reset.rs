//! The fields that a way of writing never touches, whatever the client sends: nobody comes to own them by it.

use super::Resource;

/// Names on the way to a field.
pub(crate) type Path = &'static [&'static str];

const SPEC: Path = &["spec"];
const STATUS: Path = &["status"];
const METADATA: Path = &["metadata"];

impl Resource {
    /// The fields that a write to the object (`""`) or to one of its parts leaves alone, in Kubernetes 1.36.
    pub(crate) fn reset_fields(&self, subresource: &str) -> &'static [Path] {
        let kind = (&*self.group, &*self.kind);
        match (kind, subresource) {
            (("certificates.k8s.io", "CertificateSigningRequest"), "") => &[SPEC, STATUS],
            (("certificates.k8s.io", "CertificateSigningRequest"), "status") => {
                &[SPEC, &["status", "conditions"]]
            }
            (("certificates.k8s.io", "CertificateSigningRequest"), "approval") => {
                &[SPEC, &["status", "certificate"]]
            }
            (_, "") if self.has_status() => &[STATUS],
            (("", "Namespace"), "finalize") => &[STATUS],
            (_, "status") if self.custom => &[METADATA, SPEC],
            (("apps", "Deployment"), "status") => &[SPEC, &["metadata", "labels"]],
            (("", "Pod"), "status") => &[
                SPEC,
                &["metadata", "deletionTimestamp"],
                &["metadata", "ownerReferences"],
            ],
            (
                (
                    "flowcontrol.apiserver.k8s.io"
                    | "resource.k8s.io"
                    | "storage.k8s.io"
                    | "admissionregistration.k8s.io"
                    | "apiregistration.k8s.io",
                    _,
                )
                | ("networking.k8s.io", "ServiceCIDR"),
                "status",
            ) => &[METADATA, SPEC],
            (_, "status") => &[SPEC],
            _ => &[],
        }
    }
}
