//! Deeply nested documents: the server rejects what nests deeper than kube-apiserver allows, and can read, change and
//! delete everything else.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass_apiserver::{Body, Server};

use crate::{
    attacks::storage::HookedStorage,
    client::{read, send},
};

const BAGS: &str = "/apis/deep.windlass.dev/v1/namespaces/default/bags";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// The nesting depth that kube-apiserver accepts.
const MAX_DEPTH: usize = 10_000;

/// Creates a server with a custom resource that preserves unknown fields.
async fn server() -> Server {
    with_bags(Server::new()).await
}

async fn with_bags(server: Server) -> Server {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": "bags.deep.windlass.dev"},
        "spec": {
            "group": "deep.windlass.dev", "scope": "Namespaced", "names": {"plural": "bags", "kind": "Bag"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": anything}},
                {"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": anything}},
            ],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, status) = read(send(&server, "POST", path, None, definition.to_string()).await).await;
    assert_eq!(code, 201, "{status}");
    server
}

/// Returns JSON of this depth.
fn nested(depth: usize) -> String {
    let (objects, lists) = (depth.div_ceil(2), depth / 2);
    format!(
        "{}{}{}{}",
        "{\"a\":".repeat(objects),
        "[".repeat(lists),
        "]".repeat(lists),
        "}".repeat(objects)
    )
    .replace(":}", ":1}")
}

/// Returns a `Bag` object of this depth.
fn bag(name: &str, depth: usize) -> String {
    let inner = nested(depth - 1);
    format!(
        r#"{{"apiVersion":"deep.windlass.dev/v1","kind":"Bag","metadata":{{"name":"{name}"}},"x":{inner}}}"#
    )
}

async fn call(
    server: &Server,
    method: &str,
    path: &str,
    (content_type, accept): (&str, &str),
    body: String,
) -> (u16, Vec<u8>) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .header("accept", accept)
        .body(body)
        .expect("a request");
    let response: Response<Body> = server.clone().oneshot(request).await.expect("infallible");
    let code = response.status().as_u16();
    (
        code,
        response
            .into_body()
            .collect()
            .await
            .expect("a body")
            .to_bytes()
            .to_vec(),
    )
}

const JSON: (&str, &str) = ("application/json", "application/json");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned()
}

