//! The cache behind a server that answers anything.
//!
//! An input is a list of answers, each after a line `---- STATUS PIECE`: the first request of the cache gets the first answer, and
//! so on, cut into pieces of so many bytes. After the last one the server behaves, and the cache must come to a state that can
//! be read.

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
use windlass_cache::{Cache as Cached, Query, Selection, Settings};

use super::digest;
use crate::{
    engine::{Outcome, Target},
    laws::{Law, Meter, Violation},
    mutate::{bytes, tree},
};

/// Long enough for every backoff; the clock is paused.
const EVENTUALLY: Duration = Duration::from_hours(6);

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

/// An answer of the server.
#[derive(Clone, Debug)]
struct Said {
    status: u16,
    /// Bytes in each piece; everything at once if it is 0.
    piece: usize,
    body: Vec<u8>,
}

impl Said {
    fn new(status: u16, piece: usize, lines: &[Value]) -> Self {
        let mut body = String::new();
        for line in lines {
            body.push_str(&line.to_string());
            body.push('\n');
        }
        Self {
            status,
            piece,
            body: body.into_bytes(),
        }
    }

    fn parse_all(input: &[u8]) -> Vec<Self> {
        let mut answers: Vec<Self> = Vec::new();
        for line in input.split_inclusive(|byte| *byte == b'\n') {
            if let Some(head) = line.strip_prefix(b"---- ") {
                let head = String::from_utf8_lossy(head);
                let mut numbers = head
                    .split_whitespace()
                    .map(|number| number.parse().unwrap_or_default());
                answers.push(Self {
                    status: numbers.next().unwrap_or(200),
                    piece: numbers.next().unwrap_or_default().into(),
                    body: Vec::new(),
                });
            } else if let Some(last) = answers.last_mut() {
                last.body.extend_from_slice(line);
            }
        }
        answers
    }

    fn write_all(answers: &[Self]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for answer in answers {
            if !bytes.is_empty() && !bytes.ends_with(b"\n") {
                bytes.push(b'\n');
            }
            bytes.extend(format!("---- {} {}\n", answer.status, answer.piece).bytes());
            bytes.extend(&answer.body);
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
        let refused = Said::new(422, 0, &[status(422, "Invalid")]);
        let stream = [
            event("ADDED", &a),
            event("ADDED", &b),
            bookmark("7"),
            event("MODIFIED", &config_map("a", 8)),
            event("DELETED", &config_map("b", 9)),
        ];
        let stories = [
            vec![Said::new(200, 0, &stream)],
            vec![
                Said::new(200, 7, &stream),
                Said::new(200, 1, &[event("ERROR", &status(410, "Expired"))]),
            ],
            vec![
                refused.clone(),
                Said::new(200, 0, &[list(&[a.clone(), b.clone()], "6", "")]),
                Said::new(200, 3, &stream),
            ],
            vec![
                refused.clone(),
                Said::new(200, 5, &[list(std::slice::from_ref(&a), "6", "more")]),
                Said::new(200, 0, &[list(std::slice::from_ref(&b), "6", "")]),
            ],
            vec![
                refused.clone(),
                Said::new(200, 0, &[list(&[a], "6", "more")]),
                Said::new(410, 0, &[status(410, "Expired")]),
            ],
            vec![
                Said::new(503, 0, &[]),
                Said::new(429, 0, &[status(429, "TooManyRequests")]),
                Said::new(403, 0, &[status(403, "Forbidden")]),
            ],
            vec![
                refused,
                Said::new(200, 0, &[json!({"kind": "Table", "rows": [{"object": b}]})]),
            ],
        ];
        stories.iter().map(|story| Said::write_all(story)).collect()
    }

    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        let mut answers = Said::parse_all(input);
        if answers.is_empty() || rng.u8(..8) == 0 {
            return bytes::mutate(input, donor, rng);
        }
        let place = rng.usize(..answers.len());
        match rng.u8(..10) {
            0 => answers[place].status = [200, 200, 204, 400, 401, 404, 410, 500, 503][rng.usize(..9)],
            1 => answers[place].piece = rng.usize(..20),
            2 => {
                let copy = answers[place].clone();
                answers.push(copy);
            }
            3 => {
                answers.swap_remove(place);
            }
            4 | 5 => answers[place].body = bytes::mutate(&answers[place].body, donor, rng),
            _ => {
                let body = String::from_utf8_lossy(&answers[place].body).into_owned();
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
                answers[place].body = lines
                    .iter()
                    .flat_map(|line| [line, "\n"])
                    .collect::<String>()
                    .into_bytes();
            }
        }
        Said::write_all(&answers)
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        let answers = Said::parse_all(input);
        let meter = Meter::start();
        let outcome = self.runtime.block_on(follow(answers));
        let allocated = meter.check(input.len())?;
        let answer = outcome?;
        Ok(Outcome {
            accepted: true,
            answer,
            allocated,
        })
    }
}

