//! Resources that a CustomResourceDefinition defines.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{PrinterColumn, Resource, Strategy, Subresource};
use crate::{object::Object, schema::Schema, subresources::ScalePaths};

/// A CRD as far as it is served: read once when it changes.
#[derive(Debug)]
pub(crate) struct Definition {
    group: Box<str>,
    plural: Box<str>,
    singular: Box<str>,
    kind: Box<str>,
    list_kind: Box<str>,
    namespaced: bool,
    short_names: Vec<Box<str>>,
    categories: Vec<Box<str>>,
    storage_version: Box<str>,
    /// The served ones, as they stand in the CRD.
    versions: Vec<Version>,
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
}

impl Definition {
    /// What an established CRD defines; `None` for one that is not established.
    pub(crate) fn of(crd: &Object) -> Result<Option<Self>, String> {
        if !is_established(crd) {
            return Ok(None);
        }
        let spec = &crd.fields()["spec"];
        let names = &spec["names"];
        let text = |value: &Value| -> Box<str> { value.as_str().unwrap_or_default().into() };
        let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect();
        let versions = spec["versions"].as_array().map_or(&[][..], Vec::as_slice);
        let storage = versions
            .iter()
            .find(|v| v["storage"] == true)
            .map(|v| text(&v["name"]));
        Ok(Some(Self {
            group: text(&spec["group"]),
            plural: text(&names["plural"]),
            singular: text(&names["singular"]),
            kind: text(&names["kind"]),
            list_kind: text(&names["listKind"]),
            namespaced: spec["scope"] == "Namespaced",
            short_names: texts(&names["shortNames"]),
            categories: texts(&names["categories"]),
            storage_version: storage.unwrap_or_default(),
            versions: versions
                .iter()
                .filter(|v| v["served"] == true)
                .map(|v| {
                    Ok(Version {
                        name: text(&v["name"]),
                        schema: Schema::of_crd(&v["schema"]["openAPIV3Schema"])?,
                        document: Arc::new(v["schema"]["openAPIV3Schema"].clone()),
                        status: v["subresources"].get("status").is_some(),
                        scale: v["subresources"].get("scale").and_then(ScalePaths::of_crd),
                        columns: v["additionalPrinterColumns"]
                            .as_array()
                            .into_iter()
                            .flatten()
                            .map(|column| PrinterColumn {
                                name: text(&column["name"]),
                                kind: text(&column["type"]),
                                format: text(&column["format"]),
                                description: text(&column["description"]),
                                priority: column["priority"].as_i64().unwrap_or(0),
                                json_path: text(&column["jsonPath"]),
                            })
                            .collect(),
                        selectable: v["selectableFields"]
                            .as_array()
                            .into_iter()
                            .flatten()
                            .map(|f| {
                                f["jsonPath"]
                                    .as_str()
                                    .unwrap_or_default()
                                    .trim_start_matches('.')
                                    .into()
                            })
                            .collect(),
                    })
                })
                .collect::<Result<_, String>>()?,
        }))
    }

    /// One resource a served version.
    pub(super) fn resources(&self) -> impl Iterator<Item = Resource> {
        self.versions.iter().map(|version| Resource {
            group: self.group.clone(),
            version: version.name.clone(),
            plural: self.plural.clone(),
            singular: self.singular.clone(),
            kind: self.kind.clone(),
            list_kind: self.list_kind.clone(),
            namespaced: self.namespaced,
            short_names: self.short_names.clone(),
            categories: self.categories.clone(),
            verbs: VERBS.map(Into::into).into(),
            subresources: self.subresources(version).collect(),
            table: format!("{}.{}", self.plural, self.group).into(),
            storage_version: self.storage_version.clone(),
            storage_hash: None,
            schema: Some(version.schema.clone()),
            document: Some(version.document.clone()),
            custom: true,
            selectable: ["metadata.name", "metadata.namespace"]
                .map(Into::into)
                .into_iter()
                .chain(version.selectable.iter().cloned())
                .collect(),
            strategy: Strategy::CUSTOM,
            scale: version.scale.clone(),
            printer_columns: version.columns.clone(),
        })
    }

    fn subresources<'a>(&'a self, version: &'a Version) -> impl Iterator<Item = Subresource> + 'a {
        let verbs = || ["get", "patch", "update"].map(Into::into).into();
        let status = version.status.then(|| Subresource {
            name: "status".into(),
            kind: self.kind.clone(),
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

fn is_established(crd: &Object) -> bool {
    let conditions = &crd.fields().get("status").unwrap_or(&Value::Null)["conditions"];
    conditions
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

/// The status of a CRD whose names are accepted: what the real server's controllers bring about after a creation.
/// `None` when it says so already.
pub(crate) fn establish(crd: &Object, now: &str) -> Option<Object> {
    let mut crd = crd.clone();
    let names = crd.fields().get("spec")?.get("names")?.clone();
    let storage: Vec<Value> = crd.fields()["spec"]["versions"]
        .as_array()?
        .iter()
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    let before = crd.clone();
    let status = crd
        .fields_mut()
        .entry("status")
        .or_insert_with(|| Value::Object(Map::new()));
    status["acceptedNames"] = names;
    let stored = status["storedVersions"].as_array().cloned().unwrap_or_default();
    let added = storage
        .into_iter()
        .filter(|version| !stored.contains(version))
        .collect::<Vec<_>>();
    status["storedVersions"] = stored.into_iter().chain(added).collect();
    for (kind, reason, message) in [
        ("NamesAccepted", "NoConflicts", "no conflicts found"),
        (
            "Established",
            "InitialNamesAccepted",
            "the initial names have been accepted",
        ),
    ] {
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        if conditions
            .iter()
            .any(|c| c["type"] == kind && c["status"] == "True")
        {
            continue;
        }
        let condition = json!({
            "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now,
        });
        let others = conditions.into_iter().filter(|c| c["type"] != kind);
        status["conditions"] = others.chain([condition]).collect();
    }
    (crd != before).then_some(crd)
}
