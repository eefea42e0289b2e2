//! Ingresses, network policies and endpoint slices.

use std::fmt::Display;

use serde_json::Value;

use super::findings::{Findings, list, text};
use crate::{naming, object::Object};

pub(super) fn check_ingress(spec: &Value, findings: &mut Findings) {
    if list(&spec["rules"]).is_empty() && spec["defaultBackend"].is_null() {
        let why = "either `defaultBackend` or `rules` must be specified";
        findings.invalid("spec", Value::Null, why);
    }
    if !spec["defaultBackend"].is_null() {
        check_backend(&spec["defaultBackend"], &"spec.defaultBackend", findings);
    }
    for (index, rule) in list(&spec["rules"]).iter().enumerate() {
        let path = format_args!("spec.rules[{index}]");
        check_host(text(&rule["host"]), &format_args!("{path}.host"), findings);
        let http = &rule["http"];
        if http.is_null() {
            continue;
        }
        let path = format_args!("{path}.http.paths");
        if list(&http["paths"]).is_empty() {
            findings.required(path, "");
        }
        for (index, route) in list(&http["paths"]).iter().enumerate() {
            check_route(route, &format_args!("{path}[{index}]"), findings);
        }
    }
    for (index, tls) in list(&spec["tls"]).iter().enumerate() {
        for (place, host) in list(&tls["hosts"]).iter().enumerate() {
            check_host(
                text(host),
                &format_args!("spec.tls[{index}].hosts[{place}]"),
                findings,
            );
        }
    }
    if let Some(class) = spec["ingressClassName"].as_str() {
        findings.named("spec.ingressClassName", class, naming::subdomain(class));
    }
}

fn check_host(host: &str, field: &dyn Display, findings: &mut Findings) {
    if host.is_empty() {
        return;
    }
    if host.parse::<std::net::IpAddr>().is_ok() {
        findings.invalid(field, host, "must be a DNS name, not an IP address");
    }
    let name = host.strip_prefix("*.").unwrap_or(host);
    findings.named(field, host, naming::subdomain(name));
}

fn check_route(route: &Value, path: &dyn Display, findings: &mut Findings) {
    let kinds = ["Exact", "ImplementationSpecific", "Prefix"];
    if route["pathType"].is_null() {
        findings.required(format_args!("{path}.pathType"), "pathType must be specified");
    } else {
        let target = text(&route["path"]);
        let by_path = matches!(text(&route["pathType"]), "Exact" | "Prefix");
        if !target.starts_with('/') && (by_path || !target.is_empty()) {
            findings.invalid(format_args!("{path}.path"), target, "must be an absolute path");
        }
        findings.one_of(format_args!("{path}.pathType"), &route["pathType"], &kinds);
    }
    check_backend(&route["backend"], &format_args!("{path}.backend"), findings);
}

fn check_backend(backend: &Value, path: &dyn Display, findings: &mut Findings) {
    let (service, resource) = (&backend["service"], &backend["resource"]);
    if service.is_null() && resource.is_null() {
        findings.invalid(path, "", "resource or service backend is required");
        return;
    }
    if !service.is_null() && !resource.is_null() {
        findings.invalid(path, "", "cannot set both resource and service backends");
        return;
    }
    if service.is_null() {
        return;
    }
    match text(&service["name"]) {
        "" => findings.required(format_args!("{path}.service.name"), ""),
        name => findings.named(format_args!("{path}.service.name"), name, naming::label(name)),
    }
    let (name, number) = (
        text(&service["port"]["name"]),
        service["port"]["number"].as_i64().unwrap_or(0),
    );
    match (name.is_empty(), number == 0) {
        (true, true) => findings.required(path, "port name or number is required"),
        (false, false) => findings.invalid(path, "", "cannot set both port name & port number"),
        (false, true) => findings.named(
            format_args!("{path}.service.port.name"),
            name,
            naming::port_name(name),
        ),
        (true, false) => findings.named(
            format_args!("{path}.service.port.number"),
            number,
            naming::port_number(number),
        ),
    }
}

