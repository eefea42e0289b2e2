//! `AdmissionReview`: the question to a webhook, and its answer, which is not trusted.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::{Map, Value};

use super::{HookError, Matched};
use crate::{
    admission::{
        request::{Attributes, Operation},
        versions::at_version,
    },
    object::Object,
    status::Status,
    warnings::Warnings,
    webhook::{Answer, Call, CallFailure, ReviewType, type_mismatch},
};

/// The question about a request, with these fields. `round` is that of the mutating stage.
pub(super) fn call(matched: &Matched<'_>, fields: Bytes, round: &str) -> Call {
    let webhook = &matched.webhook;
    Call::new(
        (webhook.endpoint.clone(), webhook.timeout),
        &format!("{round}/{}", webhook.id),
        webhook.review_type.head(),
        fields,
    )
}

/// The fields of a review after its uid, for the version as which the request matched.
pub(super) fn fields(
    matched: &Matched<'_>,
    attributes: &Attributes<'_>,
    objects: [Option<&Object>; 2],
) -> Result<Bytes, Status> {
    let request = attributes.to_request(matched.resource).to_string();
    let mut rest = request.as_bytes()[1..request.len() - 1].to_vec();
    for (key, object) in ["object", "oldObject"].into_iter().zip(objects) {
        rest.extend_from_slice(format!(",\"{key}\":").as_bytes());
        match object {
            // The options of a connection have no metadata.
            Some(object) if attributes.operation == Operation::Connect => {
                let fields = object.fields().iter().filter(|(key, _)| *key != "metadata");
                let fields: Map<String, Value> =
                    fields.map(|(key, value)| (key.clone(), value.clone())).collect();
                rest.extend_from_slice(Value::Object(fields).to_string().as_bytes());
            }
            Some(object) => at_version(attributes, matched.resource, object)?.write_json(&mut rest),
            None => rest.extend_from_slice(b"null"),
        }
    }
    rest.extend_from_slice(b"}}");
    Ok(rest.into())
}

/// Reads the answer of a webhook: its patch, if it has one. An error if the call failed or the request is denied;
/// warnings are added in any case.
pub(super) fn patch_of(
    matched: &Matched<'_>,
    answer: &Answer,
    is_mutating: bool,
    warnings: &mut Warnings,
) -> Result<Option<Patch>, HookError> {
    let webhook = &matched.webhook;
    let body = answer.response.as_ref().map_err(|failure| match failure {
        CallFailure::NotSent(why) => HookError::Call(why.clone()),
        CallFailure::Failed(why) => HookError::Call(format!("failed to call webhook: {why}")),
        CallFailure::NoRoom => HookError::Status(Status::too_many_responses()),
    })?;
    let undecodable = |why: String| HookError::Call(format!("failed to call webhook: {why}"));
    let review = webhook.review_type.read(&body.bytes).map_err(undecodable)?;
    let response = decode(&review).map_err(undecodable)?;
    let response = verify(&review, response, webhook.review_type, &answer.uid, is_mutating)
        .map_err(|why| HookError::Call(format!("received invalid webhook response: {why}")))?;
    for (key, value) in response.audit_annotations {
        tracing::debug!(
            webhook = &*webhook.name,
            key,
            value,
            "audit annotation of a webhook"
        );
    }
    warnings.extend(&*response.warnings);
    if !response.allowed {
        return Err(HookError::Status(Status::denied_by_webhook(
            &webhook.name,
            response.status.as_ref(),
        )));
    }
    Ok(response.patch.map(|json| Patch {
        json,
        kind: response.patch_type,
    }))
}

/// The patch of a mutating webhook.
pub(super) struct Patch {
    pub(super) json: Vec<u8>,
    /// `JSONPatch`, or an unknown one.
    pub(super) kind: String,
}

/// The decoded `response` of a review.
#[derive(Default)]
struct Response {
    uid: String,
    allowed: bool,
    status: Option<Map<String, Value>>,
    patch: Option<Vec<u8>>,
    has_patch_type: bool,
    patch_type: String,
    warnings: Warnings,
    audit_annotations: Vec<(String, String)>,
}

