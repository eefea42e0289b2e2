//! Well-behaved clients: each owns some objects, and changes and reads them at its own rate.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fastrand::Rng;
use serde_json::json;
use tokio::{sync::watch, time::Instant};

use super::{
    endpoint::{Connection, Endpoint, Protocol, ReadResponse},
    latency::Histogram,
    model::{Event, Log},
};

/// Number of namespaces that the clients share.
pub(crate) const NAMESPACES: usize = 8;

/// Number of objects per client.
const OBJECTS: usize = 6;

/// Namespace of the clients whose connections die; the outcome of their writes is unknown.
pub(crate) const DYING_NAMESPACE: &str = "dying";

/// Results of all clients of a run.
#[derive(Default)]
pub(crate) struct Shared {
    logs: BTreeMap<String, Mutex<Log>>,
    latency: Mutex<Histogram>,
    /// Responses and errors that a well-behaved client should not get, with counts.
    unexpected: Mutex<BTreeMap<String, u64>>,
    violations: Mutex<Vec<String>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new() -> Arc<Self> {
        let logs = (0..NAMESPACES).map(|number| (namespace(number), Mutex::default()));
        Arc::new(Self {
            logs: logs.collect(),
            ..Self::default()
        })
    }

    /// Returns the log of a namespace; `None` if it is not modelled.
    pub(crate) fn log(&self, namespace: &str) -> Option<&Mutex<Log>> {
        self.logs.get(namespace)
    }

    pub(crate) fn record_unexpected(&self, what: String) {
        *lock(&self.unexpected).entry(what).or_default() += 1;
    }

    pub(crate) fn unexpected(&self) -> BTreeMap<String, u64> {
        lock(&self.unexpected).clone()
    }

    /// Records violations of a watch.
    pub(crate) fn add_violations(&self, what: impl IntoIterator<Item = String>) {
        let mut violations = lock(&self.violations);
        let room = 1_000_usize.saturating_sub(violations.len());
        violations.extend(what.into_iter().take(room));
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        lock(&self.violations).clone()
    }

    pub(crate) fn latency(&self) -> Histogram {
        lock(&self.latency).clone()
    }
}

pub(crate) fn namespace(number: usize) -> String {
    format!("soak-{}", number % NAMESPACES)
}

/// A client.
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) endpoint: Endpoint,
    pub(crate) shared: Arc<Shared>,
    /// Average pause between requests.
    pub(crate) pause: Duration,
    pub(crate) rng: Rng,
    pub(crate) stop: watch::Receiver<bool>,
}

impl Worker {
    fn protocol(&self) -> Protocol {
        if self.number.is_multiple_of(2) {
            Protocol::Http2
        } else {
            Protocol::Http1
        }
    }

    /// Works until `stop` is set. Latency counts from the time at which a request was due, so that waiting for the
    /// previous request counts too, as it does for a user.
    pub(crate) async fn run(mut self) {
        let mut owned = OwnedObjects::new(self.number);
        let mut connection = None;
        let mut due = Instant::now() + self.pause.mul_f64(self.rng.f64());
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                _ = self.stop.wait_for(|stop| *stop) => break,
            }
            if connection.is_none() {
                connection = match self.endpoint.connect(self.protocol()).await {
                    Ok(connection) => Some(connection),
                    Err(error) => {
                        self.shared
                            .record_unexpected(format!("connect: {}", short_message(&error)));
                        due = Instant::now() + Duration::from_secs(1);
                        continue;
                    }
                };
            }
            if let Some(open) = &mut connection
                && let Err(error) = owned.step(open, &self.shared, &mut self.rng).await
            {
                self.shared.record_unexpected(short_message(&error));
                connection = None;
            }
            lock(&self.shared.latency).add(due.elapsed());
            due += self.pause.mul_f64(0.5 + self.rng.f64());
        }
    }
}

fn short_message(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.split(" (")
        .next()
        .unwrap_or_default()
        .chars()
        .take(120)
        .collect()
}

/// The objects of one client: name, and revision if the object exists.
struct OwnedObjects {
    namespace: String,
    path: String,
    objects: Vec<(String, Option<u64>)>,
    changes: u64,
}

impl OwnedObjects {
    fn new(client: usize) -> Self {
        let namespace = namespace(client);
        let names = (0..OBJECTS).map(|number| (format!("c{client}-{number}"), None));
        Self {
            path: format!("/api/v1/namespaces/{namespace}/configmaps"),
            namespace,
            objects: names.collect(),
            changes: 0,
        }
    }

