//! Other views of objects: tables for users, partial metadata for caches.
//!
//! A client requests them with parameters of its `Accept` header (`application/json;as=Table;v=v1;g=meta.k8s.io`). They
//! are rendered for each response and not stored.

mod columns;
mod json_path;

use bytes::Bytes;
use http::HeaderMap;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub(crate) use json_path::JsonPath;

use crate::{
    kinds::Row,
    media::PLAIN_JSON,
    registry::Resource,
    request::{Query, Target},
    schema::{FieldError, Problem},
    status::Status,
};

/// The view of an object in a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum View {
    /// The object itself.
    #[default]
    Object,
    /// `PartialObjectMetadata`, or the list of them.
    Metadata(MetaVersion),
    /// `Table`
    Table(IncludeObject, MetaVersion),
}

/// The requested version of the `meta.k8s.io` kinds. They are the same in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetaVersion {
    V1,
    V1beta1,
}

impl MetaVersion {
    fn parse(text: Option<&str>) -> Option<Self> {
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

/// The representation that one media range of an `Accept` header asks for.
pub(crate) enum Representation<'a> {
    /// The object itself.
    Object,
    /// A kind of `meta.k8s.io`.
    Meta(&'a str, MetaVersion),
    /// An unsupported one.
    Unknown,
}

impl<'a> Representation<'a> {
    /// The representation of the target's responses.
    pub(crate) fn of(offer: &'a str, target: &Target) -> Self {
        match Self::parse(offer) {
            Self::Meta("Table", _) if !target.has_table() => Self::Unknown,
            representation => representation,
        }
    }

    /// Parses `application/json;as=Table;v=v1;g=meta.k8s.io`.
    pub(crate) fn parse(offer: &'a str) -> Self {
        let (mut kind, mut group, mut version) = (None, None, None);
        for part in offer.split(';').skip(1) {
            match part.trim().split_once('=') {
                Some(("as", value)) => kind = Some(value),
                Some(("g", value)) => group = Some(value),
                Some(("v", value)) => version = Some(value),
                _ => {}
            }
        }
        match (kind, group, MetaVersion::parse(version)) {
            (None, None, _) if version.is_none() => Self::Object,
            (
                Some(kind @ ("Table" | "PartialObjectMetadata" | "PartialObjectMetadataList")),
                Some("meta.k8s.io"),
                Some(version),
            ) => Self::Meta(kind, version),
            _ => Self::Unknown,
        }
    }
}

/// A list without its items.
pub(crate) struct ListEnvelope {
    pub(crate) fields: Map<String, Value>,
    /// The field of the items.
    pub(crate) items_field: &'static str,
    /// The value of that field without items.
    pub(crate) empty: Value,
}

/// What a table's rows have besides their cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    None,
    #[default]
    Metadata,
    Object,
}

impl View {
    /// The first supported view that a client accepts.
    ///
    /// `list` is whether the response is a list, whose partial metadata has another kind than an object's.
    pub(crate) fn negotiate(
        headers: &HeaderMap,
        query: &Query,
        target: &Target,
        list: bool,
    ) -> Result<Self, Status> {
        let resource = &target.resource;
        let accept = headers
            .get(http::header::ACCEPT)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        if accept == PLAIN_JSON {
            return Ok(Self::Object);
        }
        for offer in accept.split(',') {
            let media_type = offer.split(';').next().unwrap_or_default().trim();
            if !matches!(media_type, "application/json" | "application/yaml") {
                continue;
            }
            let (kind, version) = match Representation::of(offer, target) {
                Representation::Object => return Ok(Self::Object),
                Representation::Meta(kind, version) => (kind, version),
                Representation::Unknown => continue,
            };
            match kind {
                "Table" => return Ok(Self::Table(IncludeObject::of(query)?, version)),
                "PartialObjectMetadata" if list => {
                    return Err(Status::unsupported_representation(&format!(
                        "you requested PartialObjectMetadata, but the requested object is a list ({})",
                        go_type(resource, &resource.list_kind)
                    )));
                }
                "PartialObjectMetadataList" if !list => {
                    return Err(Status::unsupported_representation(&format!(
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

    /// Renders one object. `first` is false for the later events of a watch, whose tables have no column definitions.
    pub(crate) fn render(self, resource: &Resource, object: &Value, now: Timestamp, first: bool) -> Value {
        match self {
            Self::Object => object.clone(),
            Self::Metadata(version) => partial_metadata(resource, object, version),
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

    /// The list around the items.
    pub(crate) fn list_envelope(self, resource: &Resource, metadata: &Value) -> ListEnvelope {
        let mut metadata = metadata.clone();
        // Only the default view of custom resources has an empty `continue`.
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
        let (items_field, empty) = match self {
            Self::Object => ("items", json!([])),
            // Without items it is null.
            Self::Metadata(_) => ("items", Value::Null),
            Self::Table(..) => {
                fields.insert("columnDefinitions".to_owned(), columns::definitions(resource));
                // Without items, rows are null for kinds without a table of their own.
                let begun = resource.is_custom || columns::has_own_table(resource);
                ("rows", if begun { json!([]) } else { Value::Null })
            }
        };
        ListEnvelope {
            fields,
            items_field,
            empty,
        }
    }

    /// Renders an object as an item of a list.
    pub(crate) fn render_item(self, resource: &Resource, object: Value, now: Timestamp) -> Value {
        match self {
            Self::Object => object,
            Self::Metadata(version) => partial_metadata(resource, &object, version),
            Self::Table(include, version) => row(resource, &object, (include, version), now),
        }
    }

    /// Renders a response's JSON. Objects of other kinds, such as a `Status`, are unchanged.
    pub(crate) fn render_json(
        self,
        resource: &Resource,
        json: Bytes,
        now: Timestamp,
    ) -> Result<Bytes, Status> {
        if self == Self::Object {
            return Ok(json);
        }
        let value: Value = crate::json::parse_bytes(&json).map_err(|e| Status::internal(e.to_string()))?;
        if value["kind"] != *resource.kind {
            return Ok(json);
        }
        Ok(self.render(resource, &value, now, true).to_string().into())
    }
}

impl IncludeObject {
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

/// Go's name of the struct of a kind.
fn go_type(resource: &Resource, kind: &str) -> String {
    match &*resource.group {
        _ if resource.is_custom => "*unstructured.Unstructured".to_owned(),
        "" => format!("*core.{kind}"),
        group => format!("*{}.{kind}", group.split('.').next().unwrap_or_default()),
    }
}

fn partial_metadata(resource: &Resource, object: &Value, version: MetaVersion) -> Value {
    let mut metadata = object["metadata"].clone();
    resource.strategy.hide_metadata(&mut metadata);
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": version.api_version(),
        "metadata": metadata,
    })
}

fn table(version: MetaVersion, metadata: &Value, columns: &Value, rows: &Value) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": version.api_version(),
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn row(
    resource: &Resource,
    object: &Value,
    (include, version): (IncludeObject, MetaVersion),
    now: Timestamp,
) -> Value {
    let cells = resource.strategy.cells(&Row {
        resource,
        object,
        now,
    });
    let mut row = json!({"cells": cells});
    if let Some(conditions) = resource.strategy.row_conditions(object) {
        row["conditions"] = conditions;
    }
    row["object"] = match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Metadata => partial_metadata(resource, object, version),
        IncludeObject::Object => object.clone(),
    };
    row
}
