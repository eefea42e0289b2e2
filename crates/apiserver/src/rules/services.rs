//! Services.

use serde_json::Value;

use super::findings::{Findings, list, text};
use crate::{naming, schema::Problem};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(super) fn check(spec: &Value, findings: &mut Findings) {
    let kind = text(&spec["type"]);
    let headless = spec["clusterIP"] == "None";
    if list(&spec["ports"]).is_empty() && !headless && kind != "ExternalName" {
        findings.required("spec.ports", "");
    }
    if kind == "NodePort" && headless {
        findings.invalid(
            "spec.clusterIPs[0]",
            "None",
            "may not be set to 'None' for NodePort services",
        );
    }
    if kind == "LoadBalancer" && headless {
        findings.invalid(
            "spec.clusterIPs[0]",
            "None",
            "may not be set to 'None' for LoadBalancer services",
        );
    }
    if kind == "ExternalName" {
        if !list(&spec["clusterIPs"]).is_empty() || !text(&spec["clusterIP"]).is_empty() {
            findings.forbidden("spec.clusterIPs", "may not be set for ExternalName services");
        }
        // A name may end with the dot of the root.
        match text(&spec["externalName"]).trim_end_matches('.') {
            "" => findings.required("spec.externalName", ""),
            name => findings.named("spec.externalName", name, naming::subdomain(name)),
        }
    }
    check_ports(spec, findings);
    findings.labels("spec.selector", &spec["selector"]);
    findings.one_of(
        "spec.sessionAffinity",
        &spec["sessionAffinity"],
        &["ClientIP", "None"],
    );
    check_addresses(spec, findings);
    if !TYPES.contains(&kind) {
        findings.one_of("spec.type", &spec["type"], &TYPES);
    }
    check_traffic(kind, spec, findings);
}

fn check_ports(spec: &Value, findings: &mut Findings) {
    let (kind, ports) = (text(&spec["type"]), list(&spec["ports"]));
    let mut names: Vec<&str> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let at = |name: &str| format!("spec.ports[{index}].{name}");
        let name = text(&port["name"]);
        if name.is_empty() {
            if ports.len() > 1 {
                findings.required(at("name"), "");
            }
        } else {
            findings.named(at("name"), name, naming::label(name));
            if names.contains(&name) {
                findings.add(at("name"), Problem::Duplicate(name.into()));
            }
            names.push(name);
        }
        let number = port["port"].as_i64().unwrap_or(0);
        findings.named(at("port"), number, naming::port_number(number));
        findings.one_of(at("protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"]);
        findings.port(at("targetPort"), &port["targetPort"]);
    }
    if kind == "ClusterIP" {
        for (index, port) in ports.iter().enumerate() {
            if port["nodePort"].as_i64().is_some_and(|number| number != 0) {
                let why = "may not be used when `type` is 'ClusterIP'";
                findings.forbidden(format_args!("spec.ports[{index}].nodePort"), why);
            }
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let same = |other: &Value| other["port"] == port["port"] && other["protocol"] == port["protocol"];
        if ports[..index].iter().any(same) {
            let shown = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                port["protocol"], port["port"]
            );
            findings.add(format_args!("spec.ports[{index}]"), Problem::DuplicateText(shown));
        }
    }
}

fn check_addresses(spec: &Value, findings: &mut Findings) {
    for (index, address) in list(&spec["externalIPs"]).iter().enumerate() {
        let address = text(address);
        findings.named(
            format_args!("spec.externalIPs[{index}]"),
            address,
            naming::address(address),
        );
    }
    if let Some(address) = spec["clusterIP"]
        .as_str()
        .filter(|address| !matches!(*address, "" | "None"))
    {
        findings.named("spec.clusterIPs[0]", address, naming::address(address));
    }
    let addresses = &spec["clusterIPs"];
    if spec["clusterIP"].is_null() && !list(addresses).is_empty() {
        findings.invalid(
            "spec.clusterIPs",
            addresses.clone(),
            "must be empty when `clusterIP` is not specified",
        );
    }
    let headless = spec["clusterIP"] == "None";
    if spec["ipFamilyPolicy"] == "RequireDualStack" && !headless {
        let why = "this cluster is not configured for dual-stack services";
        findings.invalid("spec.ipFamilyPolicy", "RequireDualStack", why);
    }
    for (index, family) in list(&spec["ipFamilies"]).iter().enumerate() {
        if *family != "IPv4" && !headless {
            let field = format_args!("spec.ipFamilies[{index}]");
            findings.invalid(field, family.clone(), "not configured on this cluster");
        }
    }
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
    let health = &spec["healthCheckNodePort"];
    if health.as_i64().is_some_and(|port| port != 0) && !(kind == "LoadBalancer" && *policy == "Local") {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        findings.invalid("spec.healthCheckNodePort", health.clone(), why);
    }
    let internal = &spec["internalTrafficPolicy"];
    if !internal.is_null() {
        findings.one_of("spec.internalTrafficPolicy", internal, &["Cluster", "Local"]);
    }
}
