//! A small list/watch server in memory: versions, pages, history, compaction, and injected failures.
//!
//! It implements only the requests of a cache, and never waits.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
};

use futures::channel::mpsc;
use http::{Request, Response};
use http_body_util::{Either, Full, StreamBody};
use serde_json::{Value, json};
use windlass_cache::ObjectKey;

type Bytes = bytes::Bytes;
type Frames = mpsc::UnboundedReceiver<Result<http_body::Frame<Bytes>, std::io::Error>>;
type ModelResponse = Response<Either<Full<Bytes>, StreamBody<Frames>>>;

/// The path of `ConfigMap`s of all namespaces.
pub(crate) const CONFIG_MAPS: &str = "/api/v1/configmaps";

/// A status for which the client panics instead of returning a response.
pub(crate) const PANIC: u16 = 599;

/// The requests that an injected failure applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestType {
    List,
    /// A list request with a continue token.
    NextPage,
    Watch,
}

/// The server; clones share its state.
#[derive(Clone, Default)]
pub(crate) struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    version: u64,
    /// Versions before this are compacted.
    compacted: u64,
    kinds: HashMap<String, Kind>,
    failures: VecDeque<(RequestType, u16)>,
    requests: Vec<String>,
    largest_page: Option<usize>,
    unresponsive: bool,
    /// Kinds that always answer with an error.
    broken: HashMap<String, u16>,
    /// Does not mark the end of initial events, as old servers.
    omits_initial_events_end: bool,
}

#[derive(Default)]
struct Kind {
    objects: BTreeMap<ObjectKey, Value>,
    /// (version, frame), oldest first.
    history: Vec<(u64, Bytes)>,
    /// Every state that ever existed.
    states: BTreeSet<(String, u64)>,
    watches: Vec<mpsc::UnboundedSender<Result<http_body::Frame<Bytes>, std::io::Error>>>,
}

impl Server {
    /// Creates a server with the kinds at these paths.
    pub(crate) fn with(paths: &[&str]) -> Self {
        let server = Self::default();
        for path in paths {
            server.install(path);
        }
        server
    }

