//! Services and network policies. Addresses and node ports are not defaults: they are allocated on creation.

use serde_json::{Value, json};

use super::{items, set_if_absent};

pub(super) fn fill_service(service: &mut Value) {
    let spec = &mut service["spec"];
    set_if_absent(spec, "sessionAffinity", "None");
    set_if_absent(spec, "type", "ClusterIP");
    if spec["sessionAffinity"] == "ClientIP" {
        set_if_absent(spec, "sessionAffinityConfig", json!({}));
        set_if_absent(&mut spec["sessionAffinityConfig"], "clientIP", json!({}));
        set_if_absent(
            &mut spec["sessionAffinityConfig"]["clientIP"],
            "timeoutSeconds",
            10800,
        );
    } else if let Some(fields) = spec.as_object_mut() {
        fields.remove("sessionAffinityConfig");
    }
    for port in items(spec, "ports") {
        set_if_absent(port, "protocol", "TCP");
        let target = &port["targetPort"];
        if target.is_null() || *target == 0 || *target == "" {
            port["targetPort"] = port["port"].clone();
        }
    }
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    let is_external = matches!(&*kind, "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty()));
    if is_external {
        set_if_absent(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set_if_absent(spec, "allocateLoadBalancerNodePorts", true);
    }
    if matches!(&*kind, "ClusterIP" | "NodePort" | "LoadBalancer") {
        set_if_absent(spec, "internalTrafficPolicy", "Cluster");
    }
}

/// The default policy types: ingress, and egress if there are egress rules.
pub(super) fn fill_network_policy(policy: &mut Value) {
    let spec = &mut policy["spec"];
    let has_egress = spec["egress"].as_array().is_some_and(|rules| !rules.is_empty());
    let types = if has_egress {
        json!(["Ingress", "Egress"])
    } else {
        json!(["Ingress"])
    };
    set_if_absent(spec, "policyTypes", types);
}