pub(super) fn check_policy(spec: &Value, findings: &mut Findings) {
    findings.selector("spec.podSelector", &spec["podSelector"]);
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (index, rule) in list(&spec[direction]).iter().enumerate() {
            let path = format_args!("spec.{direction}[{index}]");
            for (index, port) in list(&rule["ports"]).iter().enumerate() {
                check_policy_port(port, &format_args!("{path}.ports[{index}]"), findings);
            }
            for (index, peer) in list(&rule[peers]).iter().enumerate() {
                check_peer(peer, &format_args!("{path}.{peers}[{index}]"), findings);
            }
        }
    }
    let types = list(&spec["policyTypes"]);
    if types.len() > 2 {
        let value = spec["policyTypes"].clone();
        findings.invalid(
            "spec.policyTypes",
            value,
            "may not specify more than two policyTypes",
        );
        return;
    }
    for (index, kind) in types.iter().enumerate() {
        findings.one_of(
            format_args!("spec.policyTypes[{index}]"),
            kind,
            &["Ingress", "Egress"],
        );
    }
}

fn check_policy_port(port: &Value, path: &dyn Display, findings: &mut Findings) {
    if !port["protocol"].is_null() {
        findings.one_of(
            format_args!("{path}.protocol"),
            &port["protocol"],
            &["TCP", "UDP", "SCTP"],
        );
    }
    let (first, last) = (&port["port"], &port["endPort"]);
    if !first.is_null() {
        findings.port(format_args!("{path}.port"), first);
    }
    match (first.as_i64(), last.as_i64()) {
        (Some(first), Some(last)) if last < first => {
            // It quotes the port that it compares with.
            findings.invalid(
                format_args!("{path}.endPort"),
                first,
                "must be greater than or equal to `port`",
            );
        }
        (None, Some(last)) if first.is_null() => {
            findings.invalid(
                format_args!("{path}.endPort"),
                last,
                "may not be specified when `port` is not specified",
            );
        }
        _ => {}
    }
}

fn check_peer(peer: &Value, path: &dyn Display, findings: &mut Findings) {
    let kinds = ["podSelector", "namespaceSelector", "ipBlock"];
    if kinds.iter().all(|kind| peer[*kind].is_null()) {
        findings.required(path, "must specify a peer");
    }
    for kind in ["podSelector", "namespaceSelector"] {
        findings.selector(format_args!("{path}.{kind}"), &peer[kind]);
    }
    let block = &peer["ipBlock"];
    if !block.is_null() {
        match text(&block["cidr"]) {
            "" => findings.required(format_args!("{path}.ipBlock.cidr"), ""),
            cidr => findings.named(
                format_args!("{path}.ipBlock.cidr"),
                cidr,
                naming::address_block(cidr),
            ),
        }
    }
}

pub(super) fn check_slice(slice: &Value, old: Option<&Object>, findings: &mut Findings) {
    let kind = text(&slice["addressType"]);
    if old.is_some_and(|old| old.fields().get("addressType") != slice.get("addressType")) {
        // That it may not change is all there is to say.
        return;
    }
    if kind.is_empty() {
        findings.required("addressType", "");
    } else {
        findings.one_of("addressType", &slice["addressType"], &["FQDN", "IPv4", "IPv6"]);
    }
    for (index, endpoint) in list(&slice["endpoints"]).iter().enumerate() {
        let path = format_args!("endpoints[{index}].addresses");
        if list(&endpoint["addresses"]).is_empty() {
            findings.required(path, "must contain at least 1 address");
        }
        for (place, address) in list(&endpoint["addresses"]).iter().enumerate() {
            let address = text(address);
            let field = format_args!("{path}[{place}]");
            match kind {
                "IPv4" | "IPv6" => {
                    findings.named(field, address, naming::address(address));
                    let version = address.parse::<std::net::IpAddr>().ok();
                    if version.is_some_and(|ip| ip.is_ipv4() != (kind == "IPv4")) {
                        findings.invalid(field, address, &format!("must be an {kind} address"));
                    }
                }
                "FQDN" => findings.named(field, address, naming::subdomain(address)),
                _ => {}
            }
        }
    }
    for (index, port) in list(&slice["ports"]).iter().enumerate() {
        let name = text(&port["name"]);
        if !name.is_empty() {
            findings.named(format_args!("ports[{index}].name"), name, naming::label(name));
        }
        findings.one_of(
            format_args!("ports[{index}].protocol"),
            &port["protocol"],
            &["SCTP", "TCP", "UDP"],
        );
    }
}