/// Decodes the response of a review like Go's decoder into its type. `None` if there is none.
fn decode(review: &Value) -> Result<Option<Response>, String> {
    let Some(response) = review.get("response").filter(|response| !response.is_null()) else {
        return Ok(None);
    };
    let mismatch = |value: &Value, field: &str, wanted: &str| {
        type_mismatch(value, &format!("AdmissionResponse.response{field}"), wanted)
    };
    let Some(fields) = response.as_object() else {
        return Err(type_mismatch(
            response,
            "AdmissionReview.response",
            "v1.AdmissionResponse",
        ));
    };
    let mut decoded = Response::default();
    for (key, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        match (&**key, value) {
            ("uid", Value::String(uid)) => decoded.uid.clone_from(uid),
            ("uid", _) => return Err(mismatch(value, ".uid", "types.UID")),
            ("allowed", Value::Bool(allowed)) => decoded.allowed = *allowed,
            ("allowed", _) => return Err(mismatch(value, ".allowed", "bool")),
            ("status", Value::Object(status)) => decoded.status = Some(status.clone()),
            ("status", _) => return Err(mismatch(value, ".status", "v1.Status")),
            ("patch", _) => {
                let bytes = decode_bytes(value);
                let bytes = bytes.map_err(|why| match why {
                    BytesError::Message(why) => why,
                    BytesError::Type(value, wanted) => mismatch(value, ".patch", wanted),
                });
                decoded.patch = Some(bytes?);
            }
            ("patchType", Value::String(name)) => {
                decoded.has_patch_type = true;
                decoded.patch_type.clone_from(name);
            }
            ("patchType", _) => return Err(mismatch(value, ".patchType", "v1.PatchType")),
            ("warnings", Value::Array(warnings)) => {
                for warning in warnings {
                    match warning {
                        // Those with control characters are no headers.
                        Value::String(text) if text.chars().any(char::is_control) => {}
                        Value::String(text) => decoded.warnings.push(text),
                        Value::Null => {}
                        other => return Err(mismatch(other, ".warnings", "string")),
                    }
                }
            }
            ("warnings", _) => return Err(mismatch(value, ".warnings", "[]string")),
            ("auditAnnotations", Value::Object(annotations)) => {
                for (key, value) in annotations {
                    match value {
                        Value::String(text) => decoded.audit_annotations.push((key.clone(), text.clone())),
                        other => return Err(mismatch(other, ".auditAnnotations", "string")),
                    }
                }
            }
            ("auditAnnotations", _) => {
                return Err(mismatch(value, ".auditAnnotations", "map[string]string"));
            }
            _ => {}
        }
    }
    Ok(Some(decoded))
}

/// Why a value is not Go's `[]byte`.
#[derive(Debug, PartialEq)]
enum BytesError<'a> {
    Message(String),
    /// A value is of another type than this.
    Type(&'a Value, &'static str),
}

/// Decodes Go's `[]byte`: base64, or a list of numbers.
fn decode_bytes(value: &Value) -> Result<Vec<u8>, BytesError<'_>> {
    match value {
        Value::String(text) => STANDARD.decode(text).map_err(|_| {
            let valid = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
            let bytes = text.as_bytes();
            let offset = bytes.iter().position(|byte| !valid(byte));
            let offset = offset.unwrap_or(bytes.len() / 4 * 4);
            BytesError::Message(format!("illegal base64 data at input byte {offset}"))
        }),
        Value::Array(items) => {
            let byte = |item: &Value| item.as_u64().and_then(|number| u8::try_from(number).ok());
            items
                .iter()
                .map(|item| byte(item).ok_or(BytesError::Type(item, "uint8")))
                .collect()
        }
        _ => Err(BytesError::Type(value, "[]uint8")),
    }
}

/// Checks a response against its question. Returns kube-apiserver's message if it is invalid.
fn verify(
    review: &Value,
    response: Option<Response>,
    review_type: ReviewType,
    uid: &str,
    is_mutating: bool,
) -> Result<Response, String> {
    let Some(mut response) = response else {
        return Err("webhook response was absent".to_owned());
    };
    if review_type.is_beta() {
        // It may omit the uid, the kind and the type of the patch.
        if response.patch.as_ref().is_some_and(|patch| !patch.is_empty()) && is_mutating {
            "JSONPatch".clone_into(&mut response.patch_type);
        } else {
            response.patch = None;
        }
        return Ok(response);
    }
    if response.uid != uid {
        return Err(format!("expected response.uid={uid:?}, got {:?}", response.uid));
    }
    review_type.check(review)?;
    let has_patch = response.patch.as_ref().is_some_and(|patch| !patch.is_empty());
    if is_mutating {
        match (has_patch, response.has_patch_type) {
            (true, false) => {
                return Err("webhook returned response.patch but not response.patchType".to_owned());
            }
            (false, true) => {
                return Err("webhook returned response.patchType but not response.patch".to_owned());
            }
            (true, true) if response.patch_type.is_empty() => {
                return Err("webhook returned invalid response.patchType of \"\"".to_owned());
            }
            _ => {}
        }
    } else if has_patch {
        return Err("validating webhook may not return response.patch".to_owned());
    } else if response.has_patch_type {
        return Err("validating webhook may not return response.patchType".to_owned());
    }
    if !has_patch {
        response.patch = None;
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn few_of_many_warnings_are_kept() {
        let texts: Vec<_> = (0..50_000).map(|index| format!("warning {index}")).collect();
        for texts in [json!(texts), json!(vec![""; 50_000]), json!(vec!["a\nb"; 50_000])] {
            let review = json!({"response": {"uid": "u", "allowed": true, "warnings": texts}});
            let response = decode(&review).unwrap().unwrap();
            assert!(response.warnings.len() < 1_000, "{}", response.warnings.len());
        }
    }

    #[test]
    fn bytes_are_base64_or_numbers() {
        assert_eq!(decode_bytes(&json!("W10=")), Ok(b"[]".to_vec()));
        assert_eq!(decode_bytes(&json!([91, 93])), Ok(b"[]".to_vec()));
        let illegal = BytesError::Message("illegal base64 data at input byte 0".to_owned());
        assert_eq!(decode_bytes(&json!("!!")), Err(illegal));
        let large = json!(256);
        assert_eq!(
            decode_bytes(&json!([256])),
            Err(BytesError::Type(&large, "uint8"))
        );
        let number = json!(7);
        assert_eq!(decode_bytes(&number), Err(BytesError::Type(&number, "[]uint8")));
    }
}
