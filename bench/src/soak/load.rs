//! Clients that behave: each owns some objects, and changes and reads them at its own pace.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fastrand::Rng;
use serde_json::json;
use tokio::{sync::watch, time::Instant};

use super::{
    latency::Histogram,
    model::{Event, Log},
    wire::{Answer, Line, Protocol, Wire},
};

/// How many namespaces the clients share.
pub(crate) const NAMESPACES: usize = 8;

/// How many objects each client owns.
const OBJECTS: usize = 6;

/// Where clients work whose connections die: what became of their writes is not known.
pub(crate) const DYING: &str = "dying";

/// What all clients of a run report to.
#[derive(Default)]
pub(crate) struct Shared {
    logs: BTreeMap<String, Mutex<Log>>,
    latency: Mutex<Histogram>,
    /// Answers and errors that a client that behaves should not get, by what they are.
    surprises: Mutex<BTreeMap<String, u64>>,
    wrong: Mutex<Vec<String>>,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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

    /// `None` for a namespace that is not modelled.
    pub(crate) fn log(&self, namespace: &str) -> Option<&Mutex<Log>> {
        self.logs.get(namespace)
    }

    pub(crate) fn surprise(&self, what: String) {
        *locked(&self.surprises).entry(what).or_default() += 1;
    }

    pub(crate) fn surprises(&self) -> BTreeMap<String, u64> {
        locked(&self.surprises).clone()
    }

    /// Notes what is wrong with a watch.
    pub(crate) fn wrong(&self, what: impl IntoIterator<Item = String>) {
        let mut wrong = locked(&self.wrong);
        let room = 1_000_usize.saturating_sub(wrong.len());
        wrong.extend(what.into_iter().take(room));
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        locked(&self.wrong).clone()
    }

    pub(crate) fn latency(&self) -> Histogram {
        locked(&self.latency).clone()
    }
}

pub(crate) fn namespace(number: usize) -> String {
    format!("soak-{}", number % NAMESPACES)
}

/// One client.
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) wire: Wire,
    pub(crate) shared: Arc<Shared>,
    /// On average.
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

    /// Works until it is told to stop. Latency counts from when a request was due, so that one that waits for the one before it
    /// is late, as it is for its user.
    pub(crate) async fn run(mut self) {
        let mut owned = Owned::new(self.number);
        let mut line = None;
        let mut due = Instant::now() + self.pause.mul_f64(self.rng.f64());
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                _ = self.stop.wait_for(|stop| *stop) => break,
            }
            if line.is_none() {
                line = match self.wire.connect(self.protocol()).await {
                    Ok(line) => Some(line),
                    Err(error) => {
                        self.shared.surprise(format!("connect: {}", short(&error)));
                        due = Instant::now() + Duration::from_secs(1);
                        continue;
                    }
                };
            }
            if let Some(open) = &mut line
                && let Err(error) = owned.step(open, &self.shared, &mut self.rng).await
            {
                self.shared.surprise(short(&error));
                line = None;
            }
            locked(&self.shared.latency).add(due.elapsed());
            due += self.pause.mul_f64(0.5 + self.rng.f64());
        }
    }
}

fn short(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.split(" (")
        .next()
        .unwrap_or_default()
        .chars()
        .take(120)
        .collect()
}

/// The objects of one client: name and revision, if it is there.
struct Owned {
    namespace: String,
    path: String,
    objects: Vec<(String, Option<u64>)>,
    changes: u64,
}

impl Owned {
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

