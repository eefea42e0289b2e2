//! The kinds: what the server knows about each of them, in one file per kind or family.
//!
//! ```text
//!                 the same for all kinds                          one kind
//!   decoding ─► Facts::defaults ─► set_defaults ─┐
//!   create   ─► admit ─► prepare_create ─────────┤         kinds/pod.rs: impl Strategy for Pod
//!   update   ─► prepare_update ─► admit_update ──┼─ asks ─►  facts()     data: defaults, columns, immutable fields, …
//!   validate ─► validate ─► validate_changes ────┤           the methods  behaviour that is not only data
//!   delete   ─► check_delete ─► grace_seconds ───┤
//!   tables   ─► Facts::columns ─► cells ─────────┘
//! ```
//!
//! The verbs, views and the registry handle every kind the same way and ask its [`Strategy`] where kinds differ; they
//! name no kind. [`for_kind`] finds it in [`STRATEGIES`]; [`CustomResource`] is the one of all custom resources.
//! Operations on an object that have a body of their own (`binding`, `eviction`, `log`, `scale`, `token`) are in
//! `subresources`, by the subresource's name. What several kinds share is beside them: `pod` has everything about pod templates, `workload` about controllers of
//! pods, and `defaulting`, `error_list`, `duplicates`, `immutable`, `status`, `warnings` and `row` are the tools.
//!
//! # Adding behaviour to a kind
//!
//! 1. Find out what a real server does, before writing code: add requests to a scenario in `conformance/scenarios`, or
//!    cases to a table of `crates/apiserver/tests/recorded`, and record them (`conformance/README.md`,
//!    `hack/recordings`). The new recording fails on the embedded server.
//! 2. Open the kind's file. A constant default, a column, a selectable or immutable field is a line in its `facts`.
//!    Anything else is a method of [`Strategy`], whose documentation says when it is called; most kinds keep the default
//!    of each method.
//! 3. Cells follow the order of `Facts::columns`; errors follow the order of the real server's checks, with its messages.
//! 4. A kind that has no file yet gets a row in [`STRATEGIES`]. If it is only data, the row is a `Plain` in the file of
//!    its family.
//! 5. The work must be linear in the size of the object: `crates/growth` makes every list and map of the kind's schema long,
//!    if no kind before it has the same type, and names the line that is not. Add a request to its `requests` if the work
//!    depends on two lists.

mod admission_policy;
mod admission_policy_cells;
mod admission_registration;
mod age;
mod certificate_signing_request;
mod config_map;
mod controller_revision;
mod cron_job;
mod custom_resource;
mod custom_resource_definition;
mod daemon_set;
mod defaulting;
mod deployment;
mod duplicates;
mod endpoint_slice;
mod error_list;
mod event;
mod horizontal_pod_autoscaler;
mod immutable;
mod ingress;
mod job;
mod lease;
mod namespace;
mod network_policy;
mod node;
mod persistent_volume;
mod persistent_volume_claim;
mod plain;
mod pod;
mod pod_disruption_budget;
mod pod_template;
mod priority_class;
mod quota;
mod rbac;
mod replica_set;
mod replication_controller;
mod review;
mod row;
mod runtime_class;
mod secret;
mod selectable;
mod service;
mod stateful_set;
mod status;
mod storage;
mod strategy;
mod warnings;
mod workload;

pub(crate) use self::{
    custom_resource::CustomResource,
    defaulting::apply_defaults,
    review::Review,
    row::Row,
    selectable::SelectableField,
    service::{ServiceAllocator, kubernetes_service},
    strategy::{
        Allocation, CheckOrder, Creation, DeletionMarks, Facts, InitialStatus, NameRule, Path, STATUS,
        Strategy, Write,
    },
};
use self::{error_list::ErrorList, strategy::Plain};
use crate::{admission::PolicyKind, object::Object, registry::Resource, schema::FieldError};

/// The strategies of one API version's kinds.
type Strategies = &'static [(&'static str, &'static dyn Strategy)];

