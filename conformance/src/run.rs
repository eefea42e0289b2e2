//! Runs a scenario on a server and returns the outcome of each step.
//!
//! An outcome is a JSON object: `step`, `request`, `status`, `headers`, and `body`, `picked`, `yaml`, `text`, `base64`
//! or `events`. A `problem` in it means that the server did not reach the state that the scenario needs; such outcomes
//! are never stored.

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
    key_order,
    kubectl::Kubectl,
    pick,
    scenario::{Action, Payload, Request, ResponseCondition, Scenario, Step},
    stream::{Stream, WAIT_TIMEOUT},
    target::Clients,
    template::Variables,
};

/// Limit for one response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);

/// Pause between two attempts of an `until`.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Response headers that are recorded unchanged.
const HEADERS: [&str; 6] = [
    "content-type",
    "content-encoding",
    "retry-after",
    "location",
    "allow",
    "vary",
];

/// The usual `Cache-Control`; only other values are recorded.
const CACHE_CONTROL: &str = "no-cache, private";

/// The length of a UUID.
const UUID_LENGTH: usize = 36;

/// Runs all steps. The outcomes are not normalised yet; see [`crate::normalise`].
///
/// An error means that the scenario is invalid or the server is gone, not that it responded differently than expected.
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
    // A stream's events belong to the step that opened it.
    for stream in run.streams.into_values() {
        let state = stream.stream.state();
        if let Some(opened) = outcomes.iter_mut().find(|outcome| outcome["step"] == stream.step) {
            opened["events"] = Value::Array(state.events.to_vec());
            opened["closed"] = state.closed.into();
        }
    }
    Ok(outcomes)
}

/// Returns the API group of a scenario's own CRDs.
pub fn group(scenario: &str) -> String {
    format!("{scenario}.example.com")
}

struct Run<'a> {
    clients: &'a Clients,
    /// Started by the first kubectl step.
    kubectl: Option<Kubectl>,
    variables: Variables,
    streams: BTreeMap<String, OpenStream>,
    namespace: &'a str,
}

struct OpenStream {
    step: String,
    stream: Stream,
}

