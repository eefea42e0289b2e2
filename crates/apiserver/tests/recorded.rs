//! Replays requests recorded from a real kube-apiserver 1.36.4 (`hack/recordings/record`) against the embedded server.
//!
//! Responses are compared in full: absent, null and empty differ. Values that differ from run to run are masked on both
//! sides, and so are the objects that some patch errors quote.

use crate::client;

use std::path::Path;

use regex::Regex;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_apiserver::Server;

use client::{read, send};

#[derive(Deserialize)]
struct Case {
    name: String,
    collection: String,
    #[serde(default)]
    query: String,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    #[serde(flatten)]
    action: Action,
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    name: String,
    /// The subresource to put; empty for the object itself.
    #[serde(default)]
    part: String,
    code: u16,
    answer: Option<Value>,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    /// A body: JSON, or a string with invalid JSON.
    Post(Value),
    /// Edits to the last response.
    Put(Vec<(String, Value)>),
    Patch(Value),
    /// A body that is put to a name that does not exist.
    Replace(Value),
}

struct Response {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

#[tokio::test]
async fn request_bodies_parse_as_on_a_real_server() {
    replay(include_str!("recorded/bodies.json")).await;
}

#[tokio::test]
async fn created_objects_get_the_defaults_of_a_real_server() {
    replay(include_str!("recorded/objects.json")).await;
}

#[tokio::test]
async fn patches_have_the_same_result_as_on_a_real_server() {
    replay(include_str!("recorded/patches.json")).await;
}

#[tokio::test]
async fn invalid_creates_get_the_errors_of_a_real_server() {
    replay(include_str!("recorded/refusals.json")).await;
}

#[tokio::test]
async fn updates_are_accepted_or_rejected_as_on_a_real_server() {
    replay(include_str!("recorded/updates.json")).await;
}

#[tokio::test]
async fn warnings_are_those_of_a_real_server() {
    replay(include_str!("recorded/warnings.json")).await;
}

#[tokio::test]
async fn validation_rules_are_those_of_a_real_server() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/rules");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|file| file.expect("a file").path())
        .collect();
    files.sort();
    assert!(files.len() > 20, "{files:?}");
    let mut failures = Vec::new();
    for file in files {
        failures.extend(differences(&std::fs::read_to_string(file).expect("a file")).await);
    }
    report(&failures);
}

async fn replay(recorded: &str) {
    report(&differences(recorded).await);
}

fn report(failures: &[String]) {
    let count = failures.len();
    assert!(
        failures.is_empty(),
        "{count} cases differ:\n{}",
        failures.join("\n")
    );
}

/// Returns the cases in which the embedded server's response differs from the real one's.
async fn differences(recorded: &str) -> Vec<String> {
    let cases: Vec<Case> = serde_json::from_str(recorded).expect("cases");
    let masks = Masks::new();
    let mut failures = Vec::new();
    for case in &cases {
        let server = Server::new();
        let account = json!({"metadata": {"name": "default"}}).to_string();
        call(
            &server,
            "POST",
            "/api/v1/namespaces/default/serviceaccounts",
            "application/json",
            account,
        )
        .await;
        let (mut item, mut last) = (String::new(), Value::Null);
        for (index, step) in case.steps.iter().enumerate() {
            let response = perform(&server, case, step, &mut item, &last).await;
            let wanted = (step.code, step.warnings.clone(), step.answer.clone());
            let shown = step.answer.is_some().then(|| masks.masked(response.body.clone()));
            let got = (response.code, response.warnings, shown);
            if wanted != got {
                let shown = |(code, warnings, body): &(u16, Vec<String>, Option<Value>)| {
                    let body = body.clone().unwrap_or_default();
                    // If the messages differ, show only those instead of the whole Status.
                    let same = wanted.2.as_ref().map(|body| &body["message"])
                        == got.2.as_ref().map(|body| &body["message"]);
                    let body = match &body["message"] {
                        Value::String(message) if !same => message.clone(),
                        _ => body.to_string(),
                    };
                    format!("{code} {warnings:?} {body}")
                };
                failures.push(format!(
                    "{} (step {index})\n  real: {}\n  ours: {}",
                    case.name,
                    shown(&wanted),
                    shown(&got)
                ));
            }
            last = response.body;
        }
    }
    failures
}

