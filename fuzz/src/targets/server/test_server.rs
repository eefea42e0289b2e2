//! A target's own server, and its responses.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass_apiserver::{InProcessWebhook, Server};

use super::seeds;
use crate::{
    invariants::{Invariant, Violation},
    mutate,
};

/// How many frames of a response are read, because a watch may last very long.
const MAX_FRAMES: usize = 400;

/// Number of inputs after which the server is replaced: its history is bounded, but its resource versions grow.
const INPUTS_PER_SERVER: u32 = 2_000;

/// What the server says of a panic.
const UNHANDLED: &str = "the request could not be handled";

/// A server on a single-threaded runtime with a paused clock.
pub(super) struct TestServer {
    runtime: tokio::runtime::Runtime,
    pub(super) server: Server,
    setup: Setup,
    inputs: u32,
}

/// What a server has besides what every target's has.
#[derive(Default)]
pub(super) struct Setup {
    /// Webhooks in the process, by host.
    pub(super) webhooks: Vec<(&'static str, InProcessWebhook)>,
    /// Objects, each with its collection, in the order in which they are created.
    pub(super) objects: Vec<(&'static str, Value)>,
}

/// A response, as far as it was read.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) code: u16,
    pub(super) content_type: String,
    pub(super) body: Vec<u8>,
    /// Whether the body was read to its end.
    is_complete: bool,
}

impl TestServer {
    pub(super) fn new() -> Self {
        Self::with(Setup::default())
    }

    pub(super) fn with(setup: Setup) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime needs only memory");
        let server = runtime.block_on(populated_server(&setup));
        Self {
            runtime,
            server,
            setup,
            inputs: 0,
        }
    }

    /// Counts an input, and replaces the server after [`INPUTS_PER_SERVER`].
    pub(super) fn next_input(&mut self) {
        self.inputs += 1;
        if self.inputs > INPUTS_PER_SERVER {
            self.reset();
        }
    }

    /// Replaces the server with a new one.
    pub(super) fn reset(&mut self) {
        self.server = self.runtime.block_on(populated_server(&self.setup));
        self.inputs = 0;
    }

    pub(super) fn call(&self, request: Request<Bytes>) -> Response {
        self.runtime.block_on(call(&self.server, request))
    }

    /// Like [`TestServer::call`], but the request must authenticate itself.
    pub(super) fn call_guarded(&self, request: Request<Bytes>) -> Response {
        self.runtime.block_on(call(&self.server.authenticated(), request))
    }

    pub(super) fn get(&self, target: &str, accept: &str) -> Response {
        self.send("GET", target, &[("accept", accept)], Vec::new())
    }

