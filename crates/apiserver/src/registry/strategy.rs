//! What is particular about single kinds, as data: everything else goes one way for all.

use crate::storage::TableName;

/// How the generic verbs treat a kind's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about a kind, each read in one place"
)]
pub(crate) struct Strategy {
    /// Whether `metadata.generation` counts the changes of the desired state.
    pub(crate) generation: bool,
    /// Whether a PUT without a resourceVersion overwrites whatever is there.
    pub(crate) unconditional_update: bool,
    /// Whether a PUT of what is not there creates it.
    pub(crate) create_on_update: bool,
    /// Whether a deletion answers with the object rather than with a `Status`.
    pub(crate) shows_deleted: bool,
    /// Whether dependents are orphaned where the client does not say otherwise: kinds from before garbage collection.
    pub(crate) orphans: bool,
    /// What every request is warned of.
    pub(crate) deprecation: Option<&'static str>,
    /// What a name may look like.
    pub(crate) names: NameRule,
}

/// What `metadata.name` may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// Lower-case letters, digits, `-` and `.`, at most 253.
    Subdomain,
    /// Lower-case letters, digits and `-`, at most 63.
    Label,
    /// Anything that can stand in a path: the RBAC kinds have names such as `system:node`.
    PathSegment,
}

impl Strategy {
    pub(crate) const CUSTOM: Self = Self {
        generation: true,
        unconditional_update: false,
        create_on_update: false,
        shows_deleted: false,
        orphans: false,
        deprecation: None,
        names: NameRule::Subdomain,
    };

    pub(super) fn of_built_in(group: &str, kind: &str) -> Self {
        Self {
            generation: has_generation(group, kind),
            unconditional_update: !needs_resource_version(group, kind),
            create_on_update: creates_on_update(group, kind),
            shows_deleted: shows_deleted(group, kind),
            orphans: matches!((group, kind), ("batch", "Job") | ("", "ReplicationController")),
            deprecation: match (group, kind) {
                ("", "Endpoints") => {
                    Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
                }
                ("", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+"),
                _ => None,
            },
            names: match (group, kind) {
                ("rbac.authorization.k8s.io", _) => NameRule::PathSegment,
                ("", "Namespace" | "Service") | ("apps", "StatefulSet") => NameRule::Label,
                _ => NameRule::Subdomain,
            },
        }
    }
}

/// The kinds whose strategy in Kubernetes 1.36 fills `metadata.generation`.
fn has_generation(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
            | ("batch", "Job" | "CronJob")
            | ("", "Pod" | "PodTemplate" | "ReplicationController")
            | ("policy", "PodDisruptionBudget")
            | ("networking.k8s.io", "Ingress" | "NetworkPolicy" | "IngressClass")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
            | ("flowcontrol.apiserver.k8s.io" | "admissionregistration.k8s.io", _)
            | ("discovery.k8s.io", "EndpointSlice")
            | ("scheduling.k8s.io", "PriorityClass")
            | (
                "resource.k8s.io",
                "ResourceSlice" | "DeviceClass" | "DeviceTaintRule"
            )
    )
}

/// The kinds for which, in Kubernetes 1.36, a PUT must say what it has seen.
fn needs_resource_version(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("coordination.k8s.io" | "admissionregistration.k8s.io", _)
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
            | ("apiregistration.k8s.io", "APIService")
            | ("policy", "PodDisruptionBudget")
            | ("node.k8s.io", "RuntimeClass")
            | (
                "storage.k8s.io",
                "CSIDriver" | "CSINode" | "CSIStorageCapacity" | "VolumeAttachment"
            )
    )
}

/// The kinds that, in Kubernetes 1.36, a PUT creates.
fn creates_on_update(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("rbac.authorization.k8s.io" | "coordination.k8s.io", _)
            | ("", "Service" | "Endpoints" | "LimitRange")
            | ("" | "events.k8s.io", "Event")
            | ("node.k8s.io", "RuntimeClass")
    )
}

/// The kinds whose deletion, in Kubernetes 1.36, answers with the object.
fn shows_deleted(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        (
            "",
            "Namespace"
                | "PersistentVolume"
                | "PersistentVolumeClaim"
                | "Pod"
                | "PodTemplate"
                | "ResourceQuota"
                | "Service"
                | "ServiceAccount"
        ) | (
            "storage.k8s.io",
            "CSIDriver" | "CSINode" | "StorageClass" | "VolumeAttachment" | "VolumeAttributesClass"
        ) | ("resource.k8s.io", _)
    )
}

/// The table of a resource. `events` of the core group and of `events.k8s.io` are the same objects.
pub(super) fn table(group: &str, plural: &str) -> TableName {
    match (group, plural) {
        ("" | "events.k8s.io", "events") => "events".into(),
        ("", plural) => plural.into(),
        (group, plural) => format!("{plural}.{group}").into(),
    }
}

/// The fields that field selectors may name.
pub(super) fn selectable(group: &str, plural: &str) -> Vec<Box<str>> {
    let particular: &[&str] = match (group, plural) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") => &["status.replicas"],
        ("batch", "jobs") => &["status.successful"],
        ("" | "events.k8s.io", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("certificates.k8s.io", "certificatesigningrequests") => &["spec.signerName"],
        _ => &[],
    };
    ["metadata.name", "metadata.namespace"]
        .iter()
        .chain(particular)
        .map(|f| (*f).into())
        .collect()
}
