//! Timestamps and order of `managedFields` entries. Recordings cannot cover them, because every run has its own clock.

use crate::client;

use std::time::Duration;

use serde_json::{Value, json};
use windlass_apiserver::Server;

use client::{read, send};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// Creates a server whose clock moves only with tokio's paused clock.
fn server() -> Server {
    let epoch = "2026-01-01T00:00:00Z".parse().expect("a time");
    Server::builder().epoch(epoch).build()
}

async fn advance(seconds: u64) {
    tokio::time::advance(Duration::from_secs(seconds)).await;
}

async fn call(server: &Server, method: &str, path: &str, content_type: &str, body: &Value) -> Value {
    let path = format!("{DEPLOYMENTS}{path}");
    read(send(server, method, &path, Some(content_type), body.to_string()).await)
        .await
        .1
}

async fn apply(server: &Server, manager: &str, spec: &Value) -> Value {
    let path = format!("/a?fieldManager={manager}");
    let body =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec});
    call(server, "PATCH", &path, "application/apply-patch+yaml", &body).await
}

async fn patch(server: &Server, manager: &str, body: &Value) -> Value {
    let path = format!("/a?fieldManager={manager}");
    call(server, "PATCH", &path, "application/merge-patch+json", body).await
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

/// Returns the manager and timestamp of each entry, in order.
fn entries(object: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    let entry = |entry: &Value| (text(&entry["manager"]), text(&entry["time"]));
    let all = object["metadata"]["managedFields"].as_array();
    all.into_iter().flatten().map(entry).collect()
}

fn entry_at(name: &str, second: u64) -> (String, String) {
    (name.to_owned(), format!("2026-01-01T00:00:{second:02}Z"))
}

#[tokio::test(start_paused = true)]
async fn no_op_write_keeps_timestamp_and_resource_version() {
    let server = server();
    let first = apply(&server, "one", &spec("500m")).await;
    assert_eq!(entries(&first), [entry_at("one", 0)]);
    advance(10).await;
    // The same value, and an equal quantity in another notation, which is detected only after merging.
    for cpu in ["500m", "0.5"] {
        assert_eq!(apply(&server, "one", &spec(cpu)).await, first, "{cpu}");
    }
    assert_eq!(
        patch(&server, "two", &json!({"spec": {"replicas": 2}})).await,
        first
    );
    let read = call(&server, "GET", "/a", "application/json", &Value::Null).await;
    let put = call(&server, "PUT", "/a?fieldManager=two", "application/json", &read).await;
    assert_eq!(put, first);
    let changed = patch(&server, "two", &json!({"metadata": {"labels": {"x": "y"}}})).await;
    assert_eq!(entries(&changed), [entry_at("one", 0), entry_at("two", 10)]);
}

#[tokio::test(start_paused = true)]
async fn managed_fields_are_sorted_by_applier_first_then_oldest() {
    let server = server();
    apply(&server, "m", &spec("1")).await;
    advance(1).await;
    patch(&server, "z", &json!({"metadata": {"labels": {"z": "1"}}})).await;
    patch(&server, "b", &json!({"metadata": {"labels": {"b": "1"}}})).await;
    advance(1).await;
    patch(&server, "a", &json!({"metadata": {"labels": {"a": "1"}}})).await;
    let object = apply(&server, "c", &json!({"paused": true})).await;
    let order = [
        entry_at("m", 0),
        entry_at("c", 2),
        entry_at("b", 1),
        entry_at("z", 1),
        entry_at("a", 2),
    ];
    assert_eq!(entries(&object), order);
    advance(1).await;
    // A manager that writes again moves to the end of its group.
    let object = patch(&server, "z", &json!({"metadata": {"labels": {"z": "2"}}})).await;
    let order = [
        entry_at("m", 0),
        entry_at("c", 2),
        entry_at("b", 1),
        entry_at("a", 2),
        entry_at("z", 3),
    ];
    assert_eq!(entries(&object), order);
}

#[tokio::test(start_paused = true)]
async fn co_owner_has_no_timestamp_until_it_changes_a_field() {
    let server = server();
    apply(&server, "one", &spec("1")).await;
    advance(1).await;
    let object = apply(&server, "two", &json!({"replicas": 2})).await;
    assert_eq!(
        entries(&object),
        [("two".to_owned(), "none".to_owned()), entry_at("one", 0)]
    );
    let object = apply(&server, "two", &json!({"replicas": 2, "paused": true})).await;
    assert_eq!(entries(&object), [entry_at("one", 0), entry_at("two", 1)]);
}

#[tokio::test(start_paused = true)]
async fn oldest_updaters_are_merged_into_ancient_changes() {
    let server = server();
    let created = json!({"metadata": {"name": "a"}, "spec": spec("1")});
    call(&server, "POST", "?fieldManager=m00", "application/json", &created).await;
    let mut object = Value::Null;
    for number in 1..12 {
        advance(1).await;
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
    assert_eq!(entries(&object)[0], entry_at("ancient-changes", 2));
}
