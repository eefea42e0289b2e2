//! The cache with a server that sends arbitrary responses.
//!
//! An input is a list of responses, each after a line `---- STATUS CHUNK`. The cache's first request gets the first
//! response, and so on, in chunks of `CHUNK` bytes. After the last one the server behaves correctly, and the cache must
//! recover to a readable state.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use ::bytes::Bytes;
use fastrand::Rng;
use http::{Request, Response};
use http_body::Frame;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use windlass_cache::{Cache as Cached, Query, Settings, WatchScope};

use super::digest;
use crate::{
    engine::{Outcome, Target},
    invariants::{Invariant, Meter, Violation},
    mutate::{bytes, tree},
};

/// Limit for the initial sync, longer than every backoff; the clock is paused.
const SYNC_TIMEOUT: Duration = Duration::from_hours(6);

pub(super) struct Cache {
    runtime: tokio::runtime::Runtime,
}

impl Cache {
    pub(super) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime needs only memory");
        Self { runtime }
    }
}

/// A scripted response of the server.
#[derive(Clone, Debug)]
struct ScriptedResponse {
    status: u16,
    /// Bytes per chunk; 0 sends everything at once.
    chunk_size: usize,
    body: Vec<u8>,
}

impl ScriptedResponse {
    fn new(status: u16, chunk_size: usize, lines: &[Value]) -> Self {
        let mut body = String::new();
        for line in lines {
            body.push_str(&line.to_string());
            body.push('\n');
        }
        Self {
            status,
            chunk_size,
            body: body.into_bytes(),
        }
    }

    fn parse_all(input: &[u8]) -> Vec<Self> {
        let mut responses: Vec<Self> = Vec::new();
        for line in input.split_inclusive(|byte| *byte == b'\n') {
            if let Some(head) = line.strip_prefix(b"---- ") {
                let head = String::from_utf8_lossy(head);
                let mut numbers = head
                    .split_whitespace()
                    .map(|number| number.parse().unwrap_or_default());
                responses.push(Self {
                    status: numbers.next().unwrap_or(200),
                    chunk_size: numbers.next().unwrap_or_default().into(),
                    body: Vec::new(),
                });
            } else if let Some(last) = responses.last_mut() {
                last.body.extend_from_slice(line);
            }
        }
        responses
    }

    fn write_all(responses: &[Self]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for response in responses {
            if !bytes.is_empty() && !bytes.ends_with(b"\n") {
                bytes.push(b'\n');
            }
            bytes.extend(format!("---- {} {}\n", response.status, response.chunk_size).bytes());
            bytes.extend(&response.body);
        }
        bytes
    }
}

fn config_map(name: &str, version: u64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "a", "uid": format!("uid-{name}"), "resourceVersion": version.to_string(), "labels": {"a": "b"},
            "managedFields": [{"manager": "m", "fieldsV1": {"f:data": {"f:k": {}}}}]},
        "data": {"k": "v \"quoted\" é \\"},
    })
}

fn event(what: &str, object: &Value) -> Value {
    json!({"type": what, "object": object})
}

fn list(items: &[Value], version: &str, more: &str) -> Value {
    json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": version, "continue": more}, "items": items})
}

fn bookmark(version: &str) -> Value {
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    event(
        "BOOKMARK",
        &json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": version, "annotations": annotations}}),
    )
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "no", "details": {"retryAfterSeconds": 1}})
}

