//! The authorizer and the handler interpret a request the same way, whatever its spelling.

use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass_apiserver::{Server, User};

use crate::client::{read, send};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Creates a server with two ConfigMaps, `mine` and `theirs`. Returns it and a handle for a user with exactly these
/// permissions on them.
async fn server_with(rule: Value) -> (Server, Server) {
    let server = Server::builder().rbac().build();
    let mut rule = rule;
    rule["apiGroups"] = json!([""]);
    rule["resources"] = json!(["configmaps"]);
    let binding = json!({
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}],
    });
    for (path, object) in [
        (CONFIG_MAPS, json!({"metadata": {"name": "mine"}})),
        (
            CONFIG_MAPS,
            json!({"metadata": {"name": "theirs"}, "data": {"k": "hidden"}}),
        ),
        (ROLES, json!({"metadata": {"name": "r"}, "rules": [rule]})),
        (BINDINGS, binding),
    ] {
        let (code, response) = read(send(&server, "POST", path, None, object.to_string()).await).await;
        assert_eq!(code, 201, "{response}");
    }
    let mallory = server.as_user(User::new("mallory", [""; 0]));
    (server, mallory)
}

/// Returns the status code and what arrives of the body within a second of silence, because watches do not end.
async fn call(server: &Server, method: &str, line: &str, body: &str) -> (u16, String) {
    let request = Request::builder()
        .method(method)
        .uri(line)
        .header("content-type", "application/json")
        .body(Full::new(bytes::Bytes::from(body.to_owned())))
        .expect("a request");
    let response = server.clone().oneshot(request).await.expect("infallible");
    let code = response.status().as_u16();
    let mut body = response.into_body();
    let mut text = Vec::new();
    while let Ok(Some(Ok(frame))) = tokio::time::timeout(Duration::from_secs(1), body.frame()).await {
        text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
    }
    (code, String::from_utf8_lossy(&text).into_owned())
}

async fn names(server: &Server) -> Vec<String> {
    let (_, list) = read(send(server, "GET", CONFIG_MAPS, None, "").await).await;
    let items = list["items"].as_array().expect("a list").iter();
    items
        .map(|item| item["metadata"]["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn watch_permission_does_not_allow_writes_through_legacy_watch_paths() {
    let (server, mallory) = server_with(json!({"verbs": ["watch"]})).await;
    let patch = r#"{"data":{"k":"changed"}}"#;
    for (method, path, body) in [
        (
            "POST",
            "/api/v1/watch/namespaces/default/configmaps",
            r#"{"metadata":{"name":"new"}}"#,
        ),
        (
            "PUT",
            "/api/v1/watch/namespaces/default/configmaps/theirs",
            r#"{"metadata":{"name":"theirs"}}"#,
        ),
        (
            "PATCH",
            "/api/v1/watch/namespaces/default/configmaps/theirs",
            patch,
        ),
        ("DELETE", "/api/v1/watch/namespaces/default/configmaps/theirs", ""),
        ("DELETE", "/api/v1/watch/namespaces/default/configmaps", ""),
    ] {
        let (code, response) = call(&mallory, method, path, body).await;
        assert_eq!(code, 405, "{method} {path}: {response}");
    }
    assert_eq!(names(&server).await, ["mine", "theirs"]);
    let (code, events) = call(&mallory, "GET", "/api/v1/watch/namespaces/default/configmaps", "").await;
    assert_eq!(code, 200, "{events}");
    assert!(events.contains("hidden"), "watching still works: {events}");
}

#[tokio::test(start_paused = true)]
async fn list_and_watch_permissions_do_not_imply_each_other() {
    let (_, lister) = server_with(json!({"verbs": ["get", "list"]})).await;
    let (_, watcher) = server_with(json!({"verbs": ["get", "watch"]})).await;
    for (query, is_watch) in [
        ("watch=1", true),
        ("watch=true", true),
        ("watch=TRUE", true),
        ("watch=t", true),
        ("watch=yes", true),
        ("watch", true),
        ("watch=", true),
        ("w%61tch=%31", true),
        ("watch=1&watch=false", true),
        ("x=1;watch=1&watch=1", true),
        ("watch=0", false),
        ("watch=false", false),
        ("watch=FALSE", false),
        ("watch=False", false),
        ("watch=f%41lse", false),
        ("watch=false&watch=1", false),
        ("watch=%zz", false),
        ("watch=1;", false),
        ("Watch=1", false),
        ("", false),
    ] {
        let line = format!("{CONFIG_MAPS}?{query}");
        for (user, allowed) in [(&lister, !is_watch), (&watcher, is_watch)] {
            let (code, body) = call(user, "GET", &line, "").await;
            assert_eq!(code, if allowed { 200 } else { 403 }, "{line}: {body}");
            if allowed {
                assert_eq!(body.contains(r#""type":"ADDED""#), is_watch, "{line}: {body}");
                assert_eq!(body.contains("ConfigMapList"), !is_watch, "{line}: {body}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn resource_name_permission_does_not_reach_other_objects() {
    let rule =
        json!({"verbs": ["get", "list", "watch", "update", "patch", "delete"], "resourceNames": ["mine"]});
    let (server, mallory) = server_with(rule).await;
    let (code, _) = call(&mallory, "GET", &format!("{CONFIG_MAPS}/mine"), "").await;
    assert_eq!(code, 200);
    for line in [
        "/mine?name=theirs",
        "/theirs",
        "/mine/../theirs",
        "/mine%2F..%2Ftheirs",
        "/mine/%2e%2e/theirs",
        "/%2e/theirs",
        "/mine%2Ftheirs",
        "/theirs%2F",
        "//theirs",
        "/./theirs",
        "/theirs?fieldSelector=metadata.name%3Dmine",
        "?fieldSelector=metadata.name%3Dmine",
        "?fieldSelector=metadata.name%3Dmine,metadata.name%3Dtheirs",
        "?fieldSelector=metadata.name%3D%3Dmine",
        "?fieldSelector=metadata.name%3Dmine&fieldSelector=metadata.name%3Dtheirs",
        "?fieldSelector=metadata.name%3Dtheirs&fieldSelector=metadata.name%3Dmine",
        "?fieldSelector=metadata.name!%3Dmine",
        "?fieldSelector=metadata.name%3Dmine%5C,metadata.namespace!%3Dx",
        "?fieldSelector=metadata.namespace%3Dx%5C,metadata.name%3Dmine",
        "?fieldSelector=metadata.name%3Dmine!%3Dx",
        "?fieldSelector=%20metadata.name%3Dmine",
        "?fieldSelector=metadata.name%3Dmine;&fieldSelector=metadata.name!%3Dmine",
        "?fieldSelector=metadata.name%3Dmine%zz",
        "?fieldSelector=metadata.name%3Dmine&watch=1",
    ] {
        for method in ["GET", "PUT", "PATCH", "DELETE"] {
            let line = format!("{CONFIG_MAPS}{line}");
            let (_, body) = call(
                &mallory,
                method,
                &line,
                r#"{"metadata":{"name":"theirs"},"data":{"k":"x"}}"#,
            )
            .await;
            assert!(!body.contains("hidden"), "{method} {line}: {body}");
        }
        let (_, theirs) = read(send(&server, "GET", &format!("{CONFIG_MAPS}/theirs"), None, "").await).await;
        assert_eq!(theirs["data"]["k"], "hidden", "{line}");
        // The user may delete `mine`, so recreate it.
        send(
            &server,
            "POST",
            CONFIG_MAPS,
            None,
            r#"{"metadata":{"name":"mine"}}"#,
        )
        .await;
    }
}