/// The strategies of the built-in kinds, by API version and kind. Kinds that are not here have the default one.
static STRATEGIES: &[(&str, Strategies)] = &[
    (
        "v1",
        &[
            ("ComponentStatus", &plain::ComponentStatus),
            ("ConfigMap", &config_map::ConfigMap),
            ("Endpoints", &endpoint_slice::Endpoints),
            ("Event", &event::Event),
            ("LimitRange", &quota::LimitRange),
            ("Namespace", &namespace::Namespace),
            ("Node", &node::Node),
            ("PersistentVolume", &persistent_volume::PersistentVolume),
            (
                "PersistentVolumeClaim",
                &persistent_volume_claim::PersistentVolumeClaim,
            ),
            ("Pod", &pod::Pod),
            ("PodTemplate", &pod_template::PodTemplate),
            (
                "ReplicationController",
                &replication_controller::ReplicationController,
            ),
            ("ResourceQuota", &quota::ResourceQuota),
            ("Secret", &secret::Secret),
            ("Service", &service::Service),
            ("ServiceAccount", &plain::SERVICE_ACCOUNT),
        ],
    ),
    (
        "admissionregistration.k8s.io/v1",
        &[
            (
                "MutatingAdmissionPolicy",
                &admission_policy::Policy(PolicyKind::Mutating),
            ),
            (
                "MutatingAdmissionPolicyBinding",
                &admission_policy::Binding(PolicyKind::Mutating),
            ),
            ("MutatingWebhookConfiguration", &admission_registration::MUTATING),
            (
                "ValidatingAdmissionPolicy",
                &admission_policy::Policy(PolicyKind::Validating),
            ),
            (
                "ValidatingAdmissionPolicyBinding",
                &admission_policy::Binding(PolicyKind::Validating),
            ),
            (
                "ValidatingWebhookConfiguration",
                &admission_registration::VALIDATING,
            ),
        ],
    ),
    (
        "apiextensions.k8s.io/v1",
        &[(
            "CustomResourceDefinition",
            &custom_resource_definition::CustomResourceDefinition,
        )],
    ),
    ("apiregistration.k8s.io/v1", &[("APIService", &plain::ApiService)]),
    (
        "apps/v1",
        &[
            ("ControllerRevision", &controller_revision::ControllerRevision),
            ("DaemonSet", &daemon_set::DaemonSet),
            ("Deployment", &deployment::Deployment),
            ("ReplicaSet", &replica_set::ReplicaSet),
            ("StatefulSet", &stateful_set::StatefulSet),
        ],
    ),
    (
        "autoscaling/v1",
        &[(
            "HorizontalPodAutoscaler",
            &horizontal_pod_autoscaler::HorizontalPodAutoscalerV1,
        )],
    ),
    (
        "autoscaling/v2",
        &[(
            "HorizontalPodAutoscaler",
            &horizontal_pod_autoscaler::HorizontalPodAutoscaler,
        )],
    ),
    ("batch/v1", &[("CronJob", &cron_job::CronJob), ("Job", &job::Job)]),
    (
        "certificates.k8s.io/v1",
        &[(
            "CertificateSigningRequest",
            &certificate_signing_request::CertificateSigningRequest,
        )],
    ),
    ("coordination.k8s.io/v1", &[("Lease", &lease::Lease)]),
    (
        "discovery.k8s.io/v1",
        &[("EndpointSlice", &endpoint_slice::EndpointSlice)],
    ),
    ("events.k8s.io/v1", &[("Event", &event::RegardingEvent)]),
    (
        "flowcontrol.apiserver.k8s.io/v1",
        &[
            ("FlowSchema", &plain::FlowSchema),
            ("PriorityLevelConfiguration", &plain::PRIORITY_LEVEL),
        ],
    ),
    (
        "networking.k8s.io/v1",
        &[
            ("IPAddress", &plain::IpAddress),
            ("Ingress", &ingress::Ingress),
            ("IngressClass", &ingress::IngressClass),
            ("NetworkPolicy", &network_policy::NetworkPolicy),
            ("ServiceCIDR", &plain::ServiceCidr),
        ],
    ),
    (
        "authentication.k8s.io/v1",
        &[
            ("SelfSubjectReview", &review::SelfSubjectReview),
            ("TokenReview", &review::TokenReview),
        ],
    ),
    (
        "authorization.k8s.io/v1",
        &[
            (
                "LocalSubjectAccessReview",
                &review::AccessReview::NamedUserInNamespace,
            ),
            ("SelfSubjectAccessReview", &review::AccessReview::Caller),
            ("SelfSubjectRulesReview", &review::SelfSubjectRulesReview),
            ("SubjectAccessReview", &review::AccessReview::NamedUser),
        ],
    ),
    (
        "node.k8s.io/v1",
        &[("RuntimeClass", &runtime_class::RuntimeClass)],
    ),
    (
        "policy/v1",
        &[("PodDisruptionBudget", &pod_disruption_budget::PodDisruptionBudget)],
    ),
    (
        "rbac.authorization.k8s.io/v1",
        &[
            ("ClusterRole", &rbac::Role::ClusterScoped),
            ("ClusterRoleBinding", &rbac::Binding::ClusterScoped),
            ("Role", &rbac::Role::Namespaced),
            ("RoleBinding", &rbac::Binding::Namespaced),
        ],
    ),
    (
        "resource.k8s.io/v1",
        &[
            ("DeviceClass", &plain::DEVICE_CLASS),
            ("ResourceClaim", &plain::RESOURCE_CLAIM),
            ("ResourceClaimTemplate", &plain::RESOURCE_CLAIM_TEMPLATE),
            ("ResourceSlice", &plain::ResourceSlice),
        ],
    ),
    (
        "scheduling.k8s.io/v1",
        &[("PriorityClass", &priority_class::PriorityClass)],
    ),
    (
        "storage.k8s.io/v1",
        &[
            ("CSIDriver", &storage::CsiDriver),
            ("CSINode", &storage::CsiNode),
            ("CSIStorageCapacity", &storage::CSI_STORAGE_CAPACITY),
            ("StorageClass", &storage::StorageClass),
            ("VolumeAttachment", &storage::VOLUME_ATTACHMENT),
            ("VolumeAttributesClass", &storage::VolumeAttributesClass),
        ],
    ),
];

