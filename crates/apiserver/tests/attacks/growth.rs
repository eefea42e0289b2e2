//! Small requests that caused responses of megabytes or minutes of work. These tests cover the limits on responses and
//! work; the crate `windlass-growth` tests that work grows only with the size of the request.

use http_body_util::BodyExt;
use serde_json::{Value, json};
use windlass_apiserver::{Server, User};

use crate::client::{read, send};

fn generate<T>(count: usize, make: impl Fn(usize) -> T) -> Vec<T> {
    (0..count).map(make).collect()
}

fn pod(spec: &Value) -> String {
    json!({"metadata": {"name": "a"}, "spec": spec}).to_string()
}

const PODS: &str = "/api/v1/namespaces/default/pods";

#[tokio::test]
async fn warning_headers_are_limited_to_4096_characters() {
    let server = Server::builder().without_service_accounts().build();
    let ports = generate(20_000, |_| json!({"containerPort": 1, "hostIP": "10.0.0.1"}));
    let spec = json!({"containers": [{"name": "a", "image": "a", "ports": ports}]});
    let response = send(&server, "POST", PODS, None, pod(&spec)).await;
    assert_eq!(response.status(), 201);
    let warnings: Vec<_> = response.headers().get_all("warning").iter().collect();
    // A single warning has at most 256 characters, and the last one may exceed the total.
    let length: usize = warnings.iter().map(|warning| warning.len()).sum();
    assert!(
        (4096..8192).contains(&length),
        "{length} in {} headers",
        warnings.len()
    );
}

#[tokio::test]
async fn strict_validation_reports_at_most_100_duplicate_fields() {
    let server = Server::new();
    let keys = generate(50_000, |index| format!(r#""k{index}":"1","k{index}":"2""#)).join(",");
    let path = "/api/v1/namespaces/default/configmaps?fieldValidation=Strict";
    // A repeated unknown field is unknown, not a duplicate.
    for (body, duplicates, unknown) in [
        (
            format!(r#"{{"metadata":{{"name":"a"}},"data":{{{keys}}}}}"#),
            100,
            0,
        ),
        (format!(r#"{{"metadata":{{"name":"a"}},{keys}}}"#), 0, 100),
    ] {
        let (code, status) = read(send(&server, "POST", path, None, body).await).await;
        assert_eq!(code, 400);
        let message = status["message"].as_str().unwrap_or_default();
        assert_eq!(
            message.matches("duplicate field").count(),
            duplicates,
            "{message}"
        );
        assert_eq!(message.matches("unknown field").count(), unknown, "{message}");
    }
}

#[tokio::test]
async fn cause_that_quotes_a_large_value_is_cut() {
    let server = Server::builder().without_service_accounts().build();
    let image = format!(" {}", "x".repeat(1_000_000));
    let containers = json!([{"name": "c", "image": image}]);
    let response = send(
        &server,
        "POST",
        PODS,
        None,
        pod(&json!({"containers": containers})),
    )
    .await;
    assert_eq!(response.status(), 422);
    let body = response
        .into_body()
        .collect()
        .await
        .expect("never fails")
        .to_bytes();
    assert!(body.len() < 256 * 1024, "{} bytes", body.len());
    let status: Value = serde_json::from_slice(&body).expect("JSON");
    let message = status["details"]["causes"][0]["message"]
        .as_str()
        .unwrap_or_default();
    assert!(
        message.ends_with(" more bytes"),
        "{}",
        &message[message.len() - 80..]
    );
}

#[tokio::test]
async fn validation_error_lists_at_most_1000_causes() {
    let server = Server::builder().without_service_accounts().build();
    let containers = generate(20_000, |_| json!({}));
    let response = send(
        &server,
        "POST",
        PODS,
        None,
        pod(&json!({"containers": containers})),
    )
    .await;
    assert_eq!(response.status(), 422);
    let body = response
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
async fn escalation_error_for_a_24_kb_role_stays_short() {
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
        let response = send(&administrator, "POST", path, None, object.to_string()).await;
        assert_eq!(response.status(), 201);
    }
    let user = administrator.as_user(User::new("a", [] as [&str; 0]));
    // 10^12 rules when multiplied out.
    let texts = generate(1000, |index| format!("x{index}"));
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
async fn json_patch_limits_operations_and_copied_and_moved_bytes() {
    let server = Server::new();
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"metadata": {"name": "a"}, "data": {"a": "x".repeat(100_000)}});
    let response = send(&server, "POST", maps, None, map.to_string()).await;
    assert_eq!(response.status(), 201);
    let patch = async |operations: Vec<Value>| {
        let kind = Some("application/json-patch+json");
        let path = format!("{maps}/a?dryRun=All");
        read(send(&server, "PATCH", &path, kind, Value::from(operations).to_string()).await).await
    };
    let (code, status) = patch(generate(
        10_001,
        |_| json!({"op": "test", "path": "/kind", "value": "ConfigMap"}),
    ))
    .await;
    assert_eq!(code, 413);
    let message = "The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert!(
        status["message"]
            .as_str()
            .is_some_and(|text| text.contains(message)),
        "{status}"
    );
    // The limit on copies is 3 MB. An object over 1 MB is too large as well, but fails with another message.
    let copies = |count| {
        generate(
            count,
            |index| json!({"op": "copy", "from": "/data/a", "path": format!("/data/b{index}")}),
        )
    };
    let rejected = "the server rejected our request due to an error in our request";
    for (count, code, message) in [(5, 200, None), (40, 422, Some(rejected))] {
        let (code_returned, status) = patch(copies(count)).await;
        assert_eq!(code_returned, code, "{count} copies");
        assert_eq!(status["message"].as_str(), message, "{count} copies");
    }
    // Each operation moves every item of the list.
    let mut operations = vec![json!({"op": "add", "path": "/x", "value": generate(500_000, |_| 0)})];
    operations.extend(generate(
        9_000,
        |_| json!({"op": "add", "path": "/x/0", "value": 0}),
    ));
    let (code, _) = patch(operations).await;
    assert_eq!(code, 422);
}

#[tokio::test]
async fn refusal_lists_at_most_100_missing_roles() {
    let administrator = Server::builder().rbac().build();
    let bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    for index in 0..150 {
        let binding = json!({
            "metadata": {"name": format!("b{index:03}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": format!("r{index:03}")},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "a"}],
        });
        let response = send(&administrator, "POST", bindings, None, binding.to_string()).await;
        assert_eq!(response.status(), 201);
    }
    let user = administrator.as_user(User::new("a", [] as [&str; 0]));
    let (code, status) = read(send(&user, "GET", PODS, None, "").await).await;
    assert_eq!(code, 403);
    let message = status["message"].as_str().unwrap_or_default();
    assert_eq!(message.matches(" not found").count(), 100, "{message}");
    assert!(message.contains("\"r099\" not found, and 50 more]"), "{message}");
    // A review of the user's rules has the same limit.
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let review = json!({"spec": {"namespace": "default"}}).to_string();
    let (code, review) = read(send(&user, "POST", path, None, review).await).await;
    assert_eq!(code, 201);
    let error = review["status"]["evaluationError"].as_str().unwrap_or_default();
    assert!(error.ends_with("and 50 more]"), "{error}");
}

#[tokio::test]
async fn rejected_apply_below_a_long_key_stays_short() {
    let server = Server::builder().without_service_accounts().build();
    let variables = generate(2_000, |index| json!({"name": format!("e{index}"), "unknown": 1}));
    let container = json!({"name": "x".repeat(20_000), "image": "a", "env": variables});
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container]}});
    let path = format!("{PODS}/a?fieldManager=a");
    let kind = Some("application/apply-patch+yaml");
    let (code, status) = read(send(&server, "PATCH", &path, kind, body.to_string()).await).await;
    assert_eq!(code, 500);
    let message = status["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("field not declared in schema") && message.len() < 100_000,
        "{} bytes",
        message.len()
    );
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition of widgets with this schema of their spec.
fn definition(spec: &Value) -> String {
    json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": spec},
            }}}],
        },
    })
    .to_string()
}