impl Run<'_> {
    /// Creates the namespace and its default ServiceAccount, which pods need and a controller would create.
    async fn create_namespace(&self) -> Result<()> {
        let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", self.namespace);
        for (path, name) in [("/api/v1/namespaces", self.namespace), (&accounts, "default")] {
            let body = json!({"metadata": {"name": name}}).to_string();
            let request = http::Request::post(path)
                .header("content-type", "application/json")
                .body(Body::from(body.into_bytes()))?;
            let response = self.send(&self.clients.admin, request).await?;
            // If controllers run, the ServiceAccount may exist already.
            if response.status() != 201 && (name != "default" || response.status() != 409) {
                bail!("cannot create {name} at {path}: {}", response.status());
            }
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<Map<String, Value>> {
        match &step.action {
            Action::Request(request) => {
                let outcome = self.exchange(request).await?;
                self.pick(request, outcome)
            }
            Action::Until(request, condition) => {
                let outcome = self.until(request, condition).await?;
                self.pick(request, outcome)
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
                    Err(state) => {
                        fields(json!({"problem": format!("timed out waiting for stream {stream}: {state}")}))
                    }
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
        let response = self
            .send(self.client_for(request), self.build_request(request)?)
            .await?;
        let mut outcome = read_response(response, request.ordered).await?;
        if request.method == "HEAD" {
            // HTTP sends no body for HEAD, but a server without a socket may return one.
            outcome.retain(|key, _| matches!(key.as_str(), "status" | "headers"));
        }
        for (name, pointer) in &request.capture {
            let captured = match outcome.get("body").and_then(|body| body.pointer(pointer)) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                // Continue, so that one missing value does not hide later differences.
                None => {
                    let problem = format!("cannot capture {pointer}: not found in the response");
                    outcome.insert("problem".to_owned(), problem.into());
                    format!("no-{name}")
                }
            };
            self.variables.set(name, captured);
        }
        outcome.insert("request".to_owned(), request_line(request).into());
        Ok(outcome)
    }

    /// Reduces an outcome to the parts that the request picks.
    fn pick(&self, request: &Request, mut outcome: Map<String, Value>) -> Result<Map<String, Value>> {
        if !request.pick.is_empty()
            && let Some(body) = outcome.remove("body")
        {
            let pointers: Vec<_> = request
                .pick
                .iter()
                .map(|pointer| self.variables.fill(pointer))
                .collect::<Result<_>>()?;
            outcome.insert("picked".to_owned(), pick::pick(&body, &pointers));
        }
        Ok(outcome)
    }

    async fn until(
        &mut self,
        request: &Request,
        condition: &ResponseCondition,
    ) -> Result<Map<String, Value>> {
        let end = Instant::now() + WAIT_TIMEOUT;
        loop {
            let mut outcome = self.exchange(request).await?;
            if condition.is_met_by(&outcome) {
                return Ok(outcome);
            }
            if Instant::now() > end {
                outcome.insert(
                    "problem".to_owned(),
                    format!("timed out waiting for {condition:?}").into(),
                );
                return Ok(outcome);
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    async fn watch(
        &mut self,
        step: &str,
        name: &str,
        request: &Request,
        bookmarks: bool,
    ) -> Result<Map<String, Value>> {
        let response = self
            .send(self.client_for(request), self.build_request(request)?)
            .await?;
        if response.status() != 200 {
            let mut outcome = read_response(response, false).await?;
            outcome.insert("request".to_owned(), request_line(request).into());
            return Ok(outcome);
        }
        let outcome = json!({
            "request": request_line(request),
            "status": 200,
            "headers": headers(response.headers()),
        });
        let stream = Stream::read(response.into_body(), bookmarks);
        let step = step.to_owned();
        self.streams.insert(name.to_owned(), OpenStream { step, stream });
        Ok(fields(outcome))
    }

    fn build_request(&self, request: &Request) -> Result<http::Request<Body>> {
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

    fn client_for(&self, request: &Request) -> &Client {
        if request.anonymous {
            &self.clients.anonymous
        } else {
            &self.clients.admin
        }
    }

    async fn send(&self, client: &Client, request: http::Request<Body>) -> Result<Response<Body>> {
        let response = tokio::time::timeout(RESPONSE_TIMEOUT, client.send(request));
        Ok(response.await.context("no response in time")??)
    }
}

impl ResponseCondition {
    fn is_met_by(&self, outcome: &Map<String, Value>) -> bool {
        let found = |pointer: &String| outcome.get("body").and_then(|body| body.pointer(pointer));
        let text = outcome.get("body").map(Value::to_string).unwrap_or_default();
        outcome["status"] == self.status
            && self.contains.iter().all(|part| text.contains(part))
            && self
                .pointer
                .as_ref()
                .is_none_or(|pointer| found(pointer) == Some(&self.equals))
    }
}

/// Returns the request line as written in the scenario, for readers of a recording.
fn request_line(request: &Request) -> String {
    let query: Vec<_> = request
        .query
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{} {}{mark}{}", request.method, request.path, query.join("&"))
}

async fn read_response(response: Response<Body>, ordered: bool) -> Result<Map<String, Value>> {
    let (parts, body) = response.into_parts();
    let whole = tokio::time::timeout(RESPONSE_TIMEOUT, body.collect()).await;
    let bytes = whole
        .context("the response body does not end: a watch needs `watch: NAME` in its step")?
        .context("the response body was cut off")?
        .to_bytes();
    let mut outcome = recorded_response(parts.status.as_u16(), &parts.headers, &bytes);
    if ordered && let Some(body) = outcome.get_mut("body") {
        *body = key_order::parse(&bytes).context("not JSON, or compressed")?;
    }
    Ok(outcome)
}

/// Converts a response to its recorded form.
pub(crate) fn recorded_response(status: u16, all: &HeaderMap, bytes: &[u8]) -> Map<String, Value> {
    let mut outcome = fields(json!({"status": status, "headers": headers(all)}));
    let decompressed = match all.get("content-encoding").map(http::HeaderValue::as_bytes) {
        Some(b"gzip") => decompress(bytes),
        _ => None,
    };
    let bytes = decompressed.as_deref().unwrap_or(bytes);
    let content_type = all
        .get("content-type")
        .and_then(|content_type| content_type.to_str().ok())
        .unwrap_or_default();
    if let Some((key, value)) = decode_body(content_type, bytes) {
        outcome.insert(key.to_owned(), value);
    }
    outcome
}

/// Decompresses gzip; `None` if the bytes are not compressed.
fn decompress(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut decompressed = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut decompressed).ok()?;
    Some(decompressed)
}

/// Decodes a body. Returns the key under which it is recorded, and its value.
pub(crate) fn decode_body(content_type: &str, bytes: &[u8]) -> Option<(&'static str, Value)> {
    if bytes.is_empty() {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok();
    let json = || serde_json::from_slice(bytes).ok();
    let yaml = || serde_yaml_ng::from_slice(bytes).ok();
    let parsed = match content_type {
        content_type if content_type.contains("protobuf") => None,
        content_type if content_type.contains("yaml") => yaml().map(|value| ("yaml", value)),
        content_type if content_type.contains("json") => json().map(|value| ("body", value)),
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
    // An audit id that the client chose comes back; every other one is random.
    let audit_id = text("audit-id").join(", ");
    if audit_id.len() < UUID_LENGTH {
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
