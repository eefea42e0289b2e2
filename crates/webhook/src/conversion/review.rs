//! `ConversionReview` on the wire.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use windlass_api::field_error::cut;

use super::Converter;

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "ConversionReview";

/// The longest text of an object or an error that is shown and logged.
const MAX_QUOTED: usize = 1024;

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(default, borrow, rename = "apiVersion")]
    api_version: Cow<'a, str>,
    #[serde(default, borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    request: Option<Question<'a>>,
}

#[derive(Deserialize)]
struct Question<'a> {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: String,
    #[serde(default, borrow)]
    objects: Option<Vec<&'a RawValue>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    uid: String,
    converted_objects: Vec<Value>,
    result: Value,
}

impl Converter {
    /// Answers a review: all objects in order, or none. An error if the body is no review.
    pub(crate) fn answer(&self, body: &[u8]) -> Result<Bytes, String> {
        let review: Envelope<'_> =
            serde_json::from_slice(body).map_err(|error| format!("cannot read the review: {error}"))?;
        if review.kind != KIND || review.api_version != API_VERSION {
            return Err(format!(
                "expected a review of {API_VERSION}, Kind={KIND}, got {:.200}, Kind={:.200}",
                review.api_version, review.kind
            ));
        }
        let request = review.request.ok_or("the review has no request")?;
        let objects = request.objects.unwrap_or_default();
        let count = objects.len();
        let wanted = &request.desired_api_version;
        let converted: Result<Vec<_>, String> = objects
            .into_iter()
            .map(|object| {
                let object: Value = serde_json::from_str(object.get()).map_err(|error| error.to_string())?;
                let described = describe(&object);
                self.convert(object, wanted).map_err(|why| {
                    let (wanted, why) = (cut(wanted, MAX_QUOTED), cut(&why, MAX_QUOTED));
                    format!("cannot convert {described} to {wanted}: {why}")
                })
            })
            .collect();
        let answer = match converted {
            Ok(converted_objects) => {
                tracing::debug!(
                    uid = request.uid,
                    kind = self.kind,
                    wanted,
                    count,
                    "objects are converted"
                );
                Answer {
                    uid: request.uid,
                    converted_objects,
                    result: json!({"status": "Success"}),
                }
            }
            Err(message) => {
                tracing::warn!(
                    uid = request.uid,
                    kind = self.kind,
                    message,
                    "a conversion failed"
                );
                Answer {
                    uid: request.uid,
                    converted_objects: Vec::new(),
                    result: json!({"status": "Failure", "message": message}),
                }
            }
        };
        let body = json!({"apiVersion": API_VERSION, "kind": KIND, "response": answer});
        Ok(body.to_string().into())
    }
}

/// `Cone default/big in example.com/v1`
fn describe(object: &Value) -> String {
    let text = |value: &Value| cut(value.as_str().unwrap_or_default(), MAX_QUOTED).into_owned();
    let metadata = &object["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    let separator = if namespace.is_empty() { "" } else { "/" };
    format!(
        "{} {namespace}{separator}{name} in {}",
        text(&object["kind"]),
        text(&object["apiVersion"])
    )
}
