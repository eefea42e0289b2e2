//! Validation of status updates.

use std::net::IpAddr;

use serde_json::Value;
use windlass_api::naming;

use super::{
    error_list::{ErrorList, entries, list, text},
    nodes,
};
use crate::{field_path::FieldPath, schema::quantity};

/// The counters in a kind's status, which cannot be negative.
fn counters(kind: (&str, &str)) -> &'static [&'static str] {
    match kind {
        ("apps", "Deployment") => &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
        ("apps", "ReplicaSet") | ("", "ReplicationController") => &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "terminatingReplicas",
            "observedGeneration",
        ],
        ("apps", "StatefulSet") => &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ],
        ("apps", "DaemonSet") => &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ],
        ("batch", "Job") => &["active", "succeeded", "failed", "ready", "terminating"],
        ("policy", "PodDisruptionBudget") => &[
            "disruptionsAllowed",
            "currentHealthy",
            "desiredHealthy",
            "expectedPods",
        ],
        ("autoscaling", _) => &["currentReplicas", "desiredReplicas"],
        _ => &[],
    }
}

/// The counters that may not exceed `replicas`; `availableReplicas` may not exceed the ready ones either.
fn replica_counters(kind: (&str, &str)) -> &'static [&'static str] {
    match kind {
        ("apps", "Deployment") => &["updatedReplicas", "readyReplicas", "availableReplicas"],
        ("apps", "ReplicaSet") | ("", "ReplicationController") => {
            &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"]
        }
        ("apps", "StatefulSet") => &[
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
        ],
        _ => &[],
    }
}

pub(super) fn check(kind: (&str, &str), object: &Value, errors: &mut ErrorList) {
    let (status, path) = (&object["status"], FieldPath::from_root("status"));
    for key in counters(kind) {
        errors.not_negative(path.child(key), &status[*key]);
    }
    let number = |key: &str| status[key].as_i64().unwrap_or(0);
    for key in replica_counters(kind) {
        if number(key) > number("replicas") {
            let why = "cannot be greater than status.replicas";
            errors.invalid(path.child(key), number(key), why);
        }
        if *key == "availableReplicas" && number(key) > number("readyReplicas") {
            let why = match kind {
                ("apps", "StatefulSet") => "cannot be greater than status.readyReplicas",
                _ => "cannot be greater than readyReplicas",
            };
            errors.invalid(path.child(key), number(key), why);
        }
    }
    match kind {
        ("", "Pod") => check_pod(status, errors),
        ("", "Node") => nodes::check_status(status, errors),
        ("", "Service") => check_load_balancer(object, errors),
        ("", "PersistentVolumeClaim") => {
            for (name, amount) in entries(&status["capacity"]) {
                let nanos = quantity::nanos(amount).unwrap_or(0);
                if nanos < 0 {
                    let value = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MIN);
                    let why = "must be a valid resource quantity";
                    errors.invalid(path.child("capacity").key(name), value, why);
                }
            }
        }
        ("batch", "Job") if !status["ready"].is_null() && number("ready") > number("active") => {
            let why = "cannot set more ready pods than active";
            errors.invalid(path.child("ready"), number("ready"), why);
        }
        ("networking.k8s.io", "Ingress") => {
            check_load_balancer_ingress(&status["loadBalancer"]["ingress"], errors);
        }
        _ => {}
    }
}

fn check_pod(status: &Value, errors: &mut ErrorList) {
    let node = text(&status["nominatedNodeName"]);
    if !node.is_empty() {
        errors.invalid_each("status.nominatedNodeName", node, naming::subdomain(node));
    }
    let path = FieldPath::from_root("status.podIPs");
    for (index, entry) in list(&status["podIPs"]).iter().enumerate() {
        let ip = text(&entry["ip"]);
        errors.invalid_each(path.index(index), ip, naming::ip_address(ip));
    }
    let path = FieldPath::from_root("status.conditions");
    for (index, condition) in list(&status["conditions"]).iter().enumerate() {
        let kind = text(&condition["type"]);
        errors.invalid_each(path.index(index).child("Type"), kind, naming::qualified(kind));
    }
}

fn check_load_balancer(service: &Value, errors: &mut ErrorList) {
    let entries = &service["status"]["loadBalancer"]["ingress"];
    if service["spec"]["type"] != "LoadBalancer" && !list(entries).is_empty() {
        let why = "may only be used when `spec.type` is 'LoadBalancer'";
        errors.forbidden("status.loadBalancer.ingress", why);
    } else {
        check_load_balancer_ingress(entries, errors);
    }
}

/// The addresses of a load balancer.
fn check_load_balancer_ingress(entries: &Value, errors: &mut ErrorList) {
    let path = FieldPath::from_root("status.loadBalancer.ingress");
    for (index, entry) in list(entries).iter().enumerate() {
        let path = path.index(index);
        let (ip, host, mode) = (text(&entry["ip"]), text(&entry["hostname"]), &entry["ipMode"]);
        if !ip.is_empty() {
            errors.invalid_each(path.child("ip"), ip, naming::ip_address(ip));
        }
        if ip.is_empty() && !mode.is_null() {
            errors.forbidden(path.child("ipMode"), "may not be specified when `ip` is not set");
        } else {
            errors.one_of_if_given(path.child("ipMode"), mode, &["Proxy", "VIP"]);
        }
        if !host.is_empty() {
            errors.invalid_each(path.child("hostname"), host, naming::subdomain(host));
            if host.parse::<IpAddr>().is_ok() {
                errors.invalid(
                    path.child("hostname"),
                    host,
                    "must be a DNS name, not an IP address",
                );
            }
        }
    }
}
