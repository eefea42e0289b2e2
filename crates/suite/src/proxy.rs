//! A proxy between a program and its API server, controlled by a test.
//!
//! ```text
//!   controller ──► RequestProxy::client ──► crashed? ──► record ──► planned fault? ──► server
//!                                              │                         ▲                │
//!                            no response ◄─────┘                         │                ▼
//!                                                          crash at the n-th request, before or after this
//! ```
//!
//! The proxy owns the recording; its clients add to it. After a crash no request reaches the server and no response returns,
//! as if the process were gone.

use std::{future::pending, io, sync::Arc, time::Duration};

use anyhow::Context as _;
use http::{Request, Response, StatusCode, request::Parts};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

use crate::{STEP_TIMEOUT, recorded_request::RecordedRequest};

/// A program that sends more requests than this is in a loop.
const MAX_REQUESTS: usize = 100_000;

/// A proxy that records the requests of its clients, injects faults and simulates crashes. Clones share the same proxy.
///
/// ```
/// # async fn example() -> anyhow::Result<()> {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::{Api, api::{DeleteParams, ListParams}};
/// use windlass_cluster::Cluster;
/// use windlass_suite::RequestProxy;
///
/// let cluster = Cluster::embedded().start().await?;
/// let proxy = RequestProxy::new(&cluster.client());
/// let configs = Api::<ConfigMap>::default_namespaced(proxy.client());
/// configs.list(&ListParams::default()).await?;
/// configs.delete("a", &DeleteParams::default()).await.unwrap_err();
/// assert_eq!(proxy.request_count(), 2);
/// assert_eq!(proxy.writes()[0].to_string(), "delete configmaps/a");
/// # Ok(()) }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
pub struct RequestProxy {
    inner: Client,
    /// The default namespace of its clients.
    namespace: String,
    crash_at: Option<(usize, CrashPoint)>,
    recording: Arc<Mutex<Recording>>,
    traffic: watch::Sender<Traffic>,
}

/// When a process crashes, relative to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// Before the request reaches the server.
    Before,
    /// After it had its effect, before the response arrives.
    After,
}

#[derive(Default)]
struct Recording {
    requests: Vec<RecordedRequest>,
    faults: Vec<PlannedFault>,
}

/// A fault for the next matching requests.
struct PlannedFault {
    times: usize,
    fault: Fault,
    matches: Box<dyn Fn(&RecordedRequest) -> bool + Send>,
}

#[derive(Clone)]
enum Fault {
    /// Respond with this `Status`; the request does not reach the server.
    Respond(Arc<Value>),
    /// Send the request after this time.
    Delay(Duration),
    /// Send the request, and break the connection before its response arrives.
    LoseResponse,
}

/// Access reviews are neither recorded nor counted: a manager asks about its rights once, some time after its start. They
/// store nothing, and no outcome depends on them.
const REVIEWS: &str = "/apis/authorization.k8s.io/";

/// Counts of requests.
#[derive(Clone, Copy, Default)]
struct Traffic {
    sent: usize,
    unanswered: usize,
    crashed: bool,
}

impl RequestProxy {
    /// Creates a proxy without faults.
    pub fn new(client: &Client) -> Self {
        Self {
            inner: client.clone(),
            namespace: client.default_namespace().to_owned(),
            crash_at: None,
            recording: Arc::default(),
            traffic: watch::Sender::default(),
        }
    }

    /// Creates a proxy whose process crashes at the `n`-th request, counted from one.
    pub fn crashing_at(client: &Client, n: usize, moment: CrashPoint) -> Self {
        Self {
            crash_at: Some((n, moment)),
            ..Self::new(client)
        }
    }

    /// Sets the default namespace of its clients, as for a pod. Default: the client's.
    #[must_use]
    pub fn in_namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// Returns a client that uses this proxy.
    pub fn client(&self) -> Client {
        let proxy = self.clone();
        let service = tower::service_fn(move |request| {
            let proxy = proxy.clone();
            async move { proxy.send(request).await }
        });
        Client::new(service, self.namespace.as_str())
    }

