//! How an endpoint of the webhook server responds, as data of a scenario.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::template::Variables;

/// One behaviour for each request, the last one also for all further requests. In a file, a single behaviour needs no
/// list.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub struct Script(Vec<Behaviour>);

/// Response to one request. Placeholders in its texts are replaced; `{{uid}}` is the UID of the review.
///
/// With `respond` or `patch` it is an `AdmissionReview`, with `convert` a `ConversionReview`, otherwise `status`, `type`,
/// `location` and `body` as they are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Behaviour {
    /// Fields of the review's response. Default: the review's UID and `allowed: true`.
    respond: Option<Map<String, Value>>,
    /// JSON patch that the response contains; with `convert`, one that is applied to the response.
    patch: Option<Value>,
    convert: Option<Conversion>,
    /// Status code of the HTTP response.
    #[serde(default = "ok")]
    status: u16,
    /// Content type of the HTTP response.
    #[serde(default = "json_type", rename = "type")]
    content_type: String,
    /// The header `Location`, of a redirect.
    location: Option<String>,
    /// Text is sent unchanged, everything else as JSON. Default: an empty body.
    body: Option<Value>,
    /// Whether to send no response at all.
    #[serde(default)]
    hang: bool,
    /// Milliseconds before the response.
    #[serde(default)]
    delay: u64,
}

/// Converts objects to the desired version: sets `apiVersion` and moves fields.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Conversion {
    /// JSON pointers of one field, by version.
    #[serde(default, rename = "move")]
    moves: Vec<BTreeMap<String, String>>,
}

/// What the server does with one request.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    /// Responds after some milliseconds.
    Response {
        delay: u64,
        status: u16,
        content_type: String,
        location: Option<String>,
        body: Bytes,
    },
    /// Never responds.
    Hang,
}

fn ok() -> u16 {
    200
}

fn json_type() -> String {
    "application/json".to_owned()
}

impl TryFrom<Value> for Script {
    type Error = anyhow::Error;

    fn try_from(value: Value) -> Result<Self> {
        let behaviours = match value {
            Value::Array(items) => items,
            single => vec![single],
        };
        ensure!(!behaviours.is_empty(), "a webhook needs at least one behaviour");
        let behaviours = behaviours.into_iter().map(|item| {
            let behaviour: Behaviour =
                serde_json::from_value(item.clone()).with_context(|| format!("invalid behaviour {item}"))?;
            behaviour
                .check()
                .with_context(|| format!("invalid behaviour {item}"))?;
            Ok(behaviour)
        });
        Ok(Self(behaviours.collect::<Result<_>>()?))
    }
}

impl Script {
    /// Whether it responds to conversion reviews.
    pub(super) fn converts(&self) -> bool {
        self.0.iter().any(|behaviour| behaviour.convert.is_some())
    }

    /// Returns the answer to the next request, whose body is `review`.
    pub(super) fn next(&mut self, review: &Value, variables: &Variables) -> Result<Answer> {
        if self.0.len() > 1 {
            let behaviour = self.0.remove(0);
            return behaviour.answer(review, variables);
        }
        self.0[0].answer(review, variables)
    }
}

impl Behaviour {
    fn check(&self) -> Result<()> {
        let review = self.respond.is_some() || self.patch.is_some() || self.convert.is_some();
        let plain = self.status != ok()
            || self.content_type != json_type()
            || self.location.is_some()
            || self.body.is_some();
        ensure!(
            !(review && plain),
            "`respond`, `patch` and `convert` exclude `status`, `type`, `location` and `body`"
        );
        ensure!(
            !self.hang || !review && !plain && self.delay == 0,
            "`hang` excludes everything else"
        );
        Ok(())
    }

    fn answer(&self, review: &Value, variables: &Variables) -> Result<Answer> {
        if self.hang {
            return Ok(Answer::Hang);
        }
        let uid = review["request"]["uid"].clone();
        let mut variables = variables.clone();
        variables.set("uid", uid.as_str().unwrap_or_default());
        let respond = variables.fill_json(&json!(self.respond.clone().unwrap_or_default()))?;
        let patch = self
            .patch
            .as_ref()
            .map(|patch| variables.fill_json(patch))
            .transpose()?;
        let response = match (&self.convert, self.respond.is_some() || self.patch.is_some()) {
            (Some(conversion), _) => {
                let converted = conversion.convert(&review["request"])?;
                let mut response = json!({
                    "uid": uid,
                    "convertedObjects": converted,
                    "result": {"status": "Success"},
                });
                merge(&mut response, respond);
                if let Some(patch) = patch {
                    let patch: json_patch::Patch = serde_json::from_value(patch)?;
                    json_patch::patch(&mut response, &patch)?;
                }
                Some(response)
            }
            (None, true) => {
                let mut response = json!({"uid": uid, "allowed": true});
                if let Some(patch) = patch {
                    response["patchType"] = "JSONPatch".into();
                    response["patch"] = STANDARD.encode(patch.to_string()).into();
                }
                merge(&mut response, respond);
                Some(response)
            }
            (None, false) => None,
        };
        let body = match (response, &self.body) {
            (Some(response), _) => Bytes::from(
                json!({
                    "apiVersion": review["apiVersion"],
                    "kind": review["kind"],
                    "response": response,
                })
                .to_string(),
            ),
            (None, Some(Value::String(text))) => variables.fill(text)?.into(),
            (None, Some(body)) => variables.fill_json(body)?.to_string().into(),
            (None, None) => Bytes::new(),
        };
        Ok(Answer::Response {
            delay: self.delay,
            status: self.status,
            content_type: self.content_type.clone(),
            location: self
                .location
                .as_ref()
                .map(|location| variables.fill(location))
                .transpose()?,
            body,
        })
    }
}

