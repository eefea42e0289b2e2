//! Beyond a limit, the client gets the same status as from a real server, and memory stays bounded.

use crate::client;

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass_apiserver::{Body, Server, User, storage::Memory};

use client::{read, send};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn call(server: &Server, method: &str, path: &str, body: impl Into<Bytes>) -> (u16, Value) {
    read(send(server, method, path, None, body).await).await
}

async fn get(server: &Server, path: &str) -> Response<Body> {
    send(server, "GET", path, None, "").await
}

async fn create(server: &Server, name: &str, size: usize) {
    let object = json!({"metadata": {"name": name}, "data": {"a": "x".repeat(size)}});
    assert_eq!(
        call(server, "POST", CONFIG_MAPS, object.to_string()).await.0,
        201,
        "{name}"
    );
}

/// Reads the next event of a watch.
async fn event(body: &mut Body) -> Option<Value> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let frame = body.frame().await?.expect("never fails");
        line.extend_from_slice(frame.data_ref().expect("data"));
    }
    Some(serde_json::from_slice(&line).expect("an event"))
}

#[tokio::test]
async fn watch_beyond_the_limit_gets_429_with_retry_after() {
    let administrator = Server::builder().max_watches(2).build();
    let server = administrator.as_user(User::new("alice", [] as [&str; 0]));
    let path = format!("{CONFIG_MAPS}?watch=true");
    let [one, two] = [get(&server, &path).await, get(&server, &path).await];
    assert_eq!((one.status().as_u16(), two.status().as_u16()), (200, 200));
    let rejected = get(&server, &path).await;
    assert_eq!(rejected.status(), 429);
    assert_eq!(rejected.headers()["retry-after"], "1");
    let text = rejected
        .into_body()
        .collect()
        .await
        .expect("never fails")
        .to_bytes();
    assert_eq!(text, "Too many requests, please try again later.\n");
    // Administrators have no limit: controllers in the process must be able to watch.
    assert_eq!(get(&administrator, &path).await.status(), 200);
    // Other requests do not count as watches.
    assert_eq!(call(&server, "GET", CONFIG_MAPS, "").await.0, 200);
    // A closed watch frees its slot.
    drop(one);
    let again = get(&server, &path).await;
    assert_eq!(again.status(), 200);
    drop((two, again));
}

#[tokio::test(start_paused = true)]
async fn finished_watch_frees_its_slot() {
    let administrator = Server::builder().max_watches(1).build();
    let server = administrator.as_user(User::new("alice", [] as [&str; 0]));
    let path = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=3");
    let started = tokio::time::Instant::now();
    let (code, _) = call(&server, "GET", &path, "").await;
    assert_eq!((code, started.elapsed().as_secs()), (200, 3));
    assert_eq!(get(&server, &path).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn slow_watcher_gets_410_when_its_events_expire() {
    // The history holds about ten of these objects.
    let server = Server::builder()
        .storage(Memory::new(100_000).history_bytes(1_000_000))
        .build();
    create(&server, "first", 100_000).await;
    let watch = get(&server, &format!("{CONFIG_MAPS}?watch=true&resourceVersion=1")).await;
    let mut body = watch.into_body();
    for n in 0..100 {
        let change = json!({"data": {"a": n.to_string().repeat(50_000)}});
        let path = format!("{CONFIG_MAPS}/first");
        assert_eq!(call(&server, "PATCH", &path, change.to_string()).await.0, 200);
    }
    let rejected = event(&mut body).await.expect("an ERROR event");
    assert_eq!(rejected["type"], "ERROR");
    assert_eq!(
        (&rejected["object"]["code"], &rejected["object"]["reason"]),
        (&410.into(), &"Expired".into())
    );
    assert_eq!(event(&mut body).await, None, "the watch ends after the error");
    // A new list and watch continue from the current state.
    let (_, list) = call(&server, "GET", CONFIG_MAPS, "").await;
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    let mut body = get(
        &server,
        &format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}"),
    )
    .await
    .into_body();
    create(&server, "second", 10).await;
    assert_eq!(
        event(&mut body).await.expect("an event")["object"]["metadata"]["name"],
        "second"
    );
}

#[tokio::test(start_paused = true)]
async fn watch_is_not_expired_by_the_changes_of_another_namespace() {
    let server = Server::builder()
        .storage(Memory::new(100_000).history_bytes(1_000_000))
        .build();
    let theirs = CONFIG_MAPS.replace("default", "kube-public");
    create(&server, "first", 10).await;
    let (_, list) = call(&server, "GET", CONFIG_MAPS, "").await;
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
    create(&server, "second", 10).await;
    let large = json!({"metadata": {"name": "large"}, "data": {"a": "x".repeat(100_000)}});
    assert_eq!(call(&server, "POST", &theirs, large.to_string()).await.0, 201);
    for n in 0..100 {
        let change = json!({"data": {"n": n.to_string()}}).to_string();
        assert_eq!(
            call(&server, "PATCH", &format!("{theirs}/large"), change).await.0,
            200
        );
    }
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}");
    let mut body = get(&server, &path).await.into_body();
    let second = event(&mut body).await.expect("an event");
    assert_eq!(second["object"]["metadata"]["name"], "second", "{second}");
    let exact = format!("{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    let (code, old) = call(&server, "GET", &exact, "").await;
    assert_eq!((code, old["items"].as_array().map(Vec::len)), (200, Some(1)));
}

#[tokio::test]
async fn object_beyond_etcds_limit_gets_etcds_error() {
    let server = Server::new();
    let object = |size: usize| {
        json!({"metadata": {"name": "big"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i", "args": ["x".repeat(size)]}]},
        }}})
    };
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let (code, status) = call(&server, "POST", path, object(2_000_000).to_string()).await;
    assert_eq!(
        (code, &status["message"]),
        (500, &"etcdserver: request is too large".into())
    );
    assert_eq!(status.get("reason"), None);
    assert_eq!(
        call(&server, "POST", path, object(1_000_000).to_string()).await.0,
        201
    );
    let (code, _) = call(
        &server,
        "PUT",
        &format!("{path}/big"),
        object(2_000_000).to_string(),
    )
    .await;
    assert_eq!(code, 500);
}

