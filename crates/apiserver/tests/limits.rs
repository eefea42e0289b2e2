//! Past a limit the client gets the status that the real server gives, and memory stays bounded.

mod asking;

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass_apiserver::{Body, Server, storage::Memory};

use asking::{read, send};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn ask(server: &Server, method: &str, path: &str, body: impl Into<Bytes>) -> (u16, Value) {
    read(send(server, method, path, None, body).await).await
}

async fn get(server: &Server, path: &str) -> Response<Body> {
    send(server, "GET", path, None, "").await
}

async fn create(server: &Server, name: &str, size: usize) {
    let object = json!({"metadata": {"name": name}, "data": {"a": "x".repeat(size)}});
    assert_eq!(
        ask(server, "POST", MAPS, object.to_string()).await.0,
        201,
        "{name}"
    );
}

/// The next event of a watch, in one piece.
async fn event(body: &mut Body) -> Option<Value> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let frame = body.frame().await?.expect("never fails");
        line.extend_from_slice(frame.data_ref().expect("data"));
    }
    Some(serde_json::from_slice(&line).expect("an event"))
}

#[tokio::test]
async fn one_watcher_too_many_is_told_to_come_again() {
    let server = Server::builder().watchers(2).build();
    let path = format!("{MAPS}?watch=true");
    let [one, two] = [get(&server, &path).await, get(&server, &path).await];
    assert_eq!((one.status().as_u16(), two.status().as_u16()), (200, 200));
    let refused = get(&server, &path).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["retry-after"], "1");
    let text = refused
        .into_body()
        .collect()
        .await
        .expect("never fails")
        .to_bytes();
    assert_eq!(text, "Too many requests, please try again later.\n");
    // Other requests are none of these.
    assert_eq!(ask(&server, "GET", MAPS, "").await.0, 200);
    // A client that goes away leaves its place.
    drop(one);
    let again = get(&server, &path).await;
    assert_eq!(again.status(), 200);
    drop((two, again));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ended_leaves_its_place() {
    let server = Server::builder().watchers(1).build();
    let path = format!("{MAPS}?watch=true&timeoutSeconds=3");
    let started = tokio::time::Instant::now();
    let (code, _) = ask(&server, "GET", &path, "").await;
    assert_eq!((code, started.elapsed().as_secs()), (200, 3));
    assert_eq!(get(&server, &path).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_does_not_read_is_left_behind_and_told_so() {
    // A history of ten objects' worth.
    let server = Server::builder()
        .storage(Memory::new(100_000).history_bytes(1_000_000))
        .build();
    create(&server, "first", 100_000).await;
    let watch = get(&server, &format!("{MAPS}?watch=true&resourceVersion=1")).await;
    let mut body = watch.into_body();
    for n in 0..100 {
        let change = json!({"data": {"a": n.to_string().repeat(50_000)}});
        let path = format!("{MAPS}/first");
        assert_eq!(ask(&server, "PATCH", &path, change.to_string()).await.0, 200);
    }
    let refused = event(&mut body).await.expect("a last word");
    assert_eq!(refused["type"], "ERROR");
    assert_eq!(
        (&refused["object"]["code"], &refused["object"]["reason"]),
        (&410.into(), &"Expired".into())
    );
    assert_eq!(event(&mut body).await, None, "then the watch is over");
    // Who lists and watches from there goes on.
    let (_, list) = ask(&server, "GET", MAPS, "").await;
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    let mut body = get(&server, &format!("{MAPS}?watch=true&resourceVersion={version}"))
        .await
        .into_body();
    create(&server, "second", 10).await;
    assert_eq!(
        event(&mut body).await.expect("an event")["object"]["metadata"]["name"],
        "second"
    );
}

#[tokio::test]
async fn an_object_beyond_etcds_limit_is_refused_as_etcd_does() {
    let server = Server::new();
    let object = |size: usize| {
        json!({"metadata": {"name": "big"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i", "args": ["x".repeat(size)]}]},
        }}})
    };
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let (code, status) = ask(&server, "POST", path, object(2_000_000).to_string()).await;
    assert_eq!(
        (code, &status["message"]),
        (500, &"etcdserver: request is too large".into())
    );
    assert_eq!(status.get("reason"), None);
    assert_eq!(
        ask(&server, "POST", path, object(1_000_000).to_string()).await.0,
        201
    );
    let (code, _) = ask(
        &server,
        "PUT",
        &format!("{path}/big"),
        object(2_000_000).to_string(),
    )
    .await;
    assert_eq!(code, 500);
}

#[tokio::test(start_paused = true)]
async fn a_request_has_the_time_that_it_asks_for() {
    let server = Server::new();
    // A revision that will not come is waited for, three seconds long.
    let path = format!("{MAPS}?resourceVersion=999&resourceVersionMatch=NotOlderThan");
    let (code, status) = ask(&server, "GET", &path, "").await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["reason"]),
        (504, &"ResourceVersionTooLarge".into())
    );
    let started = tokio::time::Instant::now();
    let (code, status) = ask(&server, "GET", &format!("{path}&timeout=1s"), "").await;
    assert_eq!(started.elapsed(), Duration::from_secs(1));
    assert_eq!(code, 504);
    assert_eq!(
        status["message"],
        "Timeout: request did not complete within the allotted timeout"
    );
    let (code, status) = ask(&server, "GET", &format!("{MAPS}?timeout=soon"), "").await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "invalid timeout specified in the request URL - time: invalid duration \"soon\""
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_is_given_up() {
    let server = Server::new();
    let body = http_body_util::StreamBody::new(futures::stream::pending::<
        Result<http_body::Frame<Bytes>, std::io::Error>,
    >());
    let request = Request::post(MAPS).body(body).expect("a request");
    let response = server.oneshot(request).await.expect("infallible");
    assert_eq!(response.status(), 504);
}

#[tokio::test]
async fn a_list_is_sent_in_pieces_of_which_none_is_large() {
    let server = Server::new();
    for n in 0..200 {
        create(&server, &format!("m-{n:03}"), 6_000).await;
    }
    let mut body = get(&server, MAPS).await.into_body();
    let (mut pieces, mut bytes) = (0, Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.expect("never fails").into_data().expect("data");
        // A piece is closed by the object that fills it.
        assert!(
            frame.len() < 64 * 1024 + 8_000,
            "a piece of {} bytes",
            frame.len()
        );
        pieces += 1;
        bytes.extend_from_slice(&frame);
    }
    assert!(pieces > 15, "{} bytes in {pieces} pieces", bytes.len());
    let list: Value = serde_json::from_slice(&bytes).expect("a list");
    assert_eq!(list["items"].as_array().map(Vec::len), Some(200));
}
