//! The built-in resources, from data recorded from a real server (`hack/registry/reduce`).

use std::{
    collections::BTreeMap,
    io::Read,
    sync::{Arc, LazyLock, OnceLock},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Catalogue, Group, Resource, Subresource, group_version};
use crate::{
    kinds::{self, SelectableField},
    schema::{Graph, Schema},
    storage::TableName,
};

/// The built-in resources only; built once per process.
pub(super) fn catalogue() -> Arc<Catalogue> {
    BUILT_IN.catalogue.clone()
}

pub(super) fn version() -> &'static VersionInfo {
    &BUILT_IN.version
}

/// The schema of `autoscaling/v1` Scale.
pub(super) fn scale() -> &'static Schema {
    subresource_schema("Scale")
}

/// Kinds that are only bodies of subresources, and the names of their schemas.
const SUBRESOURCE_KINDS: [(&str, &str); 4] = [
    ("Binding", "io.k8s.api.core.v1.Binding"),
    ("Eviction", "io.k8s.api.policy.v1.Eviction"),
    ("Scale", "io.k8s.api.autoscaling.v1.Scale"),
    ("TokenRequest", "io.k8s.api.authentication.v1.TokenRequest"),
];

pub(super) fn subresource_schema(kind: &str) -> &'static Schema {
    let place = SUBRESOURCE_KINDS.iter().position(|(part, _)| *part == kind);
    &BUILT_IN.subresource_schemas[place.expect("a kind of a subresource")]
}

pub(super) fn object_meta() -> &'static Schema {
    &BUILT_IN.object_meta
}

/// The built-in schemas as data. Only OpenAPI needs them, so they are read on demand.
pub(crate) struct BuiltInSchemas {
    /// `group/version/Kind` → the name of its schema.
    pub(crate) kinds: BTreeMap<String, String>,
    /// Name → reduced schema.
    pub(crate) schemas: Map<String, Value>,
}

pub(super) fn built_in_schemas() -> &'static BuiltInSchemas {
    static FACTS: LazyLock<BuiltInSchemas> = LazyLock::new(|| {
        let KindsData { kinds, schemas, .. } = read_data(include_bytes!("../../data/kinds.json.gz"));
        BuiltInSchemas { kinds, schemas }
    });
    &FACTS
}

/// Whether a kind is built in at a version, whether it is a resource or not.
pub(super) fn is_built_in_kind(group: &str, version: &str, kind: &str) -> bool {
    // A generic list has no schema.
    (group, version, kind) == ("", "v1", "List")
        || BUILT_IN.kinds.contains_key(&format!("{group}/{version}/{kind}"))
}

struct BuiltIn {
    version: VersionInfo,
    catalogue: Arc<Catalogue>,
    kinds: BTreeMap<String, String>,
    object_meta: Schema,
    /// In the order of [`SUBRESOURCE_KINDS`].
    subresource_schemas: [Schema; SUBRESOURCE_KINDS.len()],
}

static BUILT_IN: LazyLock<BuiltIn> = LazyLock::new(|| {
    let facts: KindsData = read_data(include_bytes!("../../data/kinds.json.gz"));
    let types: Map<String, Value> = read_data(include_bytes!("../../data/types.json.gz"));
    let graph = Arc::new(Graph::from_built_ins(&facts.schemas, &types).expect("shipped with the crate"));
    let object_meta = graph
        .named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
        .expect("in the shipped data");
    let subresource_schemas =
        SUBRESOURCE_KINDS.map(|(_, name)| graph.named(name).expect("in the shipped data"));
    BuiltIn {
        subresource_schemas,
        catalogue: Arc::new(facts.catalogue(&graph)),
        version: facts.version,
        kinds: facts.kinds,
        object_meta,
    }
});

fn read_data<T: serde::de::DeserializeOwned>(packed: &[u8]) -> T {
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(packed)
        .read_to_end(&mut text)
        .expect("shipped with the crate");
    serde_json::from_slice(&text).expect("shipped with the crate")
}

#[derive(Deserialize)]
struct KindsData {
    version: VersionInfo,
    groups: Vec<GroupData>,
    resources: Vec<ResourceData>,
    /// `group/version/Kind` → the name of its schema.
    kinds: BTreeMap<String, String>,
    schemas: Map<String, Value>,
}

/// The response of `/version`, with its fields in the real server's order.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VersionInfo {
    major: Box<str>,
    minor: Box<str>,
    emulation_major: Box<str>,
    emulation_minor: Box<str>,
    min_compatibility_major: Box<str>,
    min_compatibility_minor: Box<str>,
    git_version: Box<str>,
    git_commit: Box<str>,
    git_tree_state: Box<str>,
    build_date: Box<str>,
    go_version: Box<str>,
    compiler: Box<str>,
    platform: Box<str>,
}

