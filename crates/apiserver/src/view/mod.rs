//! Other views of objects: tables for people, bare metadata for caches.
//!
//! A client asks for them by parameters of its `Accept` header (`application/json;as=Table;v=v1;g=meta.k8s.io`). They
//! are made from the objects at the moment of answering; nothing of them is kept.

mod age;
mod cells;
mod columns;
mod json_path;
mod pods;
mod quota;

use bytes::Bytes;
use http::HeaderMap;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub(crate) use json_path::JsonPath;

use crate::{
    registry::Resource,
    request::Query,
    schema::{FieldError, Problem},
    status::Status,
    strategies,
};

/// What of an object is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum View {
    /// The object itself.
    #[default]
    Object,
    /// `PartialObjectMetadata`, or the list of them.
    Metadata(Version),
    /// `Table`
    Table(Include, Version),
}

/// The version of the API machinery's own kinds that a client asks for. They look the same in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V1beta1,
}

impl Version {
    fn of(text: Option<&str>) -> Option<Self> {
        match text? {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1beta1),
            _ => None,
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

/// The form that one offer of an `Accept` header asks for.
pub(crate) enum Form<'a> {
    /// The object itself.
    Plain,
    /// A kind of the API machinery.
    Of(&'a str, Version),
    /// None that the server has.
    Unknown,
}

impl<'a> Form<'a> {
    /// From `application/json;as=Table;v=v1;g=meta.k8s.io`.
    pub(crate) fn of(offer: &'a str) -> Self {
        let (mut kind, mut group, mut version) = (None, None, None);
        for part in offer.split(';').skip(1) {
            match part.trim().split_once('=') {
                Some(("as", value)) => kind = Some(value),
                Some(("g", value)) => group = Some(value),
                Some(("v", value)) => version = Some(value),
                _ => {}
            }
        }
        match (kind, group, Version::of(version)) {
            (None, None, _) if version.is_none() => Self::Plain,
            (
                Some(kind @ ("Table" | "PartialObjectMetadata" | "PartialObjectMetadataList")),
                Some("meta.k8s.io"),
                Some(version),
            ) => Self::Of(kind, version),
            _ => Self::Unknown,
        }
    }
}

/// A list without its items.
pub(crate) struct Frame {
    pub(crate) fields: Map<String, Value>,
    /// The field that the items are in.
    pub(crate) list: &'static str,
    /// What is there if there are none.
    pub(crate) empty: Value,
}

/// What a table's rows carry besides their cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    #[default]
    Metadata,
    Object,
}

impl View {
    /// The view that a client would like, of the ones that there are.
    ///
    /// `list` says whether the answer is a list: bare metadata of a list has another name than that of one object.
    pub(crate) fn of(
        headers: &HeaderMap,
        query: &Query,
        resource: &Resource,
        list: bool,
    ) -> Result<Self, Status> {
        let accept = headers
            .get(http::header::ACCEPT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        for offer in accept.split(',') {
            let media_type = offer.split(';').next().unwrap_or_default().trim();
            if !matches!(media_type, "application/json" | "application/yaml") {
                continue;
            }
            let (kind, version) = match Form::of(offer) {
                Form::Plain => return Ok(Self::Object),
                Form::Of(kind, version) => (kind, version),
                Form::Unknown => continue,
            };
            match kind {
                "Table" => return Ok(Self::Table(Include::of(query)?, version)),
                "PartialObjectMetadata" if list => {
                    return Err(Status::wrong_shape(&format!(
                        "you requested PartialObjectMetadata, but the requested object is a list ({})",
                        go_type(resource, &resource.list_kind)
                    )));
                }
                "PartialObjectMetadataList" if !list => {
                    return Err(Status::wrong_shape(&format!(
                        "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                        go_type(resource, &resource.kind)
                    )));
                }
                "PartialObjectMetadata" | "PartialObjectMetadataList" => return Ok(Self::Metadata(version)),
                _ => {}
            }
        }
        Ok(Self::Object)
    }

    /// One object in this view. `first` is false for the later events of a watch, whose tables leave the columns out.
    pub(crate) fn one(self, resource: &Resource, object: &Value, now: Timestamp, first: bool) -> Value {
        match self {
            Self::Object => object.clone(),
            Self::Metadata(version) => partial(resource, object, version),
            Self::Table(include, version) => {
                let revision = &object["metadata"]["resourceVersion"];
                let columns = if first {
                    columns::definitions(resource)
                } else {
                    Value::Null
                };
                let rows = json!([row(resource, object, (include, version), now)]);
                table(version, &json!({"resourceVersion": revision}), &columns, &rows)
            }
        }
    }

    /// What stands around the items of a list in this view.
    pub(crate) fn frame(self, resource: &Resource, metadata: &Value) -> Frame {
        let mut metadata = metadata.clone();
        // A list of custom objects says that it has no continuation; its views do not.
        if self != Self::Object && metadata["continue"] == "" {
            metadata.as_object_mut().map(|fields| fields.remove("continue"));
        }
        let (kind, api_version) = match self {
            Self::Object => (&*resource.list_kind, resource.api_version()),
            Self::Metadata(version) => ("PartialObjectMetadataList", version.api_version().to_owned()),
            Self::Table(_, version) => ("Table", version.api_version().to_owned()),
        };
        let mut fields = Map::new();
        fields.insert("kind".to_owned(), kind.into());
        fields.insert("apiVersion".to_owned(), api_version.into());
        fields.insert("metadata".to_owned(), metadata);
        let (list, empty) = match self {
            Self::Object => ("items", json!([])),
            // An empty list of these is no list.
            Self::Metadata(_) => ("items", Value::Null),
            Self::Table(..) => {
                fields.insert("columnDefinitions".to_owned(), columns::definitions(resource));
                // Nobody has begun a list of rows for the kinds that have no table of their own.
                let begun = resource.custom || columns::has_own(resource);
                ("rows", if begun { json!([]) } else { Value::Null })
            }
        };
        Frame { fields, list, empty }
    }

    /// An object as an item of such a list.
    pub(crate) fn item(self, resource: &Resource, object: Value, now: Timestamp) -> Value {
        match self {
            Self::Object => object,
            Self::Metadata(version) => partial(resource, &object, version),
            Self::Table(include, version) => row(resource, &object, (include, version), now),
        }
    }

    /// An answer's JSON in this view; what is no object of the resource (a `Status`) stays as it is.
    pub(crate) fn of_json(self, resource: &Resource, json: Bytes, now: Timestamp) -> Result<Bytes, Status> {
        if self == Self::Object {
            return Ok(json);
        }
        let value: Value = crate::json::parse_bytes(&json).map_err(|e| Status::internal(e.to_string()))?;
        if value["kind"] != *resource.kind {
            return Ok(json);
        }
        Ok(self.one(resource, &value, now, true).to_string().into())
    }
}

impl Include {
    fn of(query: &Query) -> Result<Self, Status> {
        match query.text("includeObject") {
            None | Some("Metadata") => Ok(Self::Metadata),
            Some("None") => Ok(Self::None),
            Some("Object") => Ok(Self::Object),
            Some(other) => {
                let problem = Problem::Invalid(
                    other.into(),
                    "must be 'Metadata', 'Object', 'None', or empty".into(),
                );
                let error = FieldError::new("includeObject", problem);
                Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: {}: {}",
                    error.field,
                    error.message()
                )))
            }
        }
    }
}

/// What Go calls the struct of a kind.
fn go_type(resource: &Resource, kind: &str) -> String {
    match &*resource.group {
        _ if resource.custom => "*unstructured.Unstructured".to_owned(),
        "" => format!("*core.{kind}"),
        group => format!("*{}.{kind}", group.split('.').next().unwrap_or_default()),
    }
}

fn partial(resource: &Resource, object: &Value, version: Version) -> Value {
    let mut metadata = object["metadata"].clone();
    strategies::hide_from_views(resource, &mut metadata);
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": version.api_version(),
        "metadata": metadata,
    })
}

fn table(version: Version, metadata: &Value, columns: &Value, rows: &Value) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": version.api_version(),
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn row(resource: &Resource, object: &Value, (include, version): (Include, Version), now: Timestamp) -> Value {
    let mut row = json!({"cells": cells::of(resource, object, now)});
    if let Some(conditions) = pods::row_conditions(resource, object) {
        row["conditions"] = conditions;
    }
    row["object"] = match include {
        Include::None => Value::Null,
        Include::Metadata => partial(resource, object, version),
        Include::Object => object.clone(),
    };
    row
}
