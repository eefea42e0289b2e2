//! Pods, the templates of pods, and nodes.

use serde_json::{Value, json};

use super::{
    findings::{Findings, list, text},
    probes,
};
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

pub(super) fn check_pod(spec: &Value, is_new: bool, findings: &mut Findings) {
    check_spec(spec, "spec", findings);
    if is_new && !list(&spec["ephemeralContainers"]).is_empty() {
        findings.forbidden("spec.ephemeralContainers", "cannot be set on create");
    }
}

/// A template: its labels, annotations and pod.
pub(super) fn check_template(template: &Value, path: &str, findings: &mut Findings) {
    findings.labels(&format!("{path}.labels"), &template["metadata"]["labels"]);
    check_template_without_labels(template, path, findings);
}

/// For jobs, which check the labels before they select by them.
pub(super) fn check_template_without_labels(template: &Value, path: &str, findings: &mut Findings) {
    check_spec(&template["spec"], &format!("{path}.spec"), findings);
    if !list(&template["spec"]["ephemeralContainers"]).is_empty() {
        let why = "ephemeral containers not allowed in pod template";
        findings.forbidden(format!("{path}.spec.ephemeralContainers"), why);
    }
}

fn check_spec(spec: &Value, path: &str, findings: &mut Findings) {
    let at = |name: &str| format!("{path}.{name}");
    check_volumes(spec, path, findings);
    check_containers(spec, path, findings);
    let policies = ["Always", "OnFailure", "Never"];
    findings.one_of(at("restartPolicy"), &spec["restartPolicy"], &policies);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    findings.one_of(at("dnsPolicy"), &spec["dnsPolicy"], &policies);
    findings.labels(&at("nodeSelector"), &spec["nodeSelector"]);
    check_security(spec, path, findings);
    check_affinity(&spec["affinity"], &at("affinity"), findings);
    for (index, gate) in list(&spec["readinessGates"]).iter().enumerate() {
        let kind = text(&gate["conditionType"]);
        findings.named(
            &format!("{}[{index}].conditionType", at("readinessGates")),
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
            findings.named(&at(key), name, naming::subdomain(name));
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
            findings.named(&at(key), name, naming::label(name));
        }
    }
    for (index, toleration) in list(&spec["tolerations"]).iter().enumerate() {
        check_toleration(toleration, &format!("{}[{index}]", at("tolerations")), findings);
    }
    for (index, alias) in list(&spec["hostAliases"]).iter().enumerate() {
        let ip = text(&alias["ip"]);
        findings.named(
            &format!("{}[{index}].ip", at("hostAliases")),
            ip,
            naming::address(ip),
        );
    }
}

fn check_containers(spec: &Value, path: &str, findings: &mut Findings) {
    let volumes: Vec<_> = list(&spec["volumes"])
        .iter()
        .map(|volume| text(&volume["name"]))
        .collect();
    if list(&spec["containers"]).is_empty() {
        findings.required(format!("{path}.containers"), "");
    }
    let mut names: Vec<&str> = Vec::new();
    for kind in ["containers", "initContainers"] {
        for (index, container) in list(&spec[kind]).iter().enumerate() {
            let path = format!("{path}.{kind}[{index}]");
            check_container(container, &path, &volumes, findings);
            let name = text(&container["name"]);
            if !name.is_empty() && names.contains(&name) {
                findings.add(format!("{path}.name"), Problem::Duplicate(name.into()));
            }
            names.push(name);
            probes::check(container, &path, findings);
        }
    }
}

fn check_container(container: &Value, path: &str, volumes: &[&str], findings: &mut Findings) {
    let at = |name: &str| format!("{path}.{name}");
    let name = text(&container["name"]);
    if name.is_empty() {
        findings.required(at("name"), "");
    } else {
        findings.named(&at("name"), name, naming::label(name));
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
        check_variable(variable, &format!("{}[{index}]", at("env")), findings);
    }
    for (index, mount) in list(&container["volumeMounts"]).iter().enumerate() {
        let path = format!("{}[{index}]", at("volumeMounts"));
        let name = text(&mount["name"]);
        if name.is_empty() {
            findings.required(format!("{path}.name"), "");
        }
        if !volumes.contains(&name) {
            findings.add(format!("{path}.name"), Problem::NotFound(name.into()));
        }
        if text(&mount["mountPath"]).is_empty() {
            findings.required(format!("{path}.mountPath"), "");
        }
    }
    let policies = ["Always", "IfNotPresent", "Never"];
    findings.one_of(at("imagePullPolicy"), &container["imagePullPolicy"], &policies);
    check_resources(&container["resources"], &at("resources"), findings);
}

