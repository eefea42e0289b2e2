//! Which resources are served, and what is particular about each.
//!
//! ```text
//!   data/kinds.json.gz ──► built-in resources (once per process) ─┐
//!                                                                 ├─► Catalogue ──► requests, discovery
//!   CustomResourceDefinitions in storage ──► custom resources ────┘    swapped whole when a CRD changes
//! ```

mod built_in;
mod reset;
mod strategy;
mod version;

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use parking_lot::RwLock;
use serde_json::Value;

pub(crate) use built_in::SchemaFacts;
pub(crate) use strategy::{NameRule, Strategy};

use crate::{
    crd::{Defined, Definition, compare_versions},
    openapi,
    schema::Schema,
    storage::TableName,
    subresources::ScalePaths,
};

/// One resource at one version: what a path such as `/apis/apps/v1/deployments` leads to.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) group: Box<str>,
    pub(crate) version: Box<str>,
    pub(crate) plural: Box<str>,
    pub(crate) singular: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) list_kind: Box<str>,
    pub(crate) namespaced: bool,
    pub(crate) short_names: Vec<Box<str>>,
    pub(crate) categories: Vec<Box<str>>,
    pub(crate) verbs: Vec<Box<str>>,
    pub(crate) subresources: Vec<Subresource>,
    /// Where its objects are, shared by all versions of the resource.
    pub(crate) table: TableName,
    /// The version that objects are stored at.
    pub(crate) storage_version: Box<str>,
    /// Tells clients whether two resources are stored alike; empty where nothing is said.
    pub(crate) storage_hash: Box<str>,
    pub(crate) schema: Option<Schema>,
    /// A custom resource's schema as its CRD has it, prose included.
    pub(crate) document: Option<Arc<Value>>,
    pub(crate) custom: bool,
    /// The fields that field selectors may name, `metadata.name` and `metadata.namespace` first.
    pub(crate) selectable: Vec<Box<str>>,
    pub(crate) strategy: Strategy,
    /// Where a custom resource keeps what its scale shows.
    pub(crate) scale: Option<ScalePaths>,
    /// What a CRD wants its table to show; empty for built-in kinds, whose tables are code.
    pub(crate) printer_columns: Vec<PrinterColumn>,
    /// An object of which nothing is set, as Go's structs have it; made when it is first asked for.
    pub(crate) blank: OnceLock<Value>,
    /// What only custom resources have.
    pub(crate) defined: Option<Defined>,
}

/// A column of a custom resource's table.
#[derive(Clone, Debug)]
pub(crate) struct PrinterColumn {
    pub(crate) name: Box<str>,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub(crate) kind: Box<str>,
    pub(crate) format: Box<str>,
    pub(crate) description: Box<str>,
    /// Above 0: shown in wide output only.
    pub(crate) priority: i64,
    pub(crate) json_path: Box<str>,
}

/// A part of an object with verbs of its own, as `deployments/scale`.
#[derive(Clone, Debug)]
pub(crate) struct Subresource {
    pub(crate) name: Box<str>,
    /// What it answers with; another kind than the object for `scale`, `eviction`, `token` and such.
    pub(crate) kind: Box<str>,
    /// Empty where it is the group of the resource.
    pub(crate) group: Box<str>,
    pub(crate) version: Box<str>,
    pub(crate) verbs: Vec<Box<str>>,
}

impl Resource {
    /// `deployments.apps`, as messages name it.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_string()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// `apps/v1`
    pub(crate) fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    pub(crate) fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| **v == *verb)
    }

    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| *s.name == *name)
    }

    pub(crate) fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }
}

/// `apps/v1`, or `v1` for the core group.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// A group and its versions, the preferred one first.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: Box<str>,
    pub(crate) versions: Vec<Box<str>>,
}

/// Everything that is served at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalogue {
    pub(crate) groups: Vec<Group>,
    /// In the order in which discovery shows them.
    pub(crate) resources: Vec<Arc<Resource>>,
    /// The same by their paths, in the order of plural, version and group.
    by_path: Vec<Arc<Resource>>,
    /// What was last told of it in one piece.
    pub(crate) published: openapi::Cached,
}

