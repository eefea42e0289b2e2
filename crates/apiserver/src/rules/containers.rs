//! A pod's containers: image, ports, environment, mounts and resources.

use std::fmt::Display;

use serde_json::{Value, json};

use super::findings::{Dotted, Findings, list, text};
use crate::{
    naming,
    schema::{Problem, quantity},
};

/// The resources that a container may ask for without a domain in their name.
const STANDARD_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// What downward API fields a container can see.
const FIELD_PATHS: [&str; 11] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
    "metadata.annotations",
    "metadata.labels",
];

pub(super) fn check(container: &Value, path: &dyn Display, volumes: &[&str], findings: &mut Findings) {
    let at = |name: &'static str| Dotted(path, name);
    let name = text(&container["name"]);
    if name.is_empty() {
        findings.required(at("name"), "");
    } else {
        findings.named(at("name"), name, naming::label(name));
    }
    let image = text(&container["image"]);
    if image.is_empty() {
        findings.required(at("image"), "");
    } else if image.trim() != image {
        findings.invalid(at("image"), image, "must not have leading or trailing whitespace");
    }
    let policies = ["File", "FallbackToLogsOnError"];
    findings.one_of(
        at("terminationMessagePolicy"),
        &container["terminationMessagePolicy"],
        &policies,
    );
    check_ports(&container["ports"], &at("ports"), findings);
    for (index, variable) in list(&container["env"]).iter().enumerate() {
        check_variable(variable, &format_args!("{}[{index}]", at("env")), findings);
    }
    for (index, mount) in list(&container["volumeMounts"]).iter().enumerate() {
        let path = format_args!("{}[{index}]", at("volumeMounts"));
        let name = text(&mount["name"]);
        if name.is_empty() {
            findings.required(format_args!("{path}.name"), "");
        }
        if !volumes.contains(&name) {
            findings.add(format_args!("{path}.name"), Problem::NotFound(name.into()));
        }
        if text(&mount["mountPath"]).is_empty() {
            findings.required(format_args!("{path}.mountPath"), "");
        }
    }
    let policies = ["Always", "IfNotPresent", "Never"];
    findings.one_of(at("imagePullPolicy"), &container["imagePullPolicy"], &policies);
    check_resources(&container["resources"], &at("resources"), findings);
}

