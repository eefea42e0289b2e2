//! Small requests that were answered with megabytes, or with work for minutes. That work grows with the request alone is
//! what the crate `windlass-growth` tests; here are the limits on what is said and done.

use http_body_util::BodyExt;
use serde_json::{Value, json};
use windlass_apiserver::{Server, User};

use crate::asking::{read, send};

fn each<T>(count: usize, make: impl Fn(usize) -> T) -> Vec<T> {
    (0..count).map(make).collect()
}

fn pod(spec: &Value) -> String {
    json!({"metadata": {"name": "a"}, "spec": spec}).to_string()
}

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
async fn warnings_have_room_for_4096_characters() {
    let server = Server::builder().without_service_accounts().build();
    let ports = each(20_000, |_| json!({"containerPort": 1, "hostIP": "10.0.0.1"}));
    let spec = json!({"containers": [{"name": "a", "image": "a", "ports": ports}]});
    let answer = send(&server, "POST", PODS, None, pod(&spec)).await;
    assert_eq!(answer.status(), 201);
    let warnings: Vec<_> = answer.headers().get_all("warning").iter().collect();
    // None is longer than 256 characters, and one may go beyond.
    let length: usize = warnings.iter().map(|warning| warning.len()).sum();
    assert!(
        (4096..8192).contains(&length),
        "{length} in {} headers",
        warnings.len()
    );
}

#[tokio::test]
async fn repeated_keys_are_named_a_hundred_times() {
    let server = Server::new();
    let keys = each(50_000, |index| format!(r#""k{index}":1,"k{index}":2"#));
    let path = "/api/v1/namespaces/default/configmaps?fieldValidation=Strict";
    let body = format!(r#"{{"metadata":{{"name":"a"}},{}}}"#, keys.join(","));
    let (code, status) = read(send(&server, "POST", path, None, body).await).await;
    assert_eq!(code, 400);
    let message = status["message"].as_str().unwrap_or_default();
    assert_eq!(message.matches("duplicate field").count(), 100, "{message}");
    assert_eq!(message.matches("unknown field").count(), 0, "{message}");
}

#[tokio::test]
async fn a_refusal_lists_a_thousand_causes() {
    let server = Server::builder().without_service_accounts().build();
    let containers = each(20_000, |_| json!({}));
    let answer = send(
        &server,
        "POST",
        PODS,
        None,
        pod(&json!({"containers": containers})),
    )
    .await;
    assert_eq!(answer.status(), 422);
    let body = answer
        .into_body()
        .collect()
        .await
        .expect("never fails")
        .to_bytes();
    assert!(body.len() < 1 << 20, "{} bytes", body.len());
    let status: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(status["details"]["causes"].as_array().map(Vec::len), Some(1000));
    let message = status["message"].as_str().unwrap_or_default();
    assert!(
        message.ends_with("more errors]"),
        "{}",
        &message[message.len() - 80..]
    );
}

#[tokio::test]
async fn a_role_of_24_kilobytes_is_refused_with_a_short_text() {
    let administrator = Server::builder().rbac().build();
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
    let write = json!({"verbs": ["create"], "apiGroups": ["*"], "resources": ["roles"]});
    for (path, object) in [
        (roles, json!({"metadata": {"name": "writer"}, "rules": [write]})),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
            json!({
                "metadata": {"name": "writer"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "a"}],
            }),
        ),
    ] {
        let answer = send(&administrator, "POST", path, None, object.to_string()).await;
        assert_eq!(answer.status(), 201);
    }
    let user = administrator.as_user(User::new("a", [] as [&str; 0]));
    // A million million rights, if they are multiplied out.
    let texts = each(1000, |index| format!("x{index}"));
    let rule = json!({"verbs": texts, "apiGroups": texts, "resources": texts, "resourceNames": texts});
    let body = json!({"metadata": {"name": "b"}, "rules": [rule]}).to_string();
    let (code, status) = read(send(&user, "POST", roles, None, body).await).await;
    assert_eq!(code, 403);
    let message = status["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("is attempting to grant RBAC permissions not currently held"),
        "{message}"
    );
    assert!(message.ends_with("\nand more"));
    assert!(message.len() < 1 << 20, "{} bytes", message.len());
}

#[tokio::test]
async fn operations_of_a_patch_are_counted_and_so_is_what_they_copy_and_move() {
    let server = Server::new();
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"metadata": {"name": "a"}, "data": {"a": "x".repeat(100_000)}});
    let answer = send(&server, "POST", maps, None, map.to_string()).await;
    assert_eq!(answer.status(), 201);
    let patch = async |operations: Vec<Value>| {
        let kind = Some("application/json-patch+json");
        let path = format!("{maps}/a?dryRun=All");
        read(send(&server, "PATCH", &path, kind, Value::from(operations).to_string()).await).await
    };
    let (code, status) = patch(each(
        10_001,
        |_| json!({"op": "test", "path": "/kind", "value": "ConfigMap"}),
    ))
    .await;
    assert_eq!(code, 413);
    let message = "The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert!(
        status["message"]
            .as_str()
            .is_some_and(|said| said.contains(message)),
        "{status}"
    );
    // Three megabytes; more than one would be too large an object as well, which is said in other words.
    let copies = |count| {
        each(
            count,
            |index| json!({"op": "copy", "from": "/data/a", "path": format!("/data/b{index}")}),
        )
    };
    let rejected = "the server rejected our request due to an error in our request";
    for (count, code, message) in [(5, 200, None), (40, 422, Some(rejected))] {
        let (answered, status) = patch(copies(count)).await;
        assert_eq!(answered, code, "{count} copies");
        assert_eq!(status["message"].as_str(), message, "{count} copies");
    }
    // Every item is moved by each of the operations.
    let mut operations = vec![json!({"op": "add", "path": "/x", "value": each(500_000, |_| 0)})];
    operations.extend(each(9_000, |_| json!({"op": "add", "path": "/x/0", "value": 0})));
    let (code, _) = patch(operations).await;
    assert_eq!(code, 422);
}
