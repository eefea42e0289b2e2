//! Validation of pods and pod templates.
//!
//! ```text
//!   spec ─► volumes ─► containers (env, mounts, resources, probes) ─► security ─► scheduling ─► the rest
//! ```

mod changes;
mod containers;
mod env;
mod names;
mod probes;
mod resources;
mod scheduling;
mod security;
mod volumes;

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use windlass_api::naming;

pub(in crate::kinds) use changes::{check as check_changes, check_annotations as check_annotation_changes};
pub(in crate::kinds) use names::MIRROR_ANNOTATION;
pub(in crate::kinds) use resources::{
    check_container_name as check_container_resource, check_name as check_resource_name, check_overhead,
};
pub(in crate::kinds) use scheduling::{check_effect, check_tolerations};

use crate::field_path::FieldPath;
use crate::kinds::{
    duplicates::Duplicates,
    error_list::{ErrorList, list, text},
};

/// A pod spec and its context.
struct Pod<'a> {
    spec: &'a Value,
    /// Templates may leave some fields unset.
    is_template: bool,
    /// The name of the pod, if known.
    name: &'a str,
    /// A StatefulSet's volume claim templates.
    claims: &'a [Value],
    /// The names of these templates.
    claim_names: HashSet<&'a str>,
    /// The volumes by name, and whether each is a claim.
    volumes: HashMap<&'a str, bool>,
}

impl<'a> Pod<'a> {
    fn new(spec: &'a Value) -> Self {
        let mut volumes = HashMap::new();
        for volume in list(&spec["volumes"]) {
            let is_claim = !volume["persistentVolumeClaim"].is_null() || !volume["ephemeral"].is_null();
            // Of several volumes with the same name, the first counts.
            volumes.entry(text(&volume["name"])).or_insert(is_claim);
        }
        Self {
            spec,
            is_template: false,
            name: "",
            claims: &[],
            claim_names: HashSet::new(),
            volumes,
        }
    }

    /// Whether the volume of this name is a claim; `None` if there is no such volume.
    fn is_claim(&self, name: &str) -> Option<bool> {
        if self.claim_names.contains(name) {
            return Some(true);
        }
        self.volumes.get(name).copied()
    }

    /// Whether the pod runs in the host's user namespace.
    fn uses_host_users(&self) -> bool {
        self.spec["hostUsers"] != false
    }

    fn is_windows(&self) -> bool {
        self.spec["os"]["name"] == "windows"
    }
}

pub(in crate::kinds) fn check_pod(object: &Value, is_new: bool, errors: &mut ErrorList) {
    names::check_annotations(object, &FieldPath::from_root("metadata.annotations"), errors);
    let pod = Pod {
        name: text(&object["metadata"]["name"]),
        ..Pod::new(&object["spec"])
    };
    let path = FieldPath::from_root("spec");
    check_spec(&pod, &path, errors);
    containers::check_images(pod.spec, &path, errors);
    if !is_new {
        return;
    }
    if !list(&pod.spec["ephemeralContainers"]).is_empty() {
        errors.forbidden("spec.ephemeralContainers", "cannot be set on create");
    }
    if !list(&pod.spec["schedulingGates"]).is_empty() && !text(&pod.spec["nodeName"]).is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden("spec.nodeName", why);
    }
}

/// Whether it is the copy of a static pod, which only its kubelet changes.
pub(in crate::kinds) fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"].get(MIRROR_ANNOTATION).is_some()
}

/// Validates a template: labels, annotations and pod.
pub(in crate::kinds) fn check_template(template: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    errors.labels(path.child("labels"), &template["metadata"]["labels"]);
    check_template_without_labels(template, path, errors);
}

/// For jobs, which check the labels themselves.
pub(in crate::kinds) fn check_template_without_labels(
    template: &Value,
    path: &FieldPath<'_>,
    errors: &mut ErrorList,
) {
    check_template_with_claims(template, &[], path, errors);
}

/// For StatefulSets, whose pods have claims from templates.
pub(in crate::kinds) fn check_stateful_template(
    template: &Value,
    claims: &Value,
    path: &FieldPath<'_>,
    errors: &mut ErrorList,
) {
    errors.labels(path.child("labels"), &template["metadata"]["labels"]);
    check_template_with_claims(template, list(claims), path, errors);
}

