//! Pods, the templates of pods, and nodes.

use std::fmt::Display;

use serde_json::{Value, json};

use super::{
    containers,
    findings::{Dotted, Findings, list, text},
    probes,
};
use crate::{naming, schema::Problem};

pub(super) fn check_pod(spec: &Value, is_new: bool, findings: &mut Findings) {
    check_spec(spec, &"spec", findings);
    if is_new && !list(&spec["ephemeralContainers"]).is_empty() {
        findings.forbidden("spec.ephemeralContainers", "cannot be set on create");
    }
}

/// A template: its labels, annotations and pod.
pub(super) fn check_template(template: &Value, path: &dyn Display, findings: &mut Findings) {
    findings.labels(format_args!("{path}.labels"), &template["metadata"]["labels"]);
    check_template_without_labels(template, path, findings);
}

/// For jobs, which check the labels before they select by them.
pub(super) fn check_template_without_labels(template: &Value, path: &dyn Display, findings: &mut Findings) {
    check_spec(&template["spec"], &format_args!("{path}.spec"), findings);
    if !list(&template["spec"]["ephemeralContainers"]).is_empty() {
        let why = "ephemeral containers not allowed in pod template";
        findings.forbidden(format_args!("{path}.spec.ephemeralContainers"), why);
    }
}

fn check_spec(spec: &Value, path: &dyn Display, findings: &mut Findings) {
    let at = |name: &'static str| Dotted(path, name);
    check_volumes(spec, path, findings);
    check_containers(spec, path, findings);
    let policies = ["Always", "OnFailure", "Never"];
    findings.one_of(at("restartPolicy"), &spec["restartPolicy"], &policies);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    findings.one_of(at("dnsPolicy"), &spec["dnsPolicy"], &policies);
    findings.labels(at("nodeSelector"), &spec["nodeSelector"]);
    check_security(spec, path, findings);
    check_affinity(&spec["affinity"], &at("affinity"), findings);
    for (index, gate) in list(&spec["readinessGates"]).iter().enumerate() {
        let kind = text(&gate["conditionType"]);
        findings.named(
            format_args!("{}[{index}].conditionType", at("readinessGates")),
            kind,
            naming::qualified(kind),
        );
    }
    check_spread(
        &spec["topologySpreadConstraints"],
        &at("topologySpreadConstraints"),
        findings,
    );
    for key in ["serviceAccountName", "nodeName"] {
        if let Some(name) = spec[key].as_str().filter(|name| !name.is_empty()) {
            findings.named(at(key), name, naming::subdomain(name));
        }
    }
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64()
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        findings.invalid(
            at("activeDeadlineSeconds"),
            seconds,
            "must be between 1 and 2147483647, inclusive",
        );
    }
    for key in ["hostname", "subdomain"] {
        if let Some(name) = spec[key].as_str().filter(|name| !name.is_empty()) {
            findings.named(at(key), name, naming::label(name));
        }
    }
    for (index, toleration) in list(&spec["tolerations"]).iter().enumerate() {
        check_toleration(
            toleration,
            &format_args!("{}[{index}]", at("tolerations")),
            findings,
        );
    }
    for (index, alias) in list(&spec["hostAliases"]).iter().enumerate() {
        let ip = text(&alias["ip"]);
        findings.named(
            format_args!("{}[{index}].ip", at("hostAliases")),
            ip,
            naming::address(ip),
        );
    }
}

fn check_containers(spec: &Value, path: &dyn Display, findings: &mut Findings) {
    let volumes: Vec<_> = list(&spec["volumes"])
        .iter()
        .map(|volume| text(&volume["name"]))
        .collect();
    if list(&spec["containers"]).is_empty() {
        findings.required(format_args!("{path}.containers"), "");
    }
    let mut names: Vec<&str> = Vec::new();
    for kind in ["containers", "initContainers"] {
        for (index, container) in list(&spec[kind]).iter().enumerate() {
            let path = format_args!("{path}.{kind}[{index}]");
            containers::check(container, &path, &volumes, findings);
            let name = text(&container["name"]);
            if !name.is_empty() && names.contains(&name) {
                findings.add(format_args!("{path}.name"), Problem::Duplicate(name.into()));
            }
            names.push(name);
            probes::check(container, &path, findings);
        }
    }
}

fn check_volumes(spec: &Value, path: &dyn Display, findings: &mut Findings) {
    let mut names: Vec<&str> = Vec::new();
    for (index, volume) in list(&spec["volumes"]).iter().enumerate() {
        let path = format_args!("{path}.volumes[{index}]");
        let sources: Vec<_> = volume
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, source)| *key != "name" && !source.is_null())
            .map(|(key, _)| key.as_str())
            .collect();
        for extra in sources.iter().skip(1) {
            findings.forbidden(
                format_args!("{path}.{extra}"),
                "may not specify more than 1 volume type",
            );
        }
        if sources.is_empty() {
            findings.required(path, "must specify a volume type");
        }
        for (source, field) in [
            ("hostPath", "path"),
            ("secret", "secretName"),
            ("configMap", "name"),
            ("persistentVolumeClaim", "claimName"),
            ("nfs", "server"),
        ] {
            if !volume[source].is_null() && text(&volume[source][field]).is_empty() {
                findings.required(format_args!("{path}.{source}.{field}"), "");
            }
        }
        let name = text(&volume["name"]);
        if name.is_empty() {
            findings.required(format_args!("{path}.name"), "");
        } else {
            findings.named(format_args!("{path}.name"), name, naming::label(name));
            if names.contains(&name) {
                findings.add(format_args!("{path}.name"), Problem::Duplicate(name.into()));
            }
        }
        names.push(name);
    }
}

