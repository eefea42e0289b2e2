//! The served state of a CRD.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, OnceLock, atomic::AtomicU64},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;
use tokio::sync::watch;
use windlass_cel::rules::Rules;

use super::{
    ca_bundle,
    conditions::{self, ESTABLISHED, NAMES_ACCEPTED, TERMINATING},
    conversion::Conversion,
    list, spec, text, versions,
};
use crate::{
    kinds::{CustomResource, SelectableField, Strategy},
    object::Object,
    registry::{PrinterColumn, Resource, Subresource},
    schema::Schema,
    storage::Revision,
    subresources::ScalePaths,
};

/// What an established CRD defines. Built once for each change of the CRD.
#[derive(Debug)]
pub(crate) struct Definition {
    group: Box<str>,
    namespaced: bool,
    /// The accepted names, which may differ from those in the spec.
    names: Value,
    storage_hash: Box<str>,
    terminating: bool,
    conversion: Arc<Conversion>,
    /// The served versions, the preferred one first.
    versions: Vec<Version>,
    /// Dropped when the objects are no longer served as they were, which ends their watches.
    alive: Arc<watch::Sender<()>>,
    /// The revision since which they are served like this: no watch can start earlier.
    served_since: Revision,
    /// Equal for two states of a CRD that serve the same.
    fingerprint: u64,
}

/// What a [`Resource`] of a CRD has in addition.
#[derive(Clone, Debug)]
pub(crate) struct CrdInfo {
    pub(crate) conversion: Arc<Conversion>,
    /// Objects can no longer be created.
    pub(crate) terminating: bool,
    /// The deprecation warning of the version.
    pub(crate) warning: Option<Box<str>>,
    /// Closed when what is served changes.
    pub(crate) alive: watch::Receiver<()>,
    /// The first revision that a watch can start from.
    pub(crate) served_since: Revision,
    /// The validation rules of the version, if it has any.
    pub(crate) rules: Option<Arc<Rules>>,
    /// What the rules have cost most for one object.
    pub(crate) rules_cost: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Version {
    name: Box<str>,
    schema: Schema,
    document: Arc<Value>,
    rules: Option<Arc<Rules>>,
    status: bool,
    scale: Option<ScalePaths>,
    selectable_fields: Vec<SelectableField>,
    columns: Vec<PrinterColumn>,
    warning: Option<Box<str>>,
}

/// Equal for two states of an established CRD that serve the same objects.
fn fingerprint(crd: &Object) -> u64 {
    let names = &crd.fields()["status"]["acceptedNames"];
    let mut hasher = DefaultHasher::new();
    (spec(crd).to_string(), names.to_string()).hash(&mut hasher);
    hasher.finish()
}

/// The resources of a CRD that has its names, but is not established because of an invalid CA bundle: group, version and
/// plural of each. The real server answers requests for them with an internal error.
pub(crate) fn unusable_resources(crd: &Object) -> Vec<[Box<str>; 3]> {
    if conditions::is_true(crd, ESTABLISHED)
        || !conditions::is_true(crd, NAMES_ACCEPTED)
        || ca_bundle::problem(ca_bundle::of(crd)).is_none()
    {
        return Vec::new();
    }
    let spec = spec(crd);
    let served = versions(crd).iter().filter(|version| version["served"] == true);
    served
        .map(|version| {
            [&spec["group"], &version["name"], &spec["names"]["plural"]].map(|part| text(part).into())
        })
        .collect()
}

impl Definition {
    /// Builds the definition from a CRD at a revision. `None` if it is not established. Rules that an earlier definition
    /// has are not compiled again.
    pub(crate) fn from_crd(
        crd: &Object,
        revision: Revision,
        earlier: Option<&Self>,
    ) -> Result<Option<Self>, String> {
        if !conditions::is_true(crd, ESTABLISHED) {
            return Ok(None);
        }
        let spec = spec(crd);
        let names = crd.fields()["status"]["acceptedNames"].clone();
        let conversion = Conversion::from_crd(crd)?;
        let mut served = versions(crd)
            .iter()
            .filter(|version| version["served"] == true)
            .map(|version| Version::of(spec, version, &conversion, earlier))
            .collect::<Result<Vec<_>, _>>()?;
        served.sort_by(|a, b| super::versions::compare(&a.name, &b.name));
        let stored = text(&super::storage_version(crd)).to_owned();
        // The hash of a version that is not served stays empty.
        let storage_hash = if served.iter().any(|version| *version.name == *stored) {
            storage_hash(text(&spec["group"]), &stored, text(&spec["names"]["kind"]))
        } else {
            Box::default()
        };
        Ok(Some(Self {
            group: text(&spec["group"]).into(),
            namespaced: spec["scope"] == "Namespaced",
            names,
            storage_hash,
            terminating: conditions::is_true(crd, TERMINATING),
            conversion: Arc::new(conversion),
            versions: served,
            alive: Arc::new(watch::Sender::new(())),
            served_since: revision,
            fingerprint: fingerprint(crd),
        }))
    }

    /// Whether a CRD still defines the same, so that it need not be built again.
    pub(crate) fn is_of(&self, crd: &Object) -> bool {
        conditions::is_true(crd, ESTABLISHED)
            && conditions::is_true(crd, TERMINATING) == self.terminating
            && fingerprint(crd) == self.fingerprint
    }

    /// Keeps the watches of an earlier definition of the same CRD going if nothing that is served differs.
    pub(crate) fn keeping_watches_of(mut self, earlier: &Self) -> Self {
        if self.fingerprint == earlier.fingerprint {
            self.alive = earlier.alive.clone();
            self.served_since = earlier.served_since;
        }
        self
    }

