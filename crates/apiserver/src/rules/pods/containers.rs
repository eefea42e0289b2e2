//! A pod's containers: image, ports, mounts, and how they are started again.

use std::collections::HashSet;

use serde_json::Value;

use super::{
    super::{
        findings::{Findings, list, text},
        repeats::{Repeats, texts_of},
    },
    Pod, env, probes, resources, security,
};
use crate::{naming, pick::pick, schema::Problem, trail::Trail};

pub(super) fn check(pod: &Pod<'_>, path: &Trail<'_>, findings: &mut Findings) {
    let regular = list(&pod.spec["containers"]);
    let place = path.at("containers");
    if regular.is_empty() {
        findings.required(place, "");
    }
    let repeats = Repeats::of_field(regular, "name");
    for (index, container) in regular.iter().enumerate() {
        let path = place.item(index);
        check_common(pod, container, &path, findings);
        if repeats.has(index) {
            findings.duplicate(path.at("name"), text(&container["name"]));
        }
        probes::check(pod, container, &path, findings);
        check_restart(container, &path, findings);
    }
    check_host_port_conflicts(regular, &place, findings);
    let initial = list(&pod.spec["initContainers"]);
    let place = path.at("initContainers");
    let repeats = Repeats::of_field(initial, "name");
    let names = if initial.is_empty() {
        HashSet::new()
    } else {
        texts_of(regular, "name")
    };
    for (index, container) in initial.iter().enumerate() {
        let path = place.item(index);
        check_common(pod, container, &path, findings);
        check_restart(container, &path, findings);
        let name = text(&container["name"]);
        let taken = names.contains(name) || (!name.is_empty() && repeats.has(index));
        if taken {
            findings.duplicate(path.at("name"), name);
        }
        // They run one after another.
        check_host_port_conflicts(std::slice::from_ref(container), &place, findings);
        if container["restartPolicy"] == "Always" {
            probes::check(pod, container, &path, findings);
        } else {
            check_passing(container, &path, findings);
        }
    }
}

/// What the images of a pod may not be, and those of a template may.
pub(super) fn check_images(spec: &Value, path: &Trail<'_>, findings: &mut Findings) {
    for kind in ["containers", "initContainers"] {
        let path = path.at(kind);
        for (index, image) in list(&spec[kind]).iter().map(|c| text(&c["image"])).enumerate() {
            if image.trim() != image {
                let why = "must not have leading or trailing whitespace";
                findings.invalid(path.item(index).at("image"), image, why);
            }
        }
    }
}

/// What a container that ends before the others begin has no use for.
fn check_passing(container: &Value, path: &Trail<'_>, findings: &mut Findings) {
    for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if !container[key].is_null() {
            let why = "may not be set for init containers without restartPolicy=Always";
            findings.forbidden(path.at(key), why);
        }
    }
    for (index, policy) in list(&container["resizePolicy"]).iter().enumerate() {
        if policy["restartPolicy"] == "RestartContainer" {
            let field = path.at("resizePolicy");
            let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            findings.invalid(field.item(index).at("restartPolicy"), "RestartContainer", why);
        }
    }
}

fn check_common(pod: &Pod<'_>, container: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let [
        env,
        env_from,
        image,
        pulled,
        name,
        ports,
        resources,
        on_end,
        devices,
        mounts,
    ] = pick(
        container,
        [
            "env",
            "envFrom",
            "image",
            "imagePullPolicy",
            "name",
            "ports",
            "resources",
            "terminationMessagePolicy",
            "volumeDevices",
            "volumeMounts",
        ],
    );
    if findings.given(path.at("name"), name) {
        let name = text(name);
        findings.named(path.at("name"), name, naming::label(name));
    }
    findings.given(path.at("image"), image);
    let policies = ["File", "FallbackToLogsOnError"];
    findings.one_of(path.at("terminationMessagePolicy"), on_end, &policies);
    check_ports(ports, &path.at("ports"), findings);
    env::check(list(env), list(env_from), path, findings);
    let (mounts, devices) = (list(mounts), list(devices));
    check_mounts(
        pod,
        container,
        (mounts, devices),
        &path.at("volumeMounts"),
        findings,
    );
    check_devices(pod, (mounts, devices), &path.at("volumeDevices"), findings);
    let policies = ["Always", "IfNotPresent", "Never"];
    findings.one_of(path.at("imagePullPolicy"), pulled, &policies);
    resources::check(resources, &path.at("resources"), findings);
    resources::check_resizing(pod, container, &path.at("resizePolicy"), findings);
    security::check_container(pod, container, &path.at("securityContext"), findings);
}

