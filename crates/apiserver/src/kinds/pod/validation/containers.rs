//! Containers: image, ports, mounts and restart policy.

use std::collections::HashSet;

use serde_json::Value;
use windlass_api::naming;

use super::super::ephemeral_containers;
use super::{
    super::super::{
        duplicates::{Duplicates, field_values},
        error_list::{ErrorList, list, text},
    },
    Pod, env, probes, resources, security,
};
use crate::{field_path::FieldPath, pick::pick, schema::Problem};

pub(super) fn check(pod: &Pod<'_>, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let regular = list(&pod.spec["containers"]);
    let place = path.child("containers");
    if regular.is_empty() {
        errors.required(place, "");
    }
    let repeats = Duplicates::by_field(regular, "name");
    for (index, container) in regular.iter().enumerate() {
        let path = place.index(index);
        check_common(pod, container, &path, errors);
        if repeats.contains(index) {
            errors.duplicate(path.child("name"), text(&container["name"]));
        }
        probes::check(pod, container, &path, errors);
        check_restart(container, &path, errors);
    }
    check_host_port_conflicts(regular, &place, errors);
    let initial = list(&pod.spec["initContainers"]);
    let place = path.child("initContainers");
    let repeats = Duplicates::by_field(initial, "name");
    let names = if initial.is_empty() {
        HashSet::new()
    } else {
        field_values(regular, "name")
    };
    for (index, container) in initial.iter().enumerate() {
        let path = place.index(index);
        check_common(pod, container, &path, errors);
        check_restart(container, &path, errors);
        let name = text(&container["name"]);
        let taken = names.contains(name) || (!name.is_empty() && repeats.contains(index));
        if taken {
            errors.duplicate(path.child("name"), name);
        }
        // They run one after another, so they cannot conflict with each other.
        check_host_port_conflicts(std::slice::from_ref(container), &place, errors);
        if container["restartPolicy"] == "Always" {
            probes::check(pod, container, &path, errors);
        } else {
            check_non_sidecar(container, &path, errors);
        }
    }
    if !pod.is_template {
        check_ephemeral(pod, &path.child("ephemeralContainers"), errors);
    }
}

/// Validates the ephemeral containers of a pod. They may not be part of its work: no ports, probes or resources.
fn check_ephemeral(pod: &Pod<'_>, path: &FieldPath<'_>, errors: &mut ErrorList) {
    const NOT_ALLOWED: [&str; 9] = [
        "ports",
        "resources",
        "resizePolicy",
        "restartPolicy",
        "restartPolicyRules",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
        "lifecycle",
    ];
    let why = "cannot be set for an Ephemeral Container";
    let containers = list(&pod.spec["ephemeralContainers"]);
    if containers.is_empty() {
        return;
    }
    let others = ephemeral_containers::other_names(pod.spec);
    let mut names = others.clone();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        check_common(pod, container, &path, errors);
        let image = text(&container["image"]);
        if image.trim() != image {
            let why = "must not have leading or trailing whitespace";
            errors.invalid(path.child("image"), image, why);
        }
        let name = text(&container["name"]);
        if !names.insert(name) {
            errors.duplicate(path.child("name"), name);
        }
        let target = text(&container["targetContainerName"]);
        if !target.is_empty() && !others.contains(target) {
            errors.add(
                path.child("targetContainerName"),
                Problem::NotFound(target.into()),
            );
        }
        for key in NOT_ALLOWED {
            let value = &container[key];
            if !value.is_null() && value.as_object().is_none_or(|fields| !fields.is_empty()) {
                errors.forbidden(path.child(key), why);
            }
        }
        let field = path.child("volumeMounts");
        for (index, mount) in list(&container["volumeMounts"]).iter().enumerate() {
            for key in ["subPath", "subPathExpr"] {
                if !text(&mount[key]).is_empty() {
                    errors.forbidden(field.index(index).child(key), why);
                }
            }
        }
    }
}

/// Rejects image names that are allowed in templates but not in pods.
pub(super) fn check_images(spec: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    for kind in ["containers", "initContainers"] {
        let path = path.child(kind);
        for (index, image) in list(&spec[kind]).iter().map(|c| text(&c["image"])).enumerate() {
            if image.trim() != image {
                let why = "must not have leading or trailing whitespace";
                errors.invalid(path.index(index).child("image"), image, why);
            }
        }
    }
}

