//! The strategies of kinds as data; everything else is the same for all kinds.

use crate::storage::TableName;

/// How the generic verbs treat a kind's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about a kind, each read in one place"
)]
pub(crate) struct Strategy {
    /// Whether `metadata.generation` counts changes of the spec.
    pub(crate) has_generation: bool,
    /// Whether a PUT without a resourceVersion overwrites the object unconditionally.
    pub(crate) unconditional_update: bool,
    /// Whether a PUT creates the object if it does not exist.
    pub(crate) create_on_update: bool,
    /// Whether a deletion returns the object instead of a `Status`.
    pub(crate) returns_deleted: bool,
    /// Whether dependents are orphaned by default: kinds from before garbage collection.
    pub(crate) orphan_by_default: bool,
    /// The deprecation warning for every request.
    pub(crate) deprecation: Option<&'static str>,
    /// The syntax of names.
    pub(crate) name_rule: NameRule,
}

/// The syntax of `metadata.name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// Lower-case letters, digits, `-` and `.`, at most 253.
    Subdomain,
    /// Lower-case letters, digits and `-`, at most 63.
    Label,
    /// Anything valid as a path segment: the RBAC kinds have names such as `system:node`.
    PathSegment,
}

impl Strategy {
    pub(crate) const CUSTOM: Self = Self {
        has_generation: true,
        unconditional_update: false,
        create_on_update: false,
        returns_deleted: false,
        orphan_by_default: false,
        deprecation: None,
        name_rule: NameRule::Subdomain,
    };

    pub(super) fn for_built_in(group: &str, kind: &str) -> Self {
        Self {
            has_generation: has_generation(group, kind),
            unconditional_update: !needs_resource_version(group, kind),
            create_on_update: creates_on_update(group, kind),
            returns_deleted: returns_deleted(group, kind),
            orphan_by_default: matches!((group, kind), ("batch", "Job") | ("", "ReplicationController")),
            deprecation: match (group, kind) {
                ("", "Endpoints") => {
                    Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
                }
                ("", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+"),
                _ => None,
            },
            name_rule: match (group, kind) {
                ("rbac.authorization.k8s.io", _) => NameRule::PathSegment,
                ("", "Namespace" | "Service") | ("apps", "StatefulSet") => NameRule::Label,
                _ => NameRule::Subdomain,
            },
        }
    }
}

/// The kinds that have `metadata.generation` in Kubernetes 1.36.
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

/// The kinds whose PUT needs a resourceVersion in Kubernetes 1.36.
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

/// The kinds that a PUT may create in Kubernetes 1.36.
fn creates_on_update(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("rbac.authorization.k8s.io" | "coordination.k8s.io", _)
            | ("", "Service" | "Endpoints" | "LimitRange")
            | ("" | "events.k8s.io", "Event")
            | ("node.k8s.io", "RuntimeClass")
    )
}

/// The kinds whose deletion returns the object in Kubernetes 1.36.
fn returns_deleted(group: &str, kind: &str) -> bool {
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
pub(super) fn selectable_fields(group: &str, plural: &str) -> Vec<Box<str>> {
    let specific: &[&str] = match (group, plural) {
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
        .chain(specific)
        .map(|f| (*f).into())
        .collect()
}