    pub(super) fn send(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Response {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.call(request.body(body.into()).expect("a request of the fuzzer's own"))
    }
}

async fn call(server: &Server, request: Request<Bytes>) -> Response {
    let response = match server.clone().oneshot(request.map(Full::new)).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (parts, mut body) = response.into_parts();
    let content_type = parts.headers.get("content-type");
    let content_type = content_type
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let mut response = Response {
        code: parts.status.as_u16(),
        content_type: content_type.to_owned(),
        body: Vec::new(),
        is_complete: false,
    };
    for _ in 0..MAX_FRAMES {
        match tokio::time::timeout(Duration::from_hours(2), body.frame()).await {
            Ok(Some(Ok(frame))) => response
                .body
                .extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
            Ok(Some(Err(never))) => match never {},
            Ok(None) => {
                response.is_complete = true;
                break;
            }
            Err(_) => break,
        }
    }
    response
}

/// Creates a server with RBAC and the objects that pods and lists need. Its keys and clock are always the same, so that
/// tokens in the corpus stay valid.
async fn populated_server(setup: &Setup) -> Server {
    let epoch = "2026-01-01T00:00:00Z".parse().expect("a time");
    let mut builder = Server::seeded(1).epoch(epoch).rbac();
    for (host, webhook) in &setup.webhooks {
        builder = builder.webhook(host, webhook.clone());
    }
    let server = builder.build();
    let objects = [
        (
            "/api/v1/namespaces/default/serviceaccounts",
            json!({"metadata": {"name": "default"}}),
        ),
        (
            "/api/v1/nodes",
            json!({"metadata": {"name": "node", "labels": {"a": "b"}}}),
        ),
    ];
    // A kind that preserves unknown fields, so that the results of patches are stored and not pruned.
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let anything = json!({
        "metadata": {"name": "anythings.any.example.org"},
        "spec": {
            "group": "any.example.org", "scope": "Namespaced",
            "names": {"plural": "anythings", "singular": "anything", "kind": "Anything"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"status": {}}}],
        },
    });
    let definition = (seeds::DEFINITIONS, anything);
    let config_maps = (0..7).map(|number| {
        let labels = json!({"a": "b", "n": number.to_string(), "even": (number % 2 == 0).to_string()});
        (
            "/api/v1/namespaces/default/configmaps",
            json!({"metadata": {"name": format!("c{number}"), "labels": labels}, "data": {"k": "v"}}),
        )
    });
    let own = setup.objects.iter().cloned();
    for (path, object) in objects
        .into_iter()
        .chain([definition])
        .chain(config_maps)
        .chain(own)
    {
        let request = Request::post(path)
            .body(object.to_string().into())
            .expect("a request");
        let response = call(&server, request).await;
        assert_eq!(response.code, 201, "{path}: {}", response.text());
    }
    server
}

impl Response {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Returns the body, or `null` if it is not JSON.
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Whether the body nests deeper than `serde_json` can parse, so that only the status code can be checked.
    pub(super) fn is_deep(&self) -> bool {
        mutate::depth(&self.body) > 120
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns a fingerprint of the response.
    pub(super) fn digest(&self) -> String {
        if self.is_success() {
            return self.code.to_string();
        }
        format!(
            "{} {}",
            self.code,
            super::super::digest(self.json()["message"].as_str().unwrap_or_default())
        )
    }

    /// Checks that the response is well formed, and no internal error.
    pub(super) fn check(&self) -> Result<(), Violation> {
        self.check_form()?;
        // A 500 without a reason is an error that a real server passes on unchanged, such as etcd's limit on the
        // object size. This reason stands for a panic or an unreachable branch.
        if self.code >= 400 && !self.is_deep() && self.json()["reason"] == "InternalError" {
            return Err(Invariant::WellFormed.violated(format!("internal error: {}", self.text())));
        }
        Ok(())
    }

    /// Checks that the response is well formed. An internal error may be what a webhook or a policy causes, as on a real
    /// server, but not one of the server itself.
    pub(super) fn check_form(&self) -> Result<(), Violation> {
        if self.code == 500 && self.text().contains(UNHANDLED) {
            return Err(Invariant::WellFormed.violated(format!("unhandled: {}", self.text())));
        }
        if !self.is_complete {
            return Ok(());
        }
        if !self.body.is_empty() && self.content_type.is_empty() {
            return Err(Invariant::WellFormed.violated(format!("body without content type: {}", self.text())));
        }
        if !self.content_type.starts_with("application/json") || self.body.is_empty() || self.is_deep() {
            return Ok(());
        }
        let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_slice(&self.body)
            .into_iter()
            .collect();
        let values = values.map_err(|error| {
            Invariant::WellFormed.violated(format!("not JSON ({error}): {}", self.text()))
        })?;
        if self.code >= 400 {
            let [status] = &values[..] else {
                return Err(Invariant::WellFormed.violated(format!(
                    "{} with {} values",
                    self.code,
                    values.len()
                )));
            };
            if status["kind"] != "Status" || status["code"] != self.code {
                return Err(
                    Invariant::WellFormed.violated(format!("{} without its Status: {status}", self.code))
                );
            }
        }
        Ok(())
    }
}
