//! The times and the order of `managedFields`: what recordings cannot show, because no two runs share a clock.

mod asking;

use std::time::Duration;

use serde_json::{Value, json};
use windlass_apiserver::Server;

use asking::{read, send};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// A server whose clock stands still unless it is moved.
fn server() -> Server {
    let epoch = "2026-01-01T00:00:00Z".parse().expect("a time");
    Server::builder().epoch(epoch).build()
}

async fn pass(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

async fn ask(server: &Server, method: &str, path: &str, kind: &str, body: &Value) -> Value {
    let path = format!("{DEPLOYMENTS}{path}");
    read(send(server, method, &path, Some(kind), body.to_string()).await)
        .await
        .1
}

async fn apply(server: &Server, manager: &str, spec: &Value) -> Value {
    let path = format!("/a?fieldManager={manager}");
    let body =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec});
    ask(server, "PATCH", &path, "application/apply-patch+yaml", &body).await
}

async fn patch(server: &Server, manager: &str, body: &Value) -> Value {
    let path = format!("/a?fieldManager={manager}");
    ask(server, "PATCH", &path, "application/merge-patch+json", body).await
}

fn spec(cpu: &str) -> Value {
    json!({
        "replicas": 2,
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": cpu}}}]},
        },
    })
}

/// Manager and second of each entry, in order.
fn entries(object: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    let entry = |entry: &Value| (text(&entry["manager"]), text(&entry["time"]));
    let all = object["metadata"]["managedFields"].as_array();
    all.into_iter().flatten().map(entry).collect()
}

fn at(name: &str, second: u64) -> (String, String) {
    (name.to_owned(), format!("2026-01-01T00:00:{second:02}Z"))
}

#[tokio::test(start_paused = true)]
async fn what_changes_nothing_keeps_its_time_and_its_revision() {
    let server = server();
    let first = apply(&server, "one", &spec("500m")).await;
    assert_eq!(entries(&first), [at("one", 0)]);
    pass(10).await;
    // The same, and the same in other words, which is found out only after it was merged.
    for cpu in ["500m", "0.5"] {
        assert_eq!(apply(&server, "one", &spec(cpu)).await, first, "{cpu}");
    }
    assert_eq!(
        patch(&server, "two", &json!({"spec": {"replicas": 2}})).await,
        first
    );
    let read = ask(&server, "GET", "/a", "application/json", &Value::Null).await;
    let put = ask(&server, "PUT", "/a?fieldManager=two", "application/json", &read).await;
    assert_eq!(put, first);
    let changed = patch(&server, "two", &json!({"metadata": {"labels": {"x": "y"}}})).await;
    assert_eq!(entries(&changed), [at("one", 0), at("two", 10)]);
}

#[tokio::test(start_paused = true)]
async fn appliers_come_first_and_then_the_oldest() {
    let server = server();
    apply(&server, "m", &spec("1")).await;
    pass(1).await;
    patch(&server, "z", &json!({"metadata": {"labels": {"z": "1"}}})).await;
    patch(&server, "b", &json!({"metadata": {"labels": {"b": "1"}}})).await;
    pass(1).await;
    patch(&server, "a", &json!({"metadata": {"labels": {"a": "1"}}})).await;
    let object = apply(&server, "c", &json!({"paused": true})).await;
    let order = [at("m", 0), at("c", 2), at("b", 1), at("z", 1), at("a", 2)];
    assert_eq!(entries(&object), order);
    pass(1).await;
    // Who writes again moves to the end of its kind.
    let object = patch(&server, "z", &json!({"metadata": {"labels": {"z": "2"}}})).await;
    let order = [at("m", 0), at("c", 2), at("b", 1), at("a", 2), at("z", 3)];
    assert_eq!(entries(&object), order);
}

#[tokio::test(start_paused = true)]
async fn a_co_owner_has_no_time_until_it_changes_something() {
    let server = server();
    apply(&server, "one", &spec("1")).await;
    pass(1).await;
    let object = apply(&server, "two", &json!({"replicas": 2})).await;
    assert_eq!(
        entries(&object),
        [("two".to_owned(), "none".to_owned()), at("one", 0)]
    );
    let object = apply(&server, "two", &json!({"replicas": 2, "paused": true})).await;
    assert_eq!(entries(&object), [at("one", 0), at("two", 1)]);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_updaters_are_folded_into_one() {
    let server = server();
    let created = json!({"metadata": {"name": "a"}, "spec": spec("1")});
    ask(&server, "POST", "?fieldManager=m00", "application/json", &created).await;
    let mut object = Value::Null;
    for number in 1..12 {
        pass(1).await;
        let name = format!("m{number:02}");
        object = patch(
            &server,
            &name,
            &json!({"metadata": {"labels": {name.as_str(): "x"}}}),
        )
        .await;
    }
    let names: Vec<_> = entries(&object).into_iter().map(|(name, _)| name).collect();
    let kept = (3..12).map(|number| format!("m{number:02}"));
    let expected: Vec<_> = ["ancient-changes".to_owned()].into_iter().chain(kept).collect();
    assert_eq!(names, expected);
    assert_eq!(entries(&object)[0], at("ancient-changes", 2));
}
