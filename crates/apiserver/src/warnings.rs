//! `Warning` headers: what the real server warns about but accepts.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt::{self, Display},
};

use serde_json::Value;
use windlass_api::naming;

use crate::{crd, object::Object, pick::pick, registry::Resource, schema::quantity};

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

/// The real server's limits: the total characters of an answer's `Warning` headers, and the length to which each is cut
/// if the total is exceeded.
const MAX_TOTAL_CHARS: usize = 4 * 1024;
const TRUNCATED_CHARS: usize = 256;

/// Deduplicates warnings and limits their length. If they exceed the total, each is truncated, and none follows the one
/// that still exceeds it.
pub(crate) fn truncate_warnings(warnings: &[String]) -> Vec<&str> {
    let short = |warning: &'_ str| {
        warning
            .char_indices()
            .nth(TRUNCATED_CHARS)
            .map_or(warning.len(), |(end, _)| end)
    };
    let (mut seen, mut whole, mut fitting) = (HashSet::new(), Vec::new(), Vec::new());
    let (mut length, mut cutting) = (0, false);
    for warning in warnings
        .iter()
        .map(String::as_str)
        .filter(|warning| !warning.is_empty())
    {
        if cutting && length >= MAX_TOTAL_CHARS {
            break;
        }
        if !seen.insert(warning) {
            continue;
        }
        whole.push(warning);
        let shown = if cutting {
            &warning[..short(warning)]
        } else {
            warning
        };
        let characters = shown.chars().count();
        if cutting || length + characters <= MAX_TOTAL_CHARS {
            length += characters;
            fitting.push(shown);
            continue;
        }
        cutting = true;
        fitting = whole.iter().map(|warning| &warning[..short(warning)]).collect();
        length = fitting.iter().map(|warning| warning.chars().count()).sum();
    }
    fitting
}

/// Warnings for an accepted object: a new one, or one that replaces `old`.
pub(crate) fn for_object(resource: &Resource, object: &Object, old: Option<&Object>) -> Vec<String> {
    if resource.is_custom {
        return crd::finalizer_warnings(object, old);
    }
    if crd::is_definition(resource) {
        return crd::warnings(object, old);
    }
    let mut warnings = Vec::new();
    let null = Value::Null;
    let spec = object.fields().get("spec").unwrap_or(&null);
    if (&*resource.group, &*resource.kind) == ("", "Service") {
        warn_service(spec, &mut warnings);
        return warnings;
    }
    // Pods are rarely updated by a user; other kinds are warned about again only when their generation changes.
    if old.is_some_and(|old| old.metadata().get("generation") == object.metadata().get("generation")) {
        return warnings;
    }
    match (&*resource.group, &*resource.kind) {
        ("", "Pod") if old.is_none() => {
            warn_hostname(object.name(), &mut warnings);
            let critical = "scheduler.alpha.kubernetes.io/critical-pod";
            if has_annotation(object, critical) {
                warnings.push(format!(
                    "metadata.annotations[{critical}]: non-functional in v1.16+; use the \"priorityClassName\" field instead"
                ));
            }
            warn_pod(spec, &"spec", &mut warnings);
        }
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet") | ("batch", "Job") => {
            if &*resource.kind == "Job" {
                if old.is_none() {
                    warn_pod_names(object.name(), &mut warnings);
                }
                warn_job(spec, &mut warnings);
            }
            warn_pod(&spec["template"]["spec"], &"spec.template.spec", &mut warnings);
            if &*resource.kind == "StatefulSet"
                && spec["revisionHistoryLimit"].as_i64().is_some_and(|most| most < 0)
            {
                warnings.push(
                    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is \
                     recommended"
                        .to_owned(),
                );
            }
        }
        ("batch", "CronJob") => {
            if old.is_none() {
                warn_pod_names(object.name(), &mut warnings);
            }
            let path = "spec.jobTemplate.spec.template.spec";
            warn_pod(
                &spec["jobTemplate"]["spec"]["template"]["spec"],
                &path,
                &mut warnings,
            );
        }
        ("", _) if old.is_none() => warn_core(&resource.kind, object, spec, &mut warnings),
        ("discovery.k8s.io", "EndpointSlice")
            if object.fields().get("addressType") == Some(&"FQDN".into()) =>
        {
            warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        ("networking.k8s.io", "Ingress") if old.is_none() => {
            let name = "kubernetes.io/ingress.class";
            if has_annotation(object, name) {
                warnings.push(format!(
                    "annotation {name:?} is deprecated, please use 'spec.ingressClassName' instead"
                ));
            }
        }
        _ => {}
    }
    warnings
}

fn has_annotation(object: &Object, name: &str) -> bool {
    let annotations = object.metadata().get("annotations");
    annotations.is_some_and(|annotations| annotations.get(name).is_some())
}