    /// One resource for each served version.
    pub(crate) fn resources(&self) -> impl Iterator<Item = Resource> {
        let name = |key: &str| -> Box<str> { text(&self.names[key]).into() };
        let texts = |key: &str| {
            list(&self.names[key])
                .iter()
                .map(|name| text(name).into())
                .collect()
        };
        self.versions.iter().map(move |version| Resource {
            group: self.group.clone(),
            version: version.name.clone(),
            plural: name("plural"),
            singular: name("singular"),
            kind: name("kind"),
            list_kind: name("listKind"),
            namespaced: self.namespaced,
            short_names: texts("shortNames"),
            categories: texts("categories"),
            verbs: VERBS.map(Into::into).into(),
            subresources: self.subresources(version).collect(),
            table: format!("{}.{}", text(&self.names["plural"]), self.group).into(),
            storage_version: self.conversion.stored_version().into(),
            storage_version_hash: self.storage_hash.clone(),
            schema: Some(version.schema.clone()),
            crd_schema: Some(version.document.clone()),
            is_custom: true,
            selectable_fields: version.selectable_fields.clone(),
            strategy: &CustomResource,
            facts: CustomResource.facts(),
            scale: version.scale.clone(),
            printer_columns: version.columns.clone(),
            empty_object: OnceLock::new(),
            crd: Some(CrdInfo {
                conversion: self.conversion.clone(),
                terminating: self.terminating,
                warning: version.warning.clone(),
                alive: self.alive.subscribe(),
                served_since: self.served_since,
                rules: version.rules.clone(),
                rules_cost: Arc::default(),
            }),
        })
    }

    fn subresources<'a>(&'a self, version: &'a Version) -> impl Iterator<Item = Subresource> + 'a {
        let verbs = || ["get", "patch", "update"].map(Into::into).into();
        let status = version.status.then(|| Subresource {
            name: "status".into(),
            kind: text(&self.names["kind"]).into(),
            group: "".into(),
            version: "".into(),
            verbs: verbs(),
        });
        let scale = version.scale.as_ref().map(|_| Subresource {
            name: "scale".into(),
            kind: "Scale".into(),
            group: "autoscaling".into(),
            version: "v1".into(),
            verbs: verbs(),
        });
        status.into_iter().chain(scale)
    }
}

const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

impl Version {
    fn of(
        spec: &Value,
        version: &Value,
        conversion: &Conversion,
        earlier: Option<&Definition>,
    ) -> Result<Self, String> {
        let document = &version["schema"]["openAPIV3Schema"];
        let column = |column: &Value| PrinterColumn {
            name: text(&column["name"]).into(),
            kind: text(&column["type"]).into(),
            format: text(&column["format"]).into(),
            description: text(&column["description"]).into(),
            priority: column["priority"].as_i64().unwrap_or(0),
            json_path: text(&column["jsonPath"]).into(),
        };
        let name = text(&version["name"]);
        let schema = conversion
            .schema_of(name)
            .ok_or_else(|| format!("no version {name:?}"))?
            .clone();
        Ok(Self {
            name: name.into(),
            schema,
            rules: compile_rules(document, earlier),
            document: Arc::new(document.clone()),
            status: version["subresources"]
                .get("status")
                .is_some_and(|status| !status.is_null()),
            scale: version["subresources"]
                .get("scale")
                .and_then(ScalePaths::from_crd),
            columns: list(&version["additionalPrinterColumns"])
                .iter()
                .map(column)
                .collect(),
            selectable_fields: selectable_fields(spec, version),
            warning: deprecation_warning(spec, version),
        })
    }
}

/// Compiles the rules of a schema, or takes those of an earlier definition with the same schema.
fn compile_rules(document: &Value, earlier: Option<&Definition>) -> Option<Arc<Rules>> {
    let known = earlier
        .into_iter()
        .flat_map(|earlier| &earlier.versions)
        .find(|version| *version.document == *document);
    match known {
        Some(version) => version.rules.clone(),
        None => Rules::compile(document).map(Arc::new),
    }
}

/// The fields that field selectors may name at a version.
pub(super) fn selectable_fields(spec: &Value, version: &Value) -> Vec<SelectableField> {
    let of_all: &[&str] = match text(&spec["scope"]) {
        "Namespaced" => &["metadata.name", "metadata.namespace"],
        _ => &["metadata.name"],
    };
    let own = list(&version["selectableFields"])
        .iter()
        .map(|field| text(&field["jsonPath"]).trim_start_matches('.'));
    of_all
        .iter()
        .copied()
        .chain(own)
        .map(SelectableField::custom)
        .collect()
}

/// The deprecation warning of a version.
fn deprecation_warning(spec: &Value, version: &Value) -> Option<Box<str>> {
    if version["deprecated"] != true {
        return None;
    }
    if let Some(own) = version["deprecationWarning"].as_str() {
        return Some(own.into());
    }
    let (group, kind, name) = (
        text(&spec["group"]),
        text(&spec["names"]["kind"]),
        text(&version["name"]),
    );
    let better = list(&spec["versions"])
        .iter()
        .filter(|other| other["served"] == true && other["deprecated"] != true)
        .map(|other| text(&other["name"]))
        .filter(|other| super::versions::compare(other, name).is_lt())
        .min_by(|a, b| super::versions::compare(a, b));
    let hint = better.map_or_else(String::new, |better| format!("; use {group}/{better} {kind}"));
    Some(format!("{group}/{name} {kind} is deprecated{hint}").into())
}

/// The storage version hash in discovery: the beginning of the SHA-256 of its name.
fn storage_hash(group: &str, version: &str, kind: &str) -> Box<str> {
    let name = format!("{group}/{version}/{kind}");
    let hash = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
    STANDARD.encode(&hash.as_ref()[..8]).into()
}
