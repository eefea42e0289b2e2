//! Carries a scenario out on a server and says what happened, step by step.
//!
//! An outcome is a JSON object: `step`, `request`, `status`, `headers`, and `body`, `picked`, `yaml`, `text`, `base64` or
//! `events`.
//! A `problem` in it means that the server did not get as far as the scenario needs; nothing with one is ever stored.

use std::{collections::BTreeMap, io::Read, time::Duration};

use anyhow::{Context, Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::{
    kubectl::Kubectl,
    pick,
    scenario::{Action, Payload, Request, Scenario, Step, Wish},
    stream::{PATIENCE, Stream},
    target::Clients,
    template::Variables,
};

/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(15);

/// The pause between two tries of an `until`.
const PAUSE: Duration = Duration::from_millis(50);

/// The headers of an answer that are recorded as they are.
const HEADERS: [&str; 6] = [
    "content-type",
    "content-encoding",
    "retry-after",
    "location",
    "allow",
    "vary",
];

/// The `Cache-Control` that nearly every answer has; only another one is recorded.
const CACHE_CONTROL: &str = "no-cache, private";

/// The length of a UUID.
const UUID: usize = 36;

/// Carries out all steps; the outcomes are as the server gave them, see [`crate::normalise`].
///
/// An error means that the scenario is wrong or the server is gone, not that it answered otherwise than expected.
pub async fn run(scenario: &Scenario, clients: &Clients) -> Result<Vec<Value>> {
    let mut run = Run {
        clients,
        kubectl: None,
        variables: Variables::default(),
        streams: BTreeMap::new(),
        namespace: &scenario.name,
    };
    for (name, value) in &scenario.variables {
        run.variables.set(name, value);
    }
    run.variables.set("ns", &scenario.name);
    run.variables.set("group", group(&scenario.name));
    run.create_namespace().await?;

    let mut outcomes = Vec::new();
    for step in &scenario.steps {
        run.variables
            .set("each", step.each.as_deref().unwrap_or_default());
        let mut outcome = run
            .step(step)
            .await
            .with_context(|| format!("{}: step `{}`", scenario.name, step.name))?;
        if !outcome.is_empty() {
            outcome.insert("step".to_owned(), step.name.clone().into());
            outcomes.push(Value::Object(outcome));
        }
    }
    // A stream's events stand with the step that opened it.
    for stream in run.streams.into_values() {
        let seen = stream.stream.seen();
        if let Some(opened) = outcomes.iter_mut().find(|outcome| outcome["step"] == stream.step) {
            opened["events"] = Value::Array(seen.events.to_vec());
            opened["closed"] = seen.closed.into();
        }
    }
    Ok(outcomes)
}

/// The API group of a scenario's own definitions.
pub fn group(scenario: &str) -> String {
    format!("{scenario}.example.com")
}

struct Run<'a> {
    clients: &'a Clients,
    /// Started with the first command line.
    kubectl: Option<Kubectl>,
    variables: Variables,
    streams: BTreeMap<String, Opened>,
    namespace: &'a str,
}

struct Opened {
    step: String,
    stream: Stream,
}