/// Reads, lists, watches, patches, replaces and finally deletes the object.
async fn exercise_and_delete(server: &Server, name: &str) {
    let path = format!("{BAGS}/{name}");
    let other_version = path.replace("/v1/", "/v2/");
    for place in [&*path, &other_version, BAGS] {
        for accept in [
            "application/json",
            "application/yaml",
            "application/json;as=Table;g=meta.k8s.io;v=v1",
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        ] {
            let accept = match accept.split_once("PartialObjectMetadata") {
                Some((before, after)) if place == BAGS => format!("{before}PartialObjectMetadataList{after}"),
                _ => accept.to_owned(),
            };
            let (code, body) = call(server, "GET", place, (MERGE, &accept), String::new()).await;
            assert_eq!(code, 200, "{place} as {accept}: {}", text(&body));
            assert!(
                body.len() < 1_000_000,
                "{place} as {accept} is {} bytes",
                body.len()
            );
        }
    }
    let watch = format!("{BAGS}?watch=true&timeoutSeconds=1&resourceVersion=0");
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    for accept in ["application/json", table] {
        let (code, body) = call(server, "GET", &watch, (MERGE, accept), String::new()).await;
        assert_eq!(code, 200);
        assert!(body.starts_with(br#"{"type":"ADDED""#), "{}", text(&body));
    }
    for (content_type, body) in [
        (MERGE, json!({"metadata": {"labels": {"merged": "yes"}}})),
        (
            JSON_PATCH,
            json!([{"op": "add", "path": "/y", "value": {"z": 1}}, {"op": "test", "path": "/y/z", "value": 1}]),
        ),
        (
            APPLY,
            json!({"apiVersion": "deep.windlass.dev/v1", "kind": "Bag", "metadata": {"name": name, "labels": {"applied": "yes"}}}),
        ),
    ] {
        let path = format!("{path}?fieldManager=m");
        let (code, body) = call(
            server,
            "PATCH",
            &path,
            (content_type, "application/json"),
            body.to_string(),
        )
        .await;
        assert_eq!(code, 200, "{content_type}: {}", text(&body));
    }
    let (_, current) = call(server, "GET", &path, JSON, String::new()).await;
    let (code, body) = call(
        server,
        "PUT",
        &path,
        JSON,
        String::from_utf8(current).expect("text"),
    )
    .await;
    assert_eq!(code, 200, "{}", text(&body));
    let (code, body) = call(server, "DELETE", &path, JSON, String::new()).await;
    assert_eq!(code, 200, "{}", text(&body));
    let (code, _) = call(server, "GET", &path, JSON, String::new()).await;
    assert_eq!(code, 404);
}

#[tokio::test(start_paused = true)]
async fn deep_object_can_be_read_changed_and_deleted() {
    let server = server().await;
    for depth in [99, 124, 127, 128, 129, 130, 270, 2_000, MAX_DEPTH - 10, MAX_DEPTH] {
        let (code, body) = call(&server, "POST", BAGS, JSON, bag("b", depth)).await;
        assert_eq!(code, 201, "{depth}: {}", text(&body));
        exercise_and_delete(&server, "b").await;
    }
}

/// A thread for each request is slow. One deep object made all requests for its kind so, even after its deletion.
#[tokio::test]
async fn only_requests_about_a_deep_object_need_a_large_stack() {
    let on_own_thread = Arc::<AtomicBool>::default();
    let storage = HookedStorage::default().on_commit({
        let on_own_thread = on_own_thread.clone();
        move |_| {
            let is_own = std::thread::current().name() == Some("windlass-deep");
            on_own_thread.store(is_own, Ordering::SeqCst);
        }
    });
    let server = with_bags(Server::builder().storage(storage).build()).await;
    let write = async |method: &str, path: &str, body: String| {
        let kind = if method == "PATCH" { MERGE } else { JSON.0 };
        let (code, answer) = call(&server, method, path, (kind, JSON.1), body).await;
        assert!((200..300).contains(&code), "{method} {path}: {}", text(&answer));
        on_own_thread.load(Ordering::SeqCst)
    };
    let (deep, other) = (format!("{BAGS}/deep"), format!("{BAGS}/other"));
    let label = || r#"{"metadata":{"labels":{"a":"b"}}}"#.to_owned();
    assert!(write("POST", BAGS, bag("deep", 1_000)).await);
    assert!(!write("POST", BAGS, bag("other", 10)).await);
    assert!(write("PATCH", &deep, label()).await);
    assert!(!write("PATCH", &other, label()).await);
    assert!(write("DELETE", &deep, String::new()).await);
    assert!(!write("DELETE", &other, String::new()).await);
    write("POST", BAGS, bag("deep", 1_000)).await;
    write("POST", BAGS, bag("other", 10)).await;
    assert!(write("DELETE", BAGS, String::new()).await);
    write("POST", BAGS, bag("other", 10)).await;
    assert!(!write("DELETE", BAGS, String::new()).await);
}

/// The answer to the removal is rendered when the object is no longer stored.
#[tokio::test]
async fn removed_deep_object_is_shown_in_every_view() {
    let server = server().await;
    let path = format!("{BAGS}/deep");
    for accept in [
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "application/yaml",
    ] {
        let body = bag("deep", 1_000).replace(r#""name""#, r#""finalizers":["a.b/c"],"name""#);
        let (code, _) = call(&server, "POST", BAGS, JSON, body).await;
        assert_eq!(code, 201);
        let removal = r#"{"metadata":{"finalizers":null}}"#;
        for (method, kind, body) in [("DELETE", JSON.0, ""), ("PATCH", MERGE, removal)] {
            let (code, answer) = call(&server, method, &path, (kind, accept), body.to_owned()).await;
            assert_eq!(code, 200, "{method} as {accept}: {}", text(&answer));
            assert!(text(&answer).contains("deep"), "{method} as {accept}");
        }
        let (code, _) = call(&server, "GET", &path, JSON, String::new()).await;
        assert_eq!(code, 404);
    }
}

#[tokio::test(start_paused = true)]
async fn deep_configuration_can_be_applied_twice() {
    let server = server().await;
    let path = format!("{BAGS}/b?fieldManager=m");
    for depth in [124, 270, 9_000] {
        for code in [201, 200, 200] {
            let content_type = (APPLY, "application/json");
            let (got, body) = call(&server, "PATCH", &path, content_type, bag("b", depth)).await;
            assert_eq!(got, code, "{depth}: {}", text(&body));
        }
        exercise_and_delete(&server, "b").await;
    }
}

#[tokio::test]
async fn document_deeper_than_the_limit_is_rejected() {
    let server = server().await;
    let (code, _) = call(&server, "POST", BAGS, JSON, bag("b", 3)).await;
    assert_eq!(code, 201);
    let path = format!("{BAGS}/b?fieldManager=m");
    for depth in [MAX_DEPTH + 1, 500_000] {
        let deep = bag("b", depth);
        for (method, path, content_type, why) in [
            ("POST", BAGS, "application/json", "exceeded max depth"),
            (
                "POST",
                BAGS,
                "application/yaml",
                "yaml: exceeded max depth of 10000",
            ),
            ("PUT", &*path, "application/json", "exceeded max depth"),
            (
                "PATCH",
                &path,
                MERGE,
                "error decoding patch: invalid character '{' exceeded max depth",
            ),
            (
                "PATCH",
                &path,
                APPLY,
                "error converting YAML to JSON: yaml: exceeded max depth of 10000",
            ),
            (
                "POST",
                "/api/v1/namespaces/default/configmaps",
                "application/json",
                "exceeded max depth",
            ),
            ("DELETE", &path, "application/json", "exceeded max depth"),
            (
                "POST",
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                "application/json",
                "exceeded max depth",
            ),
        ] {
            // The error names the bracket that exceeds the limit, as Go does.
            let deep = if content_type == MERGE {
                nested(1).replace('1', &"{\"a\":".repeat(depth))
            } else {
                deep.clone()
            };
            let (code, body) = call(&server, method, path, (content_type, "application/json"), deep).await;
            let status: Value = serde_json::from_slice(&body).expect("a status");
            assert_eq!(code, 400, "{method} {content_type}: {}", text(&body));
            let message = status["message"].as_str().expect("a message");
            assert!(message.contains(why), "{method} {content_type}: {message}");
        }
    }
    exercise_and_delete(&server, "b").await;
}

/// One patch of 272 KB nested an object so deeply that the process crashed.
#[tokio::test]
async fn json_patch_that_nests_too_deep_is_rejected() {
    let server = server().await;
    let (code, _) = call(&server, "POST", BAGS, JSON, bag("b", 3)).await;
    assert_eq!(code, 201);
    let path = format!("{BAGS}/b");
    let send_patch = |operations: Vec<Value>| {
        call(
            &server,
            "PATCH",
            &path,
            (JSON_PATCH, "application/json"),
            Value::from(operations).to_string(),
        )
    };

    // Each step moves the whole tower one level down, below a new root.
    let tower = |floors: usize| {
        let step = |_| {
            [
                json!({"op": "add", "path": "/y", "value": {}}),
                json!({"op": "move", "from": "/x", "path": "/y/f"}),
                json!({"op": "move", "from": "/y", "path": "/x"}),
            ]
        };
        (0..floors).flat_map(step).collect::<Vec<_>>()
    };
    // Each copy doubles the depth.
    let doubled = |times: u32| {
        let step = |n: u32| {
            let roof = "/a".repeat(2_usize.pow(n));
            json!({"op": "copy", "from": "/d", "path": format!("/d{roof}")})
        };
        let mut operations = vec![json!({"op": "add", "path": "/d", "value": {"a": {}}})];
        operations.extend((0..times).map(step));
        operations
    };
    for floors in [3_300, 3_300, 3_300] {
        let (code, body) = send_patch(tower(floors)).await;
        assert_eq!(code, 200, "{}", text(&body));
    }
    for operations in [tower(200), doubled(14)] {
        let (code, body) = send_patch(operations).await;
        assert_eq!(code, 422, "{}", text(&body));
    }
    let (code, body) = send_patch(vec![json!({"op": "add", "path": "/z", "value": {"a": [1]}})]).await;
    assert_eq!(code, 200, "{}", text(&body));
    exercise_and_delete(&server, "b").await;
}

#[tokio::test]
async fn built_in_kinds_accept_deep_unknown_fields_and_reject_deep_raw_data() {
    let server = Server::new();
    let maps = "/api/v1/namespaces/default/configmaps";
    let unknown = format!(r#"{{"metadata":{{"name":"a"}},"unknown":{}}}"#, nested(9_000));
    let (code, body) = call(&server, "POST", maps, JSON, unknown).await;
    assert_eq!(code, 201, "{}", text(&body));

    let revisions = "/apis/apps/v1/namespaces/default/controllerrevisions";
    let revision = |depth| {
        format!(
            r#"{{"metadata":{{"name":"r{depth}"}},"revision":1,"data":{}}}"#,
            nested(depth)
        )
    };
    let (code, body) = call(&server, "POST", revisions, JSON, revision(120)).await;
    assert_eq!(code, 201, "{}", text(&body));
    let (code, body) = call(&server, "POST", revisions, JSON, revision(130)).await;
    assert_eq!(code, 400, "{}", text(&body));
    assert!(
        text(&body).contains("nests deeper than 128 levels"),
        "{}",
        text(&body)
    );
}
