//! Validation of status updates: what many kinds share.

use std::net::IpAddr;

use serde_json::Value;
use windlass_api::naming;

use super::{
    error_list::{ErrorList, list, text},
    strategy::Facts,
};
use crate::field_path::FieldPath;

/// Validates the counters of a status.
pub(super) fn check_counters(facts: &Facts, status: &Value, errors: &mut ErrorList) {
    let path = FieldPath::from_root("status");
    for key in facts.counters {
        errors.not_negative(path.child(key), &status[*key]);
    }
    let number = |key: &str| status[key].as_i64().unwrap_or(0);
    for key in facts.replica_counters {
        if number(key) > number("replicas") {
            let why = "cannot be greater than status.replicas";
            errors.invalid(path.child(key), number(key), why);
        }
        if *key == "availableReplicas" && number(key) > number("readyReplicas") {
            let why = format!("cannot be greater than {}", facts.ready_replicas);
            errors.invalid(path.child(key), number(key), &why);
        }
    }
}

/// The addresses of a load balancer.
pub(super) fn check_load_balancer_ingress(entries: &Value, errors: &mut ErrorList) {
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