    pub(crate) fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let answer = server.respond(&request);
            async move {
                // A hanging server never responds.
                match answer {
                    Some(answer) if answer.status() == PANIC => panic!("a layer of the client panicked"),
                    Some(answer) => Ok::<_, Infallible>(answer),
                    None => std::future::pending().await,
                }
            }
        });
        kube::Client::new(service, "default")
    }

    pub(crate) fn install(&self, path: &str) {
        self.state().kinds.entry(path.to_owned()).or_default();
    }

    /// Removes the kind with its objects; its watches end.
    pub(crate) fn uninstall(&self, path: &str) {
        self.state().kinds.remove(path);
    }

    /// Creates or updates an object; a new one gets a UID of its own.
    pub(crate) fn put(&self, path: &str, mut object: Value) {
        let mut state = self.state();
        state.version += 1;
        let version = state.version;
        let kind = state.kinds.get_mut(path).expect("the kind is installed");
        let key = key_of(&object);
        let known = kind.objects.get(&key);
        let uid = known.map_or_else(
            || json!(format!("uid-{version}")),
            |known| known["metadata"]["uid"].clone(),
        );
        object["metadata"]["uid"] = uid;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let event = if known.is_some() { "MODIFIED" } else { "ADDED" };
        kind.states.insert((key.to_string(), version));
        kind.objects.insert(key, object.clone());
        kind.publish(version, &json!({ "type": event, "object": object }));
    }

    pub(crate) fn delete(&self, path: &str, key: &ObjectKey) {
        let mut state = self.state();
        let Some(mut object) = state
            .kinds
            .get_mut(path)
            .and_then(|kind| kind.objects.remove(key))
        else {
            return;
        };
        state.version += 1;
        let version = state.version;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let kind = state.kinds.get_mut(path).expect("it had the object");
        kind.states.insert((key.to_string(), version));
        kind.publish(version, &json!({ "type": "DELETED", "object": object }));
    }

    /// Sends a raw event to every watch of the kind.
    pub(crate) fn send(&self, path: &str, frame: &str) {
        let mut state = self.state();
        let kind = state.kinds.get_mut(path).expect("the kind is installed");
        let line = Bytes::from(format!("{frame}\n"));
        kind.watches.retain(|watch| {
            watch
                .unbounded_send(Ok(http_body::Frame::data(line.clone())))
                .is_ok()
        });
    }

    /// Compacts the history: a watch or a page from an older version gets a 410.
    pub(crate) fn compact(&self) {
        let mut state = self.state();
        state.version += 1;
        state.compacted = state.version;
        state.kinds.values_mut().for_each(|kind| kind.history.clear());
    }

    /// Ends every watch.
    pub(crate) fn end_watches(&self) {
        self.state()
            .kinds
            .values_mut()
            .for_each(|kind| kind.watches.clear());
    }

    /// Breaks every watch's connection.
    pub(crate) fn break_watches(&self) {
        for kind in self.state().kinds.values_mut() {
            for watch in kind.watches.drain(..) {
                let _ = watch.unbounded_send(Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)));
            }
        }
    }

    pub(crate) fn fail_next(&self, on: RequestType, status: u16) {
        self.state().failures.push_back((on, status));
    }

    /// Answers all requests for the kind with this status, until [`repair`](Self::repair).
    pub(crate) fn break_kind(&self, path: &str, status: u16) {
        self.state().broken.insert(path.to_owned(), status);
    }

    pub(crate) fn repair(&self, path: &str) {
        self.state().broken.remove(path);
    }

    /// Stops or resumes responding to requests.
    pub(crate) fn set_unresponsive(&self, silent: bool) {
        self.state().unresponsive = silent;
    }

    /// Stops marking the end of initial events.
    pub(crate) fn omit_initial_events_end(&self) {
        self.state().omits_initial_events_end = true;
    }

    /// Limits the page size, whatever is requested.
    pub(crate) fn page_size(&self, size: usize) {
        self.state().largest_page = Some(size);
    }

    /// Returns a summary of all requests: `list rv=0 limit=500`, `watch rv=7`, `stream`.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    /// Returns the number of open watches.
    pub(crate) fn watches(&self) -> usize {
        self.state()
            .kinds
            .values()
            .map(|kind| kind.watches.iter().filter(|watch| !watch.is_closed()).count())
            .sum()
    }

    /// Returns every object of the kind with its version.
    pub(crate) fn content(&self, path: &str) -> BTreeMap<String, String> {
        let state = self.state();
        let objects = state.kinds.get(path).map(|kind| &kind.objects);
        objects
            .into_iter()
            .flatten()
            .map(|(key, object)| (key.to_string(), version_of(object)))
            .collect()
    }

    /// Returns every state of the kind's objects that ever existed: keys and versions.
    pub(crate) fn all_states(&self, path: &str) -> BTreeSet<(String, u64)> {
        let state = self.state();
        state
            .kinds
            .get(path)
            .map(|kind| kind.states.clone())
            .unwrap_or_default()
    }

    fn respond(&self, request: &Request<kube::client::Body>) -> Option<ModelResponse> {
        let mut state = self.state();
        let query: HashMap<_, _> =
            form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes())
                .into_owned()
                .collect();
        let get = |name: &str| query.get(name).map_or("", String::as_str);
        let watching = get("watch") == "true";
        let streaming = get("sendInitialEvents") == "true";
        let shown =
            ["resourceVersion", "limit", "continue", "labelSelector"].map(|name| match (name, get(name)) {
                (_, "") => String::new(),
                ("resourceVersion", value) => format!(" rv={value}"),
                (name, value) => format!(" {name}={value}"),
            });
        state.requests.push(format!(
            "{}{}",
            match (watching, streaming) {
                (true, true) => "stream",
                (true, false) => "watch",
                _ => "list",
            },
            shown.concat()
        ));
        if state.unresponsive {
            return None;
        }
        if let Some(code) = state.broken.get(request.uri().path()) {
            return Some(failure(*code));
        }
        let sort = |on| match on {
            RequestType::List => !watching,
            RequestType::NextPage => !watching && !get("continue").is_empty(),
            RequestType::Watch => watching,
        };
        if let Some(at) = state.failures.iter().position(|(on, _)| sort(*on)) {
            let (_, code) = state.failures.remove(at).expect("it was found");
            return Some(failure(code));
        }
        let State {
            version,
            compacted,
            largest_page,
            omits_initial_events_end,
            ..
        } = *state;
        let Some(kind) = state.kinds.get_mut(request.uri().path()) else {
            return Some(failure(404));
        };
        Some(if streaming {
            kind.stream(version, omits_initial_events_end)
        } else if watching {
            kind.watch(get("resourceVersion").parse().unwrap_or(0), compacted)
        } else {
            let limit = get("limit")
                .parse()
                .unwrap_or(usize::MAX)
                .min(largest_page.unwrap_or(usize::MAX));
            kind.list(get("continue"), get("resourceVersion"), limit, version, compacted)
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics while it holds the lock")
    }
}

