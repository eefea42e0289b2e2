//! What the real server remarks on and takes nevertheless, in `Warning` headers.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt::{self, Display},
};

use serde_json::Value;

use crate::{crd, naming, object::Object, pick::pick, registry::Resource, schema::quantity};

/// Labels of nodes that have other names now.
const OLD_NODE_LABELS: [(&str, &str, &str); 4] = [
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

/// How many characters all `Warning` headers of an answer have at most, and each of them where that is not enough: what
/// the real server has.
const ALL: usize = 4 * 1024;
const EACH: usize = 256;

/// What of the remarks an answer has room for: each once. If they are too long together, each is cut short, and there are
/// no more after the one that exceeds the limit all the same.
pub(crate) fn fitting(remarks: &[String]) -> Vec<&str> {
    let short = |remark: &'_ str| {
        remark
            .char_indices()
            .nth(EACH)
            .map_or(remark.len(), |(end, _)| end)
    };
    let (mut seen, mut whole, mut fitting) = (HashSet::new(), Vec::new(), Vec::new());
    let (mut length, mut cutting) = (0, false);
    for remark in remarks
        .iter()
        .map(String::as_str)
        .filter(|remark| !remark.is_empty())
    {
        if cutting && length >= ALL {
            break;
        }
        if !seen.insert(remark) {
            continue;
        }
        whole.push(remark);
        let shown = if cutting { &remark[..short(remark)] } else { remark };
        let characters = shown.chars().count();
        if cutting || length + characters <= ALL {
            length += characters;
            fitting.push(shown);
            continue;
        }
        cutting = true;
        fitting = whole.iter().map(|remark| &remark[..short(remark)]).collect();
        length = fitting.iter().map(|remark| remark.chars().count()).sum();
    }
    fitting
}

/// The remarks on an object that was taken: on a new one, or on one that took the place of another.
pub(crate) fn about(resource: &Resource, object: &Object, old: Option<&Object>) -> Vec<String> {
    if resource.custom {
        return crd::finalizer_warnings(object, old);
    }
    if crd::is_definition(resource) {
        return crd::warnings(object, old);
    }
    let mut remarks = Vec::new();
    let null = Value::Null;
    let spec = object.fields().get("spec").unwrap_or(&null);
    if (&*resource.group, &*resource.kind) == ("", "Service") {
        about_service(spec, &mut remarks);
        return remarks;
    }
    // A pod is seldom changed by a person; the rest is said again when what is desired changes.
    if old.is_some_and(|old| old.metadata().get("generation") == object.metadata().get("generation")) {
        return remarks;
    }
    match (&*resource.group, &*resource.kind) {
        ("", "Pod") if old.is_none() => {
            about_hostname(object.name(), &mut remarks);
            let critical = "scheduler.alpha.kubernetes.io/critical-pod";
            if annotation(object, critical) {
                remarks.push(format!(
                    "metadata.annotations[{critical}]: non-functional in v1.16+; use the \"priorityClassName\" field instead"
                ));
            }
            about_pod(spec, &"spec", &mut remarks);
        }
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet" | "StatefulSet") | ("batch", "Job") => {
            if &*resource.kind == "Job" {
                if old.is_none() {
                    about_pod_names(object.name(), &mut remarks);
                }
                about_job(spec, &mut remarks);
            }
            about_pod(&spec["template"]["spec"], &"spec.template.spec", &mut remarks);
            if &*resource.kind == "StatefulSet"
                && spec["revisionHistoryLimit"].as_i64().is_some_and(|most| most < 0)
            {
                remarks.push(
                    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is \
                     recommended"
                        .to_owned(),
                );
            }
        }
        ("batch", "CronJob") => {
            if old.is_none() {
                about_pod_names(object.name(), &mut remarks);
            }
            let path = "spec.jobTemplate.spec.template.spec";
            about_pod(
                &spec["jobTemplate"]["spec"]["template"]["spec"],
                &path,
                &mut remarks,
            );
        }
        ("", _) if old.is_none() => about_core(&resource.kind, object, spec, &mut remarks),
        ("discovery.k8s.io", "EndpointSlice")
            if object.fields().get("addressType") == Some(&"FQDN".into()) =>
        {
            remarks.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
        ("networking.k8s.io", "Ingress") if old.is_none() => {
            let name = "kubernetes.io/ingress.class";
            if annotation(object, name) {
                remarks.push(format!(
                    "annotation {name:?} is deprecated, please use 'spec.ingressClassName' instead"
                ));
            }
        }
        _ => {}
    }
    remarks
}

