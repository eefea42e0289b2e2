//! Ingresses and their classes.

use std::net::IpAddr;

use serde_json::{Value, json};
use windlass_api::naming;

use super::{
    defaulting::DefaultValue::Text,
    error_list::{ErrorList, list, text},
    row::{self, Row},
    status::check_load_balancer_ingress,
    strategy::{CheckOrder, Creation, Facts, InitialStatus, MetadataChecks, Strategy, Write},
    warnings::has_annotation,
};
use crate::{
    admission_plugins::AdmissionPlugin, field_path::FieldPath, object::Object, registry::Resource,
    schema::Problem, status::Status,
};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

pub(super) struct Ingress;

impl Strategy for Ingress {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            columns: Some("Name Class Hosts Address Ports Age"),
            ..Facts::DEFAULT
        }
    }

    fn admit(&self, creation: &Creation<'_>, ingress: &mut Object) -> Result<(), Status> {
        if creation.has(AdmissionPlugin::DefaultIngressClass) {
            creation.admission.set_default_class(
                ingress,
                "ingressClassName",
                ("networking.k8s.io", "ingressclasses"),
                "ingressclass.kubernetes.io/is-default-class",
            );
        }
        Ok(())
    }

    fn initial_status(&self, _resource: &Resource, _ingress: &Object, _now: &str) -> InitialStatus {
        InitialStatus::Set(json!({"loadBalancer": {}}))
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check(write.value(), write.is_new(), errors);
    }

    fn validate_subresource(
        &self,
        _subresource: &str,
        ingress: &Value,
        _old: &Value,
        errors: &mut ErrorList,
    ) {
        check_load_balancer_ingress(&ingress["status"]["loadBalancer"]["ingress"], errors);
    }

    fn warn(&self, write: &Write<'_>, warnings: &mut Vec<String>) {
        if write.is_new() && has_annotation(write.object, CLASS_ANNOTATION) {
            warnings.push(format!(
                "annotation {CLASS_ANNOTATION:?} is deprecated, please use 'spec.ingressClassName' instead"
            ));
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        cells(row)
    }
}

pub(super) struct IngressClass;

impl Strategy for IngressClass {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            metadata_checks: MetadataChecks {
                order: CheckOrder::ChangesFirst,
                ..Facts::DEFAULT.metadata_checks
            },
            defaults: &[("spec.parameters.scope", Text("Cluster"))],
            immutable_fields: &["spec.controller"],
            columns: Some("Name Controller Parameters Age"),
            ..Facts::DEFAULT
        }
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check_class(write.spec(), write.is_new(), errors);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let parameters = match row.object.pointer("/spec/parameters") {
            Some(p) if p.is_object() => {
                let group = match row::text(p, "/apiGroup") {
                    "" => String::new(),
                    group => format!(".{group}"),
                };
                format!("{}{group}/{}", row::text(p, "/kind"), row::text(p, "/name"))
            }
            _ => "<none>".to_owned(),
        };
        vec![
            row.name(),
            row.text("/spec/controller").into(),
            parameters.into(),
            row.age(),
        ]
    }
}

fn check(ingress: &Value, is_new: bool, errors: &mut ErrorList) {
    let spec = &ingress["spec"];
    let (class, annotated) = (
        spec["ingressClassName"].as_str(),
        ingress["metadata"]["annotations"]
            .get(CLASS_ANNOTATION)
            .and_then(Value::as_str),
    );
    let rules = list(&spec["rules"]);
    if rules.is_empty() && spec["defaultBackend"].is_null() {
        let why = "either `defaultBackend` or `rules` must be specified";
        errors.invalid("spec", spec["rules"].clone(), why);
    }
    if !spec["defaultBackend"].is_null() {
        check_backend(
            &spec["defaultBackend"],
            &FieldPath::from_root("spec.defaultBackend"),
            errors,
        );
    }
    let path = FieldPath::from_root("spec.rules");
    for (index, rule) in rules.iter().enumerate() {
        check_rule(rule, &path.index(index), errors);
    }
    let path = FieldPath::from_root("spec.tls");
    for (index, tls) in list(&spec["tls"]).iter().enumerate() {
        let path = path.index(index);
        for (place, host) in list(&tls["hosts"]).iter().map(text).enumerate() {
            check_host(host, &path.child("hosts").index(place), errors);
        }
        let secret = text(&tls["secretName"]);
        if !secret.is_empty() {
            errors.invalid_each(path.child("secretName"), secret, naming::subdomain(secret));
        }
    }
    if let Some(class) = class {
        errors.invalid_each("spec.ingressClassName", class, naming::subdomain(class));
    }
    if let (Some(class), Some(annotated)) = (class, annotated)
        && is_new
        && class != annotated
    {
        let why = "must match `ingressClassName` when both are specified";
        errors.invalid(format_args!("annotations.{CLASS_ANNOTATION}"), annotated, why);
    }
}

fn check_rule(rule: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let host = text(&rule["host"]);
    if !host.is_empty() {
        if host.parse::<IpAddr>().is_ok() {
            errors.invalid(path.child("host"), host, "must be a DNS name, not an IP address");
        }
        check_host(host, &path.child("host"), errors);
    }
    if rule["http"].is_null() {
        return;
    }
    let (routes, path) = (list(&rule["http"]["paths"]), path.child("http.paths"));
    if routes.is_empty() {
        errors.required(path, "");
    }
    for (index, route) in routes.iter().enumerate() {
        check_route(route, &path.index(index), errors);
    }
}

