//! Pods, and the templates of pods.
//!
//! ```text
//!   spec ─► volumes ─► containers (env, mounts, resources, probes) ─► security ─► where it may run ─► the rest
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

pub(super) use changes::{check as check_changes, check_annotations as check_annotation_changes};
pub(crate) use names::MIRROR;
pub(super) use resources::{
    check_container_name as check_container_resource, check_name as check_resource_name, check_overhead,
};
pub(super) use scheduling::{check_effect, check_tolerations};

use super::{
    findings::{Findings, list, text},
    repeats::Repeats,
};
use crate::{naming, trail::Trail};

/// A pod's specification, and what it is that of.
struct Pod<'a> {
    spec: &'a Value,
    /// A template leaves some to be said later.
    is_template: bool,
    /// The name of the pod, where it is known.
    name: &'a str,
    /// Claims that each pod is given as volumes.
    claims: &'a [Value],
    /// The names of these claims.
    claimed: HashSet<&'a str>,
    /// Which volumes there are, and whether they are claims.
    volumes: HashMap<&'a str, bool>,
}

impl<'a> Pod<'a> {
    fn new(spec: &'a Value) -> Self {
        let mut volumes = HashMap::new();
        for volume in list(&spec["volumes"]) {
            let is_claim = !volume["persistentVolumeClaim"].is_null() || !volume["ephemeral"].is_null();
            // Of several with one name, the first counts.
            volumes.entry(text(&volume["name"])).or_insert(is_claim);
        }
        Self {
            spec,
            is_template: false,
            name: "",
            claims: &[],
            claimed: HashSet::new(),
            volumes,
        }
    }

    /// Whether its volume of this name is a claim; none where there is no such volume.
    fn is_claim(&self, name: &str) -> Option<bool> {
        if self.claimed.contains(name) {
            return Some(true);
        }
        self.volumes.get(name).copied()
    }

    /// Whether the pod's users are those of its node.
    fn shares_users(&self) -> bool {
        self.spec["hostUsers"] != false
    }

    fn is_windows(&self) -> bool {
        self.spec["os"]["name"] == "windows"
    }
}

pub(super) fn check_pod(object: &Value, is_new: bool, findings: &mut Findings) {
    names::check_annotations(object, &Trail::from_root("metadata.annotations"), findings);
    let pod = Pod {
        name: text(&object["metadata"]["name"]),
        ..Pod::new(&object["spec"])
    };
    let path = Trail::from_root("spec");
    check_spec(&pod, &path, findings);
    containers::check_images(pod.spec, &path, findings);
    if !is_new {
        return;
    }
    if !list(&pod.spec["ephemeralContainers"]).is_empty() {
        findings.forbidden("spec.ephemeralContainers", "cannot be set on create");
    }
    if !list(&pod.spec["schedulingGates"]).is_empty() && !text(&pod.spec["nodeName"]).is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        findings.forbidden("spec.nodeName", why);
    }
}

/// A template: its labels, annotations and pod.
pub(super) fn check_template(template: &Value, path: &Trail<'_>, findings: &mut Findings) {
    findings.labels(path.at("labels"), &template["metadata"]["labels"]);
    check_template_without_labels(template, path, findings);
}

/// For jobs, which check the labels before they select by them.
pub(super) fn check_template_without_labels(template: &Value, path: &Trail<'_>, findings: &mut Findings) {
    check_template_with_claims(template, &[], path, findings);
}

/// For stateful sets, whose pods have a claim of each of some kinds.
pub(super) fn check_stateful_template(
    template: &Value,
    claims: &Value,
    path: &Trail<'_>,
    findings: &mut Findings,
) {
    findings.labels(path.at("labels"), &template["metadata"]["labels"]);
    check_template_with_claims(template, list(claims), path, findings);
}