fn annotation(object: &Object, name: &str) -> bool {
    let annotations = object.metadata().get("annotations");
    annotations.is_some_and(|annotations| annotations.get(name).is_some())
}

/// The pods of a job are called after it.
fn about_pod_names(name: &str, remarks: &mut Vec<String>) {
    let problems = naming::label(name);
    if !problems.is_empty() {
        remarks.push(format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
             label is recommended: [{}]",
            problems.join(" ")
        ));
    }
}

fn about_hostname(name: &str, remarks: &mut Vec<String>) {
    let problems = naming::label(name);
    if !problems.is_empty() {
        remarks.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label \
             is recommended: [{}]",
            problems.join(" ")
        ));
    }
}

fn about_pod(spec: &Value, path: &dyn Display, remarks: &mut Vec<String>) {
    let selector = &spec["nodeSelector"];
    for (label, since, instead) in OLD_NODE_LABELS {
        if selector.get(label).is_some() {
            remarks.push(format!(
                "{path}.nodeSelector[{label}]: deprecated since {since}; use {instead:?} instead"
            ));
        }
    }
    about_selectors(spec, path, remarks);
    let mut addresses = HashSet::new();
    for (index, alias) in list(&spec["hostAliases"]).iter().enumerate() {
        if !addresses.insert(&alias["ip"]) {
            remarks.push(format!(
                "{path}.hostAliases[{index}].ip: duplicate ip {}",
                alias["ip"]
            ));
        }
    }
    for (index, volume) in list(&spec["volumes"]).iter().enumerate() {
        let path = format_args!("{path}.volumes[{index}]");
        let [ephemeral, repository, projected] = pick(volume, ["ephemeral", "gitRepo", "projected"]);
        if !repository.is_null() {
            remarks.push(format!(
                "{path}.gitRepo: deprecated in v1.11, and disabled by default in v1.33+"
            ));
        }
        for source in list(&projected["sources"]) {
            if source.as_object().is_some_and(serde_json::Map::is_empty) {
                let name = &volume["name"];
                remarks.push(format!("volume {name} (Projected) has no sources provided"));
            }
        }
        let claim = &ephemeral["volumeClaimTemplate"]["spec"];
        let path = format_args!("{path}.ephemeral.volumeClaimTemplate.spec");
        about_bytes(
            &claim["resources"]["requests"]["storage"],
            format_args!("{path}.resources.requests[storage]"),
            remarks,
        );
    }
    let mut names = HashSet::new();
    for (index, secret) in list(&spec["imagePullSecrets"]).iter().enumerate() {
        let name = secret["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            remarks.push(format!(
                "{path}.imagePullSecrets[{index}].name: invalid empty name {name:?}"
            ));
        } else if !names.insert(name) {
            remarks.push(format!(
                "{path}.imagePullSecrets[{index}].name: duplicate name {name:?}"
            ));
        }
    }
    for kind in ["initContainers", "containers"] {
        for (index, container) in list(&spec[kind]).iter().enumerate() {
            about_container(container, &format_args!("{path}.{kind}[{index}]"), remarks);
        }
    }
}

