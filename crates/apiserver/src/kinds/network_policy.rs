//! Network policies.

use std::net::IpAddr;

use serde_json::{Value, json};
use windlass_api::naming;

use super::{
    defaulting::{DefaultValue::Text, set_if_absent},
    error_list::{ErrorList, list, text},
    row::{Row, label_selector},
    strategy::{Facts, MetadataChecks, Strategy, Write},
};
use crate::{field_path::FieldPath, object::Object};

pub(super) struct NetworkPolicy;

impl Strategy for NetworkPolicy {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            metadata_checks: MetadataChecks::THREE,
            defaults: &[
                ("spec.ingress[].ports[].protocol", Text("TCP")),
                ("spec.egress[].ports[].protocol", Text("TCP")),
            ],
            columns: Some("Name Pod-Selector Age"),
            ..Facts::DEFAULT
        }
    }

    fn set_defaults(&self, policy: &mut Object) {
        let spec = &mut policy.tree_mut()["spec"];
        // Ingress, and egress if there are egress rules.
        let types = if list(&spec["egress"]).is_empty() {
            json!(["Ingress"])
        } else {
            json!(["Ingress", "Egress"])
        };
        set_if_absent(spec, "policyTypes", types);
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check(write.spec(), errors);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let selector = label_selector(row.object.pointer("/spec/podSelector"));
        vec![row.name(), selector.into(), row.age()]
    }
}

fn check(spec: &Value, errors: &mut ErrorList) {
    errors.selector(&FieldPath::from_root("spec.podSelector"), &spec["podSelector"]);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let path = FieldPath::from_root("spec");
        let path = path.child(direction);
        for (index, rule) in list(&spec[direction]).iter().enumerate() {
            let path = path.index(index);
            for (index, port) in list(&rule["ports"]).iter().enumerate() {
                check_port(port, &path.child("ports").index(index), errors);
            }
            for (index, peer) in list(&rule[peers]).iter().enumerate() {
                check_peer(peer, &path.child(peers).index(index), errors);
            }
        }
    }
    let types = list(&spec["policyTypes"]);
    if types.len() > 2 {
        let why = "may not specify more than two policyTypes";
        errors.invalid("spec.policyTypes", types.to_vec(), why);
        return;
    }
    for (index, kind) in types.iter().enumerate() {
        let field = FieldPath::from_root("spec.policyTypes");
        errors.one_of(field.index(index), kind, &["Ingress", "Egress"]);
    }
}

fn check_port(port: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    errors.one_of_if_given(path.child("protocol"), &port["protocol"], &["TCP", "UDP", "SCTP"]);
    let (first, last, field) = (&port["port"], port["endPort"].as_i64(), path.child("endPort"));
    if first.is_null() {
        if let Some(last) = last {
            let why = "may not be specified when `port` is not specified";
            errors.invalid(field, last, why);
        }
        return;
    }
    errors.port(path.child("port"), first);
    match (first.as_i64(), last) {
        (_, None) => {}
        (None, Some(last)) => {
            errors.invalid(field, last, "may not be specified when `port` is non-numeric");
        }
        (Some(first), Some(last)) => {
            if last < first {
                // The real server quotes the port it compares with.
                errors.invalid(field, first, "must be greater than or equal to `port`");
            }
            errors.port_number(field, last);
        }
    }
}

fn check_peer(peer: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let (selectors, block) = (["podSelector", "namespaceSelector"], &peer["ipBlock"]);
    let selected = selectors.iter().any(|kind| !peer[*kind].is_null());
    for kind in selectors {
        errors.selector(&path.child(kind), &peer[kind]);
    }
    if !block.is_null() {
        check_ip_block(block, &path.child("ipBlock"), errors);
    }
    match (selected, block.is_null()) {
        (false, true) => errors.required(path, "must specify a peer"),
        (true, false) => errors.forbidden(path, "may not specify both ipBlock and another peer"),
        _ => {}
    }
}

fn check_ip_block(block: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let cidr = text(&block["cidr"]);
    if cidr.is_empty() {
        errors.required(path.child("cidr"), "");
        return;
    }
    let problems = naming::cidr(cidr);
    if !problems.is_empty() {
        errors.invalid_each(path.child("cidr"), cidr, problems);
        return;
    }
    for (index, except) in list(&block["except"]).iter().map(text).enumerate() {
        let field = path.child("except");
        let problems = naming::cidr(except);
        if problems.is_empty() && !is_strict_subset(except, cidr) {
            errors.invalid(field.index(index), except, "must be a strict subset of `cidr`");
        }
        errors.invalid_each(field.index(index), except, problems);
    }
}

/// Whether a CIDR is a strict subset of another.
fn is_strict_subset(inner: &str, outer: &str) -> bool {
    let parse = |text: &str| -> Option<(u128, u32, u32)> {
        let (address, length) = text.split_once('/')?;
        let length: u32 = length.parse().ok()?;
        Some(match address.parse::<IpAddr>().ok()? {
            IpAddr::V4(ip) => (u32::from(ip).into(), length, 32),
            IpAddr::V6(ip) => (u128::from(ip), length, 128),
        })
    };
    let (Some((inner, small, bits)), Some((outer, large, other_bits))) = (parse(inner), parse(outer)) else {
        return false;
    };
    let rest = bits - large.min(bits);
    bits == other_bits && small > large && inner.checked_shr(rest) == outer.checked_shr(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_subset_of_a_cidr_is_recognized() {
        assert!(is_strict_subset("10.1.0.0/16", "10.0.0.0/8"));
        assert!(is_strict_subset("fd00::/16", "::/0"));
        for (inner, outer) in [
            ("11.0.0.0/16", "10.0.0.0/8"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.0.0.0/8", "::/0"),
            ("10.0.0.0/8", "10.0.0.0/16"),
        ] {
            assert!(!is_strict_subset(inner, outer), "{inner} {outer}");
        }
    }
}
