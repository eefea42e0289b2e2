//! Patches: JSON patch, merge patch and strategic merge patch.

mod json;
mod strategic;

use http::HeaderMap;
use serde_json::{Map, Value};

pub(crate) use self::json::{DoesNotApply, Operation, apply as apply_operations};
use crate::{
    golang, media,
    registry::Resource,
    schema::{SchemaView, Source},
    status::Status,
};

/// The supported patch types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
    /// A configuration for server-side apply, which is sent as a patch.
    Apply,
}

/// The patch types of custom resources; built-in kinds also support strategic merge patches.
const CUSTOM_TYPES: [&str; 3] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];

/// The media type of server-side apply, whose body is JSON or YAML.
const APPLY_TYPE: &str = "application/apply-patch+yaml";

/// The maximum number of operations, as in the real server.
const MAX_OPERATIONS: usize = 10_000;

/// A decoded patch, which can be applied any number of times.
#[derive(Debug)]
pub(crate) enum Patch {
    Json(Vec<Operation>),
    Merge(Value),
    Strategic(Map<String, Value>),
}

impl PatchKind {
    pub(crate) fn of_request(headers: &HeaderMap, resource: &Resource) -> Result<Self, Status> {
        match media::media_type(headers, http::header::CONTENT_TYPE) {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if resource.is_custom => {
                Err(Status::unsupported_media_type(&CUSTOM_TYPES))
            }
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            APPLY_TYPE => Ok(Self::Apply),
            _ => Err(Status::unknown_patch_type()),
        }
    }

    /// Whether a request is a server-side apply.
    pub(crate) fn is_apply(headers: &HeaderMap) -> bool {
        media::media_type(headers, http::header::CONTENT_TYPE) == APPLY_TYPE
    }

    /// How the real server decodes the patched object.
    pub(crate) fn source(self) -> Source {
        match self {
            Self::Strategic | Self::Apply => Source::Tree,
            _ => Source::Json,
        }
    }

    /// Decodes a patch. Also returns the warnings.
    pub(crate) fn decode(self, body: &[u8]) -> Result<(Patch, Vec<String>), Status> {
        // Only the strategic decoder has no prefix in its errors.
        let refuse = |why: String| {
            Status::bad_request(match self {
                Self::Strategic => why,
                _ => format!("error decoding patch: {why}"),
            })
        };
        let (value, duplicates) = crate::json::read(body).map_err(refuse)?;
        let warnings = duplicates
            .iter()
            .map(|path| format!("duplicate field {path:?}"))
            .collect();
        let plain = |patch| Ok((patch, warnings));
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
            // `Apply` is never decoded here.
            (_, other) => Err(refuse(mismatch(&other, "value of type map[string]interface {}"))),
        }
    }
}

/// Decodes the operations of a webhook's patch. Returns the message of its library if they are not a patch.
pub(crate) fn decode_webhook_patch(patch: &[u8]) -> Result<Vec<Operation>, String> {
    const TYPE: &str = "value of type jsonpatch.Patch";
    let (value, _) = crate::json::read(patch)?;
    let list = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Array(list) => list,
        other => return Err(mismatch(&other, TYPE)),
    };
    if list.len() > MAX_OPERATIONS {
        return Err(format!(
            "a patch may have at most {MAX_OPERATIONS} operations, this one has {}",
            list.len()
        ));
    }
    if let Some(other) = list.iter().find(|operation| !operation.is_object()) {
        return Err(mismatch(other, "value of type jsonpatch.Operation"));
    }
    serde_json::from_value(list.into()).map_err(|error| error.to_string())
}

/// Decodes operations. Also returns warnings about unknown fields. An error is a message or the whole status.
fn decode_operations(list: Vec<Value>) -> Result<(Patch, Vec<String>), Result<String, Status>> {
    let mut warnings = Vec::new();
    for (index, operation) in list.iter().enumerate() {
        let Value::Object(fields) = operation else {
            return Err(Ok(mismatch(operation, "value of type handlers.jsonPatchOp")));
        };
        for (name, value) in fields {
            match &**name {
                "op" | "path" | "from" if !(value.is_string() || value.is_null()) => {
                    let target = format!("struct field jsonPatchOp.{name} of type string");
                    return Err(Ok(mismatch(value, &target)));
                }
                "op" | "path" | "from" | "value" => {}
                _ => warnings.push(format!("json patch unknown field \"[{index}].{name}\"")),
            }
        }
    }
    if list.len() > MAX_OPERATIONS {
        return Err(Err(Status::too_many_operations(MAX_OPERATIONS, list.len())));
    }
    let operations = serde_json::from_value(list.into()).map_err(|error| Ok(error.to_string()))?;
    Ok((Patch::Json(operations), warnings))
}

/// `json: cannot unmarshal number into Go value of type string`
fn mismatch(value: &Value, target: &str) -> String {
    format!(
        "json: cannot unmarshal {} into Go {target}",
        golang::json_type(value)
    )
}

impl Patch {
    /// Whether it may read or write `metadata.managedFields`; if not, they need not be parsed.
    pub(crate) fn touches_managed_fields(&self) -> bool {
        let directs = |fields: &Map<String, Value>| fields.keys().any(|key| key.starts_with('$'));
        let in_metadata = |metadata: Option<&Value>| match metadata {
            None => false,
            Some(Value::Object(fields)) => fields.contains_key("managedFields") || directs(fields),
            Some(_) => true,
        };
        match self {
            Self::Json(operations) => operations.iter().any(Operation::touches_managed_fields),
            Self::Merge(patch) => !patch.is_object() || in_metadata(patch.get("metadata")),
            Self::Strategic(patch) => directs(patch) || in_metadata(patch.get("metadata")),
        }
    }

    pub(crate) fn apply(&self, schema: Option<SchemaView<'_>>, value: &mut Value) -> Result<(), Status> {
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

    /// What the real server quotes when the result is not a valid object: a strategic patch, otherwise the patched
    /// object.
    pub(crate) fn quote_in_error(&self, patched: &Value) -> String {
        match self {
            Self::Strategic(patch) => golang::format_value(&patch.clone().into()),
            _ => patched.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
