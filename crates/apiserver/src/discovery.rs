//! Plain and aggregated discovery.
//!
//! The documents are structs with the fields in the order of Kubernetes' Go structs, because scripts match responses
//! as text.

use serde::Serialize;

use crate::registry::{Catalogue, Group, Resource, Subresource, group_version};

/// `/api`
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiVersions {
    kind: &'static str,
    versions: [&'static str; 1],
    #[serde(rename = "serverAddressByClientCIDRs")]
    server_addresses: [ServerAddress; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ServerAddress {
    #[serde(rename = "clientCIDR")]
    client_cidr: &'static str,
    server_address: &'static str,
}

/// `/apis`
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiGroupList<'a> {
    kind: &'static str,
    api_version: &'static str,
    groups: Vec<ApiGroup<'a>>,
}

/// `/apis/apps`
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiGroup<'a> {
    /// Absent in a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    name: &'a str,
    versions: Vec<GroupVersion<'a>>,
    preferred_version: GroupVersion<'a>,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion<'a> {
    group_version: String,
    version: &'a str,
}

/// `/api/v1`, `/apis/apps/v1`
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiResourceList<'a> {
    kind: &'static str,
    /// Absent for the core group.
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    group_version: String,
    resources: Vec<ApiResource<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiResource<'a> {
    name: String,
    singular_name: &'a str,
    namespaced: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'a str,
    kind: &'a str,
    verbs: Vec<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    short_names: &'a [Box<str>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    categories: &'a [Box<str>],
    #[serde(skip_serializing_if = "str::is_empty")]
    storage_version_hash: &'a str,
}

/// `/api` or `/apis` for clients that request aggregated discovery.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ApiGroupDiscoveryList<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: NoFields,
    items: Vec<ApiGroupDiscovery<'a>>,
}

#[derive(Serialize)]
struct NoFields {}

#[derive(Serialize)]
struct ApiGroupDiscovery<'a> {
    metadata: GroupMetadata<'a>,
    versions: Vec<ApiVersionDiscovery<'a>>,
}

#[derive(Serialize)]
struct GroupMetadata<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
}

#[derive(Serialize)]
struct ApiVersionDiscovery<'a> {
    version: &'a str,
    resources: Vec<ApiResourceDiscovery<'a>>,
    freshness: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiResourceDiscovery<'a> {
    resource: &'a str,
    response_kind: ResponseKind<'a>,
    scope: &'static str,
    singular_resource: &'a str,
    verbs: Vec<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    short_names: &'a [Box<str>],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    categories: &'a [Box<str>],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subresources: Vec<ApiSubresourceDiscovery<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApiSubresourceDiscovery<'a> {
    subresource: &'a str,
    response_kind: ResponseKind<'a>,
    verbs: &'a [Box<str>],
}

#[derive(Serialize)]
struct ResponseKind<'a> {
    group: &'a str,
    version: &'a str,
    kind: &'a str,
}

/// `/api`
pub(crate) fn core_versions() -> ApiVersions {
    ApiVersions {
        kind: "APIVersions",
        versions: ["v1"],
        server_addresses: [ServerAddress {
            client_cidr: "0.0.0.0/0",
            server_address: "",
        }],
    }
}

/// `/apis`
pub(crate) fn groups(catalogue: &Catalogue) -> ApiGroupList<'_> {
    let (mut custom, built_in): (Vec<_>, Vec<_>) = catalogue
        .groups
        .iter()
        .filter(|group| !group.name.is_empty())
        .partition(|group| group.is_custom);
    // The real server sorts the APIServices of CRDs, which are named `version.group`.
    custom.sort_by_cached_key(|group| {
        let names = group
            .versions
            .iter()
            .map(|version| format!("{version}.{}", group.name));
        names.min()
    });
    ApiGroupList {
        kind: "APIGroupList",
        api_version: "v1",
        groups: built_in.into_iter().chain(custom).map(group_entry).collect(),
    }
}

/// `/apis/apps`
pub(crate) fn group(group: &Group) -> ApiGroup<'_> {
    ApiGroup {
        kind: Some("APIGroup"),
        api_version: Some("v1"),
        ..group_entry(group)
    }
}

fn group_entry(group: &Group) -> ApiGroup<'_> {
    let versions: Vec<_> = group
        .versions
        .iter()
        .map(|version| GroupVersion {
            group_version: group_version(&group.name, version),
            version,
        })
        .collect();
    ApiGroup {
        kind: None,
        api_version: None,
        name: &group.name,
        preferred_version: versions.first().expect("a group has a version").clone(),
        versions,
    }
}

