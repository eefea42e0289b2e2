//! Candidates on an embedded server, each on a line of its own that can be cut, slowed down and listened to.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::{collections::VecDeque, convert::Infallible, future::Future, sync::Arc, time::Duration};

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::ConfigMap};
use kube::{Api, Client, api::PostParams, client::Body};
use parking_lot::Mutex;
use tokio::{sync::oneshot, task::JoinHandle};
use tower::{ServiceExt, service_fn};
use windlass_apiserver::Server;
use windlass_runtime::{Election, ElectionConfig, ElectionError, ElectionStatus, Epoch, Fence, Leadership};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// What happens to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It is carried out after this time.
    Slow(Duration),
    /// It never arrives.
    Lost,
    /// It is carried out, and the answer never arrives.
    AnswerLost,
    /// The server answers with this code instead.
    Refused(u16),
}

/// A connection to the server.
#[derive(Clone)]
pub(crate) struct Line(Arc<Mutex<Wires>>);

#[derive(Default)]
struct Wires {
    /// What happens to the next requests, one each.
    next: VecDeque<Option<Fault>>,
    /// What happens to all others.
    always: Option<Fault>,
    log: Vec<String>,
}

impl Line {
    pub(crate) fn always(&self, fault: Option<Fault>) {
        self.0.lock().always = fault;
    }

    pub(crate) fn next(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.0.lock().next.extend(faults);
    }

    /// The methods of the requests since the last call.
    pub(crate) fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().log)
    }
}

/// A client on a new line.
pub(crate) fn connect(server: &Server) -> (Client, Line) {
    let line = Line(Arc::default());
    let (server, wires) = (server.clone(), line.clone());
    let service = service_fn(move |request: Request<Body>| {
        let fault = {
            let mut wires = wires.0.lock();
            wires.log.push(request.method().to_string());
            wires.next.pop_front().unwrap_or(wires.always)
        };
        let server = server.clone();
        async move { Ok::<_, Infallible>(carry(server, request, fault).await) }
    });
    (Client::new(service, "default"), line)
}

/// Carries a request to the server and the answer back.
pub(crate) async fn carry(server: Server, request: Request<Body>, fault: Option<Fault>) -> Response<Body> {
    match fault {
        Some(Fault::Slow(time)) => tokio::time::sleep(time).await,
        Some(Fault::Lost) => std::future::pending().await,
        Some(Fault::Refused(code)) => {
            let status = serde_json::json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Test", "code": code
            });
            let mut response = Response::new(Body::from(status.to_string().into_bytes()));
            *response.status_mut() = StatusCode::from_u16(code).expect("a code");
            return response;
        }
        Some(Fault::AnswerLost) | None => {}
    }
    let Ok(response) = server.oneshot(request).await;
    if let Some(Fault::AnswerLost) = fault {
        std::future::pending::<()>().await;
    }
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("whole").to_bytes();
    Response::from_parts(parts, Body::from(bytes))
}

/// An election that runs.
pub(crate) struct Candidate {
    pub(crate) line: Line,
    pub(crate) client: Client,
    pub(crate) status: ElectionStatus,
    pub(crate) fence: Fence,
    stop: Option<oneshot::Sender<()>>,
    ended: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), ElectionError>>,
}

impl Candidate {
    pub(crate) fn start(server: &Server, config: ElectionConfig) -> Self {
        let (client, line) = connect(server);
        let election = Election::new(client.clone(), config).expect("a good configuration");
        let (status, fence) = (election.status(), election.fence());
        let (stop, stopping) = oneshot::channel::<()>();
        let (end, ended) = oneshot::channel::<()>();
        let task =
            tokio::spawn(election.run_until(async { drop(stopping.await) }, async { drop(ended.await) }));
        Self {
            line,
            client,
            status,
            fence,
            stop: Some(stop),
            ended: Some(end),
            task,
        }
    }

    /// Waits until this candidate leads, and returns the term.
    pub(crate) async fn leads(&self) -> Epoch {
        self.status.changed_from(None).await.expect("it leads")
    }

    /// Waits until this candidate does not lead.
    pub(crate) async fn follows(&self) {
        let mut leadership = self.status.subscribe();
        let changed = leadership.wait_for(|now| now.epoch().is_none()).await;
        drop(changed.expect("the status is alive"));
    }

    pub(crate) fn epoch(&self) -> Option<u64> {
        self.status.leadership().epoch().map(|Epoch(epoch)| epoch)
    }

    pub(crate) fn follows_holder(&self) -> Option<String> {
        match self.status.leadership() {
            Leadership::Follower { holder } => holder,
            Leadership::Leader { .. } => None,
        }
    }

    pub(crate) fn begin_stop(&mut self) {
        self.stop = None;
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Says that the leader's work is over, and waits for the end.
    pub(crate) async fn stop(mut self) -> Result<(), ElectionError> {
        self.begin_stop();
        self.ended = None;
        self.ends().await
    }

    /// Waits until the election ends by itself.
    pub(crate) async fn ends(self) -> Result<(), ElectionError> {
        let Self {
            stop, ended, task, ..
        } = self;
        let result = task.await.expect("it does not panic");
        drop((stop, ended));
        result
    }

    /// The process dies.
    pub(crate) async fn crash(self) {
        self.task.abort();
        assert!(self.task.await.is_err(), "it was still running");
    }
}

pub(crate) fn config() -> ElectionConfig {
    ElectionConfig::new("lock").identity("me")
}

pub(crate) async fn lease(server: &Server) -> Option<Lease> {
    let client = Client::new(server.clone(), "default");
    Api::default_namespaced(client)
        .get_opt("lock")
        .await
        .expect("readable")
}

pub(crate) async fn holder(server: &Server) -> String {
    let spec = lease(server).await.and_then(|lease| lease.spec);
    spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
}

/// Creates an object: a write like any other.
pub(crate) fn write(client: &Client, name: &str) -> impl Future<Output = kube::Result<ConfigMap>> + use<> {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    async move { api.create(&PostParams::default(), &object).await }
}

/// Lets everything happen that needs no time.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
