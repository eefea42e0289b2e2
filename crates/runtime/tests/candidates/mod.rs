//! Election candidates on an embedded server, each with a connection that can fail, be delayed and be recorded.

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

/// Fault of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Processed after this delay.
    Slow(Duration),
    /// Lost on the way to the server.
    Lost,
    /// Processed, but the response is lost.
    ResponseLost,
    /// Answered with this status code instead.
    Refused(u16),
}

/// Faults and log of a connection to the server.
#[derive(Clone)]
pub(crate) struct FaultyConnection(Arc<Mutex<ConnectionState>>);

#[derive(Default)]
struct ConnectionState {
    /// Faults of the next requests, one each.
    next: VecDeque<Option<Fault>>,
    /// Fault of all other requests.
    always: Option<Fault>,
    log: Vec<String>,
}

impl FaultyConnection {
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

/// A client with a new connection.
pub(crate) fn connect(server: &Server) -> (Client, FaultyConnection) {
    let connection = FaultyConnection(Arc::default());
    let (server, faults) = (server.clone(), connection.clone());
    let service = service_fn(move |request: Request<Body>| {
        let fault = {
            let mut state = faults.0.lock();
            state.log.push(request.method().to_string());
            state.next.pop_front().unwrap_or(state.always)
        };
        let server = server.clone();
        async move { Ok::<_, Infallible>(forward(server, request, fault).await) }
    });
    (Client::new(service, "default"), connection)
}

pub(crate) async fn forward(server: Server, request: Request<Body>, fault: Option<Fault>) -> Response<Body> {
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
        Some(Fault::ResponseLost) | None => {}
    }
    let Ok(response) = server.oneshot(request).await;
    if let Some(Fault::ResponseLost) = fault {
        std::future::pending::<()>().await;
    }
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("whole").to_bytes();
    Response::from_parts(parts, Body::from(bytes))
}

/// A running election.
pub(crate) struct Candidate {
    pub(crate) connection: FaultyConnection,
    pub(crate) client: Client,
    pub(crate) status: ElectionStatus,
    pub(crate) fence: Fence,
    stop: Option<oneshot::Sender<()>>,
    ended: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), ElectionError>>,
}

impl Candidate {
    pub(crate) fn start(server: &Server, config: ElectionConfig) -> Self {
        let (client, connection) = connect(server);
        let election = Election::new(client.clone(), config).expect("valid configuration");
        let (status, fence) = (election.status(), election.fence());
        let (stop, stopping) = oneshot::channel::<()>();
        let (end, ended) = oneshot::channel::<()>();
        let task =
            tokio::spawn(election.run_until(async { drop(stopping.await) }, async { drop(ended.await) }));
        Self {
            connection,
            client,
            status,
            fence,
            stop: Some(stop),
            ended: Some(end),
            task,
        }
    }

    /// Waits until this candidate leads, and returns the term.
    pub(crate) async fn wait_until_leader(&self) -> Epoch {
        self.status.changed_from(None).await.expect("the candidate leads")
    }

    /// Waits until this candidate does not lead.
    pub(crate) async fn wait_until_follower(&self) {
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

    /// Ends the leader's work, and waits for the election to end.
    pub(crate) async fn stop(mut self) -> Result<(), ElectionError> {
        self.begin_stop();
        self.ended = None;
        self.wait_until_ended().await
    }

    pub(crate) async fn wait_until_ended(self) -> Result<(), ElectionError> {
        let Self {
            stop, ended, task, ..
        } = self;
        let result = task.await.expect("no panic");
        drop((stop, ended));
        result
    }

    /// Crashes the process.
    pub(crate) async fn crash(self) {
        self.task.abort();
        assert!(self.task.await.is_err(), "the election was still running");
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

/// Creates an object, as an example of a write.
pub(crate) fn write(client: &Client, name: &str) -> impl Future<Output = kube::Result<ConfigMap>> + use<> {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    async move { api.create(&PostParams::default(), &object).await }
}

/// Runs all tasks that wait for no timer.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
