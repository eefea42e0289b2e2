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
    k8s_openapi::api::core::v1::{ConfigMap, Event, Secret},
    kube::{
        Api,
        api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    },
    prelude::*,
};
use windlass_cluster::Cluster;

/// Longer than any step takes, so that only a hang exceeds it.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);

pub(crate) struct Fixture {
    pub(crate) cluster: Cluster,
    folder: tempfile::TempDir,
    pub(crate) port: u16,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        Self {
            cluster: Cluster::embedded().start().await.expect("a cluster"),
            folder: tempfile::tempdir().expect("a folder"),
            port: free.local_addr().expect("an address").port(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> String {
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
    pub(crate) async fn listen(&self) -> mpsc::Receiver<Value> {
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

/// Its beginning is `czNjcjN0` in base64.
const CANARY: &str = "s3cr3t-canary";

#[tokio::test(flavor = "multi_thread")]
async fn no_sink_gets_a_value_of_a_secret() {
    let fixture = Fixture::new().await;
    let template = json!({
        "text": "{{text}} {{changes}} {{event}} {{object.data}} {{object.metadata.annotations}} {{object.stringData}}",
        "password": "{{object.data.password}}",
    });
    std::fs::write(fixture.path("template"), template.to_string()).expect("written");
    let mut bodies = fixture.listen().await;
    let url = format!("http://127.0.0.1:{}", fixture.port);
    let sinks = [
        format!(
            "webhook:{url}/chat,rate=100/s,template={}",
            fixture.path("template")
        ),
        format!("webhook:{url}/slack,rate=100/s,template=slack,name=slack"),
        format!("otlp:{url}"),
        "events,rate=100/s".to_owned(),
    ];
    let secrets = Api::<Secret>::default_namespaced(fixture.cluster.client());
    let create = async |name: &str| {
        let secret = json!({
            "metadata": { "name": name, "labels": { "shown": "" }, "annotations": { "copy": CANARY } },
            "stringData": { "password": format!("{CANARY}-1") },
        });
        let secret = from_value(secret).expect("an object");
        let created = secrets.create(&PostParams::default(), &secret).await;
        created.expect("created");
    };
    create("before").await;
    let mut child = Command::new(env!("CARGO_BIN_EXE_podwatch"));
    child
        .arg("--kubeconfig")
        .arg(fixture.cluster.kubeconfig().expect("a file"))
        .args([
            "--no-listen",
            "--kind",
            "secrets",
            "--selector",
            "shown",
            "--every-change",
        ]);
    for sink in &sinks {
        child.args(["--sink", sink]);
    }
    let mut child = child
        .env_clear()
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");

    let mut all = String::new();
    expect_bodies(&mut bodies, "synced", &mut all).await;
    create("s").await;
    let patch = Patch::Merge(json!({ "stringData": { "password": format!("{CANARY}-2") } }));
    secrets
        .patch("s", &PatchParams::default(), &patch)
        .await
        .expect("changed");
    secrets
        .delete("s", &DeleteParams::default())
        .await
        .expect("deleted");

    expect_bodies(&mut bodies, "deleted", &mut all).await;
    let id = child.id().expect("it runs").to_string();
    let sent = Command::new("kill").args(["-s", "TERM", &id]).status().await;
    assert!(sent.expect("there is a `kill`").success());
    let ended = timeout(DEADLINE, child.wait()).await.expect("it ends");
    assert_eq!(ended.expect("it was ours").code(), Some(0));
    let events = Api::<Event>::default_namespaced(fixture.cluster.client());
    let events = events.list(&ListParams::default()).await.expect("events").items;
    assert!(
        events
            .iter()
            .any(|event| event.reason.as_deref() == Some("Deleted"))
    );
    all.push_str(&serde_json::to_string(&events).expect("JSON"));
    assert!(all.contains("\"password\":\"(redacted)\""), "{all}");
    for secret in [CANARY, "czNjcjN0"] {
        assert!(!all.contains(secret), "{all}");
    }
}

/// Collects requests until each of the three receivers got one with this event.
async fn expect_bodies(bodies: &mut mpsc::Receiver<Value>, event: &str, all: &mut String) {
    let mut received = 0;
    while received < 3 {
        let body = timeout(DEADLINE, bodies.recv()).await.expect("a request");
        let body = body.expect("the server runs").to_string();
        received += usize::from(body.contains(event));
        all.push_str(&body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_sink_is_an_error_at_the_start() {
    let fixture = Fixture::new().await;
    std::fs::write(fixture.path("template"), "{ \"text\": \"{{nmae}}\" }").expect("written");
    for (kind, sink, expected) in [
        (
            "events.v1",
            "events".to_owned(),
            "`--sink events` cannot report the kind `events`",
        ),
        (
            "pods",
            format!("webhook:https://h/x,template={}", fixture.path("template")),
            "unknown placeholder `{{nmae}}`: use `event`",
        ),
        (
            "pods",
            "webhook:https://h/x,template=/no/such/file".to_owned(),
            "cannot read the template /no/such/file",
        ),
    ] {
        let child = Command::new(env!("CARGO_BIN_EXE_podwatch"))
            .arg("--kubeconfig")
            .arg(fixture.cluster.kubeconfig().expect("a file"))
            .args(["--no-listen", "--kind", kind, "--sink", &sink])
            .env_clear()
            .kill_on_drop(true)
            .output();
        let output = timeout(DEADLINE, child)
            .await
            .expect("it ends")
            .expect("it starts");
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{sink}: {log}");
        assert!(log.contains(expected), "{sink}: {log}");
    }
}
