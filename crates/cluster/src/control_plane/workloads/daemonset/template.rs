//! Builds a DaemonSet's pods: pinned to a node by affinity, with the tolerations of daemon pods.

use std::sync::LazyLock;

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{
        NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, PodTemplateSpec, Toleration,
    },
};

use crate::control_plane::workloads::{claim::controller_reference, pod};

/// The label with the revision of a pod.
pub(super) const HASH_LABEL: &str = "controller-revision-hash";
const GENERATION_LABEL: &str = "pod-template-generation";
const GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";

/// The taints that daemon pods tolerate, without the prefix `node.kubernetes.io/`.
const TOLERATED_TAINTS: [(&str, &str); 6] = [
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
];
const HOST_NETWORK_TAINT: (&str, &str) = ("network-unavailable", "NoSchedule");

/// Returns the pod spec of the DaemonSet's template.
pub(super) fn spec(set: &DaemonSet) -> &PodSpec {
    static NONE: LazyLock<PodSpec> = LazyLock::new(PodSpec::default);
    let spec = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    spec.unwrap_or(&NONE)
}

pub(super) fn add_daemon_tolerations(spec: &mut PodSpec) {
    let host_network = spec.host_network == Some(true);
    let tolerations = spec.tolerations.get_or_insert_default();
    let taints = TOLERATED_TAINTS
        .into_iter()
        .chain(host_network.then_some(HOST_NETWORK_TAINT));
    for (taint, effect) in taints {
        let toleration = Toleration {
            key: Some(format!("node.kubernetes.io/{taint}")),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Toleration::default()
        };
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
}

/// Builds the pods for these nodes, with the hash of their revision.
pub(super) fn pods(set: &DaemonSet, hash: &str, nodes: &[String]) -> Vec<Pod> {
    let template = set.spec.as_ref().map(|spec| spec.template.clone());
    let mut template: PodTemplateSpec = template.unwrap_or_default();
    add_daemon_tolerations(template.spec.get_or_insert_default());
    let labels = template
        .metadata
        .get_or_insert_default()
        .labels
        .get_or_insert_default();
    labels.insert(HASH_LABEL.to_owned(), hash.to_owned());
    if let Some(generation) = generation(set) {
        labels.insert(GENERATION_LABEL.to_owned(), generation.to_string());
    }
    let pod = pod::from_template(&template, set, controller_reference(set));
    let on = |node: &String| {
        let mut pod = pod.clone();
        pin(pod.spec.get_or_insert_default(), node);
        pod
    };
    nodes.iter().map(on).collect()
}

/// Whether the pod has the current template.
pub(super) fn is_updated(set: &DaemonSet, hash: &str, pod: &Pod) -> bool {
    let label = |name: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(name));
    let of_generation = || {
        let generation = generation(set).map(|generation| generation.to_string());
        generation.is_some() && label(GENERATION_LABEL) == generation.as_ref()
    };
    label(HASH_LABEL).is_some_and(|of| of == hash) || of_generation()
}

fn generation(set: &DaemonSet) -> Option<i64> {
    let annotations = set.metadata.annotations.as_ref()?;
    annotations.get(GENERATION_ANNOTATION)?.parse().ok()
}

/// Sets a required node affinity, so that the scheduler can only choose this node.
fn pin(spec: &mut PodSpec, node: &str) {
    let affinity = spec
        .affinity
        .get_or_insert_default()
        .node_affinity
        .get_or_insert_default();
    let by_name = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm {
        match_fields: Some(vec![by_name]),
        ..NodeSelectorTerm::default()
    };
    affinity.required_during_scheduling_ignored_during_execution = Some(NodeSelector {
        node_selector_terms: vec![term],
    });
}

/// Returns the node that the pod is bound or pinned to.
pub(super) fn node_of(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    if let Some(node) = spec.node_name.as_deref().filter(|node| !node.is_empty()) {
        return Some(node);
    }
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity
        .required_during_scheduling_ignored_during_execution
        .as_ref()?;
    let mut fields = required
        .node_selector_terms
        .iter()
        .flat_map(|term| term.match_fields.iter().flatten());
    let by_name = fields.find(|field| field.key == "metadata.name" && field.operator == "In")?;
    match by_name.values.as_deref() {
        Some([node]) => Some(node),
        _ => None,
    }
}
