//! Plain and aggregated discovery.

use serde_json::{Value, json};

use crate::registry::{Catalogue, Group, Resource, Subresource, group_version};

/// `/api`
pub(crate) fn core_versions() -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
    })
}

/// `/apis`
pub(crate) fn groups(catalogue: &Catalogue) -> Value {
    let named = catalogue.groups.iter().filter(|group| !group.name.is_empty());
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": named.map(group_fields).collect::<Vec<_>>()})
}

/// `/apis/apps`
pub(crate) fn group(group: &Group) -> Value {
    let mut value = group_fields(group);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    value
}

fn group_fields(group: &Group) -> Value {
    let version = |v: &str| json!({"groupVersion": group_version(&group.name, v), "version": v});
    json!({
        "name": &*group.name,
        "versions": group.versions.iter().map(|v| version(v)).collect::<Vec<_>>(),
        "preferredVersion": group.versions.first().map(|v| version(v)),
    })
}

/// `/api/v1`, `/apis/apps/v1`
pub(crate) fn resources(catalogue: &Catalogue, group: &str, version: &str) -> Value {
    let entries = catalogue.in_group_version(group, version).flat_map(|resource| {
        std::iter::once(api_resource(resource)).chain(
            resource
                .subresources
                .iter()
                .map(|sub| api_subresource(resource, sub)),
        )
    });
    let mut list = json!({
        "kind": "APIResourceList",
        "groupVersion": group_version(group, version),
        "resources": entries.collect::<Vec<_>>(),
    });
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    list
}

fn api_resource(resource: &Resource) -> Value {
    let mut value = json!({
        "name": &*resource.plural,
        "singularName": &*resource.singular,
        "namespaced": resource.namespaced,
        "kind": &*resource.kind,
        "verbs": verbs(resource),
    });
    if !resource.storage_version_hash.is_empty() {
        value["storageVersionHash"] = resource.storage_version_hash.to_string().into();
    }
    for (key, list) in [
        ("shortNames", &resource.short_names),
        ("categories", &resource.categories),
    ] {
        if !list.is_empty() {
            value[key] = json!(list);
        }
    }
    value
}

/// Verbs of a resource. A terminating CRD's resource can no longer be created, updated or patched.
fn verbs(resource: &Resource) -> Value {
    let terminating = resource.crd.as_ref().is_some_and(|defined| defined.terminating);
    let kept = |verb: &&str| !terminating || !matches!(*verb, "create" | "update" | "patch");
    let verbs = resource.verbs.iter().map(|verb| &**verb);
    verbs.filter(kept).map(Value::from).collect()
}

fn api_subresource(resource: &Resource, sub: &Subresource) -> Value {
    let mut value = json!({
        "name": format!("{}/{}", resource.plural, sub.name),
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": &*sub.kind,
        "verbs": sub.verbs,
    });
    for (key, text) in [("group", &sub.group), ("version", &sub.version)] {
        if !text.is_empty() {
            value[key] = text.to_string().into();
        }
    }
    value
}

/// `/api` or `/apis` for clients that request aggregated discovery.
pub(crate) fn aggregated(catalogue: &Catalogue, core: bool) -> Value {
    let groups = catalogue
        .groups
        .iter()
        .filter(|group| group.name.is_empty() == core);
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": groups.map(|group| aggregated_group(catalogue, group)).collect::<Vec<_>>(),
    })
}

fn aggregated_group(catalogue: &Catalogue, group: &Group) -> Value {
    let versions = group.versions.iter().map(|version| {
        let resources = catalogue
            .in_group_version(&group.name, version)
            .map(|r| aggregated_resource(r));
        json!({"version": &**version, "resources": resources.collect::<Vec<_>>(), "freshness": "Current"})
    });
    let metadata = if group.name.is_empty() {
        json!({})
    } else {
        json!({"name": &*group.name})
    };
    json!({"metadata": metadata, "versions": versions.collect::<Vec<_>>()})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut value = json!({
        "resource": &*resource.plural,
        "responseKind": {"group": custom_only(resource, &resource.group), "version": custom_only(resource, &resource.version), "kind": &*resource.kind},
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": &*resource.singular,
        "verbs": verbs(resource),
    });
    for (key, list) in [
        ("shortNames", &resource.short_names),
        ("categories", &resource.categories),
    ] {
        if !list.is_empty() {
            value[key] = json!(list);
        }
    }
    if !resource.subresources.is_empty() {
        let subresource = |sub: &Subresource| {
            json!({
                "subresource": &*sub.name,
                "responseKind": {
                    "group": subresource_custom_only(resource, &sub.group, &resource.group),
                    "version": subresource_custom_only(resource, &sub.version, &resource.version),
                    "kind": &*sub.kind,
                },
                "verbs": sub.verbs,
            })
        };
        value["subresources"] = resource.subresources.iter().map(subresource).collect();
    }
    value
}

/// A resource's group or version. Aggregated discovery includes it only for custom resources.
fn custom_only<'a>(resource: &Resource, text: &'a str) -> &'a str {
    if resource.is_custom { text } else { "" }
}

/// The same for the response kind of a subresource, which may have its own.
fn subresource_custom_only<'a>(resource: &Resource, text: &'a str, inherited: &'a str) -> &'a str {
    if text.is_empty() {
        custom_only(resource, inherited)
    } else {
        text
    }
}