impl Conversion {
    fn convert(&self, request: &Value) -> Result<Vec<Value>> {
        let desired = request["desiredAPIVersion"]
            .as_str()
            .context("no desiredAPIVersion")?;
        let objects = request["objects"].as_array().context("no objects")?;
        let converted = objects.iter().map(|object| {
            let mut object = object.clone();
            let source = object["apiVersion"].as_str().unwrap_or_default().to_owned();
            object["apiVersion"] = desired.into();
            for pointers in &self.moves {
                let pointer = |version: &str| pointers.get(version.rsplit('/').next().unwrap_or_default());
                if let (Some(from), Some(to)) = (pointer(&source), pointer(desired))
                    && let Some(value) = take(&mut object, from)
                {
                    put(&mut object, to, value);
                }
            }
            object
        });
        Ok(converted.collect())
    }
}

/// Overwrites the fields of `target` with those of `fields`.
fn merge(target: &mut Value, fields: Value) {
    if let (Value::Object(target), Value::Object(fields)) = (target, fields) {
        target.extend(fields);
    }
}

/// Removes the value at a pointer.
fn take(object: &mut Value, pointer: &str) -> Option<Value> {
    let (parent, key) = pointer.rsplit_once('/')?;
    object.pointer_mut(parent)?.as_object_mut()?.remove(key)
}

/// Sets the value at a pointer; creates the objects that contain it.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for key in pointer.split('/').skip(1) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[key];
    }
    *place = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(value: Value) -> Script {
        Script::try_from(value).expect("a script")
    }

    fn body(answer: Answer) -> Value {
        match answer {
            Answer::Response { body, .. } => serde_json::from_slice(&body).expect("JSON"),
            Answer::Hang => panic!("a response"),
        }
    }

    #[test]
    fn admission_response_has_the_uid_and_an_encoded_patch() {
        let review = json!({"apiVersion": "a/v1", "kind": "AdmissionReview", "request": {"uid": "1"}});
        let mut patch =
            script(json!({"patch": [{"op": "remove", "path": "/x"}], "respond": {"warnings": ["w"]}}));
        let answer = patch.next(&review, &Variables::default()).unwrap();
        assert_eq!(
            body(answer),
            json!({"apiVersion": "a/v1", "kind": "AdmissionReview", "response": {
                "uid": "1", "allowed": true, "warnings": ["w"], "patchType": "JSONPatch",
                "patch": STANDARD.encode(r#"[{"op":"remove","path":"/x"}]"#),
            }})
        );
    }

    #[test]
    fn conversion_moves_fields_between_versions_and_applies_the_patch() {
        let object = json!({"apiVersion": "g/v1", "spec": {"a": 1}});
        let review = json!({"request": {"uid": "1", "desiredAPIVersion": "g/v2", "objects": [object]}});
        let mut convert = script(json!({
            "convert": {"move": [{"v1": "/spec/a", "v2": "/spec/deep/b", "v3": "/x"}, {"v1": "/spec/none", "v2": "/y"}]},
            "patch": [{"op": "add", "path": "/convertedObjects/0/kind", "value": "Foo"}],
        }));
        let answer = convert.next(&review, &Variables::default()).unwrap();
        let expected = json!({"apiVersion": "g/v2", "kind": "Foo", "spec": {"deep": {"b": 1}}});
        assert_eq!(body(answer)["response"]["convertedObjects"], json!([expected]));
    }

    #[test]
    fn last_behaviour_of_a_list_is_repeated() {
        let mut list = script(json!([{"body": {"first": "{{uid}}"}}, {"body": {"then": true}}]));
        let review = json!({"request": {"uid": "1"}});
        let mut next = || body(list.next(&review, &Variables::default()).unwrap());
        assert_eq!(next(), json!({"first": "1"}));
        assert_eq!(next(), json!({"then": true}));
        assert_eq!(next(), json!({"then": true}));
    }

    #[test]
    fn contradictory_behaviours_are_rejected() {
        for invalid in [
            json!([]),
            json!({"respond": {}, "status": 500}),
            json!({"hang": true, "delay": 1}),
            json!({"unknown": 1}),
        ] {
            assert!(Script::try_from(invalid.clone()).is_err(), "{invalid}");
        }
    }
}