impl VersionInfo {
    /// The labels of `kubernetes_build_info`.
    pub(crate) fn to_labels(&self) -> String {
        let labels = [
            ("build_date", &self.build_date),
            ("compiler", &self.compiler),
            ("git_commit", &self.git_commit),
            ("git_tree_state", &self.git_tree_state),
            ("git_version", &self.git_version),
            ("go_version", &self.go_version),
            ("major", &self.major),
            ("minor", &self.minor),
            ("platform", &self.platform),
        ];
        labels.map(|(name, value)| format!("{name}={value:?}")).join(",")
    }
}

#[derive(Deserialize)]
struct GroupData {
    name: Box<str>,
    versions: Vec<Box<str>>,
}

/// An entry of a discovery document, with its group version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceData {
    api_group: Box<str>,
    api_version: Box<str>,
    /// `deployments` or `deployments/scale`
    name: Box<str>,
    singular_name: Box<str>,
    kind: Box<str>,
    /// Set if a subresource's response is a kind of another group.
    #[serde(default)]
    group: Box<str>,
    #[serde(default)]
    version: Box<str>,
    namespaced: bool,
    verbs: Vec<Box<str>>,
    #[serde(default)]
    short_names: Vec<Box<str>>,
    #[serde(default)]
    categories: Vec<Box<str>>,
    #[serde(default)]
    storage_version_hash: Box<str>,
}

impl KindsData {
    fn catalogue(&self, graph: &Arc<Graph>) -> Catalogue {
        let groups = self.groups.iter().map(|g| Group {
            name: g.name.clone(),
            is_custom: false,
            versions: g.versions.clone(),
        });
        let mut catalogue = Catalogue {
            groups: groups.collect(),
            ..Catalogue::default()
        };
        for entry in self.resources.iter().filter(|entry| !entry.name.contains('/')) {
            catalogue.add(self.resource(entry, graph));
        }
        catalogue
    }

    fn resource(&self, entry: &ResourceData, graph: &Arc<Graph>) -> Resource {
        let mine = |other: &&ResourceData| {
            other.api_group == entry.api_group
                && other.api_version == entry.api_version
                && other
                    .name
                    .strip_prefix(&*entry.name)
                    .is_some_and(|rest| rest.starts_with('/'))
        };
        let subresources = self.resources.iter().filter(mine).map(|sub| Subresource {
            name: sub.name[entry.name.len() + 1..].into(),
            kind: sub.kind.clone(),
            group: sub.group.clone(),
            version: sub.version.clone(),
            verbs: sub.verbs.clone(),
        });
        let strategy = kinds::for_kind(&group_version(&entry.api_group, &entry.api_version), &entry.kind);
        let facts = strategy.facts();
        let namespace = facts.selects_namespace.then_some("metadata.namespace");
        let every = ["metadata.name"].into_iter().chain(namespace);
        let selectable_fields = every
            .map(SelectableField::text)
            .chain(facts.selectable_fields.iter().cloned());
        let schema = self.kinds.get(&format!(
            "{}/{}/{}",
            entry.api_group, entry.api_version, entry.kind
        ));
        Resource {
            group: entry.api_group.clone(),
            version: entry.api_version.clone(),
            plural: entry.name.clone(),
            singular: entry.singular_name.clone(),
            kind: entry.kind.clone(),
            list_kind: format!("{}List", entry.kind).into(),
            namespaced: entry.namespaced,
            short_names: entry.short_names.clone(),
            categories: entry.categories.clone(),
            verbs: entry.verbs.clone(),
            subresources: subresources.collect(),
            table: table(facts.stored_group.unwrap_or(&entry.api_group), &entry.name),
            storage_version: entry.api_version.clone(),
            storage_version_hash: entry.storage_version_hash.clone(),
            schema: schema.and_then(|name| graph.named(name)),
            crd_schema: None,
            is_custom: false,
            selectable_fields: selectable_fields.collect(),
            strategy,
            facts,
            scale: None,
            printer_columns: Vec::new(),
            empty_object: OnceLock::new(),
            crd: None,
        }
    }
}

/// The table of a resource.
fn table(group: &str, plural: &str) -> TableName {
    if group.is_empty() {
        plural.into()
    } else {
        format!("{plural}.{group}").into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_resources_match_a_real_server() {
        let catalogue = catalogue();
        let deployments = catalogue.find("apps", "v1", "deployments").expect("served");
        assert_eq!((&*deployments.kind, deployments.namespaced), ("Deployment", true));
        assert_eq!(deployments.short_names, ["deploy".into()]);
        let names: Vec<_> = deployments.subresources.iter().map(|s| &*s.name).collect();
        assert_eq!(names, ["scale", "status"]);
        assert_eq!(&*deployments.subresource("scale").expect("served").kind, "Scale");
        assert_eq!(&*version().git_version, "v1.36.4");
    }

    #[test]
    fn every_built_in_resource_has_a_schema() {
        for resource in &catalogue().resources {
            assert!(
                resource.schema.is_some(),
                "{} {}",
                resource.api_version(),
                resource.kind
            );
        }
    }
}
