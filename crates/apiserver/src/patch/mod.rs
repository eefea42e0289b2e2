//! Patches: how a client says what should change without sending the whole object.

mod json;
mod strategic;

use http::HeaderMap;
use serde_json::{Map, Value};

use self::json::Operation;
use crate::{
    golang, media,
    registry::Resource,
    schema::{Source, View},
    status::Status,
};

/// The patch types that are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
    /// No patch, but a configuration that is sent as one.
    Apply,
}

/// What custom resources take; the built-in kinds take strategic merge patches too.
const CUSTOM_TYPES: [&str; 3] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];

/// The type of configurations, which are JSON or YAML.
const APPLY: &str = "application/apply-patch+yaml";

/// More operations than this are refused: what the real server takes.
const OPERATIONS: usize = 10_000;

/// A patch that was read and can be applied any number of times.
#[derive(Debug)]
pub(crate) enum Patch {
    Json(Vec<Operation>),
    Merge(Value),
    Strategic(Map<String, Value>),
}

impl PatchKind {
    pub(crate) fn of_body(headers: &HeaderMap, resource: &Resource) -> Result<Self, Status> {
        match media::media_type(headers, http::header::CONTENT_TYPE) {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if resource.custom => {
                Err(Status::unsupported_media_type(&CUSTOM_TYPES))
            }
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            APPLY => Ok(Self::Apply),
            _ => Err(Status::unknown_patch_type()),
        }
    }

    /// Whether a request's body is a configuration to be applied.
    pub(crate) fn is_apply(headers: &HeaderMap) -> bool {
        media::media_type(headers, http::header::CONTENT_TYPE) == APPLY
    }

    /// How the real server comes to the patched object.
    pub(crate) fn source(self) -> Source {
        match self {
            Self::Strategic | Self::Apply => Source::Tree,
            _ => Source::Json,
        }
    }

    /// Reads a patch; what the client should be warned of comes with it.
    pub(crate) fn decode(self, body: &[u8]) -> Result<(Patch, Vec<String>), Status> {
        // The strategic decoder alone does not say that it is a patch that it could not read.
        let refuse = |why: String| {
            Status::bad_request(match self {
                Self::Strategic => why,
                _ => format!("error decoding patch: {why}"),
            })
        };
        let (value, duplicates) = crate::json::read(body).map_err(refuse)?;
        let remarks = duplicates
            .iter()
            .map(|path| format!("duplicate field {path:?}"))
            .collect();
        let plain = |patch| Ok((patch, remarks));
        match (self, value) {
            (Self::Json, Value::Null) => plain(Patch::Json(Vec::new())),
            (Self::Json, Value::Array(operations)) => {
                decode_operations(operations).map_err(|why| match why {
                    Ok(why) => refuse(why),
                    Err(status) => status,
                })
            }
            (Self::Json, other) => Err(refuse(mismatch(&other, "value of type []handlers.jsonPatchOp"))),
            (Self::Merge, Value::Null) => Err(Status::bad_request("Invalid JSON Patch")),
            (Self::Merge, patch @ Value::Object(_)) => plain(Patch::Merge(patch)),
            (Self::Strategic, Value::Null) => plain(Patch::Strategic(Map::new())),
            (Self::Strategic, Value::Object(patch)) => plain(Patch::Strategic(patch)),
            // A configuration never comes here: it is applied, not decoded as a patch.
            (_, other) => Err(refuse(mismatch(&other, "value of type map[string]interface {}"))),
        }
    }
}

/// The operations and warnings of unknown fields; or what is wrong, as text or as the whole answer.
fn decode_operations(list: Vec<Value>) -> Result<(Patch, Vec<String>), Result<String, Status>> {
    let mut warnings = Vec::new();
    for (index, operation) in list.iter().enumerate() {
        let Value::Object(fields) = operation else {
            return Err(Ok(mismatch(operation, "value of type handlers.jsonPatchOp")));
        };
        for (name, value) in fields {
            match &**name {
                "op" | "path" | "from" if !(value.is_string() || value.is_null()) => {
                    let place = format!("struct field jsonPatchOp.{name} of type string");
                    return Err(Ok(mismatch(value, &place)));
                }
                "op" | "path" | "from" | "value" => {}
                _ => warnings.push(format!("json patch unknown field \"[{index}].{name}\"")),
            }
        }
    }
    if list.len() > OPERATIONS {
        return Err(Err(Status::too_many_operations(OPERATIONS, list.len())));
    }
    let operations = serde_json::from_value(list.into()).map_err(|error| Ok(error.to_string()))?;
    Ok((Patch::Json(operations), warnings))
}

/// `json: cannot unmarshal number into Go value of type string`
fn mismatch(value: &Value, place: &str) -> String {
    format!(
        "json: cannot unmarshal {} into Go {place}",
        golang::json_type(value)
    )
}

impl Patch {
    /// Whether it may say something of `metadata.managedFields`: if not, it can do without them.
    pub(crate) fn sees_managed_fields(&self) -> bool {
        let directs = |fields: &Map<String, Value>| fields.keys().any(|key| key.starts_with('$'));
        let in_metadata = |metadata: Option<&Value>| match metadata {
            None => false,
            Some(Value::Object(fields)) => fields.contains_key("managedFields") || directs(fields),
            Some(_) => true,
        };
        match self {
            Self::Json(operations) => operations.iter().any(Operation::sees_managed_fields),
            Self::Merge(patch) => !patch.is_object() || in_metadata(patch.get("metadata")),
            Self::Strategic(patch) => directs(patch) || in_metadata(patch.get("metadata")),
        }
    }

    pub(crate) fn apply(&self, schema: Option<View<'_>>, value: &mut Value) -> Result<(), Status> {
        match self {
            Self::Json(operations) => json::apply(operations, value).map_err(|_| Status::patch_rejected()),
            Self::Merge(patch) => {
                json_patch::merge(value, patch);
                Ok(())
            }
            Self::Strategic(patch) => {
                let state = match value.take() {
                    Value::Object(state) => state,
                    _ => Map::new(),
                };
                *value = strategic::apply(schema, state, patch.clone())?.into();
                Ok(())
            }
        }
    }

    /// What the real server quotes when the outcome is no object of the kind: the patch where it is strategic, the
    /// patched object otherwise.
    pub(crate) fn quoted(&self, patched: &Value) -> String {
        match self {
            Self::Strategic(patch) => golang::printed(&patch.clone().into()),
            _ => patched.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
