//! Validation of services.
//!
//! ```text
//!   addresses and families (`check_cluster_ips`) ─► if these are valid: type, ports, affinity, traffic policies
//! ```

use std::net::IpAddr;

use serde_json::{Value, json};
use windlass_api::naming;

use super::super::{
    duplicates::Duplicates,
    error_list::{ErrorList, entries, list, text},
};
use crate::{field_path::FieldPath, internal_types, schema::Problem};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const LOAD_BALANCER_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
const SOURCE_RANGES_ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Validates its addresses and IP families. If these are invalid, nothing else is checked.
pub(super) fn check_cluster_ips(spec: &Value, errors: &mut ErrorList) {
    if spec["type"] != "ExternalName" {
        check_addresses(spec, errors);
        if errors.is_empty() {
            check_families(spec, errors);
        }
    }
}

pub(super) fn check(service: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    let spec = &service["spec"];
    let kind = text(&spec["type"]);
    if let Some(old) = old {
        check_changes(spec, &old["spec"], errors);
    }
    let headless = spec["clusterIP"] == "None";
    if list(&spec["ports"]).is_empty() && !headless && kind != "ExternalName" {
        errors.required("spec.ports", "");
    }
    if headless && matches!(kind, "NodePort" | "LoadBalancer") {
        let why = format!("may not be set to 'None' for {kind} services");
        errors.invalid("spec.clusterIPs[0]", "None", &why);
    }
    if kind == "ExternalName" {
        check_external_name(spec, errors);
    }
    check_ports(&spec["ports"], errors);
    errors.labels("spec.selector", &spec["selector"]);
    check_affinity(spec, errors);
    for (index, address) in list(&spec["externalIPs"]).iter().map(text).enumerate() {
        check_endpoint_address(
            address,
            &FieldPath::from_root("spec.externalIPs").index(index),
            errors,
        );
    }
    errors.one_of("spec.type", &spec["type"], &TYPES);
    check_port_conflicts(spec, errors);
    check_load_balancer(service, errors);
    check_traffic(kind, spec, errors);
}

fn check_external_name(spec: &Value, errors: &mut ErrorList) {
    let path = FieldPath::from_root("spec");
    for key in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let given = !spec[key].is_null() || (key == "clusterIPs" && !text(&spec["clusterIP"]).is_empty());
        if given {
            errors.forbidden(path.child(key), "may not be set for ExternalName services");
        }
    }
    // A name may end with a dot.
    let name = text(&spec["externalName"]);
    match name.strip_suffix('.').unwrap_or(name) {
        "" => errors.required("spec.externalName", ""),
        name => errors.invalid_each("spec.externalName", name, naming::subdomain(name)),
    }
}