fn check_template_with_claims(
    template: &Value,
    claims: &[Value],
    path: &FieldPath<'_>,
    errors: &mut ErrorList,
) {
    let annotations = &template["metadata"]["annotations"];
    for key in annotations.as_object().into_iter().flatten().map(|(key, _)| key) {
        // Upper case is allowed in the domain, so only an invalid key is checked again in lower case.
        if !naming::qualified(key).is_empty() {
            let key = key.to_lowercase();
            errors.invalid_each(path.child("annotations"), &key, naming::qualified(&key));
        }
    }
    names::check_annotations(template, &path.child("annotations"), errors);
    let pod = Pod {
        is_template: true,
        claims,
        claim_names: claims
            .iter()
            .map(|claim| text(&claim["metadata"]["name"]))
            .collect(),
        ..Pod::new(&template["spec"])
    };
    check_spec(&pod, &path.child("spec"), errors);
    if !list(&template["spec"]["ephemeralContainers"]).is_empty() {
        let why = "ephemeral containers not allowed in pod template";
        errors.forbidden(path.child("spec.ephemeralContainers"), why);
    }
}

fn check_spec(pod: &Pod<'_>, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let spec = pod.spec;
    volumes::check(pod, &path.child("volumes"), errors);
    names::check_claims(&spec["resourceClaims"], &path.child("resourceClaims"), errors);
    containers::check(pod, path, errors);
    resources::check_pod(pod, &path.child("resources"), errors);
    if spec["hostNetwork"] == true {
        check_host_ports(pod, path, errors);
    }
    let policies = ["Always", "OnFailure", "Never"];
    errors.one_of(path.child("restartPolicy"), &spec["restartPolicy"], &policies);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    errors.one_of(path.child("dnsPolicy"), &spec["dnsPolicy"], &policies);
    errors.labels(path.child("nodeSelector"), &spec["nodeSelector"]);
    security::check_pod(spec, &path.child("securityContext"), errors);
    scheduling::check_affinity(&spec["affinity"], &path.child("affinity"), errors);
    names::check_dns(spec, &path.child("dnsConfig"), errors);
    for (index, gate) in list(&spec["readinessGates"]).iter().enumerate() {
        let kind = text(&gate["conditionType"]);
        let field = path.child("readinessGates");
        errors.invalid_each(
            field.index(index).child("conditionType"),
            kind,
            naming::qualified(kind),
        );
    }
    let gates = list(&spec["schedulingGates"]);
    let repeats = Duplicates::by_field(gates, "name");
    for (index, gate) in gates.iter().enumerate() {
        let (name, field) = (text(&gate["name"]), path.child("schedulingGates"));
        errors.invalid_each(field.index(index), name, naming::qualified(name));
        if repeats.contains(index) {
            errors.duplicate(field.index(index), name);
        }
    }
    scheduling::check_spread(
        &spec["topologySpreadConstraints"],
        &path.child("topologySpreadConstraints"),
        errors,
    );
    security::check_host_users(pod, path, errors);
    names::check(spec, path, errors);
    if !text(&spec["preemptionPolicy"]).is_empty() {
        let policies = ["PreemptLowerPriority", "Never"];
        errors.one_of(
            path.child("preemptionPolicy"),
            &spec["preemptionPolicy"],
            &policies,
        );
    }
    security::check_os(pod, path, errors);
    env::check_files(spec, path, errors);
}

/// With `hostNetwork`, host ports must equal container ports.
fn check_host_ports(pod: &Pod<'_>, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let path = path.child("containers");
    for (index, container) in list(&pod.spec["containers"]).iter().enumerate() {
        let path = path.index(index);
        let path = path.child("ports");
        for (index, port) in list(&container["ports"]).iter().enumerate() {
            let number = |key: &str| port[key].as_i64().unwrap_or(0);
            let (host, own) = (number("hostPort"), number("containerPort"));
            if host != own && (!pod.is_template || host != 0) {
                let why = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(path.index(index).child("hostPort"), host, why);
            }
        }
    }
}