/// Follows such a server until the cache is synced, and reads everything in it.
async fn follow(answers: Vec<Said>) -> Result<String, Violation> {
    let told_to_wait: u64 = answers
        .iter()
        .map(|answer| wait(&answer.body))
        .fold(0, u64::saturating_add);
    let waiting = Arc::new(Mutex::new(VecDeque::from(answers)));
    let left = Arc::clone(&waiting);
    let service = tower::service_fn(move |request: Request<Body>| {
        let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        async move { Ok::<_, Infallible>(answer(&request, next)) }
    });
    let client = Client::new(service, "default");
    let cache = Cached::start_with(client, &(), &Selection::all(), Settings::<ConfigMap>::compact());
    let mut changes = cache.subscribe();
    let lister = match cache.synced(EVENTUALLY).await {
        Ok(lister) => lister,
        // The cache waits as long as it is told to.
        Err(_) if told_to_wait > EVENTUALLY.as_secs() / 2 => return Ok("still waiting".to_owned()),
        Err(error) => return Err(Law::ReadableAgain.broken(format!("the cache never recovers: {error}"))),
    };
    // Until every answer was given: a watch that ended is followed by the next request.
    for _ in 0..64 {
        tokio::time::sleep(Duration::from_mins(2)).await;
        if left.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            break;
        }
    }
    tokio::time::sleep(Duration::from_mins(10)).await;
    let trouble = cache.trouble();
    let stored = lister.list_stored(&Query::all());
    let decoded = lister.try_list(&Query::all());
    for object in &stored {
        let _ = (lister.try_get(object.key()), object.meta().resource_version());
    }
    if stored.len() != lister.len() {
        return Err(Law::ReadableAgain.broken(format!(
            "{} of {} objects are listed",
            stored.len(),
            lister.len()
        )));
    }
    let mut told = 0;
    while let Ok(Some(_)) = tokio::time::timeout(Duration::from_millis(1), changes.next()).await {
        told += 1;
    }
    cache.close().await;
    let decoded = match decoded {
        Ok(objects) => objects.len().to_string(),
        Err(error) => digest(&error.to_string()),
    };
    Ok(format!(
        "{} {decoded} {told} {}",
        stored.len(),
        digest(&trouble.unwrap_or_default())
    ))
}

/// How many seconds a refusal asks the client to wait.
fn wait(body: &[u8]) -> u64 {
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

/// The planned answer, or what a good server says.
fn answer(request: &Request<Body>, planned: Option<Said>) -> Response<Pieces> {
    let query = request.uri().query().unwrap_or_default();
    let (status, pieces) = match planned {
        Some(Said { status, piece, body }) => {
            let pieces = match piece {
                0 => VecDeque::from([Bytes::from(body)]),
                piece => body.chunks(piece).map(Bytes::copy_from_slice).collect(),
            };
            (
                status,
                Pieces {
                    pieces,
                    endless: false,
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
            let body = Said::new(200, 0, &lines).body;
            let pieces = VecDeque::from([Bytes::from(body)]);
            (
                200,
                Pieces {
                    pieces,
                    endless: is_watch,
                },
            )
        }
    };
    let mut response = Response::new(pieces);
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::OK);
    response
}

/// A body that comes in pieces, and does not end if it is a watch of a good server.
struct Pieces {
    pieces: VecDeque<Bytes>,
    endless: bool,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        match this.pieces.pop_front() {
            Some(piece) => std::task::Poll::Ready(Some(Ok(Frame::data(piece)))),
            None if this.endless => std::task::Poll::Pending,
            None => std::task::Poll::Ready(None),
        }
    }
}