/// The strategy of a built-in kind.
pub(crate) fn for_kind(api_version: &str, kind: &str) -> &'static dyn Strategy {
    static OTHER: Plain = Plain(Facts::DEFAULT);
    let mut versions = STRATEGIES.iter();
    let kinds = versions.find(|(version, _)| *version == api_version);
    let mut kinds = kinds.into_iter().flat_map(|(_, kinds)| *kinds);
    kinds
        .find(|(name, _)| *name == kind)
        .map_or(&OTHER, |(_, strategy)| *strategy)
}

/// Validates a new object.
pub(crate) fn validate(resource: &Resource, object: &Object) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    let write = Write {
        resource,
        object,
        old: None,
    };
    resource.strategy.validate(&write, &mut errors);
    errors.into_errors()
}

/// The errors of an update.
pub(crate) struct UpdateErrors {
    /// Errors that any object of its kind could have.
    pub(crate) rules: Vec<FieldError>,
    /// Changes of immutable fields.
    pub(crate) immutable_fields: Vec<FieldError>,
}

/// Validates an update.
pub(crate) fn validate_update(resource: &Resource, object: &Object, old: &Object) -> UpdateErrors {
    let (mut rules, mut changes) = (ErrorList::default(), ErrorList::default());
    let write = Write {
        resource,
        object,
        old: Some(old),
    };
    resource.strategy.validate(&write, &mut rules);
    let fields = resource.facts.immutable_fields;
    immutable::check(fields, object.tree(), old.tree(), &mut changes);
    resource
        .strategy
        .validate_changes(&write, old.tree(), &mut changes);
    UpdateErrors {
        rules: rules.into_errors(),
        immutable_fields: changes.into_errors(),
    }
}

/// Errors that hide all others.
pub(crate) fn validate_first(resource: &Resource, object: &Object) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    resource.strategy.validate_first(object.tree(), &mut errors);
    errors.into_errors()
}

/// Validates a write to a subresource.
pub(crate) fn validate_subresource(
    resource: &Resource,
    subresource: &str,
    object: &Object,
    old: &Object,
) -> Vec<FieldError> {
    let mut errors = ErrorList::default();
    let value = object.tree();
    status::check_counters(&resource.facts, &value["status"], &mut errors);
    resource
        .strategy
        .validate_subresource(subresource, value, old.tree(), &mut errors);
    errors.into_errors()
}

/// Warnings about an accepted object: a new one, or one that replaces `old`.
pub(crate) fn warnings(resource: &Resource, object: &Object, old: Option<&Object>) -> Vec<String> {
    let mut warnings = Vec::new();
    let write = Write {
        resource,
        object,
        old,
    };
    if resource.strategy.may_warn(&write) {
        resource.strategy.warn(&write, &mut warnings);
    }
    warnings
}

/// Whether an object that is being deleted can be removed.
pub(crate) fn can_be_removed(resource: &Resource, object: &Object) -> bool {
    let grace = object.metadata().get("deletionGracePeriodSeconds");
    object.is_deleting()
        && grace.and_then(serde_json::Value::as_i64).unwrap_or(0) == 0
        && object.finalizers().next().is_none()
        && !resource.strategy.has_other_finalizers(object)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::registry::Registry;

    #[test]
    fn rows_have_a_cell_for_every_column() {
        for resource in &Registry::new().catalogue().resources {
            let object = serde_json::json!({"metadata": {"name": "a"}});
            let row = Row {
                resource,
                object: &object,
                now: jiff::Timestamp::UNIX_EPOCH,
            };
            let columns = resource.facts.columns.unwrap_or("Name Created_At");
            let cells = resource.strategy.cells(&row);
            // The real server's rows of IP addresses have one more.
            let extra = usize::from(&*resource.kind == "IPAddress");
            assert_eq!(cells.len(), columns.split(' ').count() + extra, "{resource:?}");
        }
    }

    #[test]
    fn every_strategy_is_of_a_served_kind() {
        let catalogue = Registry::new().catalogue();
        let served: HashSet<_> = catalogue
            .resources
            .iter()
            .map(|resource| (resource.api_version(), resource.kind.to_string()))
            .collect();
        let mut seen = HashSet::new();
        for (version, kinds) in STRATEGIES {
            for (kind, _) in *kinds {
                let key = ((*version).to_owned(), (*kind).to_owned());
                assert!(served.contains(&key), "{version} {kind} is not served");
                assert!(seen.insert(key), "{version} {kind} has two strategies");
            }
        }
    }
}
