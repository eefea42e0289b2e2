//! Network policies and endpoint slices.

use std::net::IpAddr;

use serde_json::Value;

use super::{
    findings::{Findings, list, text},
    repeats::Repeats,
    services,
};
use crate::{naming, object::Object, trail::Trail};

pub(super) fn check_policy(spec: &Value, findings: &mut Findings) {
    findings.selector(&Trail::from_root("spec.podSelector"), &spec["podSelector"]);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        let path = Trail::from_root("spec");
        let path = path.at(direction);
        for (index, rule) in list(&spec[direction]).iter().enumerate() {
            let path = path.item(index);
            for (index, port) in list(&rule["ports"]).iter().enumerate() {
                check_policy_port(port, &path.at("ports").item(index), findings);
            }
            for (index, peer) in list(&rule[peers]).iter().enumerate() {
                check_peer(peer, &path.at(peers).item(index), findings);
            }
        }
    }
    let types = list(&spec["policyTypes"]);
    if types.len() > 2 {
        let why = "may not specify more than two policyTypes";
        findings.invalid("spec.policyTypes", types.to_vec(), why);
        return;
    }
    for (index, kind) in types.iter().enumerate() {
        let field = Trail::from_root("spec.policyTypes");
        findings.one_of(field.item(index), kind, &["Ingress", "Egress"]);
    }
}

fn check_policy_port(port: &Value, path: &Trail<'_>, findings: &mut Findings) {
    findings.one_of_if_given(path.at("protocol"), &port["protocol"], &["TCP", "UDP", "SCTP"]);
    let (first, last, field) = (&port["port"], port["endPort"].as_i64(), path.at("endPort"));
    if first.is_null() {
        if let Some(last) = last {
            let why = "may not be specified when `port` is not specified";
            findings.invalid(field, last, why);
        }
        return;
    }
    findings.port(path.at("port"), first);
    match (first.as_i64(), last) {
        (_, None) => {}
        (None, Some(last)) => {
            findings.invalid(field, last, "may not be specified when `port` is non-numeric");
        }
        (Some(first), Some(last)) => {
            if last < first {
                // It quotes the port that it compares with.
                findings.invalid(field, first, "must be greater than or equal to `port`");
            }
            findings.port_number(field, last);
        }
    }
}

fn check_peer(peer: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let (selectors, block) = (["podSelector", "namespaceSelector"], &peer["ipBlock"]);
    let selected = selectors.iter().any(|kind| !peer[*kind].is_null());
    for kind in selectors {
        findings.selector(&path.at(kind), &peer[kind]);
    }
    if !block.is_null() {
        check_block(block, &path.at("ipBlock"), findings);
    }
    match (selected, block.is_null()) {
        (false, true) => findings.required(path, "must specify a peer"),
        (true, false) => findings.forbidden(path, "may not specify both ipBlock and another peer"),
        _ => {}
    }
}

fn check_block(block: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let cidr = text(&block["cidr"]);
    if cidr.is_empty() {
        findings.required(path.at("cidr"), "");
        return;
    }
    let problems = naming::address_block(cidr);
    if !problems.is_empty() {
        findings.named(path.at("cidr"), cidr, problems);
        return;
    }
    for (index, except) in list(&block["except"]).iter().map(text).enumerate() {
        let field = path.at("except");
        let problems = naming::address_block(except);
        if problems.is_empty() && !is_inside(except, cidr) {
            findings.invalid(field.item(index), except, "must be a strict subset of `cidr`");
        }
        findings.named(field.item(index), except, problems);
    }
}

/// Whether a block is a part of another, and not all of it.
fn is_inside(inner: &str, outer: &str) -> bool {
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

pub(super) fn check_slice(slice: &Value, old: Option<&Object>, findings: &mut Findings) {
    let kind = text(&slice["addressType"]);
    if old.is_some_and(|old| old.fields().get("addressType") != slice.get("addressType")) {
        // That it may not change is all there is to say.
        return;
    }
    findings.one_of_required("addressType", &slice["addressType"], &["FQDN", "IPv4", "IPv6"]);
    let (ports, path) = (list(&slice["ports"]), Trail::from_root("ports"));
    let repeats = Repeats::of_field(ports, "name");
    for (index, port) in ports.iter().enumerate() {
        let path = path.item(index);
        let name = text(&port["name"]);
        if !name.is_empty() {
            findings.named(path.at("name"), name, naming::label(name));
        }
        if repeats.has(index) {
            findings.duplicate(path.at("name"), name);
        }
        findings.one_of(path.at("protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
        if let Some(protocol) = port["appProtocol"].as_str() {
            findings.named(path.at("appProtocol"), protocol, naming::qualified(protocol));
        }
    }
    let path = Trail::from_root("endpoints");
    for (index, endpoint) in list(&slice["endpoints"]).iter().enumerate() {
        check_slice_endpoint(kind, endpoint, &path.item(index), findings);
    }
}

fn check_slice_endpoint(kind: &str, endpoint: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let (addresses, field) = (list(&endpoint["addresses"]), path.at("addresses"));
    if addresses.is_empty() {
        findings.required(field, "must contain at least 1 address");
    }
    for (place, address) in addresses.iter().map(text).enumerate() {
        let item = field.item(place);
        match kind {
            "IPv4" | "IPv6" => {
                let version = address.parse::<IpAddr>().ok();
                if version.is_some_and(|ip| ip.is_ipv4() != (kind == "IPv4")) {
                    findings.invalid(field, address, &format!("must be an {kind} address"));
                } else {
                    services::check_endpoint(address, &item, findings);
                }
            }
            "FQDN" => findings.named(item, address, naming::subdomain(address)),
            _ => {}
        }
    }
    if let Some(node) = endpoint["nodeName"].as_str() {
        findings.named(path.at("nodeName"), node, naming::subdomain(node));
    }
    if let Some(name) = endpoint["hostname"].as_str() {
        findings.named(path.at("hostname"), name, naming::label(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_inside_a_larger_one() {
        assert!(is_inside("10.1.0.0/16", "10.0.0.0/8"));
        assert!(is_inside("fd00::/16", "::/0"));
        for (inner, outer) in [
            ("11.0.0.0/16", "10.0.0.0/8"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.0.0.0/8", "::/0"),
            ("10.0.0.0/8", "10.0.0.0/16"),
        ] {
            assert!(!is_inside(inner, outer), "{inner} {outer}");
        }
    }
}