fn check_template_with_claims(template: &Value, claims: &[Value], path: &Trail<'_>, findings: &mut Findings) {
    let annotations = &template["metadata"]["annotations"];
    for key in annotations.as_object().into_iter().flatten().map(|(key, _)| key) {
        // Upper case is let pass in the domain, so that only then is there a text to make.
        if !naming::qualified(key).is_empty() {
            let key = key.to_lowercase();
            findings.named(path.at("annotations"), &key, naming::qualified(&key));
        }
    }
    names::check_annotations(template, &path.at("annotations"), findings);
    let pod = Pod {
        is_template: true,
        claims,
        claimed: claims
            .iter()
            .map(|claim| text(&claim["metadata"]["name"]))
            .collect(),
        ..Pod::new(&template["spec"])
    };
    check_spec(&pod, &path.at("spec"), findings);
    if !list(&template["spec"]["ephemeralContainers"]).is_empty() {
        let why = "ephemeral containers not allowed in pod template";
        findings.forbidden(path.at("spec.ephemeralContainers"), why);
    }
}

fn check_spec(pod: &Pod<'_>, path: &Trail<'_>, findings: &mut Findings) {
    let spec = pod.spec;
    volumes::check(pod, &path.at("volumes"), findings);
    names::check_claims(&spec["resourceClaims"], &path.at("resourceClaims"), findings);
    containers::check(pod, path, findings);
    resources::check_pod(pod, &path.at("resources"), findings);
    if spec["hostNetwork"] == true {
        check_host_ports(pod, path, findings);
    }
    let policies = ["Always", "OnFailure", "Never"];
    findings.one_of(path.at("restartPolicy"), &spec["restartPolicy"], &policies);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    findings.one_of(path.at("dnsPolicy"), &spec["dnsPolicy"], &policies);
    findings.labels(path.at("nodeSelector"), &spec["nodeSelector"]);
    security::check_pod(spec, &path.at("securityContext"), findings);
    scheduling::check_affinity(&spec["affinity"], &path.at("affinity"), findings);
    names::check_dns(spec, &path.at("dnsConfig"), findings);
    for (index, gate) in list(&spec["readinessGates"]).iter().enumerate() {
        let kind = text(&gate["conditionType"]);
        let field = path.at("readinessGates");
        findings.named(
            field.item(index).at("conditionType"),
            kind,
            naming::qualified(kind),
        );
    }
    let gates = list(&spec["schedulingGates"]);
    let repeats = Repeats::of_field(gates, "name");
    for (index, gate) in gates.iter().enumerate() {
        let (name, field) = (text(&gate["name"]), path.at("schedulingGates"));
        findings.named(field.item(index), name, naming::qualified(name));
        if repeats.has(index) {
            findings.duplicate(field.item(index), name);
        }
    }
    scheduling::check_spread(
        &spec["topologySpreadConstraints"],
        &path.at("topologySpreadConstraints"),
        findings,
    );
    security::check_users(pod, path, findings);
    names::check(spec, path, findings);
    if !text(&spec["preemptionPolicy"]).is_empty() {
        let policies = ["PreemptLowerPriority", "Never"];
        findings.one_of(path.at("preemptionPolicy"), &spec["preemptionPolicy"], &policies);
    }
    security::check_system(pod, path, findings);
    env::check_files(spec, path, findings);
}

/// On the node's network, a port of a container is the node's.
fn check_host_ports(pod: &Pod<'_>, path: &Trail<'_>, findings: &mut Findings) {
    let path = path.at("containers");
    for (index, container) in list(&pod.spec["containers"]).iter().enumerate() {
        let path = path.item(index);
        let path = path.at("ports");
        for (index, port) in list(&container["ports"]).iter().enumerate() {
            let number = |key: &str| port[key].as_i64().unwrap_or(0);
            let (host, own) = (number("hostPort"), number("containerPort"));
            if host != own && (!pod.is_template || host != 0) {
                let why = "must match `containerPort` when `hostNetwork` is true";
                findings.invalid(path.item(index).at("hostPort"), host, why);
            }
        }
    }
}
