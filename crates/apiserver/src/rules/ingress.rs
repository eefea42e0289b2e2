//! Ingresses and their classes.

use std::net::IpAddr;

use serde_json::Value;

use super::findings::{Findings, list, text};
use crate::{naming, trail::Trail};

const CLASS: &str = "kubernetes.io/ingress.class";

pub(super) fn check(ingress: &Value, is_new: bool, findings: &mut Findings) {
    let spec = &ingress["spec"];
    let (class, annotated) = (
        spec["ingressClassName"].as_str(),
        ingress["metadata"]["annotations"]
            .get(CLASS)
            .and_then(Value::as_str),
    );
    let rules = list(&spec["rules"]);
    if rules.is_empty() && spec["defaultBackend"].is_null() {
        let why = "either `defaultBackend` or `rules` must be specified";
        findings.invalid("spec", spec["rules"].clone(), why);
    }
    if !spec["defaultBackend"].is_null() {
        check_backend(
            &spec["defaultBackend"],
            &Trail::from_root("spec.defaultBackend"),
            findings,
        );
    }
    let path = Trail::from_root("spec.rules");
    for (index, rule) in rules.iter().enumerate() {
        check_rule(rule, &path.item(index), findings);
    }
    let path = Trail::from_root("spec.tls");
    for (index, tls) in list(&spec["tls"]).iter().enumerate() {
        let path = path.item(index);
        for (place, host) in list(&tls["hosts"]).iter().map(text).enumerate() {
            check_host(host, &path.at("hosts").item(place), findings);
        }
        let secret = text(&tls["secretName"]);
        if !secret.is_empty() {
            findings.named(path.at("secretName"), secret, naming::subdomain(secret));
        }
    }
    if let Some(class) = class {
        findings.named("spec.ingressClassName", class, naming::subdomain(class));
    }
    if let (Some(class), Some(annotated)) = (class, annotated)
        && is_new
        && class != annotated
    {
        let why = "must match `ingressClassName` when both are specified";
        findings.invalid(format_args!("annotations.{CLASS}"), annotated, why);
    }
}

fn check_rule(rule: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let host = text(&rule["host"]);
    if !host.is_empty() {
        if host.parse::<IpAddr>().is_ok() {
            findings.invalid(path.at("host"), host, "must be a DNS name, not an IP address");
        }
        check_host(host, &path.at("host"), findings);
    }
    if rule["http"].is_null() {
        return;
    }
    let (routes, path) = (list(&rule["http"]["paths"]), path.at("http.paths"));
    if routes.is_empty() {
        findings.required(path, "");
    }
    for (index, route) in routes.iter().enumerate() {
        check_route(route, &path.item(index), findings);
    }
}

fn check_host(host: &str, path: &Trail<'_>, findings: &mut Findings) {
    let problems = if host.contains('*') {
        naming::wildcard(host)
    } else {
        naming::subdomain(host)
    };
    findings.named(path, host, problems);
}

fn check_route(route: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let (target, field) = (text(&route["path"]), path.at("path"));
    let absolute = target.starts_with('/');
    match route["pathType"].as_str() {
        None => {
            findings.required(path.at("pathType"), "pathType must be specified");
            return;
        }
        Some("Exact" | "Prefix") => {
            if !absolute {
                findings.invalid(field, target, "must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"] {
                if target.contains(part) {
                    findings.invalid(field, target, &format!("must not contain '{part}'"));
                }
            }
            for end in ["/..", "/."] {
                if target.ends_with(end) {
                    findings.invalid(field, target, &format!("cannot end with '{end}'"));
                }
            }
        }
        Some("ImplementationSpecific") => {
            if !target.is_empty() && !absolute {
                findings.invalid(field, target, "must be an absolute path");
            }
        }
        Some(_) => {
            let kinds = ["Exact", "ImplementationSpecific", "Prefix"];
            findings.one_of(path.at("pathType"), &route["pathType"], &kinds);
        }
    }
    check_backend(&route["backend"], &path.at("backend"), findings);
}

fn check_backend(backend: &Value, path: &Trail<'_>, findings: &mut Findings) {
    let (service, resource) = (&backend["service"], &backend["resource"]);
    match (service.is_null(), resource.is_null()) {
        (true, true) => findings.invalid(path, "", "resource or service backend is required"),
        (false, false) => findings.invalid(path, "", "cannot set both resource and service backends"),
        (true, false) => check_reference(resource, &path.at("resource"), findings),
        (false, true) => check_service(service, path, findings),
    }
}

fn check_service(service: &Value, path: &Trail<'_>, findings: &mut Findings) {
    if findings.given(path.at("service.name"), &service["name"]) {
        let name = text(&service["name"]);
        findings.named(path.at("service.name"), name, naming::label(name));
    }
    let name = text(&service["port"]["name"]);
    let number = service["port"]["number"].as_i64().unwrap_or(0);
    match (name.is_empty(), number == 0) {
        (true, true) => findings.required(path, "port name or number is required"),
        (false, false) => findings.invalid(path, "", "cannot set both port name & port number"),
        (false, true) => findings.named(path.at("service.port.name"), name, naming::port_name(name)),
        (true, false) => findings.port_number(path.at("service.port.number"), number),
    }
}

/// An object of any kind, by name.
fn check_reference(reference: &Value, path: &Trail<'_>, findings: &mut Findings) {
    if let Some(group) = reference["apiGroup"].as_str() {
        findings.named(path.at("apiGroup"), group, naming::subdomain(group));
    }
    for key in ["kind", "name"] {
        if findings.given(path.at(key), &reference[key]) {
            let name = text(&reference[key]);
            findings.named(path.at(key), name, naming::path_segment(name));
        }
    }
}

pub(super) fn check_class(spec: &Value, is_new: bool, findings: &mut Findings) {
    // It cannot change any more, so that what is there is let be.
    if is_new && findings.given("spec.controller", &spec["controller"]) {
        let controller = text(&spec["controller"]);
        if controller.len() > 250 {
            findings.add("spec.controller", crate::schema::Problem::TooLong(250));
        }
        naming::domain_path(controller, |value, why| {
            findings.invalid("spec.controller", value, why);
        });
    }
    let (parameters, path) = (&spec["parameters"], Trail::from_root("spec.parameters"));
    if parameters.is_null() {
        return;
    }
    check_reference(parameters, &path, findings);
    let (scope, namespace) = (text(&parameters["scope"]), parameters["namespace"].as_str());
    if scope.is_empty() {
        findings.required(path.at("scope"), "");
    } else {
        findings.one_of(path.at("scope"), &parameters["scope"], &["Cluster", "Namespace"]);
    }
    match (scope, namespace) {
        ("Namespace", None | Some("")) => {
            findings.required(path.at("namespace"), "`parameters.scope` is set to 'Namespace'");
        }
        ("Namespace", Some(namespace)) => {
            findings.named(path.at("namespace"), namespace, naming::label(namespace));
        }
        ("Cluster", Some(_)) => {
            findings.forbidden(path.at("namespace"), "`parameters.scope` is set to 'Cluster'");
        }
        _ => {}
    }
}