fn check_ports(ports: &Value, path: &dyn Display, findings: &mut Findings) {
    let (mut names, mut taken): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
    for (index, port) in list(ports).iter().enumerate() {
        let at = |name: &str| format!("{path}[{index}].{name}");
        let name = text(&port["name"]);
        if !name.is_empty() {
            findings.named(at("name"), name, naming::port_name(name));
            if names.contains(&name) {
                findings.add(at("name"), Problem::Duplicate(name.into()));
            }
            names.push(name);
        }
        match port["containerPort"].as_i64().unwrap_or(0) {
            0 => findings.required(at("containerPort"), ""),
            number => findings.named(at("containerPort"), number, naming::port_number(number)),
        }
        if let Some(number) = port["hostPort"].as_i64().filter(|number| *number != 0) {
            findings.named(at("hostPort"), number, naming::port_number(number));
            let key = format!("{}/{}/{number}", text(&port["protocol"]), text(&port["hostIP"]));
            if taken.contains(&key) {
                findings.add(at("hostPort"), Problem::Duplicate(key.as_str().into()));
            }
            taken.push(key);
        }
        findings.one_of(at("protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
    }
}

fn check_variable(variable: &Value, path: &dyn Display, findings: &mut Findings) {
    let name = text(&variable["name"]);
    if name.is_empty() {
        findings.required(format_args!("{path}.name"), "");
    } else if !name.chars().all(|c| (' '..='~').contains(&c) && c != '=') {
        let why = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        findings.invalid(format_args!("{path}.name"), name, why);
    }
    let from = &variable["valueFrom"];
    if from.is_null() {
        return;
    }
    let path = format_args!("{path}.valueFrom");
    let sources = [
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fileKeyRef",
    ];
    let given = sources.iter().filter(|source| !from[**source].is_null()).count();
    if !text(&variable["value"]).is_empty() {
        if given > 0 {
            findings.invalid(path, "", "may not be specified when `value` is not empty");
        }
    } else if given == 0 {
        let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        findings.invalid(path, "", why);
    } else if given > 1 {
        findings.invalid(path, "", "may not have more than one field specified at a time");
    }
    if let Some(label) = from["fieldRef"]["fieldPath"].as_str() {
        let base = label.split_once('[').map_or(label, |(base, _)| base);
        if label.is_empty() {
            findings.required(format_args!("{path}.fieldRef.fieldPath"), "");
        } else if !FIELD_PATHS.contains(&base) {
            let why = format!("error converting fieldPath: field label not supported: {label}");
            findings.invalid(format_args!("{path}.fieldRef.fieldPath"), label, &why);
        }
    }
    for source in ["configMapKeyRef", "secretKeyRef"] {
        let reference = &from[source];
        if reference.is_null() {
            continue;
        }
        let name = text(&reference["name"]);
        findings.named(
            format_args!("{path}.{source}.name"),
            name,
            naming::subdomain(name),
        );
        match text(&reference["key"]) {
            "" => findings.required(format_args!("{path}.{source}.key"), ""),
            key => findings.named(format_args!("{path}.{source}.key"), key, naming::config_key(key)),
        }
    }
}

fn check_resources(resources: &Value, path: &dyn Display, findings: &mut Findings) {
    let (limits, requests) = (&resources["limits"], &resources["requests"]);
    for (kind, amounts) in [("limits", limits), ("requests", requests)] {
        for (name, amount) in amounts.as_object().into_iter().flatten() {
            let field = format_args!("{path}.{kind}[{name}]");
            let is_huge = name.starts_with("hugepages-");
            if !name.contains('/') && !is_huge && !STANDARD_RESOURCES.contains(&name.as_str()) {
                findings.invalid(
                    field,
                    name.as_str(),
                    "must be a standard resource type or fully qualified",
                );
                findings.invalid(field, name.as_str(), "must be a standard resource for containers");
            } else {
                findings.named(field, name.as_str(), naming::qualified(name));
            }
            let nanos = quantity::nanos(amount).unwrap_or(0);
            if nanos < 0 {
                findings.invalid(field, amount.clone(), "must be greater than or equal to 0");
            }
            if name.contains('/') && nanos % 1_000_000_000 != 0 {
                findings.invalid(field, amount.clone(), "must be an integer");
            }
        }
    }
    let huge = check_huge_pages(resources, path, findings);
    if huge
        && ["cpu", "memory"]
            .iter()
            .all(|name| limits[*name].is_null() && requests[*name].is_null())
    {
        findings.forbidden(path, "HugePages require cpu or memory");
    }
    for (name, amount) in requests.as_object().into_iter().flatten() {
        let field = format_args!("{path}.requests");
        match limits.get(name) {
            Some(limit) if quantity::nanos(amount) > quantity::nanos(limit) => {
                let why = format!("must be less than or equal to {name} limit of {}", text(limit));
                findings.invalid(field, amount.clone(), &why);
            }
            // What cannot be shared is asked for in full.
            None if name.contains('/') => {
                let why = "Limit must be set for non overcommitable resources";
                findings.required(format_args!("{path}.limits"), why);
            }
            _ => {}
        }
    }
}

/// Huge pages come whole. Returns whether any are asked for.
fn check_huge_pages(resources: &Value, path: &dyn Display, findings: &mut Findings) -> bool {
    let mut any = false;
    for kind in ["limits", "requests"] {
        for (name, amount) in resources[kind].as_object().into_iter().flatten() {
            let Some(size) = name.strip_prefix("hugepages-") else {
                continue;
            };
            any = true;
            let (size, asked) = (quantity::nanos(&json!(size)), quantity::nanos(amount));
            let whole = matches!((size, asked), (Some(size), Some(asked)) if size > 0 && asked > 0 && asked % size == 0);
            if !whole {
                let why = format!("{} is not positive integer multiple of {name}", text(amount));
                findings.invalid(format_args!("{path}.{kind}[{name}]"), amount.clone(), &why);
            }
        }
    }
    any
}