impl Kind {
    fn publish(&mut self, version: u64, frame: &Value) {
        let line = Bytes::from(format!("{frame}\n"));
        self.history.push((version, line.clone()));
        self.watches.retain(|watch| {
            watch
                .unbounded_send(Ok(http_body::Frame::data(line.clone())))
                .is_ok()
        });
    }

    fn watch(&mut self, from: u64, compacted: u64) -> ModelResponse {
        if from < compacted {
            return failure(410);
        }
        let (sender, frames) = mpsc::unbounded();
        for (_, line) in self.history.iter().filter(|(version, _)| *version > from) {
            let _ = sender.unbounded_send(Ok(http_body::Frame::data(line.clone())));
        }
        self.watches.push(sender);
        Response::new(Either::Right(StreamBody::new(frames)))
    }

    fn stream(&mut self, version: u64, unmarked: bool) -> ModelResponse {
        let (sender, frames) = mpsc::unbounded();
        let send = |frame: Value| {
            let line = Bytes::from(format!("{frame}\n"));
            let _ = sender.unbounded_send(Ok(http_body::Frame::data(line)));
        };
        for object in self.objects.values() {
            send(json!({ "type": "ADDED", "object": object }));
        }
        if !unmarked {
            let annotations = json!({ "k8s.io/initial-events-end": "true" });
            let metadata = json!({ "resourceVersion": version.to_string(), "annotations": annotations });
            send(json!({ "type": "BOOKMARK", "object": { "metadata": metadata } }));
        }
        self.watches.push(sender);
        Response::new(Either::Right(StreamBody::new(frames)))
    }

    /// A token is `version:number of objects sent`. Unlike the real server's, it lists the newest state, which makes no
    /// difference as long as no object changes between two pages.
    fn list(&self, token: &str, from: &str, limit: usize, version: u64, compacted: u64) -> ModelResponse {
        let (listed, given) = token.split_once(':').map_or((version, 0), |(version, given)| {
            (
                version.parse().expect("our token"),
                given.parse().expect("our token"),
            )
        });
        let expired = !matches!(from, "" | "0") && from.parse::<u64>().is_ok_and(|from| from < compacted);
        if listed < compacted || expired {
            return failure(410);
        }
        let items: Vec<_> = self.objects.values().skip(given).take(limit).collect();
        let next = given + items.len();
        let token = if next < self.objects.len() {
            format!("{listed}:{next}")
        } else {
            String::new()
        };
        let list = json!({ "metadata": { "resourceVersion": listed.to_string(), "continue": token }, "items": items });
        Response::new(Either::Left(Full::from(list.to_string())))
    }
}

/// Returns a `ConfigMap` with `text` as data.
pub(crate) fn config_map(name: &str, text: &str) -> Value {
    json!({ "metadata": { "namespace": "n", "name": name }, "data": { "text": text } })
}

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("n", name)
}

fn key_of(object: &Value) -> ObjectKey {
    let name = object["metadata"]["name"].as_str().expect("a name");
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => ObjectKey::namespaced(namespace, name),
        None => ObjectKey::cluster_scoped(name),
    }
}

fn version_of(object: &Value) -> String {
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn failure(code: u16) -> ModelResponse {
    let reason = match code {
        404 => return plain(404, "404 page not found"),
        403 => "Forbidden",
        410 => "Expired",
        429 => "TooManyRequests",
        _ => "InternalError",
    };
    plain(
        code,
        &json!({ "kind": "Status", "code": code, "reason": reason, "message": format!("status {code}") })
            .to_string(),
    )
}

fn plain(code: u16, body: &str) -> ModelResponse {
    let body = Full::from(body.to_owned());
    Response::builder()
        .status(code)
        .body(Either::Left(body))
        .expect("a response")
}