fn check_security(spec: &Value, path: &dyn Display, findings: &mut Findings) {
    for key in ["runAsUser", "runAsGroup", "fsGroup"] {
        let id = &spec["securityContext"][key];
        if id
            .as_i64()
            .is_some_and(|id| !(0..=i64::from(i32::MAX)).contains(&id))
        {
            let why = "must be between 0 and 2147483647, inclusive";
            findings.invalid(format_args!("{path}.securityContext.{key}"), id.clone(), why);
        }
    }
}

fn check_affinity(affinity: &Value, path: &dyn Display, findings: &mut Findings) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let node = &affinity["nodeAffinity"][required];
    if !node.is_null() && list(&node["nodeSelectorTerms"]).is_empty() {
        findings.required(
            format_args!("{path}.nodeAffinity.{required}.nodeSelectorTerms"),
            "must have at least one node selector term",
        );
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (index, term) in list(&affinity[kind][required]).iter().enumerate() {
            let path = format_args!("{path}.{kind}.{required}[{index}]");
            findings.selector(format_args!("{path}.labelSelector"), &term["labelSelector"]);
            if text(&term["topologyKey"]).is_empty() {
                findings.required(format_args!("{path}.topologyKey"), "can not be empty");
            }
        }
    }
}

fn check_spread(constraints: &Value, path: &dyn Display, findings: &mut Findings) {
    for (index, constraint) in list(constraints).iter().enumerate() {
        let at = |name: &str| format!("{path}[{index}].{name}");
        let skew = constraint["maxSkew"].as_i64().unwrap_or(0);
        if skew <= 0 {
            findings.invalid(at("maxSkew"), skew, "must be greater than zero");
        }
        if text(&constraint["topologyKey"]).is_empty() {
            findings.required(at("topologyKey"), "can not be empty");
        }
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        findings.one_of(
            at("whenUnsatisfiable"),
            &constraint["whenUnsatisfiable"],
            &actions,
        );
    }
}

fn check_toleration(toleration: &Value, path: &dyn Display, findings: &mut Findings) {
    let at = |name: &'static str| Dotted(path, name);
    let (key, operator) = (text(&toleration["key"]), text(&toleration["operator"]));
    let (value, effect) = (text(&toleration["value"]), text(&toleration["effect"]));
    if !key.is_empty() {
        findings.named(at("key"), key, naming::qualified(key));
    } else if operator != "Exists" {
        let why =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        findings.invalid(at("operator"), operator, why);
    }
    if !toleration["tolerationSeconds"].is_null() && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        findings.invalid(at("effect"), effect, why);
    }
    match operator {
        "Equal" | "" => findings.named(at("operator"), value, naming::label_value(value)),
        "Exists" if !value.is_empty() => {
            findings.invalid(
                at("operator"),
                value,
                "value must be empty when `operator` is 'Exists'",
            );
        }
        "Exists" => {}
        _ => findings.one_of(at("operator"), &toleration["operator"], &["Equal", "Exists"]),
    }
    check_effect(&toleration["effect"], &at("effect"), findings);
}

fn check_effect(effect: &Value, field: &dyn Display, findings: &mut Findings) {
    if !text(effect).is_empty() {
        findings.one_of(field, effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
    }
}

pub(super) fn check_node(spec: &Value, findings: &mut Findings) {
    for (index, taint) in list(&spec["taints"]).iter().enumerate() {
        let path = format_args!("metadata.taints[{index}]");
        let key = text(&taint["key"]);
        findings.named(format_args!("{path}.key"), key, naming::qualified(key));
        let value = text(&taint["value"]);
        findings.named(format_args!("{path}.value"), value, naming::label_value(value));
        if text(&taint["effect"]).is_empty() {
            findings.required(format_args!("{path}.effect"), "");
        }
        check_effect(&taint["effect"], &format_args!("{path}.effect"), findings);
    }
    let single = json!([spec["podCIDR"]]);
    let blocks = if spec["podCIDRs"].is_null() {
        &single
    } else {
        &spec["podCIDRs"]
    };
    for (index, block) in list(blocks)
        .iter()
        .enumerate()
        .filter(|(_, block)| block.is_string())
    {
        let block = text(block);
        findings.named(
            format_args!("spec.podCIDRs[{index}]"),
            block,
            naming::address_block(block),
        );
    }
}
