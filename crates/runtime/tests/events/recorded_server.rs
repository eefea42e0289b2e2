//! The embedded server behind a client that records every request and injects faults.

use std::{future::pending, io, sync::Arc, time::Duration};

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Event},
    jiff::Timestamp,
};
use kube::{Api, Client, api::ListParams, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep},
};
use tower::Service;
use windlass_apiserver::Server;
use windlass_runtime::{
    Clock,
    events::{EventCounts, EventWriter, Recorder, RecorderOptions},
};

/// Start time of every test.
pub(crate) const EPOCH: &str = "2026-01-01T00:00:00Z";

#[derive(Clone)]
pub(crate) struct RecordedServer {
    pub(crate) inner: Server,
    state: Arc<Mutex<State>>,
}

struct State {
    sent: Vec<Sent>,
    fault: Box<dyn FnMut(&Sent) -> Fault + Send>,
}

/// A recorded request.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) body: Value,
}

/// Fault of a request.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    None,
    /// The connection fails.
    NoConnection,
    /// There is no response.
    Hangs,
    /// It succeeds after this delay.
    Slow(Duration),
    /// It succeeds, but the response is lost.
    LosesAnswer,
    /// The server answers with this status.
    Answers(Value),
}

impl RecordedServer {
    pub(crate) fn new() -> Self {
        Self::to(Server::seeded(1).epoch(epoch()).build())
    }

    pub(crate) fn to(server: Server) -> Self {
        let state = State {
            sent: Vec::new(),
            fault: Box::new(|_| Fault::None),
        };
        Self {
            inner: server,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Sets the fault of further requests.
    pub(crate) fn fault(&self, fault: impl FnMut(&Sent) -> Fault + Send + 'static) {
        self.state.lock().fault = Box::new(fault);
    }

    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.state.lock().sent.clone()
    }

    /// The methods of all requests in order.
    pub(crate) fn methods(&self) -> Vec<String> {
        self.sent().iter().map(|sent| sent.method.to_string()).collect()
    }

    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.carry(request).await }
        });
        Client::new(service, "default")
    }

    async fn carry(mut self, request: Request<Body>) -> Result<Response<Body>, io::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let sent = Sent {
            at: Instant::now(),
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            body: serde_json::from_slice(&body).unwrap_or_default(),
        };
        let fault = {
            let mut state = self.state.lock();
            state.sent.push(sent.clone());
            (state.fault)(&sent)
        };
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        match fault {
            Fault::NoConnection => return Err(refused()),
            Fault::Hangs => pending().await,
            Fault::Slow(time) => sleep(time).await,
            Fault::Answers(status) => return Ok(answer(&status)),
            Fault::None | Fault::LosesAnswer => {}
        }
        let request = Request::from_parts(parts, Full::new(body));
        let Ok(response) = self.inner.call(request).await;
        match fault {
            Fault::LosesAnswer => Err(refused()),
            _ => {
                let (parts, body) = response.into_parts();
                let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
                Ok(Response::from_parts(parts, Body::from(body)))
            }
        }
    }

    /// The events of a namespace, oldest first, read without faults.
    pub(crate) async fn events(&self, namespace: &str) -> Vec<Event> {
        let events = Api::<Event>::namespaced(Client::new(self.inner.clone(), "default"), namespace);
        let mut events = events.list(&ListParams::default()).await.expect("listed").items;
        events.sort_by_key(|event| event.metadata.creation_timestamp.clone());
        events
    }
}

fn answer(status: &Value) -> Response<Body> {
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let code = code.and_then(|code| StatusCode::from_u16(code).ok());
    Response::builder()
        .status(code.expect("a status has a code"))
        .header("content-type", "application/json")
        .body(Body::from(status.to_string().into_bytes()))
        .expect("valid response")
}

/// A failure as a `Status` of the API.
pub(crate) fn failure(code: u16, reason: &str) -> Fault {
    Fault::Answers(json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason,
    }))
}

/// A recorder and its running writer.
pub(crate) struct Running {
    pub(crate) recorder: Recorder,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(server: &RecordedServer) -> Self {
        Self::with(server, RecorderOptions::default())
    }

    pub(crate) fn with(server: &RecordedServer, options: RecorderOptions) -> Self {
        let (recorder, writer) = options
            .clock(Clock::starting_at(epoch()))
            .channel(server.client(), "test");
        Self::run(recorder, writer)
    }

    pub(crate) fn run(recorder: Recorder, writer: EventWriter) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(writer.run_until(async move { drop(stopped.await) }));
        Self { recorder, stop, task }
    }

    pub(crate) fn counts(&self) -> EventCounts {
        self.recorder.counts()
    }

    pub(crate) async fn stop(self) -> Recorder {
        let _ = self.stop.send(());
        self.task.await.expect("the writer does not panic");
        self.recorder
    }

    /// Aborts the writer.
    pub(crate) async fn abort(self) -> Recorder {
        self.task.abort();
        let _ = self.task.await;
        self.recorder
    }
}

pub(crate) fn epoch() -> Timestamp {
    EPOCH.parse().expect("valid timestamp")
}

pub(crate) fn config_map(name: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.namespace = Some("default".to_owned());
    object.metadata.uid = Some(format!("uid-of-{name}"));
    object
}

/// Runs all tasks that wait for no timer.
pub(crate) async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

pub(crate) async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}