async fn perform(server: &Server, case: &Case, step: &Step, item: &mut String, last: &Value) -> Response {
    let text = |body: &Value| body.as_str().map_or_else(|| body.to_string(), str::to_owned);
    let (method, path, content, body) = match &step.action {
        Action::Post(body) => {
            let name = body["metadata"]["name"].as_str().unwrap_or_default();
            *item = format!("{}/{name}", case.collection);
            (
                "POST",
                format!("{}{}", case.collection, case.query),
                "application/json",
                text(body),
            )
        }
        Action::Put(edits) => {
            let mut body = last.clone();
            for (path, value) in edits {
                edit(&mut body, path, value);
            }
            let place = match &*step.part {
                "" => item.clone(),
                part => format!("{item}/{part}"),
            };
            ("PUT", place, "application/json", body.to_string())
        }
        Action::Replace(body) => {
            *item = format!("{}/{}", case.collection, step.name);
            ("PUT", item.clone(), "application/json", text(body))
        }
        Action::Patch(body) => {
            let content = match &*step.kind {
                "strategic" => "application/strategic-merge-patch+json",
                "merge" => "application/merge-patch+json",
                "json" => "application/json-patch+json",
                other => other,
            };
            ("PATCH", format!("{item}{}", case.query), content, text(body))
        }
    };
    call(server, method, &path, content, body).await
}

async fn call(server: &Server, method: &str, path: &str, content: &str, body: String) -> Response {
    let response = send(server, method, path, Some(content), body).await;
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings
        .map(|value| value.to_str().expect("text").to_owned())
        .collect();
    let (code, body) = read(response).await;
    Response { code, body, warnings }
}

/// Sets the value at a path such as `spec/containers/0/image`; `__absent__` removes it.
fn edit(body: &mut Value, path: &str, value: &Value) {
    let (parents, last) = path.rsplit_once('/').unwrap_or(("", path));
    let mut place = body;
    for part in parents.split('/').filter(|part| !part.is_empty()) {
        place = match place {
            Value::Array(items) => &mut items[part.parse::<usize>().expect("an index")],
            other => &mut other[part],
        };
        if place.is_null() {
            *place = json!({});
        }
    }
    match place {
        Value::Object(fields) if value == "__absent__" => drop(fields.remove(last)),
        Value::Array(items) => items[last.parse::<usize>().expect("an index")] = value.clone(),
        other => other[last] = value.clone(),
    }
}

/// Replaces values that differ from run to run.
struct Masks {
    texts: Vec<(Regex, &'static str)>,
    quoted: Regex,
}

impl Masks {
    fn new() -> Self {
        let regex = |pattern| Regex::new(pattern).expect("a pattern");
        Self {
            texts: vec![
                (
                    regex("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
                    "UID",
                ),
                // The server does not allocate the lower addresses; cases request them explicitly.
                (
                    regex(r#""10\.0\.0\.(1[7-9]|[2-9]\d|1\d\d|2[0-4]\d|25[0-4])""#),
                    "\"ADDRESS\"",
                ),
                (regex(r#"odePort":3\d{4}"#), "odePort\":3"),
                (regex("kube-api-access-[a-z0-9]{5}"), "kube-api-access-SUFFIX"),
                (regex(r#""20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ""#), "\"TIME\""),
                (regex("A_[a-z0-9]{5}"), "A_SUFFIX"),
            ],
            quoted: regex(r#"Invalid value: "\{.*\}""#),
        }
    }

    fn masked(&self, mut value: Value) -> Value {
        self.walk(&mut value);
        let mut text = value.to_string();
        for (pattern, mask) in &self.texts {
            text = pattern.replace_all(&text, *mask).into_owned();
        }
        serde_json::from_str(&text).expect("still JSON")
    }

    fn walk(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
                    for key in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
                        metadata.remove(key);
                    }
                }
                if let Some(Value::String(message)) = fields.get_mut("message") {
                    *message = self
                        .quoted
                        .replace_all(message, "Invalid value: \"OBJECT\"")
                        .into_owned();
                }
                fields.values_mut().for_each(|inner| self.walk(inner));
            }
            Value::Array(items) => items.iter_mut().for_each(|inner| self.walk(inner)),
            _ => {}
        }
    }
}
