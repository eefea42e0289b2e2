//! Runs a scenario on a server and returns the outcome of each step.
//!
//! An outcome is a JSON object: `step`, `request`, `status`, `headers`, and `body`, `picked`, `yaml`, `text`, `base64`,
//! `events`, `received` or `distinct`. A `problem` in it means that the server did not reach the state that the scenario
//! needs; such outcomes are never stored.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::Response;
use kube::{Client, client::Body};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::{
    kubectl::Kubectl,
    pick,
    response::{RESPONSE_TIMEOUT, fields, headers, read_response},
    scenario::{Action, Payload, Request, ResponseCondition, Scenario, Step},
    stream::{Stream, WAIT_TIMEOUT},
    target::Clients,
    template::Variables,
    webhook::WebhookServer,
};

/// Pause between two attempts of an `until`.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Runs all steps. The outcomes are not normalised yet; see [`crate::normalise`].
///
/// An error means that the scenario is invalid or the server is gone, not that it responded differently than expected.
pub async fn run(scenario: &Scenario, clients: &Clients) -> Result<Vec<Value>> {
    let mut run = Run {
        clients,
        kubectl: None,
        webhooks: None,
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
    if !scenario.webhooks.is_empty() {
        let administrator = run.administrator().await?;
        let scripts = &scenario.webhooks;
        let server = WebhookServer::start(scripts, &scenario.name, administrator, &mut run.variables).await?;
        run.webhooks = Some(server);
    }

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
    Ok(match run.webhooks {
        Some(server) => outcomes.into_iter().map(|outcome| server.hide(outcome)).collect(),
        None => outcomes,
    })
}

/// Returns the API group of a scenario's own CRDs.
pub fn group(scenario: &str) -> String {
    format!("{scenario}.example.com")
}

struct Run<'a> {
    clients: &'a Clients,
    /// Started by the first kubectl step.
    kubectl: Option<Kubectl>,
    /// Runs if the scenario declares webhooks.
    webhooks: Option<WebhookServer>,
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

    /// Returns the user name of the administrator, which differs between servers.
    async fn administrator(&self) -> Result<String> {
        let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
            .header("content-type", "application/json")
            .body(Body::from(b"{}".to_vec()))?;
        let response = self.send(&self.clients.admin, request).await?;
        let review = read_response(response, false).await?;
        let name = review
            .get("body")
            .and_then(|body| body.pointer("/status/userInfo/username"));
        Ok(name
            .and_then(Value::as_str)
            .context("the administrator has no name")?
            .to_owned())
    }

    fn webhooks(&self) -> Result<&WebhookServer> {
        self.webhooks
            .as_ref()
            .context("the scenario declares no `webhooks`")
    }

    fn received(&self, webhook: &str, pick: &[String], distinct: bool) -> Result<Map<String, Value>> {
        let webhook = self.variables.fill(webhook)?;
        let mut received = self.webhooks()?.take_received(&webhook)?;
        if distinct {
            for request in &mut received {
                if let Some(uid) = request.pointer_mut("/body/request/uid") {
                    *uid = "UID".into();
                }
            }
        }
        if !pick.is_empty() {
            received = received.iter().map(|request| pick::pick(request, pick)).collect();
        }
        let key = if distinct { "distinct" } else { "received" };
        Ok(fields(json!({"webhook": webhook, key: received})))
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
            Action::SetWebhooks(scripts) => {
                self.webhooks()?.set(scripts, &self.variables);
                Ok(Map::new())
            }
            Action::Received {
                webhook,
                pick,
                distinct,
            } => self.received(webhook, pick, *distinct),
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
        let built = self.build_request(request)?;
        self.refresh_watch_cache(built.method(), built.uri()).await?;
        let response = self.send(self.client_for(request), built).await?;
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
        if condition.called.is_some() {
            self.webhooks()?.forget_received();
        }
        loop {
            let mut outcome = self.exchange(request).await?;
            let called = match &condition.called {
                Some(webhook) => !self.webhooks()?.take_received(webhook)?.is_empty(),
                None => true,
            };
            if called && condition.is_met_by(&outcome) {
                if condition.called.is_some() {
                    self.webhooks()?.forget_received();
                }
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

    /// Waits until the server's watch cache contains all earlier writes.
    ///
    /// A real server tries an update or a deletion with the object in its watch cache first. If that is stale, it tries again,
    /// and calls webhooks again, so the number of calls would be unpredictable. A list waits for the cache. Scenarios with
    /// conversion webhooks do without, because the list may itself call the webhook.
    async fn refresh_watch_cache(&self, method: &http::Method, uri: &http::Uri) -> Result<()> {
        let writes = [http::Method::PUT, http::Method::PATCH, http::Method::DELETE].contains(method);
        let needed = self
            .webhooks
            .as_ref()
            .is_some_and(|webhooks| !webhooks.converts());
        if !writes || !needed {
            return Ok(());
        }
        let request = http::Request::get(collection(uri.path())).body(Body::empty())?;
        let response = self.send(&self.clients.admin, request).await?;
        read_response(response, false).await?;
        Ok(())
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

/// Returns the path of the collection to which a path of an object, of its subresource or of the collection belongs.
fn collection(path: &str) -> String {
    let parts: Vec<_> = path.split('/').skip(1).collect();
    // `/api/v1` or `/apis/GROUP/VERSION`, then `/namespaces/NAME`, except for namespaces themselves.
    let root = if parts.first() == Some(&"api") { 2 } else { 3 };
    let namespaced = parts.get(root) == Some(&"namespaces")
        && parts.len() > root + 2
        && !["status", "finalize"].contains(&parts[root + 2]);
    let end = root + if namespaced { 3 } else { 1 };
    format!("/{}", parts[..end.min(parts.len())].join("/"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collection_of_a_path_contains_no_name_and_no_subresource() {
        for (path, expected) in [
            ("/api/v1/namespaces/n/pods/p/status", "/api/v1/namespaces/n/pods"),
            ("/api/v1/namespaces/n/pods", "/api/v1/namespaces/n/pods"),
            ("/api/v1/namespaces/n", "/api/v1/namespaces"),
            ("/api/v1/namespaces/n/status", "/api/v1/namespaces"),
            ("/api/v1/nodes/n/status", "/api/v1/nodes"),
            ("/apis/g/v1/namespaces/n/foos/f", "/apis/g/v1/namespaces/n/foos"),
            ("/apis/g/v1/foos/f", "/apis/g/v1/foos"),
        ] {
            assert_eq!(collection(path), expected, "{path}");
        }
    }
}
