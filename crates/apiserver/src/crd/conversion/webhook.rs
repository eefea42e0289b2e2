//! Conversion webhooks: `ConversionReview`, and what its answer may change.
//!
//! A webhook gets whole objects of one version without their resource version, and returns them in another. It may change
//! everything but the metadata, of which only labels and annotations may differ; the rest is restored.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};

use super::cache::ConvertedEntries;
use crate::{
    auth::aggregate_messages,
    golang,
    object::Object,
    status::Status,
    validation,
    webhook::{Answer, Answers, Call, CallFailure, Endpoint, ReviewType, type_mismatch},
};

/// How long a real server waits for a conversion. There is no setting.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The webhook that converts the objects of a CRD.
#[derive(Debug)]
pub(super) struct ConversionWebhook {
    endpoint: Arc<Endpoint>,
    review_type: ReviewType,
    /// Stored objects that were converted for reads.
    pub(super) converted: ConvertedEntries,
}

impl ConversionWebhook {
    /// The webhook of a CRD's `spec.conversion`; `None` if its strategy is another.
    pub(super) fn parse(conversion: &Value) -> Option<Self> {
        if conversion["strategy"] != "Webhook" {
            return None;
        }
        let webhook = &conversion["webhook"];
        Some(Self {
            endpoint: Arc::new(Endpoint::parse(&webhook["clientConfig"])),
            review_type: ReviewType::conversion(&webhook["conversionReviewVersions"]),
            converted: ConvertedEntries::default(),
        })
    }

    /// The question that converts objects to this API version.
    pub(super) fn call(&self, objects: &[Object], wanted: &str) -> Call {
        let mut rest = format!("\"desiredAPIVersion\":{},\"objects\":[", Value::from(wanted)).into_bytes();
        for (index, object) in objects.iter().enumerate() {
            if index > 0 {
                rest.push(b',');
            }
            object.write_json(&mut rest);
        }
        // A real server sends an empty response along.
        rest.extend_from_slice(
            br#"]},"response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}}"#,
        );
        Call::new(
            (self.endpoint.clone(), TIMEOUT),
            "convert",
            self.review_type.head(),
            rest.into(),
        )
        .with_whole_timeout()
    }

    /// Converts one object with the answers that a request has.
    pub(super) fn convert(
        &self,
        mut object: Object,
        wanted: &str,
        answers: &Answers,
    ) -> Result<Object, Status> {
        let version = object.metadata_mut().remove("resourceVersion");
        let objects = [object];
        let answer = answers.get(self.call(&objects, wanted))?;
        let mut converted = self.read(&answer, objects.into(), wanted)?;
        let mut object = converted
            .pop()
            .ok_or_else(|| Status::internal("a conversion returned no object"))?;
        if let Some(version) = version {
            object.set_meta("resourceVersion", version);
        }
        Ok(object)
    }

    /// Reads an answer: the converted objects, in order.
    pub(super) fn read(
        &self,
        answer: &Answer,
        objects: Vec<Object>,
        wanted: &str,
    ) -> Result<Vec<Object>, Status> {
        if let Err(CallFailure::NoRoom) = answer.response {
            return Err(Status::too_many_responses());
        }
        let source = objects.first().map_or_else(String::new, shown_kind);
        let refuse = |why: String| Status::without_reason(format!("conversion webhook for {source} {why}"));
        let converted = self
            .decode(answer)
            .map_err(|why| refuse(format!("failed: {why}")))?;
        for object in &converted {
            check_object(object).map_err(Status::without_reason)?;
        }
        if converted.len() != objects.len() {
            return Err(refuse(format!(
                "returned {} objects, expected {}",
                converted.len(),
                objects.len()
            )));
        }
        let pairs = objects.into_iter().zip(converted).enumerate();
        pairs
            .map(|(index, (object, converted))| {
                check_type(&object, &converted, wanted)
                    .map_err(|why| format!("returned invalid object at index {index}: {why}"))?;
                merge(&object, converted)
            })
            .collect::<Result<_, String>>()
            .map_err(refuse)
    }

