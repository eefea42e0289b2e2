//! No document is too deep: what nests deeper than kube-apiserver takes is refused, and all else can be read, changed and
//! deleted again.

use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass_apiserver::{Body, Server};

use crate::asking::{read, send};

const BAGS: &str = "/apis/deep.windlass.dev/v1/namespaces/default/bags";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// What kube-apiserver takes.
const MAX: usize = 10_000;

/// A server with a kind whose objects may hold anything.
async fn server() -> Server {
    let server = Server::new();
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
    let (code, answer) = read(send(&server, "POST", path, None, definition.to_string()).await).await;
    assert_eq!(code, 201, "{answer}");
    server
}

/// JSON of this depth.
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

/// A bag of this depth.
fn bag(name: &str, depth: usize) -> String {
    let inner = nested(depth - 1);
    format!(
        r#"{{"apiVersion":"deep.windlass.dev/v1","kind":"Bag","metadata":{{"name":"{name}"}},"x":{inner}}}"#
    )
}

async fn ask(
    server: &Server,
    method: &str,
    path: &str,
    (kind, accept): (&str, &str),
    body: String,
) -> (u16, Vec<u8>) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
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

/// Everything that can be done to an object, with the object named last.
async fn use_it(server: &Server, name: &str) {
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
            let (code, body) = ask(server, "GET", place, (MERGE, &accept), String::new()).await;
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
        let (code, body) = ask(server, "GET", &watch, (MERGE, accept), String::new()).await;
        assert_eq!(code, 200);
        assert!(body.starts_with(br#"{"type":"ADDED""#), "{}", text(&body));
    }
    for (kind, body) in [
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
        let (code, body) = ask(
            server,
            "PATCH",
            &path,
            (kind, "application/json"),
            body.to_string(),
        )
        .await;
        assert_eq!(code, 200, "{kind}: {}", text(&body));
    }
    let (_, current) = ask(server, "GET", &path, JSON, String::new()).await;
    let (code, body) = ask(
        server,
        "PUT",
        &path,
        JSON,
        String::from_utf8(current).expect("text"),
    )
    .await;
    assert_eq!(code, 200, "{}", text(&body));
    let (code, body) = ask(server, "DELETE", &path, JSON, String::new()).await;
    assert_eq!(code, 200, "{}", text(&body));
    let (code, _) = ask(server, "GET", &path, JSON, String::new()).await;
    assert_eq!(code, 404);
}

#[tokio::test(start_paused = true)]
async fn deep_object_can_be_read_changed_and_deleted() {
    let server = server().await;
    for depth in [99, 124, 127, 128, 129, 130, 270, 2_000, MAX - 10, MAX] {
        let (code, body) = ask(&server, "POST", BAGS, JSON, bag("b", depth)).await;
        assert_eq!(code, 201, "{depth}: {}", text(&body));
        use_it(&server, "b").await;
    }
}

#[tokio::test(start_paused = true)]
async fn deep_configuration_can_be_applied_twice() {
    let server = server().await;
    let path = format!("{BAGS}/b?fieldManager=m");
    for depth in [124, 270, 9_000] {
        for code in [201, 200, 200] {
            let kind = (APPLY, "application/json");
            let (got, body) = ask(&server, "PATCH", &path, kind, bag("b", depth)).await;
            assert_eq!(got, code, "{depth}: {}", text(&body));
        }
        use_it(&server, "b").await;
    }
}

#[tokio::test]
async fn document_deeper_than_the_limit_is_refused() {
    let server = server().await;
    let (code, _) = ask(&server, "POST", BAGS, JSON, bag("b", 3)).await;
    assert_eq!(code, 201);
    let path = format!("{BAGS}/b?fieldManager=m");
    for depth in [MAX + 1, 500_000] {
        let deep = bag("b", depth);
        for (method, path, kind, why) in [
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
            // The bracket at which it is too deep is the one that Go names.
            let deep = if kind == MERGE {
                nested(1).replace('1', &"{\"a\":".repeat(depth))
            } else {
                deep.clone()
            };
            let (code, body) = ask(&server, method, path, (kind, "application/json"), deep).await;
            let answer: Value = serde_json::from_slice(&body).expect("a status");
            assert_eq!(code, 400, "{method} {kind}: {}", text(&body));
            let message = answer["message"].as_str().expect("a message");
            assert!(message.contains(why), "{method} {kind}: {message}");
        }
    }
    use_it(&server, "b").await;
}

/// One patch of 272 KB did this, and ended the process.
#[tokio::test]
async fn patch_that_builds_a_tower_is_refused() {
    let server = server().await;
    let (code, _) = ask(&server, "POST", BAGS, JSON, bag("b", 3)).await;
    assert_eq!(code, 201);
    let path = format!("{BAGS}/b");
    let send_patch = |operations: Vec<Value>| {
        ask(
            &server,
            "PATCH",
            &path,
            (JSON_PATCH, "application/json"),
            Value::from(operations).to_string(),
        )
    };

    // Each step moves the tower into a new ground floor.
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
    use_it(&server, "b").await;
}

#[tokio::test]
async fn built_in_kinds_take_deep_documents_and_keep_shallow_ones() {
    let server = Server::new();
    let maps = "/api/v1/namespaces/default/configmaps";
    let unknown = format!(r#"{{"metadata":{{"name":"a"}},"unknown":{}}}"#, nested(9_000));
    let (code, body) = ask(&server, "POST", maps, JSON, unknown).await;
    assert_eq!(code, 201, "{}", text(&body));

    let revisions = "/apis/apps/v1/namespaces/default/controllerrevisions";
    let revision = |depth| {
        format!(
            r#"{{"metadata":{{"name":"r{depth}"}},"revision":1,"data":{}}}"#,
            nested(depth)
        )
    };
    let (code, body) = ask(&server, "POST", revisions, JSON, revision(120)).await;
    assert_eq!(code, 201, "{}", text(&body));
    let (code, body) = ask(&server, "POST", revisions, JSON, revision(130)).await;
    assert_eq!(code, 400, "{}", text(&body));
    assert!(
        text(&body).contains("nests deeper than 128 levels"),
        "{}",
        text(&body)
    );
}