fn check_ports(ports: &Value, path: &str, findings: &mut Findings) {
    let (mut names, mut taken): (Vec<&str>, Vec<String>) = (Vec::new(), Vec::new());
    for (index, port) in list(ports).iter().enumerate() {
        let at = |name: &str| format!("{path}[{index}].{name}");
        let name = text(&port["name"]);
        if !name.is_empty() {
            findings.named(&at("name"), name, naming::port_name(name));
            if names.contains(&name) {
                findings.add(at("name"), Problem::Duplicate(name.into()));
            }
            names.push(name);
        }
        match port["containerPort"].as_i64().unwrap_or(0) {
            0 => findings.required(at("containerPort"), ""),
            number => findings.named(&at("containerPort"), number, naming::port_number(number)),
        }
        if let Some(number) = port["hostPort"].as_i64().filter(|number| *number != 0) {
            findings.named(&at("hostPort"), number, naming::port_number(number));
            let key = format!("{}/{}/{number}", text(&port["protocol"]), text(&port["hostIP"]));
            if taken.contains(&key) {
                findings.add(at("hostPort"), Problem::Duplicate(key.as_str().into()));
            }
            taken.push(key);
        }
        findings.one_of(at("protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
    }
}

fn check_variable(variable: &Value, path: &str, findings: &mut Findings) {
    let name = text(&variable["name"]);
    if name.is_empty() {
        findings.required(format!("{path}.name"), "");
    } else if !name.chars().all(|c| (' '..='~').contains(&c) && c != '=') {
        let why = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        findings.invalid(format!("{path}.name"), name, why);
    }
    let from = &variable["valueFrom"];
    if from.is_null() {
        return;
    }
    let path = format!("{path}.valueFrom");
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
            findings.invalid(
                path.as_str(),
                "",
                "may not be specified when `value` is not empty",
            );
        }
    } else if given == 0 {
        let why = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        findings.invalid(path.as_str(), "", why);
    } else if given > 1 {
        findings.invalid(
            path.as_str(),
            "",
            "may not have more than one field specified at a time",
        );
    }
    if let Some(label) = from["fieldRef"]["fieldPath"].as_str() {
        let base = label.split_once('[').map_or(label, |(base, _)| base);
        if label.is_empty() {
            findings.required(format!("{path}.fieldRef.fieldPath"), "");
        } else if !FIELD_PATHS.contains(&base) {
            let why = format!("error converting fieldPath: field label not supported: {label}");
            findings.invalid(format!("{path}.fieldRef.fieldPath"), label, &why);
        }
    }
    for source in ["configMapKeyRef", "secretKeyRef"] {
        let reference = &from[source];
        if reference.is_null() {
            continue;
        }
        let name = text(&reference["name"]);
        findings.named(&format!("{path}.{source}.name"), name, naming::subdomain(name));
        match text(&reference["key"]) {
            "" => findings.required(format!("{path}.{source}.key"), ""),
            key => findings.named(&format!("{path}.{source}.key"), key, naming::config_key(key)),
        }
    }
}

fn check_resources(resources: &Value, path: &str, findings: &mut Findings) {
    let (limits, requests) = (&resources["limits"], &resources["requests"]);
    for (kind, amounts) in [("limits", limits), ("requests", requests)] {
        for (name, amount) in amounts.as_object().into_iter().flatten() {
            let field = format!("{path}.{kind}[{name}]");
            let is_huge = name.starts_with("hugepages-");
            if !name.contains('/') && !is_huge && !STANDARD_RESOURCES.contains(&name.as_str()) {
                findings.invalid(
                    field.as_str(),
                    name.as_str(),
                    "must be a standard resource type or fully qualified",
                );
                findings.invalid(
                    field.as_str(),
                    name.as_str(),
                    "must be a standard resource for containers",
                );
            } else {
                findings.named(&field, name.as_str(), naming::qualified(name));
            }
            let nanos = quantity::nanos(amount).unwrap_or(0);
            if nanos < 0 {
                findings.invalid(
                    field.as_str(),
                    amount.clone(),
                    "must be greater than or equal to 0",
                );
            }
            if name.contains('/') && nanos % 1_000_000_000 != 0 {
                findings.invalid(field.as_str(), amount.clone(), "must be an integer");
            }
        }
    }
    for (name, amount) in requests.as_object().into_iter().flatten() {
        let field = format!("{path}.requests");
        match limits.get(name) {
            Some(limit) if quantity::nanos(amount) > quantity::nanos(limit) => {
                let why = format!("must be less than or equal to {name} limit of {}", text(limit));
                findings.invalid(field, amount.clone(), &why);
            }
            // What cannot be shared is asked for in full.
            None if name.contains('/') => {
                let why = "Limit must be set for non overcommitable resources";
                findings.required(format!("{path}.limits"), why);
            }
            _ => {}
        }
    }
}

