//! The served resources and their strategies.
//!
//! ```text
//!   data/kinds.json.gz ──► built-in resources (once per process) ─┐
//!                                                                 ├─► Catalogue ──► requests, discovery
//!   CustomResourceDefinitions in storage ──► custom resources ────┘    replaced when a CRD changes
//! ```

mod built_in;
mod version;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, OnceLock, atomic::Ordering},
};

use parking_lot::RwLock;
use serde_json::Value;
use windlass_cel::rules::Rules;

pub(crate) use built_in::{BuiltInSchemas, VersionInfo};

use crate::{
    crd::{CrdInfo, Definition, compare_versions},
    kinds::{Facts, Path, STATUS, SelectableField, Strategy},
    object::Object,
    openapi,
    schema::Schema,
    storage::TableName,
    subresources::ScalePaths,
};

/// The cost of validation rules from which they are slow: some milliseconds.
const SLOW_RULES_COST: u64 = 100_000;

/// One resource at one version, such as `/apis/apps/v1/deployments`.
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
    /// The storage table of its objects, shared by all versions of the resource.
    pub(crate) table: TableName,
    /// The version in which objects are stored.
    pub(crate) storage_version: Box<str>,
    /// The storage version hash in discovery; may be empty.
    pub(crate) storage_version_hash: Box<str>,
    pub(crate) schema: Option<Schema>,
    /// A custom resource's schema as written in its CRD, including descriptions.
    pub(crate) crd_schema: Option<Arc<Value>>,
    pub(crate) is_custom: bool,
    /// The fields that field selectors may name, `metadata.name` and `metadata.namespace` first.
    pub(crate) selectable_fields: Vec<SelectableField>,
    /// What is specific to its kind.
    pub(crate) strategy: &'static dyn Strategy,
    /// The strategy's facts.
    pub(crate) facts: Facts,
    /// The paths of a custom resource's scale subresource.
    pub(crate) scale: Option<ScalePaths>,
    /// A CRD's printer columns; empty for built-in kinds, whose tables are code.
    pub(crate) printer_columns: Vec<PrinterColumn>,
    /// An object with all fields unset, as Go's structs encode it; built on first use.
    pub(crate) empty_object: OnceLock<Value>,
    /// CRD-specific state; `None` for built-in resources.
    pub(crate) crd: Option<CrdInfo>,
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

/// A subresource, such as `deployments/scale`.
#[derive(Clone, Debug)]
pub(crate) struct Subresource {
    pub(crate) name: Box<str>,
    /// The kind of its response; differs from the object's for `scale`, `eviction`, `token` and such.
    pub(crate) kind: Box<str>,
    /// Empty if it is the resource's group.
    pub(crate) group: Box<str>,
    pub(crate) version: Box<str>,
    pub(crate) verbs: Vec<Box<str>>,
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resource({} {})", self.api_version(), self.plural)
    }
}

impl Resource {
    /// `deployments.apps`, as used in messages.
    pub(crate) fn qualified_name(&self) -> String {
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

    pub(crate) fn supports(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| **v == *verb)
    }

    pub(crate) fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| *s.name == *name)
    }

    /// The validation rules of a custom resource.
    pub(crate) fn rules(&self) -> Option<&Rules> {
        self.crd.as_ref()?.rules.as_deref()
    }

    /// Whether the validation rules of a custom resource may take long: those of an earlier object did.
    pub(crate) fn has_slow_rules(&self) -> bool {
        let crd = self.crd.as_ref();
        crd.is_some_and(|crd| crd.rules_cost.load(Ordering::Relaxed) > SLOW_RULES_COST)
    }

    pub(crate) fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// The deprecation warning for every request.
    pub(crate) fn deprecation(&self) -> Option<&str> {
        let custom = self.crd.as_ref().and_then(|crd| crd.warning.as_deref());
        self.facts.deprecation.or(custom)
    }

    /// Whether a subresource is a part of the object, such as `status`. Others, such as `scale`, have kinds of their own.
    pub(crate) fn is_part(&self, subresource: &str) -> bool {
        self.subresource(subresource)
            .is_some_and(|part| part.kind == self.kind && part.verbs.iter().any(|verb| **verb == *"update"))
    }

    /// The fields that a write to the object (`""`) or to a subresource ignores, so that it never makes a field manager
    /// own them.
    pub(crate) fn reset_fields(&self, subresource: &str) -> &'static [Path] {
        match subresource {
            "" if !self.facts.reset_fields.is_empty() => self.facts.reset_fields,
            "" if self.has_status() => &[STATUS],
            _ => {
                let mut own = self.facts.subresource_reset_fields.iter();
                own.find(|(name, _)| *name == subresource)
                    .map_or(&[], |(_, fields)| *fields)
            }
        }
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
    /// Whether only CRDs define it.
    pub(crate) is_custom: bool,
    pub(crate) versions: Vec<Box<str>>,
}

/// A snapshot of everything that is served.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalogue {
    /// The built-in groups by priority, then those of CRDs by name: of an ambiguous short name, clients choose the first.
    pub(crate) groups: Vec<Group>,
    /// In the order of discovery.
    pub(crate) resources: Vec<Arc<Resource>>,
    /// The same, sorted by plural, version and group.
    by_path: Vec<Arc<Resource>>,
    /// Group, version and plural of resources that cannot be served because of their CRD.
    unusable: HashSet<[Box<str>; 3]>,
    /// The cached OpenAPI v2 document.
    pub(crate) openapi_v2: openapi::DocumentCache,
}