/// Rejects what init containers other than sidecars may not have.
fn check_non_sidecar(container: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if !container[key].is_null() {
            let why = "may not be set for init containers without restartPolicy=Always";
            errors.forbidden(path.child(key), why);
        }
    }
    for (index, policy) in list(&container["resizePolicy"]).iter().enumerate() {
        if policy["restartPolicy"] == "RestartContainer" {
            let field = path.child("resizePolicy");
            let why = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            errors.invalid(field.index(index).child("restartPolicy"), "RestartContainer", why);
        }
    }
}

fn check_common(pod: &Pod<'_>, container: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
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
    if errors.require(path.child("name"), name) {
        let name = text(name);
        errors.invalid_each(path.child("name"), name, naming::label(name));
    }
    errors.require(path.child("image"), image);
    let policies = ["File", "FallbackToLogsOnError"];
    errors.one_of(path.child("terminationMessagePolicy"), on_end, &policies);
    check_ports(ports, &path.child("ports"), errors);
    env::check(list(env), list(env_from), path, errors);
    let (mounts, devices) = (list(mounts), list(devices));
    check_mounts(
        pod,
        container,
        (mounts, devices),
        &path.child("volumeMounts"),
        errors,
    );
    check_devices(pod, (mounts, devices), &path.child("volumeDevices"), errors);
    let policies = ["Always", "IfNotPresent", "Never"];
    errors.one_of(path.child("imagePullPolicy"), pulled, &policies);
    resources::check(resources, &path.child("resources"), errors);
    resources::check_resize_policy(pod, container, &path.child("resizePolicy"), errors);
    security::check_container(pod, container, &path.child("securityContext"), errors);
}

fn check_ports(ports: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let ports = list(ports);
    let repeats = Duplicates::by_field(ports, "name");
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(&port["name"]);
        if !name.is_empty() {
            errors.invalid_each(path.child("name"), name, naming::port_name(name));
            if repeats.contains(index) {
                errors.duplicate(path.child("name"), name);
            }
        }
        match port["containerPort"].as_i64().unwrap_or(0) {
            0 => errors.required(path.child("containerPort"), ""),
            number => errors.port_number(path.child("containerPort"), number),
        }
        if let Some(number) = port["hostPort"].as_i64().filter(|number| *number != 0) {
            errors.port_number(path.child("hostPort"), number);
        }
        errors.one_of(path.child("protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
    }
}

/// Checks that no two containers use the same host port.
fn check_host_port_conflicts(containers: &[Value], path: &FieldPath<'_>, errors: &mut ErrorList) {
    let mut taken = HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        for (place, port) in list(&container["ports"]).iter().enumerate() {
            let Some(own) = host_port(port) else { continue };
            if !taken.insert(own) {
                let (protocol, ip, number) = own;
                let field = path.child("ports");
                errors.duplicate(
                    field.index(place).child("hostPort"),
                    format!("{protocol}/{ip}/{number}"),
                );
            }
        }
    }
}

/// The host port of a container port: protocol, IP and number.
fn host_port(port: &Value) -> Option<(&str, &str, i64)> {
    let number = port["hostPort"].as_i64().filter(|number| *number != 0)?;
    Some((text(&port["protocol"]), text(&port["hostIP"]), number))
}

fn check_mounts(
    pod: &Pod<'_>,
    container: &Value,
    (mounts, devices): (&[Value], &[Value]),
    path: &FieldPath<'_>,
    errors: &mut ErrorList,
) {
    let repeats = Duplicates::by_field(mounts, "mountPath");
    let (names, targets) = (field_values(devices, "name"), field_values(devices, "devicePath"));
    for (index, mount) in mounts.iter().enumerate() {
        let item = path.index(index);
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
        errors.require(item.child("name"), name);
        let name = text(name);
        if pod.is_claim(name).is_none() {
            errors.add(item.child("name"), Problem::NotFound(name.into()));
        }
        errors.require(item.child("mountPath"), target);
        let target = text(target);
        if repeats.contains(index) {
            errors.invalid(item.child("mountPath"), target, "must be unique");
        }
        if names.contains(name) {
            let why = "must not already exist in volumeDevices";
            errors.invalid(item.child("name"), name, why);
        }
        if targets.contains(target) {
            let why = "must not already exist as a path in volumeDevices";
            errors.invalid(item.child("mountPath"), target, why);
        }
        let (part, pattern) = (text(part), text(pattern));
        errors.relative_path(path.child("subPath"), part);
        if !pattern.is_empty() && !part.is_empty() {
            let why = "subPathExpr and subPath are mutually exclusive";
            errors.invalid(item.child("subPathExpr"), pattern, why);
        }
        errors.relative_path(path.child("subPathExpr"), pattern);
        if !propagation.is_null() || !recursive.is_null() {
            check_propagation(container, mount, path, errors);
        }
    }
}