/// A job's name becomes part of its pods' names.
fn warn_pod_names(name: &str, warnings: &mut Vec<String>) {
    let problems = naming::label(name);
    if !problems.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
             label is recommended: [{}]",
            problems.join(" ")
        ));
    }
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

fn warn_pod(spec: &Value, path: &dyn Display, warnings: &mut Vec<String>) {
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

fn warn_core(kind: &str, object: &Object, spec: &Value, warnings: &mut Vec<String>) {
    match kind {
        "Secret" => warn_tls_secret(object, warnings),
        "PersistentVolume" if spec["persistentVolumeReclaimPolicy"] == "Recycle" => warnings.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
             approach is to use dynamic provisioning."
                .to_owned(),
        ),
        "PersistentVolumeClaim" => {
            let class = "volume.beta.kubernetes.io/storage-class";
            if has_annotation(object, class) {
                warnings.push(format!(
                    "metadata.annotations[{class}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
                ));
            }
            let amount = &spec["resources"]["requests"]["storage"];
            warn_fractional_bytes(amount, "spec.resources.requests[storage]", warnings);
        }
        "Node" if spec.get("externalID").is_some() => {
            warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        _ => {}
    }
}

fn warn_service(spec: &Value, warnings: &mut Vec<String>) {
    if !list(&spec["externalIPs"]).is_empty() {
        warnings.push(if spec["clusterIP"] == "None" {
            "spec.externalIPs is ignored for headless services".to_owned()
        } else {
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned()
        });
    }
    if spec["type"] != "ExternalName" && spec["externalName"].as_str().is_some_and(|name| !name.is_empty()) {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec["trafficDistribution"] == "PreferClose" {
        warnings.push(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned(),
        );
    }
}

/// Warns about indexed jobs too large to track.
fn warn_job(spec: &Value, warnings: &mut Vec<String>) {
    let above = |key: &str, most: i64| spec[key].as_i64().is_some_and(|number| number > most);
    if spec["completionMode"] == "Indexed" && above("completions", 100_000) && above("parallelism", 10_000) {
        warnings.push(
            "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
                .to_owned(),
        );
    }
}

fn warn_tls_secret(secret: &Object, warnings: &mut Vec<String>) {
    use base64::Engine;

    let null = Value::Null;
    let field = |key: &str| secret.fields().get(key).unwrap_or(&null);
    if *field("type") != "kubernetes.io/tls" {
        return;
    }
    for (key, name) in [("tls.crt", "certificate"), ("tls.key", "key")] {
        let text = field("data")[key].as_str().unwrap_or_default();
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(text)
            .unwrap_or_default();
        if !String::from_utf8_lossy(&bytes).contains("-----BEGIN") {
            warnings.push(format!("tls: failed to find any PEM data in {name} input"));
            return;
        }
    }
}

/// Byte quantities must be whole numbers.
fn warn_fractional_bytes(amount: &Value, field: impl Display, warnings: &mut Vec<String>) {
    if quantity::nanos(amount).is_some_and(|nanos| nanos % 1_000_000_000 != 0) {
        warnings.push(format!(
            "{field}: fractional byte value {amount} is invalid, must be an integer"
        ));
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cases of the real server's `warning_test.go`, and its limits.
    #[test]
    fn warnings_are_deduplicated_and_truncated() {
        let fit = |warnings: &[&str]| -> Vec<String> {
            let warnings: Vec<_> = warnings.iter().map(|warning| (*warning).to_owned()).collect();
            truncate_warnings(&warnings)
                .into_iter()
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(fit(&["a", "b", "a", ""]), ["a", "b"]);
        // Exactly at the limit.
        let (long, longer) = ("x".repeat(MAX_TOTAL_CHARS), "x".repeat(MAX_TOTAL_CHARS + 1));
        assert_eq!(fit(&[&long]), [long.as_str()]);
        assert_eq!(fit(&[&long, "b"]), ["x".repeat(TRUNCATED_CHARS), "b".to_owned()]);
        assert_eq!(fit(&[&longer]), ["x".repeat(TRUNCATED_CHARS)]);
        // Characters count, not bytes.
        assert_eq!(
            fit(&[&"é".repeat(MAX_TOTAL_CHARS), "b"]),
            ["é".repeat(TRUNCATED_CHARS), "b".to_owned()]
        );
        let many: Vec<_> = (0..10_000).map(|index| format!("{index:0300}")).collect();
        let fitting = truncate_warnings(&many);
        assert_eq!(fitting.len(), MAX_TOTAL_CHARS / TRUNCATED_CHARS);
        assert!(fitting.iter().all(|warning| warning.len() == TRUNCATED_CHARS));
    }
}
