//! What lies between a program and its API server, in the hands of a test.
//!
//! ```text
//!   controller ──► Wire::client ──► dead? ──► note it ──► a fault for it? ──► the server
//!                                     │                          ▲                │
//!             nothing comes back ◄────┘                          │                ▼
//!                                              the n-th request kills before or after this
//! ```
//!
//! The wire owns the notes; its clients add to them. One that died stays dead: to the server, and to whoever waits for an
//! answer, it is as if the process were gone.

use std::{future::pending, sync::Arc, time::Duration};

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

use crate::{DEADLINE, sent::Sent};

/// More requests than any case makes: whoever makes more is in a loop.
const MOST: usize = 100_000;

/// A client's way to its server: it notes what is sent, and can refuse it or break. Clones are the same wire.
///
/// ```
/// # async fn example() -> anyhow::Result<()> {
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::{Api, api::{DeleteParams, ListParams}};
/// use windlass_cluster::Cluster;
/// use windlass_suite::Wire;
///
/// let cluster = Cluster::embedded().start().await?;
/// let wire = Wire::new(&cluster.client());
/// let configs = Api::<ConfigMap>::default_namespaced(wire.client());
/// configs.list(&ListParams::default()).await?;
/// configs.delete("a", &DeleteParams::default()).await.unwrap_err();
/// assert_eq!(wire.requests(), 2);
/// assert_eq!(wire.writes()[0].to_string(), "delete configmaps/a");
/// # Ok(()) }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
pub struct Wire {
    inner: Client,
    /// What its clients take for their own where nobody says one.
    namespace: String,
    death: Option<(usize, Moment)>,
    notes: Arc<Mutex<Notes>>,
    traffic: watch::Sender<Traffic>,
}

/// When in the course of a request a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the request reaches the server.
    Before,
    /// After it had its effect, and before the answer is there.
    After,
}

#[derive(Default)]
struct Notes {
    sent: Vec<Sent>,
    plans: Vec<Plan>,
}

/// What happens to the next requests of a kind.
struct Plan {
    times: usize,
    fault: Fault,
    concerns: Box<dyn Fn(&Sent) -> bool + Send>,
}

#[derive(Clone)]
enum Fault {
    /// The server does not get to see it; the answer is this `Status`.
    Refuse(Arc<Value>),
    /// The server gets it after this time.
    Delay(Duration),
}

/// What passes at the moment.
#[derive(Clone, Copy, Default)]
struct Traffic {
    sent: usize,
    unanswered: usize,
    dead: bool,
}

impl Wire {
    /// A wire that holds.
    pub fn new(client: &Client) -> Self {
        Self {
            inner: client.clone(),
            namespace: client.default_namespace().to_owned(),
            death: None,
            notes: Arc::default(),
            traffic: watch::Sender::default(),
        }
    }

    /// A wire whose process dies at the `n`-th request, counted from one.
    pub fn that_breaks(client: &Client, n: usize, moment: Moment) -> Self {
        Self {
            death: Some((n, moment)),
            ..Self::new(client)
        }
    }