impl Target for Cache {
    fn seeds(&mut self) -> Vec<Vec<u8>> {
        let (a, b) = (config_map("a", 5), config_map("b", 6));
        let rejection = ScriptedResponse::new(422, 0, &[status(422, "Invalid")]);
        let stream = [
            event("ADDED", &a),
            event("ADDED", &b),
            bookmark("7"),
            event("MODIFIED", &config_map("a", 8)),
            event("DELETED", &config_map("b", 9)),
        ];
        let scripts = [
            vec![ScriptedResponse::new(200, 0, &stream)],
            vec![
                ScriptedResponse::new(200, 7, &stream),
                ScriptedResponse::new(200, 1, &[event("ERROR", &status(410, "Expired"))]),
            ],
            vec![
                rejection.clone(),
                ScriptedResponse::new(200, 0, &[list(&[a.clone(), b.clone()], "6", "")]),
                ScriptedResponse::new(200, 3, &stream),
            ],
            vec![
                rejection.clone(),
                ScriptedResponse::new(200, 5, &[list(std::slice::from_ref(&a), "6", "more")]),
                ScriptedResponse::new(200, 0, &[list(std::slice::from_ref(&b), "6", "")]),
            ],
            vec![
                rejection.clone(),
                ScriptedResponse::new(200, 0, &[list(&[a], "6", "more")]),
                ScriptedResponse::new(410, 0, &[status(410, "Expired")]),
            ],
            vec![
                ScriptedResponse::new(503, 0, &[]),
                ScriptedResponse::new(429, 0, &[status(429, "TooManyRequests")]),
                ScriptedResponse::new(403, 0, &[status(403, "Forbidden")]),
            ],
            vec![
                rejection,
                ScriptedResponse::new(200, 0, &[json!({"kind": "Table", "rows": [{"object": b}]})]),
            ],
        ];
        scripts
            .iter()
            .map(|script| ScriptedResponse::write_all(script))
            .collect()
    }

    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        let mut responses = ScriptedResponse::parse_all(input);
        if responses.is_empty() || rng.u8(..8) == 0 {
            return bytes::mutate(input, donor, rng);
        }
        let position = rng.usize(..responses.len());
        match rng.u8(..10) {
            0 => responses[position].status = [200, 200, 204, 400, 401, 404, 410, 500, 503][rng.usize(..9)],
            1 => responses[position].chunk_size = rng.usize(..20),
            2 => {
                let copy = responses[position].clone();
                responses.push(copy);
            }
            3 => {
                responses.swap_remove(position);
            }
            4 | 5 => responses[position].body = bytes::mutate(&responses[position].body, donor, rng),
            _ => {
                let body = String::from_utf8_lossy(&responses[position].body).into_owned();
                let mut lines: Vec<String> = body.lines().map(str::to_owned).collect();
                if lines.is_empty() {
                    lines.push("{}".to_owned());
                }
                let line = rng.usize(..lines.len());
                if let Ok(mut value) = serde_json::from_str::<Value>(&lines[line]) {
                    tree::mutate(&mut value, &event("ADDED", &config_map("c", 11)), rng);
                    lines[line] = tree::text(&value, rng).replace('\n', " ");
                }
                if rng.u8(..4) == 0 {
                    let copy = lines[line].clone();
                    lines.insert(rng.usize(..lines.len()), copy);
                }
                responses[position].body = lines
                    .iter()
                    .flat_map(|line| [line, "\n"])
                    .collect::<String>()
                    .into_bytes();
            }
        }
        ScriptedResponse::write_all(&responses)
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        let responses = ScriptedResponse::parse_all(input);
        let meter = Meter::start();
        let outcome = self.runtime.block_on(run_cache(responses));
        let allocated = meter.check(input.len())?;
        let fingerprint = outcome?;
        Ok(Outcome {
            accepted: true,
            fingerprint,
            allocated,
        })
    }
}