impl Catalogue {
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let place = self.position((plural, version, group)).ok()?;
        Some(&self.by_path[place])
    }

    /// Binary search by path. Plurals come first, because they distinguish most resources and are never empty:
    /// comparing two empty strings, as of the core group, takes longer than comparing words.
    fn position(&self, path: (&str, &str, &str)) -> Result<usize, usize> {
        self.by_path
            .binary_search_by(|resource| (&*resource.plural, &*resource.version, &*resource.group).cmp(&path))
    }

    /// Whether a CRD defines a resource that cannot be served.
    pub(crate) fn is_unusable(&self, group: &str, version: &str, plural: &str) -> bool {
        !self.unusable.is_empty() && self.unusable.contains(&[group, version, plural].map(Box::from))
    }

    pub(crate) fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| *group.name == *name)
    }

    pub(crate) fn in_group_version<'a>(
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
                    is_custom: resource.is_custom,
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
        match self.position((&resource.plural, &resource.version, &resource.group)) {
            Ok(place) => self.by_path[place] = resource.clone(),
            Err(place) => self.by_path.insert(place, resource.clone()),
        }
        self.resources.push(resource);
    }
}

/// The current catalogue, and the CRDs it was built from.
pub(crate) struct Registry {
    state: RwLock<State>,
}

struct State {
    catalogue: Arc<Catalogue>,
    definitions: HashMap<Box<str>, Arc<Definition>>,
    /// By the name of the CRD.
    unusable: HashMap<Box<str>, Vec<[Box<str>; 3]>>,
}

impl Registry {
    /// The built-in resources.
    pub(crate) fn new() -> Self {
        Self {
            state: RwLock::new(State {
                catalogue: built_in::catalogue(),
                definitions: HashMap::new(),
                unusable: HashMap::new(),
            }),
        }
    }

    pub(crate) fn catalogue(&self) -> Arc<Catalogue> {
        self.state.read().catalogue.clone()
    }

    /// What is served of a CRD.
    pub(crate) fn definition(&self, name: &str) -> Option<Arc<Definition>> {
        self.state.read().definitions.get(name).cloned()
    }

    /// Whether a CRD is served as it is now.
    pub(crate) fn serves(&self, name: &str, crd: &Object) -> bool {
        let state = self.state.read();
        state
            .definitions
            .get(name)
            .is_some_and(|definition| definition.is_of(crd))
    }

    /// Starts serving a CRD's resources, or stops if it is not established. `unusable` are group, version and plural of
    /// those that it defines but that cannot be served.
    pub(crate) fn define(&self, name: &str, definition: Option<Definition>, unusable: Vec<[Box<str>; 3]>) {
        let mut state = self.state.write();
        let was_unusable = if unusable.is_empty() {
            state.unusable.remove(name).is_some()
        } else {
            state.unusable.insert(name.into(), unusable);
            true
        };
        match (definition, state.definitions.get(name)) {
            (Some(definition), Some(earlier)) => {
                let definition = definition.keeping_watches_of(earlier);
                state.definitions.insert(name.into(), Arc::new(definition))
            }
            (Some(definition), None) => state.definitions.insert(name.into(), Arc::new(definition)),
            (None, None) if !was_unusable => return,
            (None, _) => state.definitions.remove(name),
        };
        let mut catalogue = Catalogue::clone(&built_in::catalogue());
        catalogue.unusable = state.unusable.values().flatten().cloned().collect();
        let mut definitions: Vec<_> = state.definitions.iter().collect();
        definitions.sort_unstable_by_key(|(name, _)| *name);
        for (_, definition) in definitions {
            for resource in definition.resources() {
                catalogue.add(resource);
            }
        }
        let built_in = catalogue.groups.partition_point(|group| !group.is_custom);
        let custom = &mut catalogue.groups[built_in..];
        custom.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        for group in custom {
            group.versions.sort_by(|a, b| compare_versions(a, b));
        }
        state.catalogue = Arc::new(catalogue);
    }
}

/// The built-in schemas as data, for OpenAPI.
pub(crate) fn built_in_schemas() -> &'static BuiltInSchemas {
    built_in::built_in_schemas()
}

/// The response of `/version`.
pub(crate) fn version() -> &'static VersionInfo {
    built_in::version()
}

/// The schema of `metadata`.
pub(crate) fn object_meta() -> &'static Schema {
    built_in::object_meta()
}

/// The schema of `autoscaling/v1` Scale, which is never stored.
pub(crate) fn scale() -> &'static Schema {
    built_in::scale()
}

/// The schema of a kind that is only the body of a subresource.
pub(crate) fn subresource_schema(kind: &str) -> &'static Schema {
    built_in::subresource_schema(kind)
}

/// Whether a kind is built in at a version, whether it is a resource or not.
pub(crate) fn is_built_in_kind(group: &str, version: &str, kind: &str) -> bool {
    built_in::is_built_in_kind(group, version, kind)
}