/// A selector that is not there selects nothing, which is seldom meant.
fn about_selectors(spec: &Value, path: &dyn Display, remarks: &mut Vec<String>) {
    let mut look = |term: &Value, path: fmt::Arguments<'_>| {
        if term["labelSelector"].is_null() {
            remarks.push(format!(
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

fn about_container(container: &Value, path: &dyn Display, remarks: &mut Vec<String>) {
    let [variables, ports, resources] = pick(container, ["env", "ports", "resources"]);
    for kind in ["limits", "requests"] {
        let [storage, memory] = pick(&resources[kind], ["ephemeral-storage", "memory"]);
        for (resource, amount) in [("memory", memory), ("ephemeral-storage", storage)] {
            about_bytes(
                amount,
                format_args!("{path}.resources.{kind}[{resource}]"),
                remarks,
            );
        }
    }
    about_variables(list(variables), path, remarks);
    let mut seen = HashMap::new();
    for (index, port) in list(ports).iter().enumerate() {
        let text = |key: &str| port[key].as_str().unwrap_or_default();
        if !text("hostIP").is_empty() && port["hostPort"].as_i64().unwrap_or(0) == 0 {
            remarks.push(format!(
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
            remarks.push(format!(
                "{path}.ports[{index}]: duplicate port definition with {path}.ports[{first}]"
            ));
        }
    }
}

fn about_variables(variables: &[Value], path: &dyn Display, remarks: &mut Vec<String>) {
    let mut names: Vec<_> = variables
        .iter()
        .map(|variable| variable["name"].as_str())
        .collect();
    names.sort_unstable();
    // Where some are alike, which they are is another question.
    if names.windows(2).all(|pair| pair[0] != pair[1]) {
        return;
    }
    let mut names = BTreeSet::new();
    for (index, variable) in variables.iter().enumerate() {
        if !names.insert(variable["name"].as_str()) {
            remarks.push(format!(
                "{path}.env[{index}]: hides previous definition of {}, which may be dropped when using apply",
                variable["name"]
            ));
        }
    }
}

fn about_core(kind: &str, object: &Object, spec: &Value, remarks: &mut Vec<String>) {
    match kind {
        "Secret" => about_certificate(object, remarks),
        "PersistentVolume" if spec["persistentVolumeReclaimPolicy"] == "Recycle" => remarks.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
             approach is to use dynamic provisioning."
                .to_owned(),
        ),
        "PersistentVolumeClaim" => {
            let class = "volume.beta.kubernetes.io/storage-class";
            if annotation(object, class) {
                remarks.push(format!(
                    "metadata.annotations[{class}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
                ));
            }
            let amount = &spec["resources"]["requests"]["storage"];
            about_bytes(amount, "spec.resources.requests[storage]", remarks);
        }
        "Node" if spec.get("externalID").is_some() => {
            remarks.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        _ => {}
    }
}

fn about_service(spec: &Value, remarks: &mut Vec<String>) {
    if !list(&spec["externalIPs"]).is_empty() {
        remarks.push(if spec["clusterIP"] == "None" {
            "spec.externalIPs is ignored for headless services".to_owned()
        } else {
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned()
        });
    }
    if spec["type"] != "ExternalName" && spec["externalName"].as_str().is_some_and(|name| !name.is_empty()) {
        remarks.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec["trafficDistribution"] == "PreferClose" {
        remarks.push(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned(),
        );
    }
}

/// Jobs that are too large to be counted well.
fn about_job(spec: &Value, remarks: &mut Vec<String>) {
    let above = |key: &str, most: i64| spec[key].as_i64().is_some_and(|number| number > most);
    if spec["completionMode"] == "Indexed" && above("completions", 100_000) && above("parallelism", 10_000) {
        remarks.push(
            "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
                .to_owned(),
        );
    }
}

fn about_certificate(secret: &Object, remarks: &mut Vec<String>) {
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
            remarks.push(format!("tls: failed to find any PEM data in {name} input"));
            return;
        }
    }
}

/// There are no parts of bytes.
fn about_bytes(amount: &Value, field: impl Display, remarks: &mut Vec<String>) {
    if quantity::nanos(amount).is_some_and(|nanos| nanos % 1_000_000_000 != 0) {
        remarks.push(format!(
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
    fn remarks_are_told_once_and_cut_short_together() {
        let fit = |remarks: &[&str]| -> Vec<String> {
            let remarks: Vec<_> = remarks.iter().map(|remark| (*remark).to_owned()).collect();
            fitting(&remarks).into_iter().map(str::to_owned).collect()
        };
        assert_eq!(fit(&["a", "b", "a", ""]), ["a", "b"]);
        // They fit exactly.
        let (long, longer) = ("x".repeat(ALL), "x".repeat(ALL + 1));
        assert_eq!(fit(&[&long]), [long.as_str()]);
        assert_eq!(fit(&[&long, "b"]), ["x".repeat(EACH), "b".to_owned()]);
        assert_eq!(fit(&[&longer]), ["x".repeat(EACH)]);
        // Characters count, not bytes.
        assert_eq!(fit(&[&"é".repeat(ALL), "b"]), ["é".repeat(EACH), "b".to_owned()]);
        let many: Vec<_> = (0..10_000).map(|index| format!("{index:0300}")).collect();
        let fitting = fitting(&many);
        assert_eq!(fitting.len(), ALL / EACH);
        assert!(fitting.iter().all(|remark| remark.len() == EACH));
    }
}
