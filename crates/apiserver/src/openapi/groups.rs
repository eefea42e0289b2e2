//! Group versions known to a real server's code, served or not.
//!
//! The schemas of `DeleteOptions` and `WatchEvent` list all of them.

use serde_json::{Value, json};

/// Group, versions, and whether client-go knows the group.
const KNOWN: [(&str, &[&str], bool); 26] = [
    ("", &["v1"], true),
    ("admission.k8s.io", &["v1", "v1beta1"], false),
    (
        "admissionregistration.k8s.io",
        &["v1", "v1alpha1", "v1beta1"],
        true,
    ),
    ("apiextensions.k8s.io", &["v1", "v1beta1"], false),
    ("apiregistration.k8s.io", &["v1", "v1beta1"], false),
    ("apps", &["v1", "v1beta1", "v1beta2"], true),
    ("authentication.k8s.io", &["v1", "v1alpha1", "v1beta1"], true),
    ("authorization.k8s.io", &["v1", "v1beta1"], true),
    ("autoscaling", &["v1", "v2"], true),
    ("batch", &["v1", "v1beta1"], true),
    ("certificates.k8s.io", &["v1", "v1alpha1", "v1beta1"], true),
    ("coordination.k8s.io", &["v1", "v1alpha2", "v1beta1"], true),
    ("discovery.k8s.io", &["v1", "v1beta1"], true),
    ("events.k8s.io", &["v1", "v1beta1"], true),
    ("extensions", &["v1beta1"], true),
    (
        "flowcontrol.apiserver.k8s.io",
        &["v1", "v1beta1", "v1beta2", "v1beta3"],
        true,
    ),
    ("imagepolicy.k8s.io", &["v1alpha1"], false),
    ("internal.apiserver.k8s.io", &["v1alpha1"], true),
    ("networking.k8s.io", &["v1", "v1beta1"], true),
    ("node.k8s.io", &["v1", "v1alpha1", "v1beta1"], true),
    ("policy", &["v1", "v1beta1"], true),
    ("rbac.authorization.k8s.io", &["v1", "v1alpha1", "v1beta1"], true),
    ("resource.k8s.io", &["v1", "v1alpha3", "v1beta1", "v1beta2"], true),
    ("scheduling.k8s.io", &["v1", "v1alpha2", "v1beta1"], true),
    ("storage.k8s.io", &["v1", "v1alpha1", "v1beta1"], true),
    ("storagemigration.k8s.io", &["v1beta1"], true),
];

/// All group versions known to servers.
pub(super) fn known_to_servers() -> Vec<(&'static str, &'static str)> {
    pairs(|_| true)
}

/// The group versions known to client-go, which CRD documents list.
pub(super) fn known_to_clients() -> Vec<(&'static str, &'static str)> {
    pairs(|of_clients| of_clients)
}

/// The group versions listed in a built-in group version's document.
pub(super) fn listed_in_document(group: &str, version: &str) -> Vec<(&'static str, &'static str)> {
    let mut pairs = known_to_servers();
    pairs.retain(|pair| *pair == ("", "v1") || *pair == (group, version));
    pairs
}

fn pairs(wanted: impl Fn(bool) -> bool) -> Vec<(&'static str, &'static str)> {
    let groups = KNOWN.iter().filter(|(_, _, of_clients)| wanted(*of_clients));
    groups
        .flat_map(|(group, versions, _)| versions.iter().map(move |version| (*group, *version)))
        .collect()
}

/// The kind of a schema that only subresources use.
pub(super) fn subresource_kind(name: &str) -> Option<Value> {
    let (group, version, kind) = match name.strip_prefix("io.k8s.api.")? {
        "authentication.v1.TokenRequest" => ("authentication.k8s.io", "v1", "TokenRequest"),
        "autoscaling.v1.Scale" => ("autoscaling", "v1", "Scale"),
        "policy.v1.Eviction" => ("policy", "v1", "Eviction"),
        _ => return None,
    };
    Some(json!({"group": group, "version": version, "kind": kind}))
}
