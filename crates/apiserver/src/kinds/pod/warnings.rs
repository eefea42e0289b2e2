//! Warnings about pods and pod templates.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt::{self, Display},
};

use serde_json::Value;
use windlass_api::naming;

use crate::{
    kinds::{
        error_list::list,
        warnings::{has_annotation, warn_fractional_bytes},
    },
    object::Object,
    pick::pick,
};

/// Deprecated node labels: label, deprecated since, replacement.
const DEPRECATED_NODE_LABELS: [(&str, &str, &str); 4] = [
    ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "v1.17",
        "topology.kubernetes.io/region",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "v1.17",
        "topology.kubernetes.io/zone",
    ),
];

/// Warnings about a new pod.
pub(super) fn warn(pod: &Object, warnings: &mut Vec<String>) {
    warn_hostname(pod.name(), warnings);
    let critical = "scheduler.alpha.kubernetes.io/critical-pod";
    if has_annotation(pod, critical) {
        warnings.push(format!(
            "metadata.annotations[{critical}]: non-functional in v1.16+; use the \"priorityClassName\" field instead"
        ));
    }
    warn_spec(&pod.tree()["spec"], &"spec", warnings);
}

fn warn_hostname(name: &str, warnings: &mut Vec<String>) {
    let problems = naming::label(name);
    if !problems.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label \
             is recommended: [{}]",
            problems.join(" ")
        ));
    }
}

/// Warnings about the spec of a pod or of a template.
pub(in crate::kinds) fn warn_spec(spec: &Value, path: &dyn Display, warnings: &mut Vec<String>) {
    let selector = &spec["nodeSelector"];
    for (label, since, instead) in DEPRECATED_NODE_LABELS {
        if selector.get(label).is_some() {
            warnings.push(format!(
                "{path}.nodeSelector[{label}]: deprecated since {since}; use {instead:?} instead"
            ));
        }
    }
    warn_null_selectors(spec, path, warnings);
    let mut addresses = HashSet::new();
    for (index, alias) in list(&spec["hostAliases"]).iter().enumerate() {
        if !addresses.insert(&alias["ip"]) {
            warnings.push(format!(
                "{path}.hostAliases[{index}].ip: duplicate ip {}",
                alias["ip"]
            ));
        }
    }
    for (index, volume) in list(&spec["volumes"]).iter().enumerate() {
        let path = format_args!("{path}.volumes[{index}]");
        let [ephemeral, repository, projected] = pick(volume, ["ephemeral", "gitRepo", "projected"]);
        if !repository.is_null() {
            warnings.push(format!(
                "{path}.gitRepo: deprecated in v1.11, and disabled by default in v1.33+"
            ));
        }
        for source in list(&projected["sources"]) {
            if source.as_object().is_some_and(serde_json::Map::is_empty) {
                let name = &volume["name"];
                warnings.push(format!("volume {name} (Projected) has no sources provided"));
            }
        }
        let claim = &ephemeral["volumeClaimTemplate"]["spec"];
        let path = format_args!("{path}.ephemeral.volumeClaimTemplate.spec");
        warn_fractional_bytes(
            &claim["resources"]["requests"]["storage"],
            format_args!("{path}.resources.requests[storage]"),
            warnings,
        );
    }
    let mut names = HashSet::new();
    for (index, secret) in list(&spec["imagePullSecrets"]).iter().enumerate() {
        let name = secret["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            warnings.push(format!(
                "{path}.imagePullSecrets[{index}].name: invalid empty name {name:?}"
            ));
        } else if !names.insert(name) {
            warnings.push(format!(
                "{path}.imagePullSecrets[{index}].name: duplicate name {name:?}"
            ));
        }
    }
    for kind in ["initContainers", "containers"] {
        for (index, container) in list(&spec[kind]).iter().enumerate() {
            warn_container(container, &format_args!("{path}.{kind}[{index}]"), warnings);
        }
    }
}

/// A null label selector selects nothing, which is rarely intended.
fn warn_null_selectors(spec: &Value, path: &dyn Display, warnings: &mut Vec<String>) {
    let mut look = |term: &Value, path: fmt::Arguments<'_>| {
        if term["labelSelector"].is_null() {
            warnings.push(format!(
                "{path}.labelSelector: a null labelSelector results in matching no pod"
            ));
        }
    };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in list(&spec["affinity"][kind][required]).iter().enumerate() {
            look(term, format_args!("{path}.affinity.{kind}.{required}[{index}]"));
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in list(&spec["affinity"][kind][preferred]).iter().enumerate() {
            let path = format_args!("{path}.affinity.{kind}.{preferred}[{index}].podAffinityTerm");
            look(&term["podAffinityTerm"], path);
        }
    }
    for (index, constraint) in list(&spec["topologySpreadConstraints"]).iter().enumerate() {
        look(
            constraint,
            format_args!("{path}.topologySpreadConstraints[{index}]"),
        );
    }
}

fn warn_container(container: &Value, path: &dyn Display, warnings: &mut Vec<String>) {
    let [variables, ports, resources] = pick(container, ["env", "ports", "resources"]);
    for kind in ["limits", "requests"] {
        let [storage, memory] = pick(&resources[kind], ["ephemeral-storage", "memory"]);
        for (resource, amount) in [("memory", memory), ("ephemeral-storage", storage)] {
            warn_fractional_bytes(
                amount,
                format_args!("{path}.resources.{kind}[{resource}]"),
                warnings,
            );
        }
    }
    warn_duplicate_env(list(variables), path, warnings);
    let mut seen = HashMap::new();
    for (index, port) in list(ports).iter().enumerate() {
        let text = |key: &str| port[key].as_str().unwrap_or_default();
        if !text("hostIP").is_empty() && port["hostPort"].as_i64().unwrap_or(0) == 0 {
            warnings.push(format!(
                "{path}.ports[{index}]: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{}}}",
                text("name"),
                port["containerPort"],
                text("protocol"),
                text("hostIP")
            ));
        }
        let same = ["containerPort", "protocol", "hostIP", "hostPort"].map(|key| &port[key]);
        let first = *seen.entry(same).or_insert(index);
        if first < index {
            warnings.push(format!(
                "{path}.ports[{index}]: duplicate port definition with {path}.ports[{first}]"
            ));
        }
    }
}

fn warn_duplicate_env(variables: &[Value], path: &dyn Display, warnings: &mut Vec<String>) {
    let mut names: Vec<_> = variables
        .iter()
        .map(|variable| variable["name"].as_str())
        .collect();
    names.sort_unstable();
    // Find out which ones are duplicates only if there are any.
    if names.windows(2).all(|pair| pair[0] != pair[1]) {
        return;
    }
    let mut names = BTreeSet::new();
    for (index, variable) in variables.iter().enumerate() {
        if !names.insert(variable["name"].as_str()) {
            warnings.push(format!(
                "{path}.env[{index}]: hides previous definition of {}, which may be dropped when using apply",
                variable["name"]
            ));
        }
    }
}
