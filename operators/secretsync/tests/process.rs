//! The program from the outside: help, output and endpoints, none of which contains a value.

use std::net::TcpListener;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Command,
    time::timeout,
};
use windlass::{
    cache::{Cache, ObjectKey, WatchScope},
    k8s_openapi::api::core::v1::{Namespace, Secret},
    kube::{Api, api::PostParams},
    prelude::*,
    runtime::{CrdInstaller, Writer},
};
use windlass_cluster::Cluster;
use windlass_secretsync::{SecretSync, api::SYNC_ANNOTATION};
use windlass_suite::{STEP_TIMEOUT, output, program};

/// In every value, as it is and in base64.
const CANARY: &str = "c4n4ryc4n4ry";
const CANARY64: &str = "YzRuNHJ5YzRuNHJ5";

fn secretsync(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_secretsync"), arguments)
}

#[tokio::test]
async fn help_lists_every_flag_and_default() {
    let (code, help, _) = output(secretsync(&["--help"])).await;
    assert_eq!(code, Some(0));
    for expected in [
        "Copies Secrets and ConfigMaps",
        "Usage: secretsync [OPTIONS]",
        "--source-namespace <NAMESPACE>",
        "[default: secretsync]",
        "--annotation <NAME>",
        "[default: secretsync.windlass.dev/sync]",
        "--allow-system-namespace <NAMESPACE>",
        "--writers <N>",
        "--stall-after <SECONDS>",
        "--leader-elect",
        "--install",
    ] {
        assert!(help.contains(expected), "`{expected}` in:\n{help}");
    }
    assert!(!help.contains("windlass_"), "internal names in:\n{help}");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_flags_are_reported_in_one_line() {
    let fixture = Fixture::new().await;
    for (flags, expected) in [
        (["--source-namespace", "No Namespace"], "--source-namespace"),
        (["--annotation", "no annotation!"], "--annotation"),
        (["--allow-system-namespace", "A B"], "--allow-system-namespace"),
    ] {
        let mut all = vec!["--kubeconfig", &fixture.kubeconfig, "--no-listen"];
        all.extend(flags);
        let (code, _, error) = output(secretsync(&all)).await;
        assert_ne!(code, Some(0), "{error}");
        assert!(error.contains(expected) && !error.contains("panicked"), "{error}");
    }
}

/// Copies a Secret with trace logging, and checks all output and every endpoint.
#[tokio::test(flavor = "multi_thread")]
async fn no_value_is_printed_logged_or_served() {
    let fixture = Fixture::new().await;
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let process = secretsync(&[
        "--kubeconfig",
        &fixture.kubeconfig,
        "--install",
        "--listen",
        &address,
        "--log-level",
        "trace",
    ])
    .spawn()
    .expect("it starts");
    let id = process.id().expect("it runs").to_string();
    // Read the output concurrently, or a full pipe would block the program.
    let output = tokio::spawn(process.wait_with_output());
    let definition = CrdInstaller::new([SecretSync::crd()]);
    let writer = Writer::new(fixture.cluster.client(), "test");
    definition.run(&writer).await.expect("installed");
    fixture.spread().await;
    let mut pages = Vec::new();
    for path in [
        "/metrics",
        "/debug/controllers",
        "/debug/caches",
        "/healthz?verbose",
        "/readyz?verbose",
    ] {
        pages.push((path, get(&address, path).await));
    }
    let metrics = &pages[0].1;
    for name in [
        "windlass_secretsync_propagation_seconds_bucket",
        "windlass_secretsync_copies{",
        "windlass_secretsync_conflicts_total",
        "windlass_secretsync_writes_total{",
    ] {
        assert!(metrics.contains(name), "`{name}` in:\n{metrics}");
    }
    assert!(pages[3].1.contains("secretsync-stall"), "{}", pages[3].1);
    let sent = Command::new("kill").args(["-s", "TERM", &id]).status().await;
    assert!(sent.expect("there is a `kill`").success());
    let ended = timeout(STEP_TIMEOUT, output).await.expect("it ends");
    let ended = ended.expect("waited for").expect("a child process");
    assert_eq!(ended.status.code(), Some(0));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, logged) = (text(&ended.stdout), text(&ended.stderr));
    assert!(logged.contains("TRACE"), "trace logs are on: {logged}");
    pages.extend([("standard output", printed), ("standard error", logged)]);
    for (what, text) in pages {
        let leak = [CANARY, CANARY64]
            .into_iter()
            .find_map(|canary| text.find(canary));
        if let Some(at) = leak {
            panic!(
                "{what}: {}",
                &text[at.saturating_sub(200)..(at + 40).min(text.len())]
            );
        }
    }
}

struct Fixture {
    cluster: Cluster,
    kubeconfig: String,
}

impl Fixture {
    async fn new() -> Self {
        let cluster = Cluster::embedded().start().await.expect("a cluster");
        let kubeconfig = cluster.kubeconfig().expect("a file");
        let kubeconfig = kubeconfig.to_str().expect("text").to_owned();
        let fixture = Self { cluster, kubeconfig };
        let namespaces = Api::<Namespace>::all(fixture.cluster.client());
        for (name, annotations) in [
            ("secretsync", json!({})),
            ("asks", json!({ SYNC_ANNOTATION: "true" })),
        ] {
            let namespace = json!({ "metadata": { "name": name, "annotations": annotations } });
            let namespace = from_value(namespace).expect("a namespace");
            let created = namespaces.create(&PostParams::default(), &namespace).await;
            created.expect("created");
        }
        fixture
    }

    async fn create_source(&self) {
        let source: Secret = from_value(json!({
            "metadata": { "name": "token", "annotations": { SYNC_ANNOTATION: "" } },
            "stringData": { "password": CANARY },
        }))
        .expect("a Secret");
        let home = Api::namespaced(self.cluster.client(), "secretsync");
        let created = home.create(&PostParams::default(), &source).await;
        created.expect("created");
    }

    async fn copied(&self) {
        let copies = Cache::<Secret>::start(self.cluster.client(), &WatchScope::all().namespace("asks"));
        let lister = copies.synced(STEP_TIMEOUT).await.expect("a list");
        let mut changes = lister.subscribe();
        let key = ObjectKey::namespaced("asks", "token");
        let there = async {
            while lister.get(&key).is_none() {
                changes.next().await;
            }
        };
        timeout(STEP_TIMEOUT, there).await.expect("a copy");
    }

    async fn spread(&self) {
        self.create_source().await;
        self.copied().await;
    }
}

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
    free.local_addr().expect("an address").port()
}

/// Gets a page with its headers; empty if nothing listens.
async fn get(address: &str, path: &str) -> String {
    let Ok(mut connection) = TcpStream::connect(address).await else {
        return String::new();
    };
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let mut answer = String::new();
    if connection.write_all(request.as_bytes()).await.is_ok() {
        // An incomplete response counts as none.
        let _ = connection.read_to_string(&mut answer).await;
    }
    answer
}
