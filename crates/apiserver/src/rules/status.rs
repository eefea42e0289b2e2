//! What controllers may not say of the objects that they look after.

use std::net::IpAddr;

use serde_json::Value;

use super::{
    findings::{Findings, entries, list, text},
    nodes,
};
use crate::{naming, schema::quantity, trail::Trail};

/// The numbers of a kind's status that cannot be negative.
fn counts(kind: (&str, &str)) -> &'static [&'static str] {
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

/// Those that are a part of `replicas`, and of which the last is a part of the ready ones.
fn parts(kind: (&str, &str)) -> &'static [&'static str] {
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

pub(super) fn check(kind: (&str, &str), object: &Value, findings: &mut Findings) {
    let (status, path) = (&object["status"], Trail::from_root("status"));
    for key in counts(kind) {
        findings.not_negative(path.at(key), &status[*key]);
    }
    let number = |key: &str| status[key].as_i64().unwrap_or(0);
    for key in parts(kind) {
        if number(key) > number("replicas") {
            let why = "cannot be greater than status.replicas";
            findings.invalid(path.at(key), number(key), why);
        }
        if *key == "availableReplicas" && number(key) > number("readyReplicas") {
            let why = match kind {
                ("apps", "StatefulSet") => "cannot be greater than status.readyReplicas",
                _ => "cannot be greater than readyReplicas",
            };
            findings.invalid(path.at(key), number(key), why);
        }
    }
    match kind {
        ("", "Pod") => check_pod(status, findings),
        ("", "Node") => nodes::check_status(status, findings),
        ("", "Service") => check_balancer(object, findings),
        ("", "PersistentVolumeClaim") => {
            for (name, amount) in entries(&status["capacity"]) {
                let nanos = quantity::nanos(amount).unwrap_or(0);
                if nanos < 0 {
                    let value = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MIN);
                    let why = "must be a valid resource quantity";
                    findings.invalid(path.at("capacity").entry(name), value, why);
                }
            }
        }
        ("batch", "Job") if !status["ready"].is_null() && number("ready") > number("active") => {
            let why = "cannot set more ready pods than active";
            findings.invalid(path.at("ready"), number("ready"), why);
        }
        ("networking.k8s.io", "Ingress") => {
            check_entries(&status["loadBalancer"]["ingress"], findings);
        }
        _ => {}
    }
}

fn check_pod(status: &Value, findings: &mut Findings) {
    let node = text(&status["nominatedNodeName"]);
    if !node.is_empty() {
        findings.named("status.nominatedNodeName", node, naming::subdomain(node));
    }
    let path = Trail::from_root("status.podIPs");
    for (index, entry) in list(&status["podIPs"]).iter().enumerate() {
        let ip = text(&entry["ip"]);
        findings.named(path.item(index), ip, naming::address(ip));
    }
    let path = Trail::from_root("status.conditions");
    for (index, condition) in list(&status["conditions"]).iter().enumerate() {
        let kind = text(&condition["type"]);
        findings.named(path.item(index).at("Type"), kind, naming::qualified(kind));
    }
}

fn check_balancer(service: &Value, findings: &mut Findings) {
    let entries = &service["status"]["loadBalancer"]["ingress"];
    if service["spec"]["type"] != "LoadBalancer" && !list(entries).is_empty() {
        let why = "may only be used when `spec.type` is 'LoadBalancer'";
        findings.forbidden("status.loadBalancer.ingress", why);
    } else {
        check_entries(entries, findings);
    }
}

/// Where a load balancer can be reached.
fn check_entries(entries: &Value, findings: &mut Findings) {
    let path = Trail::from_root("status.loadBalancer.ingress");
    for (index, entry) in list(entries).iter().enumerate() {
        let path = path.item(index);
        let (ip, host, mode) = (text(&entry["ip"]), text(&entry["hostname"]), &entry["ipMode"]);
        if !ip.is_empty() {
            findings.named(path.at("ip"), ip, naming::address(ip));
        }
        if ip.is_empty() && !mode.is_null() {
            findings.forbidden(path.at("ipMode"), "may not be specified when `ip` is not set");
        } else {
            findings.one_of_if_given(path.at("ipMode"), mode, &["Proxy", "VIP"]);
        }
        if !host.is_empty() {
            findings.named(path.at("hostname"), host, naming::subdomain(host));
            if host.parse::<IpAddr>().is_ok() {
                findings.invalid(path.at("hostname"), host, "must be a DNS name, not an IP address");
            }
        }
    }
}