    /// The objects in an answer, or why it is none.
    fn decode(&self, answer: &Answer) -> Result<Vec<Value>, String> {
        let body = answer.response.as_ref().map_err(ToString::to_string)?;
        let mut review = self.review_type.read(&body.bytes)?;
        let response = &review["response"];
        if !response["result"].is_null() && !response["result"].is_object() {
            let field = "ConversionResponse.response.result";
            return Err(type_mismatch(&response["result"], field, "v1.Status"));
        }
        if !self.review_type.is_beta() {
            self.review_type.check(&review)?;
        }
        if response.is_null() {
            return Err("no response provided".to_owned());
        }
        let mut response = review["response"].take();
        let uid = response["uid"].as_str().unwrap_or_default();
        if !self.review_type.is_beta() && uid != answer.uid {
            return Err(format!("expected response.uid={:?}, got {uid:?}", answer.uid));
        }
        let result = &response["result"];
        if result["status"] != "Success" {
            let message = result["message"].as_str().unwrap_or_default();
            if message.is_empty() {
                let status = result["status"].as_str().unwrap_or_default();
                return Err(format!("response.result.status was '{status}', not 'Success'"));
            }
            return Err(message.to_owned());
        }
        match response["convertedObjects"].take() {
            Value::Array(objects) => Ok(objects),
            _ => Ok(Vec::new()),
        }
    }
}

/// `example.com/v1, Kind=Box`
fn shown_kind(object: &Object) -> String {
    kind_text(&object.text_at("apiVersion"), &object.text_at("kind"))
}

/// A version and a kind as Go shows a `GroupVersionKind`.
fn kind_text(api_version: &str, kind: &str) -> String {
    let separator = if api_version.contains('/') { "" } else { "/" };
    format!("{separator}{api_version}, Kind={kind}")
}

/// Checks that a converted object is one, with Go's messages.
fn check_object(object: &Value) -> Result<(), String> {
    match object {
        Value::Null => Err("unexpected end of JSON input".to_owned()),
        Value::Object(fields) => {
            let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
            if kind.is_empty() {
                return Err(format!("Object 'Kind' is missing in '{object}'"));
            }
            Ok(())
        }
        other => Err(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            golang::json_type(other)
        )),
    }
}

/// Checks that an object was converted to this API version, and is still of the same kind.
fn check_type(object: &Object, converted: &Value, wanted: &str) -> Result<(), String> {
    let text = |key: &str| converted[key].as_str().unwrap_or_default();
    if text("apiVersion") != wanted {
        return Err(format!(
            "invalid groupVersion (expected {wanted}, received {})",
            text("apiVersion")
        ));
    }
    let kind = object.text_at("kind");
    if text("kind") != kind {
        return Err(format!(
            "invalid kind (expected {kind}, received {})",
            text("kind")
        ));
    }
    Ok(())
}

/// The converted object with the metadata that it may not change.
fn merge(object: &Object, mut converted: Value) -> Result<Object, String> {
    let mut metadata = match converted.get_mut("metadata").map(Value::take) {
        Some(Value::Object(metadata)) => metadata,
        _ => Map::new(),
    };
    for (key, shown) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let after = metadata.get(key).and_then(Value::as_str).unwrap_or_default();
        let before = object.meta(key);
        if before != after {
            return Err(format!(
                "returned invalid object: must have the same {shown}: {before} != {after}"
            ));
        }
    }
    let mut kept = object.metadata().clone();
    for key in ["labels", "annotations"] {
        kept.remove(key);
        let Some(values) = metadata.remove(key).filter(|values| !values.is_null()) else {
            continue;
        };
        let Some(texts) = values.as_object() else {
            return Err(format!(
                "returned invalid metadata: invalid metadata.{key} of type {} in converted object",
                golang::type_of(&values)
            ));
        };
        if let Some((name, value)) = texts.iter().find(|(_, value)| !value.is_string()) {
            return Err(format!(
                "returned invalid metadata: metadata.{key}[{name}] must be a string, but is {} in converted object",
                golang::type_of(value)
            ));
        }
        kept.insert(key.to_owned(), values);
    }
    converted["metadata"] = Value::Object(kept);
    let mut merged = Object::new(converted).ok_or("returned invalid metadata")?;
    let errors: Vec<_> = validation::check_custom_metadata(&merged)
        .iter()
        .filter(|error| matches!(&*error.field, "metadata.labels" | "metadata.annotations"))
        // A real server names the field of annotations so here.
        .map(|error| {
            format!(
                "{}: {}",
                error.field.replace("annotations", "annotation"),
                error.message()
            )
        })
        .collect();
    if !errors.is_empty() {
        let why = aggregate_messages(&errors);
        return Err(format!("returned invalid metadata: {why}"));
    }
    merged.set_managed_fields(object.managed_fields().clone());
    Ok(merged)
}
