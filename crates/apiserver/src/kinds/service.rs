//! Services: their defaults, addresses and ports.

mod allocation;
pub(super) mod validation;

use serde_json::{Value, json};

pub(crate) use self::allocation::ServiceAllocator;
use super::{
    defaulting::{items, set_if_absent},
    error_list::{ErrorList, list},
    row::{self, Row, labels, number, or_none, text},
    selectable::SelectableField,
    status,
    strategy::{Allocation, Facts, InitialStatus, MetadataChecks, NameRule, Strategy, Write},
};
use crate::{
    media::Encoding,
    object::Object,
    registry::Resource,
    request::Target,
    status::Status,
    storage::Entry,
    verbs::{WriteOptions, WriteVerbs},
};

pub(super) struct Service;

impl Strategy for Service {
    fn facts(&self) -> Facts {
        Facts {
            create_on_update: true,
            is_allocated: true,
            name_rule: NameRule::Label,
            metadata_checks: MetadataChecks::THREE,
            selectable_fields: const {
                &[
                    SelectableField::text("spec.clusterIP"),
                    SelectableField::text("spec.type"),
                ]
            },
            columns: Some("Name Type Cluster-IP External-IP Port(s) Age +Selector"),
            ..Facts::RETURNS_DELETED
        }
    }

    fn set_defaults(&self, service: &mut Object) {
        fill(&mut service.tree_mut()["spec"]);
    }

    fn prepare_create(&self, service: &mut Object) {
        allocation::set_cluster_ips(service);
    }

    fn initial_status(&self, _resource: &Resource, _service: &Object, _now: &str) -> InitialStatus {
        InitialStatus::Set(json!({"loadBalancer": {}}))
    }

    fn prepare_update(&self, service: &mut Object, old: &Object) {
        allocation::keep_allocated(service, old);
    }

    fn validate_first(&self, service: &Value, errors: &mut ErrorList) {
        validation::check_cluster_ips(&service["spec"], errors);
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        validation::check(write.value(), write.old.map(Object::tree), errors);
    }

    fn validate_subresource(
        &self,
        _subresource: &str,
        service: &Value,
        _old: &Value,
        errors: &mut ErrorList,
    ) {
        let entries = &service["status"]["loadBalancer"]["ingress"];
        if service["spec"]["type"] != "LoadBalancer" && !list(entries).is_empty() {
            let why = "may only be used when `spec.type` is 'LoadBalancer'";
            errors.forbidden("status.loadBalancer.ingress", why);
        } else {
            status::check_load_balancer_ingress(entries, errors);
        }
    }

    fn may_warn(&self, _write: &Write<'_>) -> bool {
        true
    }

    fn warn(&self, write: &Write<'_>, warnings: &mut Vec<String>) {
        warn(write.spec(), warnings);
    }

    fn allocate<'a>(
        &self,
        writes: &'a WriteVerbs,
        resource: &Resource,
        service: &mut Object,
        old: Option<&Object>,
        options: &WriteOptions,
    ) -> Result<Allocation<'a>, Status> {
        writes.services.allocate(resource, service, old, options)
    }

    fn after_removal(&self, writes: &WriteVerbs, _resource: &Resource, removed: &Entry) {
        if (&*removed.key.namespace, &*removed.key.name) == ("default", "kubernetes") {
            writes.ensure_kubernetes_service();
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        cells(row)
    }
}

/// The service `default/kubernetes` of a server on this port, at the first address of the service range.
pub(crate) fn kubernetes_service(port: u16) -> Value {
    json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": "10.0.0.1",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
    })
}

impl WriteVerbs {
    /// Creates the service `default/kubernetes` if it does not exist and the server has one. A real server checks it every
    /// ten seconds.
    pub(crate) fn ensure_kubernetes_service(&self) {
        let Some(service) = &self.kubernetes_service else {
            return;
        };
        let catalogue = self.store.registry.catalogue();
        let target = Target {
            resource: catalogue.find("", "v1", "services").expect("built in").clone(),
            namespace: "default".into(),
            name: "".into(),
            subresource: "".into(),
        };
        // It may exist in a storage that was used before.
        let _ = self.create(
            &target,
            &WriteOptions::internal(),
            service.to_string().as_bytes(),
            Encoding::Json,
        );
    }
}

/// Addresses and node ports are not defaults: they are allocated.
fn fill(spec: &mut Value) {
    set_if_absent(spec, "sessionAffinity", "None");
    set_if_absent(spec, "type", "ClusterIP");
    if spec["sessionAffinity"] == "ClientIP" {
        set_if_absent(spec, "sessionAffinityConfig", json!({}));
        set_if_absent(&mut spec["sessionAffinityConfig"], "clientIP", json!({}));
        set_if_absent(
            &mut spec["sessionAffinityConfig"]["clientIP"],
            "timeoutSeconds",
            10800,
        );
    } else if let Some(fields) = spec.as_object_mut() {
        fields.remove("sessionAffinityConfig");
    }
    for port in items(spec, "ports") {
        set_if_absent(port, "protocol", "TCP");
        let target = &port["targetPort"];
        if target.is_null() || *target == 0 || *target == "" {
            port["targetPort"] = port["port"].clone();
        }
    }
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    let is_external = matches!(&*kind, "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty()));
    if is_external {
        set_if_absent(spec, "externalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set_if_absent(spec, "allocateLoadBalancerNodePorts", true);
    }
    if matches!(&*kind, "ClusterIP" | "NodePort" | "LoadBalancer") {
        set_if_absent(spec, "internalTrafficPolicy", "Cluster");
    }
}

fn warn(spec: &Value, warnings: &mut Vec<String>) {
    if !list(&spec["externalIPs"]).is_empty() {
        warnings.push(if spec["clusterIP"] == "None" {
            "spec.externalIPs is ignored for headless services".to_owned()
        } else {
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned()
        });
    }
    if spec["type"] != "ExternalName" && spec["externalName"].as_str().is_some_and(|name| !name.is_empty()) {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec["trafficDistribution"] == "PreferClose" {
        warnings.push(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned(),
        );
    }
}

fn cells(row: &Row<'_>) -> Vec<Value> {
    let external: Vec<_> = row::items(row.object, "/spec/externalIPs")
        .filter_map(Value::as_str)
        .collect();
    let balancer = row::items(row.object, "/status/loadBalancer/ingress").map(|i| match text(i, "/ip") {
        "" => text(i, "/hostname"),
        ip => ip,
    });
    let outside = match row.text("/spec/type") {
        "ClusterIP" | "NodePort" => or_none(&external.join(",")),
        "LoadBalancer" => match balancer.chain(external).collect::<Vec<_>>().join(",") {
            none if none.is_empty() => "<pending>".into(),
            list => list.into(),
        },
        "ExternalName" => row.text("/spec/externalName").into(),
        _ => "<unknown>".into(),
    };
    let ports: Vec<_> = row::items(row.object, "/spec/ports")
        .map(|port| {
            let (number, protocol) = (number(port, "/port"), text(port, "/protocol"));
            match port["nodePort"].as_i64().filter(|p| *p > 0) {
                Some(node) => format!("{number}:{node}/{protocol}"),
                None => format!("{number}/{protocol}"),
            }
        })
        .collect();
    vec![
        row.name(),
        row.text("/spec/type").into(),
        or_none(row.text("/spec/clusterIPs/0")),
        outside,
        or_none(&ports.join(",")),
        row.age(),
        labels(row.object.pointer("/spec/selector")).into(),
    ]
}
