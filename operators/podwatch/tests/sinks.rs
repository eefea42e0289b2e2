//! The program with several sinks, one of them dead, and what each receives after the process was killed.

use std::{convert::Infallible, process::Stdio, time::Duration};

use http_body_util::{BodyExt, Empty};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::TcpListener,
    process::{Child, ChildStdout, Command},
    sync::mpsc,
    time::timeout,
};
use windlass::{
    k8s_openapi::api::core::v1::ConfigMap,
    kube::{
        Api,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    },
    prelude::*,
};
use windlass_cluster::Cluster;

/// Longer than any step takes, so that only a hang exceeds it.
const DEADLINE: Duration = Duration::from_mins(1);

struct Fixture {
    cluster: Cluster,
    folder: tempfile::TempDir,
    port: u16,
}

impl Fixture {
    async fn new() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        Self {
            cluster: Cluster::embedded().start().await.expect("a cluster"),
            folder: tempfile::tempdir().expect("a folder"),
            port: free.local_addr().expect("an address").port(),
        }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn start(&self) -> (Child, Lines<BufReader<ChildStdout>>) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_podwatch"))
            .arg("--kubeconfig")
            .arg(self.cluster.kubeconfig().expect("a file"))
            .args(["--no-listen", "--kind", "configmaps", "--selector", "shown"])
            .args(["--sink", "stdout:json"])
            .arg("--sink")
            .arg(format!("file:{}", self.path("lines")))
            .arg("--sink")
            .arg(format!("webhook:http://127.0.0.1:{}/s3cret,name=hook", self.port))
            .arg("--state")
            .arg(self.path("state"))
            .env_clear()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("it starts");
        let stdout = child.stdout.take().expect("it is piped");
        (child, BufReader::new(stdout).lines())
    }

    fn configs(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.cluster.client())
    }

    async fn create(&self, name: &str) {
        let config =
            json!({ "metadata": { "name": name, "labels": { "shown": "" } }, "data": { "text": "1" } });
        let config = from_value(config).expect("an object");
        let created = self.configs().create(&PostParams::default(), &config).await;
        created.expect("created");
    }

    async fn change(&self, name: &str) {
        let patch = Patch::Merge(json!({ "data": { "text": "2" } }));
        let changed = self.configs().patch(name, &PatchParams::default(), &patch).await;
        changed.expect("changed");
    }

    /// Starts the webhook's server on the reserved port.
    async fn listen(&self) -> mpsc::Receiver<Value> {
        let listener = TcpListener::bind(("127.0.0.1", self.port))
            .await
            .expect("still free");
        let (events, received) = mpsc::channel(100);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let events = events.clone();
                let service = service_fn(move |request: Request<Incoming>| {
                    let events = events.clone();
                    async move {
                        let body = request.into_body().collect().await.expect("a body").to_bytes();
                        let event = serde_json::from_slice(&body).expect("JSON");
                        events.send(event).await.expect("the test receives");
                        Ok::<_, Infallible>(Response::new(Empty::<&[u8]>::new()))
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        received
    }
}

async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> Value {
    let line = timeout(DEADLINE, lines.next_line()).await.expect("a line");
    let line = line.expect("text").expect("it still prints");
    serde_json::from_str(&line).expect("JSON")
}

/// Summarizes a notice, as in `a deleted`, or `b 2` for a state.
fn summary(notice: &Value) -> String {
    let name = notice["name"].as_str().expect("a name");
    match notice["event"].as_str() {
        Some("deleted") => format!("{name} deleted"),
        _ => format!(
            "{name} {}",
            notice["object"]["data"]["text"].as_str().expect("a text")
        ),
    }
}

/// Receives notices until all of these have come.
async fn expect(mut expected: Vec<&str>, mut next: impl AsyncFnMut() -> Value) {
    while !expected.is_empty() {
        let received = summary(&next().await);
        expected.retain(|expected| *expected != received);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_after_kill_reports_missed_events_to_each_sink() {
    let fixture = Fixture::new().await;
    fixture.create("a").await;
    let (mut child, mut lines) = fixture.start();
    expect(vec!["a 1"], async || next(&mut lines).await).await;
    // The webhook's server is down and delays no other sink.
    fixture.create("b").await;
    expect(vec!["b 1"], async || next(&mut lines).await).await;
    let mut log = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    let complaint = loop {
        let line = timeout(DEADLINE, log.next_line())
            .await
            .expect("a line")
            .expect("text");
        let line = line.expect("it still runs");
        assert!(!line.contains("s3cret"), "{line}");
        if line.contains("hook") {
            break line;
        }
    };
    assert!(
        complaint.contains("check that the URL is right and the server runs"),
        "{complaint}"
    );
    child.kill().await.expect("killed");

    fixture
        .configs()
        .delete("a", &DeleteParams::default())
        .await
        .expect("deleted");
    fixture.change("b").await;
    fixture.create("c").await;
    let mut events = fixture.listen().await;
    let (mut child, mut lines) = fixture.start();
    expect(vec!["a deleted", "b 2", "c 1"], async || next(&mut lines).await).await;
    expect(vec!["b 2", "c 1"], async || {
        let event = timeout(DEADLINE, events.recv()).await.expect("an event");
        event.expect("the server runs")["data"].take()
    })
    .await;
    let id = child.id().expect("it runs").to_string();
    let sent = Command::new("kill").args(["-s", "TERM", &id]).status().await;
    assert!(sent.expect("there is a `kill`").success());
    let ended = timeout(DEADLINE, child.wait()).await.expect("it ends");
    assert_eq!(ended.expect("it was ours").code(), Some(0));

    // `a` was offered to the webhook, so its deletion is reported.
    while let Ok(mut event) = events.try_recv() {
        assert_eq!(summary(&event["data"].take()), "a deleted");
    }

    // Everything is confirmed: the first notice is a new one.
    let (child, mut lines) = fixture.start();
    fixture.create("d").await;
    assert_eq!(summary(&next(&mut lines).await), "d 1");
    let event = timeout(DEADLINE, events.recv())
        .await
        .expect("an event")
        .expect("the server runs");
    assert_eq!(summary(&event["data"]), "d 1");
    drop(child);
    let file = std::fs::read_to_string(fixture.path("lines")).expect("text");
    let file: Vec<_> = file
        .lines()
        .map(|line| serde_json::from_str(line).expect("a whole line"))
        .collect();
    for expected in ["b 2", "c 1"] {
        assert!(
            file.iter().any(|line| summary(line) == expected),
            "{expected}: {file:?}"
        );
    }
}