#[tokio::test]
async fn definition_with_large_patterns_is_rejected() {
    let server = Server::new();
    let properties = |pattern: &str| -> Value {
        let property = |index| json!({"type": "string", "pattern": format!("{pattern}{index}")});
        let properties: serde_json::Map<_, _> = (0..40)
            .map(|index| (format!("p{index}"), property(index)))
            .collect();
        json!({"type": "object", "properties": properties})
    };
    // Each takes 6 MB.
    let (code, status) =
        read(send(&server, "POST", CRDS, None, definition(&properties(r"\pL{400}"))).await).await;
    assert_eq!(code, 422);
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.contains("expression too large"), "{message}");
    // Each counts as 2 MB.
    let (code, status) =
        read(send(&server, "POST", CRDS, None, definition(&properties(r"\pL{20}"))).await).await;
    assert_eq!(code, 422);
    let message = status["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("all expressions together take more than 32 MiB"),
        "{message}"
    );
    let small = definition(&properties("^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"));
    assert_eq!(send(&server, "POST", CRDS, None, small).await.status(), 201);
}

#[tokio::test]
async fn errors_of_list_keys_quote_them_once() {
    let server = Server::new();
    let keys = generate(2_000, |index| format!("k{index}"));
    let list = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
        "items": {"type": "object", "properties": {"a": {"type": "string"}}},
    });
    let (code, status) = read(send(&server, "POST", CRDS, None, definition(&list)).await).await;
    assert_eq!(code, 422);
    let message = status["message"].as_str().unwrap_or_default();
    assert_eq!(message.matches("entries must all be names").count(), 1);
}

#[tokio::test]
async fn errors_of_a_schema_below_a_long_name_stay_short() {
    let server = Server::new();
    let wrong: serde_json::Map<_, _> = (0..2_000).map(|index| (format!("p{index}"), json!({}))).collect();
    let spec = |length: usize| {
        let inner = json!({"type": "object", "properties": wrong});
        definition(&json!({"type": "object", "properties": {"x".repeat(length): inner}}))
    };
    let (code, status) = read(send(&server, "POST", CRDS, None, spec(10_000)).await).await;
    assert_eq!(code, 422);
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.len() < 1 << 20, "{} bytes", message.len());
    let causes = status["details"]["causes"].as_array().map_or(0, Vec::len);
    assert!(causes < 100, "{causes} causes");
    // The paths take 200 MB.
    let (code, status) = read(send(&server, "POST", CRDS, None, spec(100_000)).await).await;
    assert_eq!(code, 422);
    let message = status["message"].as_str().unwrap_or_default();
    assert!(
        message.ends_with("must take no more than 67108864 bytes together"),
        "{message}"
    );
}

#[tokio::test]
async fn aliases_of_maps_in_a_review_are_limited() {
    let server = Server::new();
    let nested = format!("{}1{}", "{\"\": ".repeat(30), "}".repeat(30));
    let body = format!("a: &a {nested}\nb: [{}]\n", "*a, ".repeat(20_000));
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (code, status) = read(send(&server, "POST", path, Some("application/yaml"), body).await).await;
    assert_eq!(code, 400);
    let message = status["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("document contains excessive aliasing"),
        "{message}"
    );
}
