//! A CRD as far as it is served.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, OnceLock},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;
use tokio::sync::watch;

use super::{
    conditions::{self, ESTABLISHED, TERMINATING},
    forms::Forms,
    list, spec, text, versions,
};
use crate::{
    object::Object,
    registry::{PrinterColumn, Resource, Strategy, Subresource},
    schema::Schema,
    storage::Revision,
    subresources::ScalePaths,
};

/// What an established CRD defines: read once when it changes.
#[derive(Debug)]
pub(crate) struct Definition {
    group: Box<str>,
    namespaced: bool,
    /// The names that were accepted, which need not be those that are wanted now.
    names: Value,
    storage_hash: Box<str>,
    terminating: bool,
    forms: Arc<Forms>,
    /// The served ones, the preferred one first.
    versions: Vec<Version>,
    /// Tells whether its objects are still served as they were: watches end when this is dropped.
    alive: Arc<watch::Sender<()>>,
    /// When they began to be served as they are: no watch can start before.
    since: Revision,
    /// The same for two readings of a CRD that serve the same.
    fingerprint: u64,
}

/// What only resources of definitions have.
#[derive(Clone, Debug)]
pub(crate) struct Defined {
    pub(crate) forms: Arc<Forms>,
    /// Objects are not created any more.
    pub(crate) terminating: bool,
    /// What every answer is accompanied by, if the version is deprecated.
    pub(crate) warning: Option<Box<str>>,
    /// Ends when what is served changes.
    pub(crate) alive: watch::Receiver<()>,
    /// The first revision that a watch can start from.
    pub(crate) since: Revision,
}

#[derive(Debug)]
struct Version {
    name: Box<str>,
    schema: Schema,
    document: Arc<Value>,
    status: bool,
    scale: Option<ScalePaths>,
    selectable: Vec<Box<str>>,
    columns: Vec<PrinterColumn>,
    warning: Option<Box<str>>,
}

impl Definition {
    /// What a CRD at a revision defines; `None` for one that is not established.
    pub(crate) fn of(crd: &Object, revision: Revision) -> Result<Option<Self>, String> {
        if !conditions::is_true(crd, ESTABLISHED) {
            return Ok(None);
        }
        let spec = spec(crd);
        let names = crd.fields()["status"]["acceptedNames"].clone();
        let mut served = versions(crd)
            .iter()
            .filter(|version| version["served"] == true)
            .map(|version| Version::of(spec, version))
            .collect::<Result<Vec<_>, _>>()?;
        served.sort_by(|a, b| super::versions::compare(&a.name, &b.name));
        let stored = text(&super::storage_version(crd)).to_owned();
        // A version that is not served is nobody's business.
        let storage_hash = if served.iter().any(|version| *version.name == *stored) {
            storage_hash(text(&spec["group"]), &stored, text(&spec["names"]["kind"]))
        } else {
            Box::default()
        };
        let mut hasher = DefaultHasher::new();
        (spec.to_string(), names.to_string()).hash(&mut hasher);
        Ok(Some(Self {
            group: text(&spec["group"]).into(),
            namespaced: spec["scope"] == "Namespaced",
            names,
            storage_hash,
            terminating: conditions::is_true(crd, TERMINATING),
            forms: Arc::new(Forms::of(crd)?),
            versions: served,
            alive: Arc::new(watch::Sender::new(())),
            since: revision,
            fingerprint: hasher.finish(),
        }))
    }

    /// Takes the place of an earlier reading of the same CRD: where nothing that is served differs, watches go on.
    pub(crate) fn replacing(mut self, earlier: &Self) -> Self {
        if self.fingerprint == earlier.fingerprint {
            self.alive = earlier.alive.clone();
            self.since = earlier.since;
        }
        self
    }

    /// One resource a served version.
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
            storage_version: self.forms.stored_version().into(),
            storage_hash: self.storage_hash.clone(),
            schema: Some(version.schema.clone()),
            document: Some(version.document.clone()),
            custom: true,
            selectable: version.selectable.clone(),
            strategy: Strategy::CUSTOM,
            scale: version.scale.clone(),
            printer_columns: version.columns.clone(),
            blank: OnceLock::new(),
            defined: Some(Defined {
                forms: self.forms.clone(),
                terminating: self.terminating,
                warning: version.warning.clone(),
                alive: self.alive.subscribe(),
                since: self.since,
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
    fn of(spec: &Value, version: &Value) -> Result<Self, String> {
        let document = &version["schema"]["openAPIV3Schema"];
        let column = |column: &Value| PrinterColumn {
            name: text(&column["name"]).into(),
            kind: text(&column["type"]).into(),
            format: text(&column["format"]).into(),
            description: text(&column["description"]).into(),
            priority: column["priority"].as_i64().unwrap_or(0),
            json_path: text(&column["jsonPath"]).into(),
        };
        Ok(Self {
            name: text(&version["name"]).into(),
            schema: Schema::of_crd(document)?,
            document: Arc::new(document.clone()),
            status: version["subresources"]
                .get("status")
                .is_some_and(|status| !status.is_null()),
            scale: version["subresources"].get("scale").and_then(ScalePaths::of_crd),
            columns: list(&version["additionalPrinterColumns"])
                .iter()
                .map(column)
                .collect(),
            selectable: selectable(spec, version),
            warning: warning(spec, version),
        })
    }
}

/// The fields that selectors may name at a version.
pub(super) fn selectable(spec: &Value, version: &Value) -> Vec<Box<str>> {
    let of_all: &[&str] = match text(&spec["scope"]) {
        "Namespaced" => &["metadata.name", "metadata.namespace"],
        _ => &["metadata.name"],
    };
    let own = list(&version["selectableFields"])
        .iter()
        .map(|field| text(&field["jsonPath"]).trim_start_matches('.'));
    of_all.iter().copied().chain(own).map(Into::into).collect()
}

/// What a deprecated version tells everyone who uses it.
fn warning(spec: &Value, version: &Value) -> Option<Box<str>> {
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

/// What discovery calls the storage version: the beginning of the hash of its name.
fn storage_hash(group: &str, version: &str, kind: &str) -> Box<str> {
    let name = format!("{group}/{version}/{kind}");
    let hash = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
    STANDARD.encode(&hash.as_ref()[..8]).into()
}