/// Runs a cache on such a server until it is synced, and reads all its objects. Returns the fingerprint.
async fn run_cache(responses: Vec<ScriptedResponse>) -> Result<String, Violation> {
    let requested_wait: u64 = responses
        .iter()
        .map(|response| retry_after_seconds(&response.body))
        .fold(0, u64::saturating_add);
    let waiting = Arc::new(Mutex::new(VecDeque::from(responses)));
    let left = Arc::clone(&waiting);
    let service = tower::service_fn(move |request: Request<Body>| {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        async move { Ok::<_, Infallible>(respond(&request, next)) }
    });
    let client = Client::new(service, "default");
    let cache = Cached::start_with(client, &(), &WatchScope::all(), Settings::<ConfigMap>::compact());
    let mut changes = cache.subscribe();
    let lister = match cache.synced(SYNC_TIMEOUT).await {
        Ok(lister) => lister,
        // The cache honours `retryAfterSeconds`, however long.
        Err(_) if requested_wait > SYNC_TIMEOUT.as_secs() / 2 => return Ok("still waiting".to_owned()),
        Err(error) => {
            return Err(Invariant::ReadableAgain.violated(format!("the cache does not recover: {error}")));
        }
    };
    // Wait until every response was sent: after a watch ends, the cache sends the next request.
    for _ in 0..64 {
        tokio::time::sleep(Duration::from_mins(2)).await;
        if left.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            break;
        }
    }
    tokio::time::sleep(Duration::from_mins(10)).await;
    let error = cache.last_error();
    let stored = lister.list_cached(&Query::all());
    let decoded = lister.try_list(&Query::all());
    for object in &stored {
        let _ = (lister.try_get(object.key()), object.meta().resource_version());
    }
    if stored.len() != lister.len() {
        return Err(Invariant::ReadableAgain.violated(format!(
            "{} of {} objects are listed",
            stored.len(),
            lister.len()
        )));
    }
    let mut changes_seen = 0;
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_millis(1), changes.next()).await {
        changes_seen += 1;
    }
    cache.close().await;
    let decoded = match decoded {
        Ok(objects) => objects.len().to_string(),
        Err(error) => digest(&error.to_string()),
    };
    Ok(format!(
        "{} {decoded} {changes_seen} {}",
        stored.len(),
        digest(&error.unwrap_or_default())
    ))
}

/// Returns the seconds for which a response asks the client to wait.
fn retry_after_seconds(body: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(body);
    let waits = text.split("retryAfterSeconds").skip(1).map(|rest| {
        let digits: String = rest
            .chars()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(char::is_ascii_digit)
            .collect();
        digits.parse().unwrap_or(u64::MAX)
    });
    waits.fold(0, u64::saturating_add)
}

/// Returns the scripted response, or that of a correct server.
fn respond(request: &Request<Body>, scripted: Option<ScriptedResponse>) -> Response<ChunkedBody> {
    let query = request.uri().query().unwrap_or_default();
    let (status, chunks) = match scripted {
        Some(ScriptedResponse {
            status,
            chunk_size,
            body,
        }) => {
            let chunks = match chunk_size {
                0 => VecDeque::from([Bytes::from(body)]),
                chunk_size => body.chunks(chunk_size).map(Bytes::copy_from_slice).collect(),
            };
            (
                status,
                ChunkedBody {
                    chunks,
                    is_endless: false,
                },
            )
        }
        None => {
            let (a, b) = (config_map("a", 1_000), config_map("z", 1_001));
            let is_watch = query.contains("watch=");
            let lines = match (is_watch, query.contains("sendInitialEvents=")) {
                (true, true) => vec![event("ADDED", &a), event("ADDED", &b), bookmark("1001")],
                (true, false) => Vec::new(),
                (false, _) => vec![list(&[a, b], "1001", "")],
            };
            let body = ScriptedResponse::new(200, 0, &lines).body;
            let chunks = VecDeque::from([Bytes::from(body)]);
            (
                200,
                ChunkedBody {
                    chunks,
                    is_endless: is_watch,
                },
            )
        }
    };
    let mut response = Response::new(chunks);
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::OK);
    response
}

/// A body in chunks, which does not end if it is a watch of a correct server.
struct ChunkedBody {
    chunks: VecDeque<Bytes>,
    is_endless: bool,
}

impl http_body::Body for ChunkedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        match this.chunks.pop_front() {
            Some(chunk) => std::task::Poll::Ready(Some(Ok(Frame::data(chunk)))),
            None if this.is_endless => std::task::Poll::Pending,
            None => std::task::Poll::Ready(None),
        }
    }
}
