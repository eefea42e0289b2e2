//! Reset fields: the fields that a kind of write ignores, so that it never makes a field manager own them.

use super::Resource;

/// The names of nested fields.
pub(crate) type Path = &'static [&'static str];

const SPEC: Path = &["spec"];
const STATUS: Path = &["status"];
const METADATA: Path = &["metadata"];

impl Resource {
    /// The fields that a write to the object (`""`) or to a subresource ignores, in Kubernetes 1.36.
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
            (_, "status") if self.is_custom => &[METADATA, SPEC],
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
