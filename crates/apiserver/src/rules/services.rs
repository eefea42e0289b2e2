//! Services.
//!
//! ```text
//!   addresses and families (`check_place`) ─► only if these are fine: type, ports, affinity, traffic
//! ```

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{
    findings::{Findings, entries, list, text},
    repeats::Repeats,
};
use crate::{internals, naming, schema::Problem, trail::Trail};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const BALANCERS_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Its addresses: without them there is no service to speak of.
pub(super) fn check_place(spec: &Value, findings: &mut Findings) {
    if spec["type"] != "ExternalName" {
        check_addresses(spec, findings);
        if findings.is_empty() {
            check_families(spec, findings);
        }
    }
}

pub(super) fn check(service: &Value, old: Option<&Value>, findings: &mut Findings) {
    let spec = &service["spec"];
    let kind = text(&spec["type"]);
    if let Some(old) = old {
        check_changes(spec, &old["spec"], findings);
    }
    let headless = spec["clusterIP"] == "None";
    if list(&spec["ports"]).is_empty() && !headless && kind != "ExternalName" {
        findings.required("spec.ports", "");
    }
    if headless && matches!(kind, "NodePort" | "LoadBalancer") {
        let why = format!("may not be set to 'None' for {kind} services");
        findings.invalid("spec.clusterIPs[0]", "None", &why);
    }
    if kind == "ExternalName" {
        check_external_name(spec, findings);
    }
    check_each_port(&spec["ports"], findings);
    findings.labels("spec.selector", &spec["selector"]);
    check_affinity(spec, findings);
    for (index, address) in list(&spec["externalIPs"]).iter().map(text).enumerate() {
        check_endpoint(
            address,
            &Trail::from_root("spec.externalIPs").item(index),
            findings,
        );
    }
    findings.one_of("spec.type", &spec["type"], &TYPES);
    check_ports_together(spec, findings);
    check_balancer(service, findings);
    check_traffic(kind, spec, findings);
}

fn check_external_name(spec: &Value, findings: &mut Findings) {
    let path = Trail::from_root("spec");
    for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let given = !spec[key].is_null() || (key == "clusterIPs" && !text(&spec["clusterIP"]).is_empty());
        if given {
            findings.forbidden(path.at(key), "may not be set for ExternalName services");
        }
    }
    // A name may end with the dot of the root.
    let name = text(&spec["externalName"]);
    match name.strip_suffix('.').unwrap_or(name) {
        "" => findings.required("spec.externalName", ""),
        name => findings.named("spec.externalName", name, naming::subdomain(name)),
    }
}