    /// The same for programs that take this namespace for their own, as a pod does. Default: the client's.
    #[must_use]
    pub fn within(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// A client whose requests take this wire.
    pub fn client(&self) -> Client {
        let wire = self.clone();
        let service = tower::service_fn(move |request| {
            let wire = wire.clone();
            async move { wire.pass(request).await }
        });
        Client::new(service, self.namespace.as_str())
    }

    /// Answers the next so many requests that this concerns with an error, and the server does not see them.
    pub fn refuse(&self, times: usize, code: StatusCode, concerns: impl Fn(&Sent) -> bool + Send + 'static) {
        let reason = code.canonical_reason().unwrap_or_default().replace(' ', "");
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(), "reason": reason,
            "message": "the test refuses it",
        });
        self.answer(times, status, concerns);
    }

    /// Answers the next so many requests that this concerns with this `Status`, for example the words of a real server, and
    /// the server does not see them.
    pub fn answer(&self, times: usize, status: Value, concerns: impl Fn(&Sent) -> bool + Send + 'static) {
        self.plan(times, Fault::Refuse(Arc::new(status)), concerns);
    }

    /// Lets the next so many requests that this concerns take this much longer.
    pub fn delay(&self, times: usize, time: Duration, concerns: impl Fn(&Sent) -> bool + Send + 'static) {
        self.plan(times, Fault::Delay(time), concerns);
    }

    fn plan(&self, times: usize, fault: Fault, concerns: impl Fn(&Sent) -> bool + Send + 'static) {
        let concerns = Box::new(concerns);
        let plan = Plan {
            times,
            fault,
            concerns,
        };
        self.notes.lock().plans.push(plan);
    }

    /// How many requests were sent so far, watches included.
    pub fn requests(&self) -> usize {
        self.traffic.borrow().sent
    }

    /// Everything that was sent and not forgotten, in order.
    pub fn sent(&self) -> Vec<Sent> {
        self.notes.lock().sent.clone()
    }

    /// Those of it that were meant to change something.
    pub fn writes(&self) -> Vec<Sent> {
        let notes = self.notes.lock();
        notes
            .sent
            .iter()
            .filter(|sent| sent.is_write())
            .cloned()
            .collect()
    }

    /// Takes these out of the notes.
    pub fn take(&self, which: impl FnMut(&mut Sent) -> bool) -> Vec<Sent> {
        self.notes.lock().sent.extract_if(.., which).collect()
    }

    /// Forgets what was noted; the number of requests goes on.
    pub fn forget(&self) {
        self.notes.lock().sent.clear();
    }

    /// Returns when such a request was sent.
    pub async fn seen(&self, which: impl Fn(&Sent) -> bool) -> anyhow::Result<()> {
        let mut traffic = self.traffic.subscribe();
        let seen = async {
            while !self.notes.lock().sent.iter().any(&which) {
                // The sender is this wire's own.
                let _ = traffic.changed().await;
            }
        };
        timeout(DEADLINE, seen).await.context("it is not sent")
    }

    /// Returns when the process has died.
    pub async fn died(&self) {
        // The sender is this wire's own.
        let _ = self.traffic.subscribe().wait_for(|traffic| traffic.dead).await;
    }

    /// Returns when every request was answered and none came for this long.
    pub async fn quiet(&self, long: Duration) {
        let mut traffic = self.traffic.subscribe();
        loop {
            let _ = traffic.wait_for(|traffic| traffic.unanswered == 0).await;
            if timeout(long, traffic.changed()).await.is_err() {
                return;
            }
        }
    }

    async fn pass(&self, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        if self.traffic.borrow().dead {
            return pending().await;
        }
        let mut number = 0;
        let mut fault = None;
        // At once: who sees the traffic sees the note.
        self.traffic.send_modify(|traffic| {
            traffic.sent += 1;
            traffic.unanswered += 1;
            number = traffic.sent;
            fault = self.note(&parts, &body);
        });
        let dies = self.death.filter(|(n, _)| *n == number).map(|(_, moment)| moment);
        if dies == Some(Moment::Before) {
            return self.die().await;
        }
        let request = Request::from_parts(parts, Body::from(body.to_vec()));
        if let Some(Fault::Delay(time)) = &fault {
            sleep(*time).await;
        }
        let answer = match fault {
            Some(Fault::Refuse(status)) => Ok(refusal(&status)),
            _ => self.inner.send(request).await,
        };
        if dies == Some(Moment::After) {
            return self.die().await;
        }
        self.traffic.send_modify(|traffic| traffic.unanswered -= 1);
        if self.traffic.borrow().dead {
            // It was on its way when the process died.
            return pending().await;
        }
        answer
    }

    /// Takes a note. Says what happens to the request, if anything does.
    fn note(&self, parts: &Parts, body: &[u8]) -> Option<Fault> {
        let sent = Sent::new(parts, body, Instant::now());
        let notes = &mut *self.notes.lock();
        let mut plans = notes.plans.iter_mut();
        let plan = plans.find(|plan| plan.times > 0 && (plan.concerns)(&sent));
        let fault = plan.map(|plan| {
            plan.times -= 1;
            plan.fault.clone()
        });
        assert!(notes.sent.len() < MOST, "a loop of requests; the last is {sent}");
        notes.sent.push(sent);
        fault
    }

    async fn die<T>(&self) -> T {
        self.traffic.send_modify(|traffic| traffic.dead = true);
        pending().await
    }
}

fn refusal(status: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(status.to_string().into_bytes()));
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
    let code = code.and_then(|code| StatusCode::from_u16(code).ok());
    *response.status_mut() = code.expect("a `Status` with the code of an answer");
    response
}