impl Catalogue {
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let place = self.place((plural, version, group)).ok()?;
        Some(&self.by_path[place])
    }

    /// Where a path is, or where it would be. Plurals tell most apart, and are never empty: to compare nothing with
    /// nothing, as core's group with itself, takes longer than to compare words.
    fn place(&self, path: (&str, &str, &str)) -> Result<usize, usize> {
        self.by_path
            .binary_search_by(|resource| (&*resource.plural, &*resource.version, &*resource.group).cmp(&path))
    }

    pub(crate) fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| *group.name == *name)
    }

    pub(crate) fn of_version<'a>(
        &'a self,
        group: &'a str,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.resources
            .iter()
            .filter(move |r| *r.group == *group && *r.version == *version)
    }

    fn add(&mut self, resource: Resource) {
        let resource = Arc::new(resource);
        let place = match self.groups.iter().position(|g| g.name == resource.group) {
            Some(place) => place,
            None => {
                self.groups.push(Group {
                    name: resource.group.clone(),
                    versions: Vec::new(),
                });
                self.groups.len() - 1
            }
        };
        let group = &mut self.groups[place];
        if !group.versions.contains(&resource.version) {
            group.versions.push(resource.version.clone());
            version::sort(&mut group.versions);
        }
        match self.place((&resource.plural, &resource.version, &resource.group)) {
            Ok(place) => self.by_path[place] = resource.clone(),
            Err(place) => self.by_path.insert(place, resource.clone()),
        }
        self.resources.push(resource);
    }
}

/// The catalogue in force, and the custom resource definitions that it was made from.
pub(crate) struct Registry {
    state: RwLock<State>,
}

struct State {
    catalogue: Arc<Catalogue>,
    definitions: HashMap<Box<str>, Arc<Definition>>,
}

impl Registry {
    /// The built-in resources.
    pub(crate) fn new() -> Self {
        Self {
            state: RwLock::new(State {
                catalogue: built_in::catalogue(),
                definitions: HashMap::new(),
            }),
        }
    }

    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        self.state.read().catalogue.clone()
    }

    /// Serves a CRD's resources from now on, or no more if it is not established.
    pub(crate) fn define(&self, name: &str, definition: Option<Definition>) {
        let mut state = self.state.write();
        match (definition, state.definitions.get(name)) {
            (Some(definition), Some(earlier)) => {
                let definition = definition.replacing(earlier);
                state.definitions.insert(name.into(), Arc::new(definition))
            }
            (Some(definition), None) => state.definitions.insert(name.into(), Arc::new(definition)),
            (None, None) => return,
            (None, Some(_)) => state.definitions.remove(name),
        };
        let mut catalogue = Catalogue::clone(&built_in::catalogue());
        let mut definitions: Vec<_> = state.definitions.iter().collect();
        definitions.sort_unstable_by_key(|(name, _)| *name);
        for (_, definition) in definitions {
            for resource in definition.resources() {
                catalogue.add(resource);
            }
        }
        for group in &mut catalogue.groups {
            if built_in::catalogue().group(&group.name).is_none() {
                group.versions.sort_by(|a, b| compare_versions(a, b));
            }
        }
        state.catalogue = Arc::new(catalogue);
    }
}

/// The built-in schemas as data, for those who publish them.
pub(crate) fn schema_facts() -> &'static SchemaFacts {
    built_in::schema_facts()
}

/// What the server says of its version.
pub(crate) fn version() -> &'static Value {
    built_in::version()
}

/// The schema that every object's `metadata` follows.
pub(crate) fn object_meta() -> &'static Schema {
    built_in::object_meta()
}

/// The schema of `autoscaling/v1` Scale, which is never stored.
pub(crate) fn scale() -> &'static Schema {
    built_in::scale()
}

/// The schema of a kind that is only ever the body of a subresource.
pub(crate) fn part(kind: &str) -> &'static Schema {
    built_in::part(kind)
}

/// Whether a kind is built in at a version, be it served as a resource or not.
pub(crate) fn is_kind(group: &str, version: &str, kind: &str) -> bool {
    built_in::is_kind(group, version, kind)
}