/// `/api/v1`, `/apis/apps/v1`
pub(crate) fn resources<'a>(
    catalogue: &'a Catalogue,
    group: &'a str,
    version: &'a str,
) -> ApiResourceList<'a> {
    let entries = catalogue.in_group_version(group, version).flat_map(|resource| {
        std::iter::once(api_resource(resource)).chain(
            resource
                .subresources
                .iter()
                .map(|sub| api_subresource(resource, sub)),
        )
    });
    ApiResourceList {
        kind: "APIResourceList",
        api_version: (!group.is_empty()).then_some("v1"),
        group_version: group_version(group, version),
        resources: entries.collect(),
    }
}

fn api_resource(resource: &Resource) -> ApiResource<'_> {
    ApiResource {
        name: resource.plural.to_string(),
        singular_name: &resource.singular,
        namespaced: resource.namespaced,
        group: "",
        version: "",
        kind: &resource.kind,
        verbs: verbs(resource),
        short_names: &resource.short_names,
        categories: &resource.categories,
        storage_version_hash: &resource.storage_version_hash,
    }
}

/// Verbs of a resource. A terminating CRD's resource can no longer be created, updated or patched.
fn verbs(resource: &Resource) -> Vec<&str> {
    let terminating = resource.crd.as_ref().is_some_and(|defined| defined.terminating);
    let kept = |verb: &&str| !terminating || !matches!(*verb, "create" | "update" | "patch");
    let verbs = resource.verbs.iter().map(|verb| &**verb);
    verbs.filter(kept).collect()
}

fn api_subresource<'a>(resource: &'a Resource, sub: &'a Subresource) -> ApiResource<'a> {
    ApiResource {
        name: format!("{}/{}", resource.plural, sub.name),
        singular_name: "",
        namespaced: resource.namespaced,
        group: &sub.group,
        version: &sub.version,
        kind: &sub.kind,
        verbs: sub.verbs.iter().map(|verb| &**verb).collect(),
        short_names: &[],
        categories: &[],
        storage_version_hash: "",
    }
}

/// `/api` or `/apis` for clients that request aggregated discovery.
pub(crate) fn aggregated(catalogue: &Catalogue, core: bool) -> ApiGroupDiscoveryList<'_> {
    let groups = catalogue
        .groups
        .iter()
        .filter(|group| group.name.is_empty() == core);
    ApiGroupDiscoveryList {
        kind: "APIGroupDiscoveryList",
        api_version: "apidiscovery.k8s.io/v2",
        metadata: NoFields {},
        items: groups.map(|group| aggregated_group(catalogue, group)).collect(),
    }
}

fn aggregated_group<'a>(catalogue: &'a Catalogue, group: &'a Group) -> ApiGroupDiscovery<'a> {
    let versions = group.versions.iter().map(|version| ApiVersionDiscovery {
        version,
        resources: catalogue
            .in_group_version(&group.name, version)
            .map(|resource| aggregated_resource(resource))
            .collect(),
        freshness: "Current",
    });
    ApiGroupDiscovery {
        metadata: GroupMetadata { name: &group.name },
        versions: versions.collect(),
    }
}

fn aggregated_resource(resource: &Resource) -> ApiResourceDiscovery<'_> {
    ApiResourceDiscovery {
        resource: &resource.plural,
        response_kind: ResponseKind {
            group: custom_only(resource, &resource.group),
            version: custom_only(resource, &resource.version),
            kind: &resource.kind,
        },
        scope: if resource.namespaced {
            "Namespaced"
        } else {
            "Cluster"
        },
        singular_resource: &resource.singular,
        verbs: verbs(resource),
        short_names: &resource.short_names,
        categories: &resource.categories,
        subresources: resource
            .subresources
            .iter()
            .map(|sub| aggregated_subresource(resource, sub))
            .collect(),
    }
}

fn aggregated_subresource<'a>(resource: &'a Resource, sub: &'a Subresource) -> ApiSubresourceDiscovery<'a> {
    // A subresource may respond with a kind of another group.
    let own_or = |own: &'a str, inherited: &'a str| {
        if own.is_empty() {
            custom_only(resource, inherited)
        } else {
            own
        }
    };
    ApiSubresourceDiscovery {
        subresource: &sub.name,
        response_kind: ResponseKind {
            group: own_or(&sub.group, &resource.group),
            version: own_or(&sub.version, &resource.version),
            kind: &sub.kind,
        },
        verbs: &sub.verbs,
    }
}

/// A resource's group or version. Aggregated discovery includes it only for custom resources.
fn custom_only<'a>(resource: &Resource, text: &'a str) -> &'a str {
    if resource.is_custom { text } else { "" }
}