impl Run<'_> {
    /// The namespace, and the account in it that a controller would make and pods need.
    async fn create_namespace(&self) -> Result<()> {
        let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", self.namespace);
        for (path, name) in [("/api/v1/namespaces", self.namespace), (&accounts, "default")] {
            let body = json!({"metadata": {"name": name}}).to_string();
            let request = http::Request::post(path)
                .header("content-type", "application/json")
                .body(Body::from(body.into_bytes()))?;
            let response = self.send(&self.clients.admin, request).await?;
            // Where controllers are at work, the account may be there already.
            if response.status() != 201 && (name != "default" || response.status() != 409) {
                bail!("{name} was not created at {path}: {}", response.status());
            }
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<Map<String, Value>> {
        match &step.action {
            Action::Request(request) => {
                let outcome = self.exchange(request).await?;
                self.picked(request, outcome)
            }
            Action::Until(request, wish) => {
                let outcome = self.until(request, wish).await?;
                self.picked(request, outcome)
            }
            Action::Watch {
                stream,
                request,
                bookmarks,
            } => self.watch(&step.name, stream, request, *bookmarks).await,
            Action::Wait {
                stream,
                events,
                closed,
            } => {
                let opened = self.streams.get_mut(stream);
                let waited = match opened {
                    Some(opened) => opened.stream.wait(*events, *closed).await,
                    None => Err("the stream was not opened".to_owned()),
                };
                Ok(match waited {
                    Ok(()) => Map::new(),
                    Err(seen) => fields(json!({"problem": format!("{stream} came only to {seen}")})),
                })
            }
            Action::Kubectl {
                arguments,
                stdin,
                lines,
            } => {
                let arguments: Vec<_> = arguments
                    .iter()
                    .map(|argument| self.variables.fill(argument))
                    .collect::<Result<_>>()?;
                let stdin = stdin.as_ref().map(|text| self.variables.fill(text)).transpose()?;
                if self.kubectl.is_none() {
                    let program = windlass_cluster::matching_kubectl()?;
                    self.kubectl =
                        Some(Kubectl::start(&program, self.clients.admin.clone(), self.namespace).await?);
                }
                let kubectl = self.kubectl.as_ref().expect("it was just started");
                Ok(fields(kubectl.run(&arguments, stdin, *lines).await?))
            }
        }
    }

    async fn exchange(&mut self, request: &Request) -> Result<Map<String, Value>> {
        let response = self.send(self.client_of(request), self.built(request)?).await?;
        let mut outcome = answered(response).await?;
        if request.method == "HEAD" {
            // HTTP sends none; a server without a socket need not know that.
            outcome.retain(|key, _| matches!(key.as_str(), "status" | "headers"));
        }
        for (name, pointer) in &request.capture {
            let captured = match outcome.get("body").and_then(|body| body.pointer(pointer)) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                // The run goes on, so that one gap does not hide all that comes after it.
                None => {
                    let problem = format!("there is no {pointer} to capture");
                    outcome.insert("problem".to_owned(), problem.into());
                    format!("no-{name}")
                }
            };
            self.variables.set(name, captured);
        }
        outcome.insert("request".to_owned(), line(request).into());
        Ok(outcome)
    }

    /// What is recorded of an answer.
    fn picked(&self, request: &Request, mut outcome: Map<String, Value>) -> Result<Map<String, Value>> {
        if !request.pick.is_empty()
            && let Some(body) = outcome.remove("body")
        {
            let pointers: Vec<_> = request
                .pick
                .iter()
                .map(|pointer| self.variables.fill(pointer))
                .collect::<Result<_>>()?;
            outcome.insert("picked".to_owned(), pick::picked(&body, &pointers));
        }
        Ok(outcome)
    }

    async fn until(&mut self, request: &Request, wish: &Wish) -> Result<Map<String, Value>> {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut outcome = self.exchange(request).await?;
            if wish.is_met_by(&outcome) {
                return Ok(outcome);
            }
            if Instant::now() > end {
                outcome.insert("problem".to_owned(), format!("it never came to {wish:?}").into());
                return Ok(outcome);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn watch(
        &mut self,
        step: &str,
        name: &str,
        request: &Request,
        bookmarks: bool,
    ) -> Result<Map<String, Value>> {
        let response = self.send(self.client_of(request), self.built(request)?).await?;
        if response.status() != 200 {
            let mut outcome = answered(response).await?;
            outcome.insert("request".to_owned(), line(request).into());
            return Ok(outcome);
        }
        let outcome = json!({
            "request": line(request),
            "status": 200,
            "headers": headers(response.headers()),
        });
        let stream = Stream::read(response.into_body(), bookmarks);
        let step = step.to_owned();
        self.streams.insert(name.to_owned(), Opened { step, stream });
        Ok(fields(outcome))
    }

    fn built(&self, request: &Request) -> Result<http::Request<Body>> {
        let mut uri = self.variables.fill(&request.path)?;
        if !request.query.is_empty() {
            let mut query = form_urlencoded::Serializer::new(String::new());
            for (key, value) in &request.query {
                query.append_pair(key, &self.variables.fill(value)?);
            }
            uri.push(if uri.contains('?') { '&' } else { '?' });
            uri.push_str(&query.finish());
        }
        let mut builder = http::Request::builder()
            .method(&*request.method)
            .uri(uri)
            .header("user-agent", "conformance/1");
        for (name, value) in &request.headers {
            builder = builder.header(name, self.variables.fill(value)?);
        }
        let body = match &request.body {
            Payload::Empty => Bytes::new(),
            Payload::Json(value) => self.variables.fill_json(value)?.to_string().into(),
            Payload::Text(text) => self.variables.fill(text)?.into(),
        };
        if !matches!(request.body, Payload::Empty) && !request.content_type.is_empty() {
            builder = builder.header("content-type", &request.content_type);
        }
        Ok(builder.body(Body::from(body))?)
    }

    fn client_of(&self, request: &Request) -> &Client {
        if request.stranger {
            &self.clients.stranger
        } else {
            &self.clients.admin
        }
    }

    async fn send(&self, client: &Client, request: http::Request<Body>) -> Result<Response<Body>> {
        let answer = tokio::time::timeout(ANSWER, client.send(request));
        Ok(answer.await.context("no answer in time")??)
    }
}

impl Wish {
    fn is_met_by(&self, outcome: &Map<String, Value>) -> bool {
        let found = |pointer: &String| outcome.get("body").and_then(|body| body.pointer(pointer));
        outcome["status"] == self.status
            && self
                .pointer
                .as_ref()
                .is_none_or(|pointer| found(pointer) == Some(&self.equals))
    }
}

/// The request as the scenario writes it, for the reader of a recording.
fn line(request: &Request) -> String {
    let query: Vec<_> = request
        .query
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{} {}{mark}{}", request.method, request.path, query.join("&"))
}

async fn answered(response: Response<Body>) -> Result<Map<String, Value>> {
    let (parts, body) = response.into_parts();
    let whole = tokio::time::timeout(ANSWER, body.collect()).await;
    let bytes = whole
        .context("the answer does not end; is it a watch?")?
        .context("the answer broke off")?
        .to_bytes();
    Ok(answer(parts.status.as_u16(), &parts.headers, &bytes))
}

/// An answer as it is recorded.
pub(crate) fn answer(status: u16, all: &HeaderMap, bytes: &[u8]) -> Map<String, Value> {
    let mut outcome = fields(json!({"status": status, "headers": headers(all)}));
    let unpacked = match all.get("content-encoding").map(http::HeaderValue::as_bytes) {
        Some(b"gzip") => unpacked(bytes),
        _ => None,
    };
    let bytes = unpacked.as_deref().unwrap_or(bytes);
    let kind = all
        .get("content-type")
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    if let Some((key, value)) = content(kind, bytes) {
        outcome.insert(key.to_owned(), value);
    }
    outcome
}

/// What was compressed; none if it was not.
fn unpacked(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut unpacked = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut unpacked).ok()?;
    Some(unpacked)
}

/// What a body says, and under which key it is recorded.
pub(crate) fn content(kind: &str, bytes: &[u8]) -> Option<(&'static str, Value)> {
    if bytes.is_empty() {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok();
    let json = || serde_json::from_slice(bytes).ok();
    let yaml = || serde_yaml_ng::from_slice(bytes).ok();
    let parsed = match kind {
        kind if kind.contains("protobuf") => None,
        kind if kind.contains("yaml") => yaml().map(|value| ("yaml", value)),
        kind if kind.contains("json") => json().map(|value| ("body", value)),
        _ => None,
    };
    let as_text = || Some(("text", text?.into()));
    Some(
        parsed
            .or_else(as_text)
            .unwrap_or_else(|| ("base64", STANDARD.encode(bytes).into())),
    )
}

fn headers(all: &HeaderMap) -> Map<String, Value> {
    let text = |name: &str| -> Vec<String> {
        all.get_all(name)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect()
    };
    let mut kept = Map::new();
    for name in HEADERS {
        let values = text(name);
        if !values.is_empty() {
            kept.insert(name.to_owned(), values.join(", ").into());
        }
    }
    // One that the client has chosen comes back; every other one is made up.
    let audit_id = text("audit-id").join(", ");
    if audit_id.len() < UUID {
        kept.insert("audit-id".to_owned(), audit_id.into());
    }
    let warnings = text("warning");
    if !warnings.is_empty() {
        kept.insert("warning".to_owned(), warnings.into());
    }
    if all.contains_key("etag") {
        kept.insert("etag".to_owned(), "present".into());
    }
    let cache = text("cache-control").join(", ");
    if cache != CACHE_CONTROL {
        kept.insert("cache-control".to_owned(), cache.into());
    }
    kept
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