fn check_ports(ports: &Value, errors: &mut ErrorList) {
    let (ports, path) = (list(ports), FieldPath::from_root("spec.ports"));
    let repeats = Duplicates::by_field(ports, "name");
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(&port["name"]);
        if !name.is_empty() {
            errors.invalid_each(path.child("name"), name, naming::label(name));
            if repeats.contains(index) {
                errors.duplicate(path.child("name"), name);
            }
        } else if ports.len() > 1 {
            errors.required(path.child("name"), "");
        }
        errors.port_number(path.child("port"), port["port"].as_i64().unwrap_or(0));
        errors.one_of(path.child("protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
        errors.port(path.child("targetPort"), &port["targetPort"]);
        if let Some(protocol) = port["appProtocol"].as_str() {
            errors.invalid_each(path.child("appProtocol"), protocol, naming::qualified(protocol));
        }
    }
}

fn check_port_conflicts(spec: &Value, errors: &mut ErrorList) {
    let (ports, path) = (list(&spec["ports"]), FieldPath::from_root("spec.ports"));
    let node_port = |port: &Value| port["nodePort"].as_i64().filter(|number| *number != 0);
    if spec["type"] == "ClusterIP" {
        for (index, _) in ports
            .iter()
            .enumerate()
            .filter(|(_, port)| node_port(port).is_some())
        {
            let why = "may not be used when `type` is 'ClusterIP'";
            errors.forbidden(path.index(index).child("nodePort"), why);
        }
    }
    let repeats = Duplicates::by(ports, |port| (text(&port["protocol"]), port["port"].as_i64()));
    for (index, port) in ports.iter().enumerate() {
        if repeats.contains(index) {
            let same = json!({"protocol": port["protocol"], "port": port["port"]});
            let shown = internal_types::format_as_struct("ServicePort", &same);
            errors.add(path.index(index), Problem::DuplicateText(shown));
        }
    }
}

fn check_affinity(spec: &Value, errors: &mut ErrorList) {
    let affinity = &spec["sessionAffinity"];
    errors.one_of("spec.sessionAffinity", affinity, &["ClientIP", "None"]);
    let (config, field) = (&spec["sessionAffinityConfig"], "spec.sessionAffinityConfig");
    if *affinity == "None" && !config.is_null() {
        errors.forbidden(field, "must not be set when session affinity is None");
    }
    if *affinity == "ClientIP" {
        let seconds = config["clientIP"]["timeoutSeconds"].as_i64();
        if let Some(seconds) = seconds.filter(|seconds| !(1..=86400).contains(seconds)) {
            let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
            errors.invalid(field, seconds, "must be greater than 0 and less than 86400");
        }
    }
}

/// An IP address that must be reachable from elsewhere.
pub(in crate::kinds) fn check_endpoint_address(address: &str, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let Ok(ip) = address.parse::<IpAddr>() else {
        errors.invalid_each(path, address, naming::ip_address(address));
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
            errors.invalid(path, address, &format!("{why} ({address})"));
        } else if bad {
            errors.invalid(path, address, why);
        }
    }
}

/// Checks the cluster IPs and that they match the IP families.
fn check_addresses(spec: &Value, errors: &mut ErrorList) {
    let path = FieldPath::from_root("spec.clusterIPs");
    let (first, all) = (text(&spec["clusterIP"]), list(&spec["clusterIPs"]));
    let whole = || spec["clusterIPs"].clone();
    if first.is_empty() {
        if !all.is_empty() {
            errors.invalid(path, whole(), "must be empty when `clusterIP` is not specified");
        }
    } else if all.first().is_some_and(|address| text(address) != first) {
        errors.invalid(path, whole(), "first value must match `clusterIP`");
    }
    let families = list(&spec["ipFamilies"]);
    let repeats = Duplicates::by(families, |family| family);
    for (index, family) in families.iter().enumerate() {
        let field = FieldPath::from_root("spec.ipFamilies");
        errors.one_of(field.index(index), family, &["IPv4", "IPv6"]);
        if repeats.contains(index) {
            errors.duplicate(field.index(index), family.clone());
        }
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    errors.one_of_if_given("spec.ipFamilyPolicy", &spec["ipFamilyPolicy"], &policies);
    let before = errors.len();
    for (index, address) in all.iter().map(text).enumerate() {
        if index == 0 && address == "None" {
            if all.len() > 1 {
                errors.invalid(path, whole(), "'None' must be the first and only value");
            }
            continue;
        }
        errors.invalid_each(path.index(index), address, naming::ip_address(address));
    }
    if all.len() > 2 {
        errors.invalid(path, whole(), "may only hold up to 2 values");
    }
    if errors.len() > before && all.len() <= 2 {
        return;
    }
    if all.len() == 2 && is_v6(&all[0]) == is_v6(&all[1]) {
        errors.invalid(
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
                errors.invalid(path.index(index), address.clone(), &why);
            }
        }
    }
}

fn is_v6(address: &Value) -> bool {
    text(address).contains(':')
}

/// Rejects what this IPv4-only cluster does not support.
fn check_families(spec: &Value, errors: &mut ErrorList) {
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
                errors.invalid("spec.ipFamilyPolicy", policy, &why);
            }
        }
    }
    for (index, address) in addresses.iter().enumerate().skip(families.len()) {
        if is_v6(address) {
            let field = FieldPath::from_root("spec.clusterIPs");
            let why = "IPv6 is not configured on this cluster";
            errors.invalid_list(field.index(index), addresses, why);
        }
    }
    // A headless service without a selector may have any families.
    if !errors.is_empty() || open {
        return;
    }
    if policy == "RequireDualStack" {
        let why = "this cluster is not configured for dual-stack services";
        errors.invalid("spec.ipFamilyPolicy", policy, why);
    }
    for (index, family) in families
        .iter()
        .enumerate()
        .filter(|(_, family)| **family != "IPv4")
    {
        let field = FieldPath::from_root("spec.ipFamilies");
        errors.invalid(
            field.index(index),
            family.clone(),
            "not configured on this cluster",
        );
    }
}