fn check_volumes(spec: &Value, path: &str, findings: &mut Findings) {
    let mut names: Vec<&str> = Vec::new();
    for (index, volume) in list(&spec["volumes"]).iter().enumerate() {
        let path = format!("{path}.volumes[{index}]");
        let sources: Vec<_> = volume
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(key, source)| *key != "name" && !source.is_null())
            .map(|(key, _)| key.as_str())
            .collect();
        for extra in sources.iter().skip(1) {
            findings.forbidden(
                format!("{path}.{extra}"),
                "may not specify more than 1 volume type",
            );
        }
        if sources.is_empty() {
            findings.required(path.as_str(), "must specify a volume type");
        }
        for (source, field) in [
            ("hostPath", "path"),
            ("secret", "secretName"),
            ("configMap", "name"),
            ("persistentVolumeClaim", "claimName"),
            ("nfs", "server"),
        ] {
            if !volume[source].is_null() && text(&volume[source][field]).is_empty() {
                findings.required(format!("{path}.{source}.{field}"), "");
            }
        }
        let name = text(&volume["name"]);
        if name.is_empty() {
            findings.required(format!("{path}.name"), "");
        } else {
            findings.named(&format!("{path}.name"), name, naming::label(name));
            if names.contains(&name) {
                findings.add(format!("{path}.name"), Problem::Duplicate(name.into()));
            }
        }
        names.push(name);
    }
}

fn check_security(spec: &Value, path: &str, findings: &mut Findings) {
    for key in ["runAsUser", "runAsGroup", "fsGroup"] {
        let id = &spec["securityContext"][key];
        if id
            .as_i64()
            .is_some_and(|id| !(0..=i64::from(i32::MAX)).contains(&id))
        {
            let why = "must be between 0 and 2147483647, inclusive";
            findings.invalid(format!("{path}.securityContext.{key}"), id.clone(), why);
        }
    }
}

fn check_affinity(affinity: &Value, path: &str, findings: &mut Findings) {
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let node = &affinity["nodeAffinity"][required];
    if !node.is_null() && list(&node["nodeSelectorTerms"]).is_empty() {
        findings.required(
            format!("{path}.nodeAffinity.{required}.nodeSelectorTerms"),
            "must have at least one node selector term",
        );
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (index, term) in list(&affinity[kind][required]).iter().enumerate() {
            let path = format!("{path}.{kind}.{required}[{index}]");
            findings.selector(&format!("{path}.labelSelector"), &term["labelSelector"]);
            if text(&term["topologyKey"]).is_empty() {
                findings.required(format!("{path}.topologyKey"), "can not be empty");
            }
        }
    }
}

fn check_spread(constraints: &Value, path: &str, findings: &mut Findings) {
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

fn check_toleration(toleration: &Value, path: &str, findings: &mut Findings) {
    let at = |name: &str| format!("{path}.{name}");
    let (key, operator) = (text(&toleration["key"]), text(&toleration["operator"]));
    let (value, effect) = (text(&toleration["value"]), text(&toleration["effect"]));
    if !key.is_empty() {
        findings.named(&at("key"), key, naming::qualified(key));
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
        "Equal" | "" => findings.named(&at("operator"), value, naming::label_value(value)),
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

fn check_effect(effect: &Value, field: &str, findings: &mut Findings) {
    if !text(effect).is_empty() {
        findings.one_of(field, effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
    }
}

pub(super) fn check_node(spec: &Value, findings: &mut Findings) {
    for (index, taint) in list(&spec["taints"]).iter().enumerate() {
        let path = format!("metadata.taints[{index}]");
        let key = text(&taint["key"]);
        findings.named(&format!("{path}.key"), key, naming::qualified(key));
        let value = text(&taint["value"]);
        findings.named(&format!("{path}.value"), value, naming::label_value(value));
        if text(&taint["effect"]).is_empty() {
            findings.required(format!("{path}.effect"), "");
        }
        check_effect(&taint["effect"], &format!("{path}.effect"), findings);
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
            &format!("spec.podCIDRs[{index}]"),
            block,
            naming::address_block(block),
        );
    }
}