fn check_ports(ports: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let ports = list(ports);
    let repeats = Repeats::of_field(ports, "name");
    for (index, port) in ports.iter().enumerate() {
        let path = path.item(index);
        let name = text(&port["name"]);
        if !name.is_empty() {
            findings.named(path.at("name"), name, naming::port_name(name));
            if repeats.has(index) {
                findings.duplicate(path.at("name"), name);
            }
        }
        match port["containerPort"].as_i64().unwrap_or(0) {
            0 => findings.required(path.at("containerPort"), ""),
            number => findings.port_number(path.at("containerPort"), number),
        }
        if let Some(number) = port["hostPort"].as_i64().filter(|number| *number != 0) {
            findings.port_number(path.at("hostPort"), number);
        }
        findings.one_of(path.at("protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
    }
}

/// A port of the node is one container's.
fn check_host_port_conflicts(containers: &[Value], path: &Trail<'_>, findings: &mut Findings) {
    let mut taken = HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.item(index);
        for (place, port) in list(&container["ports"]).iter().enumerate() {
            let Some(own) = host_port(port) else { continue };
            if !taken.insert(own) {
                let (protocol, ip, number) = own;
                let field = path.at("ports");
                findings.duplicate(
                    field.item(place).at("hostPort"),
                    format!("{protocol}/{ip}/{number}"),
                );
            }
        }
    }
}

/// What of the node a port takes, if it takes any.
fn host_port(port: &Value) -> Option<(&str, &str, i64)> {
    let number = port["hostPort"].as_i64().filter(|number| *number != 0)?;
    Some((text(&port["protocol"]), text(&port["hostIP"]), number))
}

fn check_mounts(
    pod: &Pod<'_>,
    container: &Value,
    (mounts, devices): (&[Value], &[Value]),
    path: &Trail<'_>,
    findings: &mut Findings,
) {
    let repeats = Repeats::of_field(mounts, "mountPath");
    let (names, targets) = (texts_of(devices, "name"), texts_of(devices, "devicePath"));
    for (index, mount) in mounts.iter().enumerate() {
        let item = path.item(index);
        let [target, propagation, name, recursive, part, pattern] = pick(
            mount,
            [
                "mountPath",
                "mountPropagation",
                "name",
                "recursiveReadOnly",
                "subPath",
                "subPathExpr",
            ],
        );
        findings.given(item.at("name"), name);
        let name = text(name);
        if pod.is_claim(name).is_none() {
            findings.add(item.at("name"), Problem::NotFound(name.into()));
        }
        findings.given(item.at("mountPath"), target);
        let target = text(target);
        if repeats.has(index) {
            findings.invalid(item.at("mountPath"), target, "must be unique");
        }
        if names.contains(name) {
            let why = "must not already exist in volumeDevices";
            findings.invalid(item.at("name"), name, why);
        }
        if targets.contains(target) {
            let why = "must not already exist as a path in volumeDevices";
            findings.invalid(item.at("mountPath"), target, why);
        }
        let (part, pattern) = (text(part), text(pattern));
        findings.inner_path(path.at("subPath"), part);
        if !pattern.is_empty() && !part.is_empty() {
            let why = "subPathExpr and subPath are mutually exclusive";
            findings.invalid(item.at("subPathExpr"), pattern, why);
        }
        findings.inner_path(path.at("subPathExpr"), pattern);
        if !propagation.is_null() || !recursive.is_null() {
            check_propagation(container, mount, path, findings);
        }
    }
}

fn check_propagation(container: &Value, mount: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let propagation = &mount["mountPropagation"];
    let modes = ["Bidirectional", "HostToContainer", "None"];
    findings.one_of_if_given(path.at("mountPropagation"), propagation, &modes);
    if *propagation == "Bidirectional" && container["securityContext"]["privileged"] != true {
        let why = "Bidirectional mount propagation is available only to privileged containers";
        findings.forbidden(path.at("mountPropagation"), why);
    }
    let (recursive, field) = (&mount["recursiveReadOnly"], path.at("recursiveReadOnly"));
    findings.one_of_if_given(field, recursive, &["Disabled", "Enabled", "IfPossible"]);
    if matches!(text(recursive), "Enabled" | "IfPossible") {
        if mount["readOnly"] != true {
            findings.forbidden(field, "may only be specified when readOnly is true");
        }
        if !matches!(text(propagation), "" | "None") {
            let why = "may only be specified when mountPropagation is None or not specified";
            findings.forbidden(field, why);
        }
    }
}

fn check_devices(
    pod: &Pod<'_>,
    (mounts, devices): (&[Value], &[Value]),
    path: &Trail<'_>,
    findings: &mut Findings,
) {
    if devices.is_empty() {
        return;
    }
    let same_name = Repeats::of_field(devices, "name");
    let same_path = Repeats::of_field(devices, "devicePath");
    let (names, targets) = (texts_of(mounts, "name"), texts_of(mounts, "mountPath"));
    for (index, device) in devices.iter().enumerate() {
        let path = path.item(index);
        let (name, target) = (text(&device["name"]), text(&device["devicePath"]));
        if findings.given(path.at("name"), &device["name"]) && same_name.has(index) {
            findings.invalid(path.at("name"), name, "must be unique");
        }
        match pod.is_claim(name) {
            None => findings.add(path.at("name"), Problem::NotFound(name.into())),
            Some(false) => {
                let why =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                findings.invalid(path.at("name"), name, why);
            }
            Some(true) => {}
        }
        findings.given(path.at("devicePath"), &device["devicePath"]);
        if same_path.has(index) {
            findings.invalid(path.at("devicePath"), target, "must be unique");
        }
        if target.split('/').any(|part| part == "..") {
            findings.invalid(path.at("devicePath"), target, "can not contain backsteps ('..')");
        }
        if names.contains(name) {
            let why = "must not already exist in volumeMounts";
            findings.invalid(path.at("name"), name, why);
        }
        if targets.contains(target) {
            let why = "must not already exist as a path in volumeMounts";
            findings.invalid(path.at("devicePath"), target, why);
        }
    }
}

/// When a container is started again, if it decides that for itself.
fn check_restart(container: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let (policy, rules) = (
        &container["restartPolicy"],
        list(&container["restartPolicyRules"]),
    );
    if policy.is_null() && !rules.is_empty() {
        let why = "must specify restartPolicy when restart rules are used";
        findings.required(path.at("restartPolicy"), why);
    }
    let policies = ["Always", "Never", "OnFailure"];
    findings.one_of_if_given(path.at("restartPolicy"), policy, &policies);
    for (index, rule) in rules.iter().enumerate() {
        let field = path.at("restartPolicyRules");
        let field = field.item(index);
        findings.one_of(field.at("action"), &rule["action"], &["Restart"]);
        let codes = field.at("exitCodes");
        if rule["exitCodes"].is_null() {
            findings.required(codes, "must be specified");
        } else {
            let operators = ["In", "NotIn"];
            findings.one_of(codes.at("operator"), &rule["exitCodes"]["operator"], &operators);
        }
    }
}