fn check_load_balancer(service: &Value, errors: &mut ErrorList) {
    let spec = &service["spec"];
    let is_balancer = spec["type"] == "LoadBalancer";
    let ranges = list(&spec["loadBalancerSourceRanges"]);
    if !ranges.is_empty() {
        let path = FieldPath::from_root("spec.LoadBalancerSourceRanges");
        if !is_balancer {
            errors.forbidden(path, LOAD_BALANCER_ONLY);
        }
        for (index, range) in ranges.iter().map(|range| text(range).trim()).enumerate() {
            errors.invalid_each(path.index(index), range, naming::cidr(range));
        }
    } else if let Some(ranges) = service["metadata"]["annotations"].get(SOURCE_RANGES_ANNOTATION) {
        let path = FieldPath::from_root("metadata.annotations");
        if !is_balancer {
            errors.forbidden(path.key(SOURCE_RANGES_ANNOTATION), LOAD_BALANCER_ONLY);
        }
        for range in text(ranges)
            .split(',')
            .map(str::trim)
            .filter(|range| !range.is_empty())
        {
            errors.invalid_each(path.key(SOURCE_RANGES_ANNOTATION), range, naming::cidr(range));
        }
    }
    if !is_balancer && !spec["allocateLoadBalancerNodePorts"].is_null() {
        errors.forbidden("spec.allocateLoadBalancerNodePorts", LOAD_BALANCER_ONLY);
    }
    if let Some(class) = spec["loadBalancerClass"].as_str() {
        if is_balancer {
            errors.invalid_each("spec.loadBalancerClass", class, naming::qualified(class));
        } else {
            errors.forbidden("spec.loadBalancerClass", LOAD_BALANCER_ONLY);
        }
    }
}

/// Whether the service has a health check node port.
fn needs_health_check(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

fn check_traffic(kind: &str, spec: &Value, errors: &mut ErrorList) {
    let external = matches!(kind, "NodePort" | "LoadBalancer") || !list(&spec["externalIPs"]).is_empty();
    let policy = &spec["externalTrafficPolicy"];
    if !policy.is_null() {
        if external {
            errors.one_of("spec.externalTrafficPolicy", policy, &["Cluster", "Local"]);
        } else {
            let why = "may only be set for externally-accessible services";
            errors.invalid("spec.externalTrafficPolicy", policy.clone(), why);
        }
    }
    if let Some(port) = spec["healthCheckNodePort"].as_i64().filter(|port| *port != 0) {
        if needs_health_check(spec) {
            errors.port_number("spec.healthCheckNodePort", port);
        } else {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.invalid("spec.healthCheckNodePort", port, why);
        }
    }
    errors.one_of_if_given(
        "spec.internalTrafficPolicy",
        &spec["internalTrafficPolicy"],
        &["Cluster", "Local"],
    );
    errors.one_of_if_given(
        "spec.trafficDistribution",
        &spec["trafficDistribution"],
        &["PreferClose", "PreferSameZone", "PreferSameNode"],
    );
}

/// Rejects changes of immutable fields.
fn check_changes(spec: &Value, old: &Value, errors: &mut ErrorList) {
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
            let field = FieldPath::from_root("spec.clusterIPs");
            errors.invalid_list(field.index(index), now, "may not change once set");
        }
    }
    let class = |spec: &Value| spec["loadBalancerClass"].clone();
    if is(spec, "LoadBalancer") && is(old, "LoadBalancer") && class(spec) != class(old) {
        errors.invalid("spec.loadBalancerClass", class(spec), "may not change once set");
    }
    if needs_health_check(spec)
        && needs_health_check(old)
        && spec["healthCheckNodePort"] != old["healthCheckNodePort"]
    {
        errors.forbidden("spec.healthCheckNodePort", "field is immutable");
    }
}
