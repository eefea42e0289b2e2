//! Endpoint slices, and the endpoints that they replace.

use std::net::IpAddr;

use serde_json::Value;
use windlass_api::naming;

use super::{
    defaulting::DefaultValue::Text as DefaultText,
    duplicates::Duplicates,
    error_list::{ErrorList, list, text},
    row::{self, Row, items, join_shortened, number, or_none},
    service::validation::check_endpoint_address,
    strategy::{Facts, MetadataChecks, Strategy, Write},
};
use crate::{field_path::FieldPath, object::Object};

pub(super) struct EndpointSlice;

impl Strategy for EndpointSlice {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            metadata_checks: MetadataChecks::THREE,
            defaults: &[
                ("ports[].name", DefaultText("")),
                ("ports[].protocol", DefaultText("TCP")),
            ],
            immutable_fields: &["addressType"],
            columns: Some("Name AddressType Ports Endpoints Age"),
            ..Facts::DEFAULT
        }
    }

    fn metadata_increments_generation(&self, slice: &Object, old: &Object) -> bool {
        slice.metadata().get("labels") != old.metadata().get("labels")
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check(write.value(), write.old, errors);
    }

    fn warn(&self, write: &Write<'_>, warnings: &mut Vec<String>) {
        if write.value()["addressType"] == "FQDN" {
            warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        cells(row)
    }
}

pub(super) struct Endpoints;

impl Strategy for Endpoints {
    fn facts(&self) -> Facts {
        Facts {
            create_on_update: true,
            deprecation: Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
            defaults: &[("subsets[].ports[].protocol", DefaultText("TCP"))],
            columns: Some("Name Endpoints Age"),
            ..Facts::DEFAULT
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), or_none(&addresses(row)), row.age()]
    }
}

fn check(slice: &Value, old: Option<&Object>, errors: &mut ErrorList) {
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
                    check_endpoint_address(address, &item, errors);
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

fn cells(row: &Row<'_>) -> Vec<Value> {
    let ports: Vec<_> = items(row.object, "/ports")
        .map(|port| port["port"].as_i64().map_or("*".to_owned(), |p| p.to_string()))
        .collect();
    let ports = match row.object.pointer("/ports") {
        None | Some(Value::Null) => "<unset>".to_owned(),
        Some(_) => join_shortened(&ports, 3),
    };
    let addresses: Vec<_> = items(row.object, "/endpoints")
        .flat_map(|endpoint| items(endpoint, "/addresses"))
        .filter_map(|address| address.as_str().map(str::to_owned))
        .collect();
    let endpoints = if addresses.is_empty() {
        "<unset>".to_owned()
    } else {
        join_shortened(&addresses, 3)
    };
    vec![
        row.name(),
        row.text("/addressType").into(),
        ports.into(),
        endpoints.into(),
        row.age(),
    ]
}

fn addresses(row: &Row<'_>) -> String {
    let mut all = Vec::new();
    for subset in items(row.object, "/subsets") {
        for address in items(subset, "/addresses") {
            let ip = row::text(address, "/ip");
            let ports: Vec<_> = items(subset, "/ports")
                .map(|p| format!("{ip}:{}", number(p, "/port")))
                .collect();
            all.extend(if ports.is_empty() {
                vec![ip.to_owned()]
            } else {
                ports
            });
        }
    }
    join_shortened(&all, 3)
}