fn check_each_port(ports: &Value, findings: &mut Findings) {
    let (ports, path) = (list(ports), Trail::from_root("spec.ports"));
    let repeats = Repeats::of_field(ports, "name");
    for (index, port) in ports.iter().enumerate() {
        let path = path.item(index);
        let name = text(&port["name"]);
        if !name.is_empty() {
            findings.named(path.at("name"), name, naming::label(name));
            if repeats.has(index) {
                findings.duplicate(path.at("name"), name);
            }
        } else if ports.len() > 1 {
            findings.required(path.at("name"), "");
        }
        findings.port_number(path.at("port"), port["port"].as_i64().unwrap_or(0));
        findings.one_of(path.at("protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
        findings.port(path.at("targetPort"), &port["targetPort"]);
        if let Some(protocol) = port["appProtocol"].as_str() {
            findings.named(path.at("appProtocol"), protocol, naming::qualified(protocol));
        }
    }
}

fn check_ports_together(spec: &Value, findings: &mut Findings) {
    let (ports, path) = (list(&spec["ports"]), Trail::from_root("spec.ports"));
    let node_port = |port: &Value| port["nodePort"].as_i64().filter(|number| *number != 0);
    if spec["type"] == "ClusterIP" {
        for (index, _) in ports
            .iter()
            .enumerate()
            .filter(|(_, port)| node_port(port).is_some())
        {
            let why = "may not be used when `type` is 'ClusterIP'";
            findings.forbidden(path.item(index).at("nodePort"), why);
        }
    }
    let repeats = Repeats::of(ports, |port| (text(&port["protocol"]), port["port"].as_i64()));
    for (index, port) in ports.iter().enumerate() {
        if repeats.has(index) {
            let same = json!({"protocol": port["protocol"], "port": port["port"]});
            let shown = internals::shown("ServicePort", &same);
            findings.add(path.item(index), Problem::DuplicateText(shown));
        }
    }
}

fn check_affinity(spec: &Value, findings: &mut Findings) {
    let affinity = &spec["sessionAffinity"];
    findings.one_of("spec.sessionAffinity", affinity, &["ClientIP", "None"]);
    let (config, field) = (&spec["sessionAffinityConfig"], "spec.sessionAffinityConfig");
    if *affinity == "None" && !config.is_null() {
        findings.forbidden(field, "must not be set when session affinity is None");
    }
    if *affinity == "ClientIP" {
        let seconds = config["clientIP"]["timeoutSeconds"].as_i64();
        if let Some(seconds) = seconds.filter(|seconds| !(1..=86400).contains(seconds)) {
            let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
            findings.invalid(field, seconds, "must be greater than 0 and less than 86400");
        }
    }
}

/// An address at which something can be reached from elsewhere.
pub(super) fn check_endpoint(address: &str, path: &Trail<'_>, findings: &mut Findings) {
    let Ok(ip) = address.parse::<IpAddr>() else {
        findings.named(path, address, naming::address(address));
        return;
    };
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    };
    let link_local_multicast = match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    };
    for (bad, why) in [
        (ip.is_unspecified(), "may not be unspecified"),
        (
            ip.is_loopback(),
            "may not be in the loopback range (127.0.0.0/8, ::1/128)",
        ),
        (
            link_local,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        ),
        (
            link_local_multicast,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    ] {
        if bad && ip.is_unspecified() {
            findings.invalid(path, address, &format!("{why} ({address})"));
        } else if bad {
            findings.invalid(path, address, why);
        }
    }
}

/// The service's own addresses, and that they go with its families.
fn check_addresses(spec: &Value, findings: &mut Findings) {
    let path = Trail::from_root("spec.clusterIPs");
    let (first, all) = (text(&spec["clusterIP"]), list(&spec["clusterIPs"]));
    let whole = || spec["clusterIPs"].clone();
    if first.is_empty() {
        if !all.is_empty() {
            findings.invalid(path, whole(), "must be empty when `clusterIP` is not specified");
        }
    } else if all.first().is_some_and(|address| text(address) != first) {
        findings.invalid(path, whole(), "first value must match `clusterIP`");
    }
    let families = list(&spec["ipFamilies"]);
    let repeats = Repeats::of(families, |family| family);
    for (index, family) in families.iter().enumerate() {
        let field = Trail::from_root("spec.ipFamilies");
        findings.one_of(field.item(index), family, &["IPv4", "IPv6"]);
        if repeats.has(index) {
            findings.duplicate(field.item(index), family.clone());
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    findings.one_of_if_given("spec.ipFamilyPolicy", &spec["ipFamilyPolicy"], &policies);
    let before = findings.count();
    for (index, address) in all.iter().map(text).enumerate() {
        if index == 0 && address == "None" {
            if all.len() > 1 {
                findings.invalid(path, whole(), "'None' must be the first and only value");
            }
            continue;
        }
        findings.named(path.item(index), address, naming::address(address));
    }
    if all.len() > 2 {
        findings.invalid(path, whole(), "may only hold up to 2 values");
    }
    if findings.count() > before && all.len() <= 2 {
        return;
    }
    if all.len() == 2 && is_v6(&all[0]) == is_v6(&all[1]) {
        findings.invalid(
            path,
            whole(),
            "may specify no more than one IP for each IP family",
        );
    }
    if first != "None" {
        for (index, (address, family)) in all.iter().zip(families).enumerate() {
            if (*family == "IPv6") != is_v6(address) {
                let why = format!(
                    "expected an {} value as indicated by `ipFamilies[{index}]`",
                    text(family)
                );
                findings.invalid(path.item(index), address.clone(), &why);
            }
        }
    }
}

fn is_v6(address: &Value) -> bool {
    text(address).contains(':')
}

/// What this cluster, which has IPv4 alone, cannot do.
fn check_families(spec: &Value, findings: &mut Findings) {
    let (addresses, families) = (list(&spec["clusterIPs"]), list(&spec["ipFamilies"]));
    let open = spec["clusterIP"] == "None" && entries(&spec["selector"]).next().is_none();
    let policy = match text(&spec["ipFamilyPolicy"]) {
        "" if open => "RequireDualStack",
        "" => "SingleStack",
        policy => policy,
    };
    if policy == "SingleStack" {
        for (list, what) in [(addresses, "cluster IPs"), (families, "IP families")] {
            if list.len() == 2 {
                let why = format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                );
                findings.invalid("spec.ipFamilyPolicy", policy, &why);
            }
        }
    }
    for (index, address) in addresses.iter().enumerate().skip(families.len()) {
        if is_v6(address) {
            let field = Trail::from_root("spec.clusterIPs");
            let why = "IPv6 is not configured on this cluster";
            findings.invalid_list(field.item(index), addresses, why);
        }
    }
    // Nobody says what such a service points at: it may be anything.
    if !findings.is_empty() || open {
        return;
    }
    if policy == "RequireDualStack" {
        let why = "this cluster is not configured for dual-stack services";
        findings.invalid("spec.ipFamilyPolicy", policy, why);
    }
    for (index, family) in families
        .iter()
        .enumerate()
        .filter(|(_, family)| **family != "IPv4")
    {
        let field = Trail::from_root("spec.ipFamilies");
        findings.invalid(
            field.item(index),
            family.clone(),
            "not configured on this cluster",
        );
    }
}

fn check_balancer(service: &Value, findings: &mut Findings) {
    let spec = &service["spec"];
    let is_balancer = spec["type"] == "LoadBalancer";
    let ranges = list(&spec["loadBalancerSourceRanges"]);
    if !ranges.is_empty() {
        let path = Trail::from_root("spec.LoadBalancerSourceRanges");
        if !is_balancer {
            findings.forbidden(path, BALANCERS_ONLY);
        }
        for (index, range) in ranges.iter().map(|range| text(range).trim()).enumerate() {
            findings.named(path.item(index), range, naming::address_block(range));
        }
    } else if let Some(ranges) = service["metadata"]["annotations"].get(RANGES) {
        let path = Trail::from_root("metadata.annotations");
        if !is_balancer {
            findings.forbidden(path.entry(RANGES), BALANCERS_ONLY);
        }
        for range in text(ranges)
            .split(',')
            .map(str::trim)
            .filter(|range| !range.is_empty())
        {
            findings.named(path.entry(RANGES), range, naming::address_block(range));
        }
    }
    if !is_balancer && !spec["allocateLoadBalancerNodePorts"].is_null() {
        findings.forbidden("spec.allocateLoadBalancerNodePorts", BALANCERS_ONLY);
    }
    if let Some(class) = spec["loadBalancerClass"].as_str() {
        if is_balancer {
            findings.named("spec.loadBalancerClass", class, naming::qualified(class));
        } else {
            findings.forbidden("spec.loadBalancerClass", BALANCERS_ONLY);
        }
    }
}

/// Whether somebody asks a service for the health of its node.
fn needs_health_check(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

fn check_traffic(kind: &str, spec: &Value, findings: &mut Findings) {
    let external = matches!(kind, "NodePort" | "LoadBalancer") || !list(&spec["externalIPs"]).is_empty();
    let policy = &spec["externalTrafficPolicy"];
    if !policy.is_null() {
        if external {
            findings.one_of("spec.externalTrafficPolicy", policy, &["Cluster", "Local"]);
        } else {
            let why = "may only be set for externally-accessible services";
            findings.invalid("spec.externalTrafficPolicy", policy.clone(), why);
        }
    }
    if let Some(port) = spec["healthCheckNodePort"].as_i64().filter(|port| *port != 0) {
        if needs_health_check(spec) {
            findings.port_number("spec.healthCheckNodePort", port);
        } else {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            findings.invalid("spec.healthCheckNodePort", port, why);
        }
    }
    findings.one_of_if_given(
        "spec.internalTrafficPolicy",
        &spec["internalTrafficPolicy"],
        &["Cluster", "Local"],
    );
    findings.one_of_if_given(
        "spec.trafficDistribution",
        &spec["trafficDistribution"],
        &["PreferClose", "PreferSameZone", "PreferSameNode"],
    );
}

/// What of a service stays as it is.
fn check_changes(spec: &Value, old: &Value, findings: &mut Findings) {
    let is = |spec: &Value, kind: &str| spec["type"] == kind;
    let headless = |spec: &Value| spec["clusterIP"] == "None";
    let (now, before) = (list(&spec["clusterIPs"]), list(&old["clusterIPs"]));
    let no_address = is(spec, "ExternalName") || is(old, "ExternalName") || (headless(spec) && headless(old));
    if !no_address {
        for (index, _) in now
            .iter()
            .zip(before)
            .enumerate()
            .filter(|(_, (now, before))| now != before)
        {
            let field = Trail::from_root("spec.clusterIPs");
            findings.invalid_list(field.item(index), now, "may not change once set");
        }
    }
    let class = |spec: &Value| spec["loadBalancerClass"].clone();
    if is(spec, "LoadBalancer") && is(old, "LoadBalancer") && class(spec) != class(old) {
        findings.invalid("spec.loadBalancerClass", class(spec), "may not change once set");
    }
    if needs_health_check(spec)
        && needs_health_check(old)
        && spec["healthCheckNodePort"] != old["healthCheckNodePort"]
    {
        findings.forbidden("spec.healthCheckNodePort", "field is immutable");
    }
}