fn check_propagation(container: &Value, mount: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let propagation = &mount["mountPropagation"];
    let modes = ["Bidirectional", "HostToContainer", "None"];
    errors.one_of_if_given(path.child("mountPropagation"), propagation, &modes);
    if *propagation == "Bidirectional" && container["securityContext"]["privileged"] != true {
        let why = "Bidirectional mount propagation is available only to privileged containers";
        errors.forbidden(path.child("mountPropagation"), why);
    }
    let (recursive, field) = (&mount["recursiveReadOnly"], path.child("recursiveReadOnly"));
    errors.one_of_if_given(field, recursive, &["Disabled", "Enabled", "IfPossible"]);
    if matches!(text(recursive), "Enabled" | "IfPossible") {
        if mount["readOnly"] != true {
            errors.forbidden(field, "may only be specified when readOnly is true");
        }
        if !matches!(text(propagation), "" | "None") {
            let why = "may only be specified when mountPropagation is None or not specified";
            errors.forbidden(field, why);
        }
    }
}

fn check_devices(
    pod: &Pod<'_>,
    (mounts, devices): (&[Value], &[Value]),
    path: &FieldPath<'_>,
    errors: &mut ErrorList,
) {
    if devices.is_empty() {
        return;
    }
    let same_name = Duplicates::by_field(devices, "name");
    let same_path = Duplicates::by_field(devices, "devicePath");
    let (names, targets) = (field_values(mounts, "name"), field_values(mounts, "mountPath"));
    for (index, device) in devices.iter().enumerate() {
        let path = path.index(index);
        let (name, target) = (text(&device["name"]), text(&device["devicePath"]));
        if errors.require(path.child("name"), &device["name"]) && same_name.contains(index) {
            errors.invalid(path.child("name"), name, "must be unique");
        }
        match pod.is_claim(name) {
            None => errors.add(path.child("name"), Problem::NotFound(name.into())),
            Some(false) => {
                let why =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.invalid(path.child("name"), name, why);
            }
            Some(true) => {}
        }
        errors.require(path.child("devicePath"), &device["devicePath"]);
        if same_path.contains(index) {
            errors.invalid(path.child("devicePath"), target, "must be unique");
        }
        if target.split('/').any(|part| part == "..") {
            errors.invalid(
                path.child("devicePath"),
                target,
                "can not contain backsteps ('..')",
            );
        }
        if names.contains(name) {
            let why = "must not already exist in volumeMounts";
            errors.invalid(path.child("name"), name, why);
        }
        if targets.contains(target) {
            let why = "must not already exist as a path in volumeMounts";
            errors.invalid(path.child("devicePath"), target, why);
        }
    }
}

/// Checks a container's own restart policy.
fn check_restart(container: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let (policy, rules) = (
        &container["restartPolicy"],
        list(&container["restartPolicyRules"]),
    );
    if policy.is_null() && !rules.is_empty() {
        let why = "must specify restartPolicy when restart rules are used";
        errors.required(path.child("restartPolicy"), why);
    }
    let policies = ["Always", "Never", "OnFailure"];
    errors.one_of_if_given(path.child("restartPolicy"), policy, &policies);
    for (index, rule) in rules.iter().enumerate() {
        let field = path.child("restartPolicyRules");
        let field = field.index(index);
        errors.one_of(field.child("action"), &rule["action"], &["Restart"]);
        let codes = field.child("exitCodes");
        if rule["exitCodes"].is_null() {
            errors.required(codes, "must be specified");
        } else {
            let operators = ["In", "NotIn"];
            errors.one_of(
                codes.child("operator"),
                &rule["exitCodes"]["operator"],
                &operators,
            );
        }
    }
}