    /// One request, and what its answer means for the model.
    async fn step(&mut self, line: &mut Line, shared: &Shared, rng: &mut Rng) -> anyhow::Result<()> {
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
                expect(&line.get(&object).await?, &[200, 404], shared);
                return Ok(());
            }
            (15..25, _) => {
                let list = format!("{}?limit=50&labelSelector=n%3D{}", self.path, rng.u8(..10));
                expect(&line.get(&list).await?, &[200], shared);
                return Ok(());
            }
            (25..30, _) => {
                expect(&line.get("/api/v1/configmaps?limit=20").await?, &[200], shared);
                return Ok(());
            }
            (30..40, Some(_)) => {
                let answer = line.send("DELETE", &object, "", "").await;
                let answer = self.outcome(answer, shared)?;
                self.objects[place].1 = None;
                expect(&answer, &[200], shared);
                return Ok(());
            }
            (30..70, None) => (Event::Added, line.send("POST", &self.path, json, body).await),
            (_, None) => {
                let apply_to = format!("{object}?fieldManager=soak&force=true");
                (Event::Added, line.send("PATCH", &apply_to, apply, body).await)
            }
            (40..60, Some(_)) => (Event::Modified, line.send("PUT", &object, json, body).await),
            (60..80, Some(_)) => (Event::Modified, line.send("PATCH", &object, merge, body).await),
            (_, Some(_)) => {
                let apply_to = format!("{object}?fieldManager=soak&force=true");
                (Event::Modified, line.send("PATCH", &apply_to, apply, body).await)
            }
        };
        let answer = self.outcome(sent, shared)?;
        if let (200 | 201, Some(now)) = (answer.code, answer.revision()) {
            self.objects[place].1 = Some(now);
            if revision != Some(now)
                && let Some(log) = shared.log(&self.namespace)
            {
                locked(log).acknowledge(now, &name, write);
            }
            return Ok(());
        }
        // What is there is asked for again: the answer may be to a write that was repeated after an unknown outcome.
        let found = line.get(&object).await?;
        self.objects[place].1 = found.revision().filter(|_| found.code == 200);
        expect(&answer, &[200, 201], shared);
        Ok(())
    }

    /// A write without an answer may have happened.
    fn outcome(&mut self, sent: anyhow::Result<Answer>, shared: &Shared) -> anyhow::Result<Answer> {
        let is_unknown = sent.as_ref().map_or(true, |answer| answer.code >= 500);
        if is_unknown && let Some(log) = shared.log(&self.namespace) {
            locked(log).unknown();
        }
        sent
    }
}

/// Counts answers that should not be; being told to come back later is one of them.
fn expect(answer: &Answer, codes: &[u16], shared: &Shared) {
    if !codes.contains(&answer.code) {
        let reason = answer.json()["reason"].as_str().unwrap_or_default().to_owned();
        shared.surprise(format!("{} {reason}", answer.code));
    }
}

/// A client whose connections die, at any point of a request.
pub(crate) async fn die_again_and_again(wire: Wire, mut rng: Rng, mut stop: watch::Receiver<bool>) {
    use tokio::io::AsyncWriteExt;
    let mut number = 0_u64;
    loop {
        let pause = Duration::from_millis(rng.u64(50..400));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        number += 1;
        let path = format!("/api/v1/namespaces/{DYING}/configmaps");
        if rng.bool() {
            // In the middle of the answer, or before it.
            if let Ok(mut line) = wire.connect(Protocol::Http2).await {
                let body = json!({"metadata": {"generateName": "d-"}, "data": {"n": number.to_string()}})
                    .to_string();
                let wait = Duration::from_micros(rng.u64(..3_000));
                tokio::time::timeout(wait, line.send("POST", &path, "application/json", body))
                    .await
                    .ok();
                if number.is_multiple_of(20) {
                    line.send("DELETE", &path, "", "").await.ok();
                }
            }
        } else if let (Ok(mut stream), Ok(head)) =
            (wire.tls(Protocol::Http1).await, wire.head("POST", &path, 4_000))
        {
            let sent = [head.as_bytes(), &[b' '; 2_000]].concat();
            let cut = rng.usize(..sent.len());
            stream.write_all(&sent[..cut]).await.ok();
            stream.flush().await.ok();
        }
    }
}