/// The sizes of the object and of its managed fields.
async fn sizes(server: &Server, path: &str) -> (usize, usize) {
    let (code, object) = call(server, "GET", path, "").await;
    assert_eq!(code, 200, "{object}");
    let managed = object["metadata"]["managedFields"].to_string().len();
    (object.to_string().len(), managed)
}

#[tokio::test]
async fn managed_fields_count_as_part_of_the_object() {
    let server = Server::new();
    // An entry of its managed fields is larger than the data.
    let data: serde_json::Map<_, _> = (0..30_000).map(|key| (format!("k{key}"), "".into())).collect();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
    let body = object.to_string();
    let path = format!("{CONFIG_MAPS}/m");
    let apply = async |manager: &str| {
        let path = format!("{path}?fieldManager={manager}");
        read(
            send(
                &server,
                "PATCH",
                &path,
                Some("application/apply-patch+yaml"),
                body.clone(),
            )
            .await,
        )
        .await
    };
    let mut applied = 0;
    let status = loop {
        match apply(&format!("m{applied}")).await {
            (200 | 201, _) => applied += 1,
            (code, status) => {
                assert_eq!(code, 500);
                break status;
            }
        }
        assert!(applied < 5, "{:?} bytes are stored", sizes(&server, &path).await);
    };
    assert_eq!(status["message"], "etcdserver: request is too large");
    assert!(sizes(&server, &path).await.0 < 1_600_000);
    // Other writes give up the managed fields, as in a real server.
    let large: String = "x".repeat(900_000);
    let change = json!({"data": {"large": large}}).to_string();
    let (code, status) = call(&server, "PATCH", &path, change).await;
    assert_eq!(code, 200, "{status}");
    assert!(sizes(&server, &path).await.1 < 1_000);
    let many = json!({"metadata": {"name": "new"}, "data": data.iter().map(|(key, _)| (key.repeat(3), json!(""))).collect::<serde_json::Map<_, _>>()});
    let many = many.to_string().replacen(
        r#""data":{"#,
        &format!(r#""data":{{"large":"{}","#, "x".repeat(600_000)),
        1,
    );
    let (code, status) = call(&server, "POST", CONFIG_MAPS, many).await;
    assert_eq!(code, 201, "{status}");
    let (all, managed) = sizes(&server, &format!("{CONFIG_MAPS}/new")).await;
    assert!(all < 1_600_000 && managed < 1_000, "{all}, {managed}");
}

#[tokio::test]
async fn full_namespace_leaves_room_for_others() {
    let mut limits = windlass_apiserver::Limits::default();
    limits.stored_bytes = 8_000_000;
    let administrator = Server::builder().limits(limits).build();
    let alice = administrator.as_user(User::new("alice", [] as [&str; 0]));
    let path = |namespace: &str| CONFIG_MAPS.replace("default", namespace);
    let map = |number: usize| json!({"metadata": {"name": format!("m{number}")}, "data": {"a": "x".repeat(500_000)}});
    let mut most = 0;
    let refused = loop {
        match call(&alice, "POST", &path("default"), map(most).to_string()).await {
            (201, _) => most += 1,
            (code, status) => {
                assert_eq!(code, 500, "{status}");
                break status;
            }
        }
        assert!(most < 16, "everything is stored");
    };
    assert_eq!(refused["message"], "etcdserver: mvcc: database space exceeded");
    assert_eq!(refused.get("reason"), None);
    assert!((7..=8).contains(&most), "{most}");
    let grow = json!({"data": {"b": "x".repeat(500_000)}}).to_string();
    let (code, _) = call(&alice, "PATCH", &format!("{CONFIG_MAPS}/m0"), grow).await;
    assert_eq!(code, 500);
    // Small writes of others, changes that do not grow, and deletions.
    assert_eq!(
        call(&alice, "POST", &path("kube-public"), map(0).to_string())
            .await
            .0,
        201
    );
    assert_eq!(
        call(&administrator, "POST", CONFIG_MAPS, map(most).to_string())
            .await
            .0,
        201
    );
    // What a controller creates for the namespace has no more room, although the controller is an administrator.
    let mut controlled = map(most + 1);
    controlled["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]);
    let (code, _) = call(&administrator, "POST", CONFIG_MAPS, controlled.to_string()).await;
    assert_eq!(code, 500);
    let shrink = json!({"data": {"a": "x"}}).to_string();
    assert_eq!(
        call(&alice, "PATCH", &format!("{CONFIG_MAPS}/m0"), shrink)
            .await
            .0,
        200
    );
    for number in 1..=most {
        let path = format!("{CONFIG_MAPS}/m{number}");
        assert_eq!(call(&alice, "DELETE", &path, "").await.0, 200);
    }
    assert_eq!(
        call(&alice, "POST", CONFIG_MAPS, map(most).to_string()).await.0,
        201
    );
}

#[tokio::test(start_paused = true)]
async fn timeout_parameter_bounds_the_request() {
    let server = Server::new();
    // The server waits three seconds for a future revision.
    let path = format!("{CONFIG_MAPS}?resourceVersion=999&resourceVersionMatch=NotOlderThan");
    let (code, status) = call(&server, "GET", &path, "").await;
    assert_eq!(
        (code, &status["details"]["causes"][0]["reason"]),
        (504, &"ResourceVersionTooLarge".into())
    );
    let started = tokio::time::Instant::now();
    let (code, status) = call(&server, "GET", &format!("{path}&timeout=1s"), "").await;
    assert_eq!(started.elapsed(), Duration::from_secs(1));
    assert_eq!(code, 504);
    assert_eq!(
        status["message"],
        "Timeout: request did not complete within the allotted timeout"
    );
    let (code, status) = call(&server, "GET", &format!("{CONFIG_MAPS}?timeout=soon"), "").await;
    assert_eq!(code, 400);
    assert_eq!(
        status["message"],
        "invalid timeout specified in the request URL - time: invalid duration \"soon\""
    );
}

#[tokio::test(start_paused = true)]
async fn endless_request_body_gets_504() {
    let server = Server::new();
    let body = http_body_util::StreamBody::new(futures::stream::pending::<
        Result<http_body::Frame<Bytes>, std::io::Error>,
    >());
    let request = Request::post(CONFIG_MAPS).body(body).expect("a request");
    let response = server.oneshot(request).await.expect("infallible");
    assert_eq!(response.status(), 504);
}

#[tokio::test]
async fn list_is_sent_in_small_chunks() {
    let server = Server::new();
    for n in 0..200 {
        create(&server, &format!("m-{n:03}"), 6_000).await;
    }
    let mut body = get(&server, CONFIG_MAPS).await.into_body();
    let (mut chunks, mut bytes) = (0, Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.expect("never fails").into_data().expect("data");
        // A chunk ends with the object that fills it.
        assert!(
            frame.len() < 64 * 1024 + 8_000,
            "a chunk of {} bytes",
            frame.len()
        );
        chunks += 1;
        bytes.extend_from_slice(&frame);
    }
    assert!(chunks > 15, "{} bytes in {chunks} chunks", bytes.len());
    let list: Value = serde_json::from_slice(&bytes).expect("a list");
    assert_eq!(list["items"].as_array().map(Vec::len), Some(200));
}