    /// Rejects the next `times` matching requests with an error; they do not reach the server.
    pub fn reject(
        &self,
        times: usize,
        code: StatusCode,
        matches: impl Fn(&RecordedRequest) -> bool + Send + 'static,
    ) {
        let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(), "reason": reason,
            "message": "rejected by the test",
        });
        self.respond(times, status, matches);
    }

    /// Responds to the next `times` matching requests with this `Status`, for example one of a real server; they do not reach
    /// the server.
    pub fn respond(
        &self,
        times: usize,
        status: Value,
        matches: impl Fn(&RecordedRequest) -> bool + Send + 'static,
    ) {
        self.add_fault(times, Fault::Respond(Arc::new(status)), matches);
    }

    /// Delays the next `times` matching requests.
    pub fn delay(
        &self,
        times: usize,
        time: Duration,
        matches: impl Fn(&RecordedRequest) -> bool + Send + 'static,
    ) {
        self.add_fault(times, Fault::Delay(time), matches);
    }

    /// Loses the responses to the next `times` matching requests: they have their effect, and the connection breaks.
    pub fn lose_response(&self, times: usize, matches: impl Fn(&RecordedRequest) -> bool + Send + 'static) {
        self.add_fault(times, Fault::LoseResponse, matches);
    }

    fn add_fault(
        &self,
        times: usize,
        fault: Fault,
        matches: impl Fn(&RecordedRequest) -> bool + Send + 'static,
    ) {
        let matches = Box::new(matches);
        let plan = PlannedFault {
            times,
            fault,
            matches,
        };
        self.recording.lock().faults.push(plan);
    }

    /// Returns the number of requests so far, including watches.
    pub fn request_count(&self) -> usize {
        self.traffic.borrow().sent
    }

    /// Returns the recorded requests in order.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.recording.lock().requests.clone()
    }

    /// Returns the recorded writes in order.
    pub fn writes(&self) -> Vec<RecordedRequest> {
        let recording = self.recording.lock();
        recording
            .requests
            .iter()
            .filter(|sent| sent.is_write())
            .cloned()
            .collect()
    }

    /// Removes matching requests from the recording, and returns them.
    pub fn take(&self, which: impl FnMut(&mut RecordedRequest) -> bool) -> Vec<RecordedRequest> {
        self.recording.lock().requests.extract_if(.., which).collect()
    }

    /// Clears the recording; the number of requests stays.
    pub fn clear(&self) {
        self.recording.lock().requests.clear();
    }

    /// Waits until a matching request was sent.
    pub async fn wait_until_sent(&self, which: impl Fn(&RecordedRequest) -> bool) -> anyhow::Result<()> {
        let mut traffic = self.traffic.subscribe();
        let seen = async {
            while !self.recording.lock().requests.iter().any(&which) {
                // Cannot fail: `self` has the sender.
                let _ = traffic.changed().await;
            }
        };
        timeout(STEP_TIMEOUT, seen)
            .await
            .context("timed out waiting for the request")
    }

    /// Waits until the process has crashed.
    pub async fn wait_until_crashed(&self) {
        // Cannot fail: `self` has the sender.
        let _ = self.traffic.subscribe().wait_for(|traffic| traffic.crashed).await;
    }

    /// Waits until every request was answered and no new one was sent for this long.
    pub async fn wait_until_idle(&self, long: Duration) {
        let mut traffic = self.traffic.subscribe();
        loop {
            let _ = traffic.wait_for(|traffic| traffic.unanswered == 0).await;
            if timeout(long, traffic.changed()).await.is_err() {
                return;
            }
        }
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        if self.traffic.borrow().crashed {
            return pending().await;
        }
        if parts.uri.path().starts_with(REVIEWS) {
            return self
                .inner
                .send(Request::from_parts(parts, Body::from(body.to_vec())))
                .await;
        }
        let mut number = 0;
        let mut fault = None;
        // Atomic, so that a reader of the counts also finds the recorded request.
        self.traffic.send_modify(|traffic| {
            traffic.sent += 1;
            traffic.unanswered += 1;
            number = traffic.sent;
            fault = self.record(&parts, &body);
        });
        let dies = self
            .crash_at
            .filter(|(n, _)| *n == number)
            .map(|(_, moment)| moment);
        if dies == Some(CrashPoint::Before) {
            return self.crash().await;
        }
        let request = Request::from_parts(parts, Body::from(body.to_vec()));
        if let Some(Fault::Delay(time)) = &fault {
            sleep(*time).await;
        }
        let answer = match fault {
            Some(Fault::Respond(status)) => Ok(status_response(&status)),
            Some(Fault::LoseResponse) => {
                self.inner.send(request).await?;
                let broken = io::Error::from(io::ErrorKind::ConnectionReset);
                Err(kube::Error::Service(broken.into()))
            }
            Some(Fault::Delay(_)) | None => self.inner.send(request).await,
        };
        if dies == Some(CrashPoint::After) {
            return self.crash().await;
        }
        self.traffic.send_modify(|traffic| traffic.unanswered -= 1);
        if self.traffic.borrow().crashed {
            // The process crashed while the request was in flight.
            return pending().await;
        }
        answer
    }

    /// Records the request. Returns its planned fault, if any.
    fn record(&self, parts: &Parts, body: &[u8]) -> Option<Fault> {
        let sent = RecordedRequest::new(parts, body, Instant::now());
        let recording = &mut *self.recording.lock();
        let mut plans = recording.faults.iter_mut();
        let plan = plans.find(|plan| plan.times > 0 && (plan.matches)(&sent));
        let fault = plan.map(|plan| {
            plan.times -= 1;
            plan.fault.clone()
        });
        assert!(
            recording.requests.len() < MAX_REQUESTS,
            "more than {MAX_REQUESTS} requests, probably a loop; the last is {sent}"
        );
        recording.requests.push(sent);
        fault
    }

    async fn crash<T>(&self) -> T {
        self.traffic.send_modify(|traffic| traffic.crashed = true);
        pending().await
    }
}

fn status_response(status: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(status.to_string().into_bytes()));
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let code = code.and_then(|code| StatusCode::from_u16(code).ok());
    *response.status_mut() = code.expect("the `Status` has a valid code");
    response
}
