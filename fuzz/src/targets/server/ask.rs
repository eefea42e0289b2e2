//! A server of the target's own, and what it answers.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass_apiserver::Server;

use super::seeds;
use crate::{
    laws::{Law, Violation},
    mutate,
};

/// How many frames of an answer are read: a watch may go on for as long as its client asks for.
const FRAMES: usize = 400;

/// After so many inputs the server is replaced: its history is bounded, but the revisions that clients see grow.
const INPUTS_PER_SERVER: u32 = 2_000;

/// A server on a paused clock, with one thread.
pub(super) struct Subject {
    runtime: tokio::runtime::Runtime,
    pub(super) server: Server,
    inputs: u32,
}

/// An answer, as far as it was read.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) content_type: String,
    pub(super) body: Vec<u8>,
    /// Whether it was read to its end.
    whole: bool,
}

impl Subject {
    pub(super) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime needs only memory");
        let server = runtime.block_on(populated());
        Self {
            runtime,
            server,
            inputs: 0,
        }
    }

    /// Counts an input, and replaces the server from time to time.
    pub(super) fn next_input(&mut self) {
        self.inputs += 1;
        if self.inputs > INPUTS_PER_SERVER {
            self.reset();
        }
    }

    /// Replaces the server by a new one.
    pub(super) fn reset(&mut self) {
        self.server = self.runtime.block_on(populated());
        self.inputs = 0;
    }

    pub(super) fn ask(&self, request: Request<Bytes>) -> Answer {
        self.runtime.block_on(ask(&self.server, request))
    }

    /// As [`Subject::ask`], from outside: the request has to prove who sends it.
    pub(super) fn ask_guarded(&self, request: Request<Bytes>) -> Answer {
        self.runtime.block_on(ask(&self.server.guarded(), request))
    }

    pub(super) fn get(&self, target: &str, accept: &str) -> Answer {
        self.send("GET", target, &[("accept", accept)], Vec::new())
    }

    pub(super) fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.ask(request.body(body.into()).expect("a request of the fuzzer's own"))
    }
}

async fn ask(server: &Server, request: Request<Bytes>) -> Answer {
    let response = match server.clone().oneshot(request.map(Full::new)).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let (parts, mut body) = response.into_parts();
    let content_type = parts.headers.get("content-type");
    let content_type = content_type
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let mut answer = Answer {
        code: parts.status.as_u16(),
        content_type: content_type.to_owned(),
        body: Vec::new(),
        whole: false,
    };
    for _ in 0..FRAMES {
        match tokio::time::timeout(Duration::from_hours(2), body.frame()).await {
            Ok(Some(Ok(frame))) => answer
                .body
                .extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
            Ok(Some(Err(never))) => match never {},
            Ok(None) => {
                answer.whole = true;
                break;
            }
            Err(_) => break,
        }
    }
    answer
}

/// A server whose users need rights, with what pods and lists need. Its keys and its clock are always the same, so that tokens in
/// the corpus stay valid.
async fn populated() -> Server {
    let epoch = "2026-01-01T00:00:00Z".parse().expect("a time");
    let server = Server::seeded(1).epoch(epoch).rbac().build();
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
    // A kind whose objects may hold anything, so that what patches build is stored and not pruned.
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
    for (path, object) in objects.into_iter().chain([definition]).chain(config_maps) {
        let request = Request::post(path)
            .body(object.to_string().into())
            .expect("a request");
        let answer = ask(&server, request).await;
        assert_eq!(answer.code, 201, "{path}: {}", answer.text());
    }
    server
}

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// The body, and `null` if it is no JSON.
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Whether it is nested deeper than `serde_json` reads here, so that only its code can be looked at.
    pub(super) fn is_deep(&self) -> bool {
        mutate::depth(&self.body) > 120
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// What tells this answer from others.
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

    /// Checks that it is an answer that a client can use.
    pub(super) fn check(&self) -> Result<(), Violation> {
        if !self.whole {
            return Ok(());
        }
        if !self.body.is_empty() && self.content_type.is_empty() {
            return Err(Law::WellFormed.broken(format!("a body without a content type: {}", self.text())));
        }
        if !self.content_type.starts_with("application/json") || self.body.is_empty() || self.is_deep() {
            return Ok(());
        }
        let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_slice(&self.body)
            .into_iter()
            .collect();
        let values =
            values.map_err(|error| Law::WellFormed.broken(format!("not JSON ({error}): {}", self.text())))?;
        if self.code >= 400 {
            let [status] = &values[..] else {
                return Err(Law::WellFormed.broken(format!("{} with {} values", self.code, values.len())));
            };
            if status["kind"] != "Status" || status["code"] != self.code {
                return Err(Law::WellFormed.broken(format!("{} without its Status: {status}", self.code)));
            }
            // A 500 without a reason is an error that a real server passes on as it is, such as etcd's limit on the size of an
            // object; one with this reason is what a panic becomes, or a branch that should not be reached.
            if status["reason"] == "InternalError" {
                return Err(Law::WellFormed.broken(format!("an internal error: {status}")));
            }
        }
        Ok(())
    }
}