fn check_host(host: &str, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let problems = if host.contains('*') {
        naming::wildcard(host)
    } else {
        naming::subdomain(host)
    };
    errors.invalid_each(path, host, problems);
}

fn check_route(route: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let (target, field) = (text(&route["path"]), path.child("path"));
    let absolute = target.starts_with('/');
    match route["pathType"].as_str() {
        None => {
            errors.required(path.child("pathType"), "pathType must be specified");
            return;
        }
        Some("Exact" | "Prefix") => {
            if !absolute {
                errors.invalid(field, target, "must be an absolute path");
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"] {
                if target.contains(part) {
                    errors.invalid(field, target, &format!("must not contain '{part}'"));
                }
            }
            for end in ["/..", "/."] {
                if target.ends_with(end) {
                    errors.invalid(field, target, &format!("cannot end with '{end}'"));
                }
            }
        }
        Some("ImplementationSpecific") => {
            if !target.is_empty() && !absolute {
                errors.invalid(field, target, "must be an absolute path");
            }
        }
        Some(_) => {
            let kinds = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.one_of(path.child("pathType"), &route["pathType"], &kinds);
        }
    }
    check_backend(&route["backend"], &path.child("backend"), errors);
}

fn check_backend(backend: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let (service, resource) = (&backend["service"], &backend["resource"]);
    match (service.is_null(), resource.is_null()) {
        (true, true) => errors.invalid(path, "", "resource or service backend is required"),
        (false, false) => errors.invalid(path, "", "cannot set both resource and service backends"),
        (true, false) => check_reference(resource, &path.child("resource"), errors),
        (false, true) => check_service(service, path, errors),
    }
}

fn check_service(service: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    if errors.require(path.child("service.name"), &service["name"]) {
        let name = text(&service["name"]);
        errors.invalid_each(path.child("service.name"), name, naming::label(name));
    }
    let name = text(&service["port"]["name"]);
    let number = service["port"]["number"].as_i64().unwrap_or(0);
    match (name.is_empty(), number == 0) {
        (true, true) => errors.required(path, "port name or number is required"),
        (false, false) => errors.invalid(path, "", "cannot set both port name & port number"),
        (false, true) => errors.invalid_each(path.child("service.port.name"), name, naming::port_name(name)),
        (true, false) => errors.port_number(path.child("service.port.number"), number),
    }
}

/// A reference to an object of any kind.
fn check_reference(reference: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    if let Some(group) = reference["apiGroup"].as_str() {
        errors.invalid_each(path.child("apiGroup"), group, naming::subdomain(group));
    }
    for key in ["kind", "name"] {
        if errors.require(path.child(key), &reference[key]) {
            let name = text(&reference[key]);
            errors.invalid_each(path.child(key), name, naming::path_segment(name));
        }
    }
}

fn check_class(spec: &Value, is_new: bool, errors: &mut ErrorList) {
    // The controller is immutable, so an existing one is not checked again.
    if is_new && errors.require("spec.controller", &spec["controller"]) {
        let controller = text(&spec["controller"]);
        if controller.len() > 250 {
            errors.add("spec.controller", Problem::TooLong(250));
        }
        naming::domain_path(controller, |value, why| {
            errors.invalid("spec.controller", value, why);
        });
    }
    let (parameters, path) = (&spec["parameters"], FieldPath::from_root("spec.parameters"));
    if parameters.is_null() {
        return;
    }
    check_reference(parameters, &path, errors);
    let (scope, namespace) = (text(&parameters["scope"]), parameters["namespace"].as_str());
    if scope.is_empty() {
        errors.required(path.child("scope"), "");
    } else {
        errors.one_of(
            path.child("scope"),
            &parameters["scope"],
            &["Cluster", "Namespace"],
        );
    }
    match (scope, namespace) {
        ("Namespace", None | Some("")) => {
            errors.required(
                path.child("namespace"),
                "`parameters.scope` is set to 'Namespace'",
            );
        }
        ("Namespace", Some(namespace)) => {
            errors.invalid_each(path.child("namespace"), namespace, naming::label(namespace));
        }
        ("Cluster", Some(_)) => {
            errors.forbidden(path.child("namespace"), "`parameters.scope` is set to 'Cluster'");
        }
        _ => {}
    }
}

fn cells(row: &Row<'_>) -> Vec<Value> {
    let rules = row.count("/spec/rules");
    let hosts: Vec<_> = row::items(row.object, "/spec/rules")
        .map(|r| row::text(r, "/host"))
        .filter(|h| !h.is_empty())
        .collect();
    let hosts = match hosts.len() {
        0 => "*".to_owned(),
        4.. => format!("{} + {} more...", hosts[..3].join(","), rules - 3),
        _ => hosts.join(","),
    };
    let addresses: Vec<_> = row::items(row.object, "/status/loadBalancer/ingress")
        .map(|i| {
            if row::text(i, "/ip").is_empty() {
                row::text(i, "/hostname")
            } else {
                row::text(i, "/ip")
            }
        })
        .collect();
    vec![
        row.name(),
        row.text_or("/spec/ingressClassName", "<none>"),
        hosts.into(),
        addresses.join(",").into(),
        if row.count("/spec/tls") > 0 {
            "80, 443"
        } else {
            "80"
        }
        .into(),
        row.age(),
    ]
}