    /// Sends one request and updates the model with the response.
    async fn step(
        &mut self,
        connection: &mut Connection,
        shared: &Shared,
        rng: &mut Rng,
    ) -> anyhow::Result<()> {
        let place = rng.usize(..self.objects.len());
        let (name, revision) = self.objects[place].clone();
        let object = format!("{}/{name}", self.path);
        self.changes += 1;
        let payload = "x".repeat(rng.usize(20..2_000));
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"app": "soak", "n": (self.changes % 10).to_string()}},
            "data": {"change": self.changes.to_string(), "payload": payload},
        })
        .to_string();
        let json = "application/json";
        let merge = "application/merge-patch+json";
        let apply = "application/apply-patch+yaml";
        let (write, sent) = match (rng.u8(..100), revision) {
            (0..15, _) => {
                expect(&connection.get(&object).await?, &[200, 404], shared);
                return Ok(());
            }
            (15..25, _) => {
                let list = format!("{}?limit=50&labelSelector=n%3D{}", self.path, rng.u8(..10));
                expect(&connection.get(&list).await?, &[200], shared);
                return Ok(());
            }
            (25..30, _) => {
                expect(
                    &connection.get("/api/v1/configmaps?limit=20").await?,
                    &[200],
                    shared,
                );
                return Ok(());
            }
            (30..40, Some(_)) => {
                let response = connection.send("DELETE", &object, "", "").await;
                let response = self.outcome(response, shared)?;
                self.objects[place].1 = None;
                expect(&response, &[200], shared);
                return Ok(());
            }
            (30..70, None) => (
                Event::Added,
                connection.send("POST", &self.path, json, body).await,
            ),
            (_, None) => {
                let apply_to = format!("{object}?fieldManager=soak&force=true");
                (
                    Event::Added,
                    connection.send("PATCH", &apply_to, apply, body).await,
                )
            }
            (40..60, Some(_)) => (Event::Modified, connection.send("PUT", &object, json, body).await),
            (60..80, Some(_)) => (
                Event::Modified,
                connection.send("PATCH", &object, merge, body).await,
            ),
            (_, Some(_)) => {
                let apply_to = format!("{object}?fieldManager=soak&force=true");
                (
                    Event::Modified,
                    connection.send("PATCH", &apply_to, apply, body).await,
                )
            }
        };
        let response = self.outcome(sent, shared)?;
        if let (200 | 201, Some(now)) = (response.code, response.revision()) {
            self.objects[place].1 = Some(now);
            if revision != Some(now)
                && let Some(log) = shared.log(&self.namespace)
            {
                lock(log).acknowledge(now, &name, write);
            }
            return Ok(());
        }
        // Read the state again: the response may be for a write that was repeated after an unknown outcome.
        let found = connection.get(&object).await?;
        self.objects[place].1 = found.revision().filter(|_| found.code == 200);
        expect(&response, &[200, 201], shared);
        Ok(())
    }

    /// Handles the outcome of a write; a write without a response may have happened.
    fn outcome(
        &mut self,
        sent: anyhow::Result<ReadResponse>,
        shared: &Shared,
    ) -> anyhow::Result<ReadResponse> {
        let is_unknown = sent.as_ref().map_or(true, |response| response.code >= 500);
        if is_unknown && let Some(log) = shared.log(&self.namespace) {
            lock(log).unknown();
        }
        sent
    }
}

/// Counts unexpected responses, including 429.
fn expect(response: &ReadResponse, codes: &[u16], shared: &Shared) {
    if !codes.contains(&response.code) {
        let reason = response.json()["reason"].as_str().unwrap_or_default().to_owned();
        shared.record_unexpected(format!("{} {reason}", response.code));
    }
}

/// A client whose connections die at random points of a request.
pub(crate) async fn run_with_dying_connections(
    endpoint: Endpoint,
    mut rng: Rng,
    mut stop: watch::Receiver<bool>,
) {
    use tokio::io::AsyncWriteExt;
    let mut number = 0_u64;
    loop {
        let pause = Duration::from_millis(rng.u64(50..400));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        number += 1;
        let path = format!("/api/v1/namespaces/{DYING_NAMESPACE}/configmaps");
        if rng.bool() {
            // In the middle of the response, or before it.
            if let Ok(mut connection) = endpoint.connect(Protocol::Http2).await {
                let body = json!({"metadata": {"generateName": "d-"}, "data": {"n": number.to_string()}})
                    .to_string();
                let wait = Duration::from_micros(rng.u64(..3_000));
                tokio::time::timeout(wait, connection.send("POST", &path, "application/json", body))
                    .await
                    .ok();
                if number.is_multiple_of(20) {
                    connection.send("DELETE", &path, "", "").await.ok();
                }
            }
        } else if let (Ok(mut stream), Ok(head)) = (
            endpoint.tls(Protocol::Http1).await,
            endpoint.head("POST", &path, 4_000),
        ) {
            let sent = [head.as_bytes(), &[b' '; 2_000]].concat();
            let cut = rng.usize(..sent.len());
            stream.write_all(&sent[..cut]).await.ok();
            stream.flush().await.ok();
        }
    }
}
