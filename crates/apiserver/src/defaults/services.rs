//! Services, and what may talk to what. Addresses and node ports are not defaults: they are allotted on creation.

use serde_json::{Value, json};

use super::{items, set};

pub(super) fn fill_service(service: &mut Value) {
    let spec = &mut service["spec"];
    set(spec, "sessionAffinity", "None");
    set(spec, "type", "ClusterIP");
    if spec["sessionAffinity"] == "ClientIP" {
        set(spec, "sessionAffinityConfig", json!({}));
        set(&mut spec["sessionAffinityConfig"], "clientIP", json!({}));
        set(
            &mut spec["sessionAffinityConfig"]["clientIP"],
            "timeoutSeconds",
            10800,
        );
    } else if let Some(fields) = spec.as_object_mut() {
        fields.remove("sessionAffinityConfig");
    }
    for port in items(spec, "ports") {
        set(port, "protocol", "TCP");
        let target = &port["targetPort"];
        if target.is_null() || *target == 0 || *target == "" {
            port["targetPort"] = port["port"].clone();
        }
    }
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    let is_external = matches!(&*kind, "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty()));
    if is_external {
        set(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", true);
    }
    if matches!(&*kind, "ClusterIP" | "NodePort" | "LoadBalancer") {
        set(spec, "internalTrafficPolicy", "Cluster");
    }
}

/// A policy that says nothing of its types is about what comes in, and about what goes out if it has rules for that.
pub(super) fn fill_network_policy(policy: &mut Value) {
    let spec = &mut policy["spec"];
    let has_egress = spec["egress"].as_array().is_some_and(|rules| !rules.is_empty());
    let types = if has_egress {
        json!(["Ingress", "Egress"])
    } else {
        json!(["Ingress"])
    };
    set(spec, "policyTypes", types);
}
