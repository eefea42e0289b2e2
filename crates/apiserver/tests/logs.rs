//! Responses of `pods/log` for containers whose output the test sets.

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass_apiserver::{Body, Server};

async fn send(server: &Server, request: Request<String>) -> (u16, Body) {
    let response = server.clone().oneshot(request).await.expect("infallible");
    (response.status().as_u16(), response.into_body())
}

async fn text(body: Body) -> String {
    let bytes = body.collect().await.expect("infallible").to_bytes();
    String::from_utf8(bytes.into()).expect("text")
}

async fn log(server: &Server, query: &str) -> (u16, String) {
    let path = format!("/api/v1/namespaces/default/pods/p/log?{query}");
    let (code, body) = send(server, Request::get(path).body(String::new()).expect("a request")).await;
    (code, text(body).await)
}

/// Creates a server with a pod on a node. Returns both the server and the pod's UID.
async fn server_with_pod() -> (Server, String) {
    let epoch = "2026-01-01T00:00:00Z".parse().expect("a time");
    let server = Server::builder().without_service_accounts().epoch(epoch).build();
    let uid = create_pod(&server).await;
    (server, uid)
}

async fn create_pod(server: &Server) -> String {
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    });
    let request = Request::post("/api/v1/namespaces/default/pods")
        .header("content-type", "application/json")
        .body(pod.to_string())
        .expect("a request");
    let (code, body) = send(server, request).await;
    let response = text(body).await;
    assert_eq!(code, 201, "{response}");
    let pod: Value = serde_json::from_str(&response).expect("JSON");
    pod["metadata"]["uid"].as_str().expect("a uid").to_owned()
}

async fn delete_pod(server: &Server) {
    let path = "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0";
    let (code, _) = send(
        server,
        Request::delete(path).body(String::new()).expect("a request"),
    )
    .await;
    assert_eq!(code, 200);
}

#[tokio::test(start_paused = true)]
async fn log_options_limit_what_is_returned() {
    let (server, uid) = server_with_pod().await;
    assert_eq!(log(&server, "").await, (200, String::new()));
    for line in ["one", "two", "three"] {
        server.logs().print(&uid, "c", line);
        tokio::time::advance(std::time::Duration::from_secs(10)).await;
    }
    for (query, wanted) in [
        ("", "one\ntwo\nthree\n"),
        ("container=c", "one\ntwo\nthree\n"),
        ("tailLines=2", "two\nthree\n"),
        ("tailLines=0", ""),
        ("sinceSeconds=15", "three\n"),
        ("sinceTime=2026-01-01T00:00:10Z", "two\nthree\n"),
        ("limitBytes=6", "one\ntw"),
        (
            "timestamps=true&tailLines=1",
            "2026-01-01T00:00:20.000000000Z three\n",
        ),
    ] {
        assert_eq!(log(&server, query).await, (200, wanted.to_owned()), "{query}");
    }
}

#[tokio::test]
async fn restart_turns_the_log_into_the_previous_log() {
    let (server, uid) = server_with_pod().await;
    let (code, why) = log(&server, "previous=true").await;
    assert_eq!(code, 400);
    assert!(
        why.contains(r#"previous terminated container \"c\" in pod \"p\" not found"#),
        "{why}"
    );
    server.logs().print(&uid, "c", "before\nand after");
    server.logs().restart(&uid, "c");
    server.logs().print(&uid, "c", "now");
    assert_eq!(
        log(&server, "previous=true").await,
        (200, "before\nand after\n".into())
    );
    assert_eq!(log(&server, "").await, (200, "now\n".into()));
}

#[tokio::test]
async fn follow_streams_until_the_container_ends() {
    let (server, uid) = server_with_pod().await;
    let logs = server.logs();
    logs.print(&uid, "c", "one");
    let path = "/api/v1/namespaces/default/pods/p/log?follow=true";
    let request = || Request::get(path).body(String::new()).expect("a request");
    let (_, mut body) = send(&server, request()).await;
    let mut next = async || {
        let frame = body.frame().await?.expect("infallible");
        Some(frame.into_data().expect("data"))
    };
    assert_eq!(next().await, Some(Bytes::from("one\n")));
    let (more, ()) = tokio::join!(next(), async { logs.print(&uid, "c", "two") });
    assert_eq!(more, Some(Bytes::from("two\n")));
    logs.print(&uid, "c", "three");
    logs.end(&uid, "c");
    assert_eq!(next().await, Some(Bytes::from("three\n")));
    assert_eq!(next().await, None);

    // Deleting the pod deletes its log; a new pod of the same name starts with an empty one.
    logs.restart(&uid, "c");
    let (_, body) = send(&server, request()).await;
    delete_pod(&server).await;
    assert_eq!(text(body).await, "");
    create_pod(&server).await;
    assert_eq!(log(&server, "").await, (200, String::new()));
}

#[tokio::test]
async fn log_keeps_at_most_one_mebibyte() {
    let (server, uid) = server_with_pod().await;
    let line = "x".repeat(1023);
    for _ in 0..2_000 {
        server.logs().print(&uid, "c", &line);
    }
    let (_, all) = log(&server, "").await;
    assert_eq!(all.len(), 1024 * 1024);
}
