//! Network policies and endpoint slices.

use std::net::IpAddr;

use serde_json::Value;
use windlass_api::naming;

use super::{
    duplicates::Duplicates,
    error_list::{ErrorList, list, text},
    services,
};
use crate::{field_path::FieldPath, object::Object};

pub(super) fn check_policy(spec: &Value, errors: &mut ErrorList) {
    errors.selector(&FieldPath::from_root("spec.podSelector"), &spec["podSelector"]);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let path = FieldPath::from_root("spec");
        let path = path.child(direction);
        for (index, rule) in list(&spec[direction]).iter().enumerate() {
            let path = path.index(index);
            for (index, port) in list(&rule["ports"]).iter().enumerate() {
                check_policy_port(port, &path.child("ports").index(index), errors);
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

fn check_policy_port(port: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
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

pub(super) fn check_slice(slice: &Value, old: Option<&Object>, errors: &mut ErrorList) {
    let kind = text(&slice["addressType"]);
    if old.is_some_and(|old| old.fields().get("addressType") != slice.get("addressType")) {
        // That it may not change is the only error.
        return;
    }
    errors.one_of_required("addressType", &slice["addressType"], &["FQDN", "IPv4", "IPv6"]);
    let (ports, path) = (list(&slice["ports"]), FieldPath::from_root("ports"));
    let repeats = Duplicates::by_field(ports, "name");
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(&port["name"]);
        if !name.is_empty() {
            errors.invalid_each(path.child("name"), name, naming::label(name));
        }
        if repeats.contains(index) {
            errors.duplicate(path.child("name"), name);
        }
        errors.one_of(path.child("protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
        if let Some(protocol) = port["appProtocol"].as_str() {
            errors.invalid_each(path.child("appProtocol"), protocol, naming::qualified(protocol));
        }
    }
    let path = FieldPath::from_root("endpoints");
    for (index, endpoint) in list(&slice["endpoints"]).iter().enumerate() {
        check_slice_endpoint(kind, endpoint, &path.index(index), errors);
    }
}

fn check_slice_endpoint(kind: &str, endpoint: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let (addresses, field) = (list(&endpoint["addresses"]), path.child("addresses"));
    if addresses.is_empty() {
        errors.required(field, "must contain at least 1 address");
    }
    for (place, address) in addresses.iter().map(text).enumerate() {
        let item = field.index(place);
        match kind {
            "IPv4" | "IPv6" => {
                let version = address.parse::<IpAddr>().ok();
                if version.is_some_and(|ip| ip.is_ipv4() != (kind == "IPv4")) {
                    errors.invalid(field, address, &format!("must be an {kind} address"));
                } else {
                    services::check_endpoint_address(address, &item, errors);
                }
            }
            "FQDN" => errors.invalid_each(item, address, naming::subdomain(address)),
            _ => {}
        }
    }
    if let Some(node) = endpoint["nodeName"].as_str() {
        errors.invalid_each(path.child("nodeName"), node, naming::subdomain(node));
    }
    if let Some(name) = endpoint["hostname"].as_str() {
        errors.invalid_each(path.child("hostname"), name, naming::label(name));
    }
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
