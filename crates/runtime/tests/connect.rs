//! A client from a kubeconfig, on a real socket. In a process of its own, because it sets the global subscriber.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    sync::Arc,
    thread,
};

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use serde_json::json;
use tracing_subscriber::{Layer, layer::SubscriberExt};
use windlass_runtime::{EvictOutcome, JsonLines, Options, Writer};

const TOKEN: &str = "token-of-the-test";

/// Answers one request per connection, and returns the request headers.
fn serve(listener: TcpListener, answers: Vec<(u16, String)>) -> thread::JoinHandle<Vec<String>> {
    thread::spawn(move || {
        let mut heads = Vec::new();
        for (code, body) in answers {
            let (stream, _) = listener.accept().expect("a connection");
            let mut reader = BufReader::new(stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                reader.read_line(&mut head).expect("a line");
            }
            let lower = head.to_lowercase();
            let length = lower
                .split_once("content-length: ")
                .and_then(|(_, rest)| rest.lines().next()?.parse().ok());
            let mut sent = vec![0; length.unwrap_or(0)];
            reader.read_exact(&mut sent).expect("the body");
            let length = body.len();
            let answer =
                format!("HTTP/1.1 {code} X\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
            reader.get_mut().write_all(answer.as_bytes()).expect("response");
            heads.push(head);
        }
        heads
    })
}

#[tokio::test]
async fn client_does_not_retry_and_its_token_is_not_logged() {
    let lines = tempfile::NamedTempFile::new().expect("temporary file");
    let mut options = Options::default();
    options.logging.level = Some("trace".to_owned());
    let layer = JsonLines::new(lines.reopen().map(Arc::new).expect("temporary file"));
    let filtered = layer.with_filter(options.logging.filter().expect("valid level"));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(filtered))
        .expect("the only log");

    let listener = TcpListener::bind("127.0.0.1:0").expect("free port");
    let url = format!("http://{}", listener.local_addr().expect("local address"));
    let refusal = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429, "reason": "TooManyRequests",
        "details": { "causes": [{ "reason": "DisruptionBudget", "message": "The disruption budget b says no" }] },
    });
    let busy = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429 });
    let pod: Pod = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a", "namespace": "default" },
    }))
    .expect("valid Pod");
    let served = serve(
        listener,
        vec![(429, refusal.to_string()), (429, busy.to_string())],
    );
    let kubeconfig = tempfile::NamedTempFile::new().expect("temporary file");
    let content = json!({
        "current-context": "x",
        "contexts": [{ "name": "x", "context": { "cluster": "x", "user": "x" } }],
        "clusters": [{ "name": "x", "cluster": { "server": url } }],
        "users": [{ "name": "x", "user": { "token": TOKEN } }],
    });
    std::fs::write(kubeconfig.path(), content.to_string()).expect("temporary file");
    options.connection.kubeconfig = Some(kubeconfig.path().to_owned());

    let client = options.client().await.expect("a client");
    tracing::info!(?options, "as a program may log it");
    let writer = Writer::new(client, "test");
    let evicted = writer
        .evict(&pod, &DeleteParams::default())
        .await
        .expect("response");
    assert!(matches!(evicted, EvictOutcome::Blocked { .. }), "{evicted:?}");
    assert!(writer.create(&pod).await.is_err());

    let heads = served.join().expect("no panic");
    let paths: Vec<_> = heads
        .iter()
        .map(|head| head.split(' ').nth(1).expect("a path"))
        .collect();
    assert!(paths[0].contains("/pods/a/eviction?") && paths[1].contains("/pods?"));
    assert!(
        heads.iter().all(|head| head.contains(TOKEN)),
        "the server knows who comes"
    );
    let log = std::fs::read_to_string(lines.path()).expect("text");
    assert!(
        log.contains("as a program may log it") && !log.contains(TOKEN),
        "{log}"
    );
}
