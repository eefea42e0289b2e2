//! RBAC and tokens on an in-process server: the policy follows role and binding writes, and tokens expire on time.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass_apiserver::{AdmissionPlugin, AuthorizationMode, Server, User, storage::Memory};
use windlass_rights::Recorder;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn call(server: &Server, request: http::request::Builder, body: &Value) -> (StatusCode, Value) {
    let bytes = match body {
        Value::Null => Bytes::new(),
        body => body.to_string().into(),
    };
    let request = request
        .header("content-type", "application/json")
        .body(http_body_util::Full::new(bytes))
        .expect("a request");
    let response = server.clone().oneshot(request).await.expect("infallible");
    let status = response.status();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn post(server: &Server, path: &str, body: Value) -> Value {
    let (status, value) = call(server, Request::post(path), &body).await;
    assert_eq!(status, 201, "{path}: {value}");
    value
}

async fn code(server: &Server, path: &str) -> u16 {
    call(server, Request::get(path), &Value::Null).await.0.as_u16()
}

fn role(name: &str, verb: &str) -> Value {
    json!({"metadata": {"name": name}, "rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}]})
}

fn binding(name: &str, role: &str, subject: &Value) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [subject],
    })
}

fn user(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name})
}

#[tokio::test]
async fn permissions_follow_role_and_binding_changes() {
    let server = Server::builder().rbac().build();
    let alice = server.as_user(User::new("alice", ["makers"]));
    assert_eq!(code(&alice, PODS).await, 403);
    // The binding exists before its role, and so grants nothing yet.
    post(&server, BINDINGS, binding("b", "r", &user("alice"))).await;
    assert_eq!(code(&alice, PODS).await, 403);
    post(&server, ROLES, role("r", "list")).await;
    assert_eq!(code(&alice, PODS).await, 200);
    let changed = Request::put(format!("{ROLES}/r"));
    assert_eq!(call(&server, changed, &role("r", "get")).await.0, 200);
    assert_eq!(code(&alice, PODS).await, 403);
    let changed = Request::put(format!("{ROLES}/r"));
    assert_eq!(call(&server, changed, &role("r", "list")).await.0, 200);
    assert_eq!(code(&alice, PODS).await, 200);
    // Bind another user, then alice again through her group.
    let others = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "makers"});
    for (subject, expected) in [(user("bob"), 403), (others, 200)] {
        let changed = Request::put(format!("{BINDINGS}/b"));
        assert_eq!(call(&server, changed, &binding("b", "r", &subject)).await.0, 200);
        assert_eq!(code(&alice, PODS).await, expected, "{subject}");
    }
    let gone = Request::delete(format!("{BINDINGS}/b"));
    assert_eq!(call(&server, gone, &Value::Null).await.0, 200);
    assert_eq!(code(&alice, PODS).await, 403);
    assert_eq!(
        code(&server, PODS).await,
        200,
        "an unguarded handle acts as administrator"
    );
}

#[tokio::test]
async fn policy_is_relisted_when_the_event_history_is_too_short() {
    // Each table keeps only its last event, so every policy refresh after the first has missed some.
    let server = Server::builder().rbac().storage(Memory::new(1)).build();
    let alice = server.as_user(User::new("alice", [""; 0]));
    for index in 0..4 {
        post(
            &server,
            ROLES,
            role(&format!("r{index}"), if index == 1 { "list" } else { "get" }),
        )
        .await;
        post(
            &server,
            BINDINGS,
            binding(&format!("b{index}"), &format!("r{index}"), &user("alice")),
        )
        .await;
    }
    assert_eq!(code(&alice, PODS).await, 200);
    for name in ["b1", "b2"] {
        let gone = Request::delete(format!("{BINDINGS}/{name}"));
        assert_eq!(call(&server, gone, &Value::Null).await.0, 200);
    }
    assert_eq!(code(&alice, PODS).await, 403);
    assert_eq!(
        code(&alice, &format!("{PODS}/x")).await,
        404,
        "the other bindings are still there"
    );
}

#[tokio::test(start_paused = true)]
async fn token_is_rejected_one_minute_after_it_expires() {
    let server = Server::builder().rbac().build();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    post(&server, accounts, json!({"metadata": {"name": "robot"}})).await;
    let request_body = json!({"spec": {"expirationSeconds": 600}});
    let token = post(&server, &format!("{accounts}/robot/token"), request_body).await;
    let token = token["status"]["token"].as_str().expect("a token").to_owned();
    let outside = server.authenticated();
    let authenticate = || {
        let request = Request::get("/api").header("authorization", format!("Bearer {token}"));
        call(&outside, request, &Value::Null)
    };
    assert_eq!(authenticate().await.0, 200);
    tokio::time::advance(Duration::from_secs(600 + 59)).await;
    assert_eq!(
        authenticate().await.0,
        200,
        "one minute of clock skew is tolerated"
    );
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(authenticate().await.0, 401);
    let review = json!({"spec": {"token": token}});
    let review = post(&server, "/apis/authentication.k8s.io/v1/tokenreviews", review).await;
    assert_eq!(
        review["status"]["error"],
        "[invalid bearer token, service account token has expired]"
    );
}

#[tokio::test]
async fn token_from_another_server_is_rejected() {
    let [one, other] = [1, 2].map(|seed| Server::seeded(seed).rbac().build());
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    for server in [&one, &other] {
        post(server, accounts, json!({"metadata": {"name": "robot"}})).await;
    }
    let token = post(&one, &format!("{accounts}/robot/token"), json!({})).await;
    let token = token["status"]["token"].as_str().expect("a token");
    let request = || Request::get("/api").header("authorization", format!("Bearer {token}"));
    assert_eq!(call(&one.authenticated(), request(), &Value::Null).await.0, 200);
    assert_eq!(call(&other.authenticated(), request(), &Value::Null).await.0, 401);
    // A token with changed claims is rejected too.
    let (head, rest) = token.split_once('.').expect("three parts");
    let (claims, signature) = rest.split_once('.').expect("three parts");
    let (before, after) = claims.split_at(20);
    let other = if after.starts_with('x') { 'y' } else { 'x' };
    let forged = format!("{head}.{before}{other}{}.{signature}", &after[1..]);
    let request = Request::get("/api").header("authorization", format!("Bearer {forged}"));
    assert_eq!(call(&one.authenticated(), request, &Value::Null).await.0, 401);
}

#[tokio::test]
async fn every_request_is_allowed_without_rbac() {
    let server = Server::new();
    for server in [
        server.clone(),
        server.authenticated(),
        server.as_user(User::anonymous()),
    ] {
        assert_eq!(code(&server, PODS).await, 200);
    }
    let review = json!({"spec": {"user": "x", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let review = post(
        &server,
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        review,
    )
    .await;
    assert_eq!(review["status"]["allowed"], true);
}

#[tokio::test]
async fn recorder_counts_requests_and_denials_per_user() {
    let recorder = Recorder::new();
    let server = Server::builder().rbac().recorder(recorder.clone()).build();
    code(&server.as_user(User::new("alice", [""; 0])), PODS).await;
    let request = Request::get(PODS).header("impersonate-user", "bob");
    call(&server, request, &Value::Null).await;
    code(&server.authenticated(), "/version").await;
    let seen: Vec<_> = recorder
        .records()
        .records
        .into_iter()
        .map(|one| (one.user, one.access.to_string(), one.count, one.forbidden))
        .collect();
    let expect = |user: &str, access: &str, refused| (user.to_owned(), access.to_owned(), 1, refused);
    assert_eq!(
        seen,
        [
            expect("alice", "list pods in default", 1),
            expect("bob", "list pods in default", 1),
            expect("system:anonymous", "get /version", 0),
        ]
    );
}

#[tokio::test]
async fn aggregated_cluster_roles_that_select_each_other_terminate() {
    let server = Server::builder().rbac().build();
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let aggregating = |name: &str, other: &str| {
        json!({
            "metadata": {"name": name, "labels": {"circle": name}},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"circle": other}}]},
        })
    };
    post(&server, roles, aggregating("a", "b")).await;
    post(&server, roles, aggregating("b", "c")).await;
    post(&server, roles, aggregating("c", "a")).await;
    let mut source = role("source", "get");
    source["metadata"]["labels"] = json!({"circle": "b"});
    post(&server, roles, source).await;
    // Two roles that aggregate each other and one more role each, created in different orders.
    for (name, other, verb) in [("p", "q", "list"), ("q", "p", "watch")] {
        let mut source = role(&format!("z-{name}"), verb);
        source["metadata"]["labels"] = json!({"circle": other});
        post(&server, roles, source).await;
        post(&server, roles, aggregating(name, other)).await;
    }
    for name in ["p", "q"] {
        let (_, role) = call(&server, Request::get(format!("{roles}/{name}")), &Value::Null).await;
        assert_eq!(role["rules"].as_array().map(Vec::len), Some(2), "{name}: {role}");
    }
    for name in ["a", "b", "c"] {
        let (_, role) = call(&server, Request::get(format!("{roles}/{name}")), &Value::Null).await;
        assert_eq!(role["rules"][0]["verbs"], json!(["get"]), "{name}");
    }
}

#[tokio::test]
async fn rbac_and_always_allow_have_the_rules_of_both() {
    let server = Server::builder()
        .authorization([AuthorizationMode::Rbac, AuthorizationMode::AlwaysAllow])
        .build();
    let carol = server.as_user(User::new("carol", ["a"]));
    assert_eq!(
        code(
            &carol,
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin"
        )
        .await,
        200
    );
    let everything = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
    let role = json!({"metadata": {"name": "all"}, "rules": [everything]});
    post(&carol, ROLES, role).await;
    let review = json!({"spec": {"namespace": "default"}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let answer = post(&carol, path, review).await;
    let rules = answer["status"]["resourceRules"].as_array().expect("a list");
    assert_eq!(rules.last(), Some(&everything));
    assert!(rules.len() > 1, "those of RBAC come first: {rules:?}");
}

#[tokio::test]
async fn disabled_plugin_does_not_admit() {
    let server = Server::builder()
        .without_admission_plugin(AdmissionPlugin::StorageObjectInUseProtection)
        .without_admission_plugin(AdmissionPlugin::TaintNodesByCondition)
        .build();
    let node = post(&server, "/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    assert_eq!(node["spec"], json!({}));
    let spec =
        json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"}});
    let volume = json!({"metadata": {"name": "v"}, "spec": spec});
    let volume = post(&server, "/api/v1/persistentvolumes", volume).await;
    assert_eq!(volume["metadata"].get("finalizers"), None);
}

#[tokio::test]
async fn authentication_is_published_and_legacy_tokens_are_tracked() {
    let server = Server::builder()
        .publish_authentication([("client-ca-file", "PEM")])
        .track_legacy_tokens()
        .build();
    let maps = "/api/v1/namespaces/kube-system/configmaps";
    let path = format!("{maps}/extension-apiserver-authentication");
    let (_, published) = call(&server, Request::get(path), &Value::Null).await;
    assert_eq!(published["data"], json!({"client-ca-file": "PEM"}));
    let path = format!("{maps}/kube-apiserver-legacy-service-account-token-tracking");
    let (_, tracking) = call(&server, Request::get(path), &Value::Null).await;
    assert_eq!(
        tracking["data"]["since"].as_str().map(str::len),
        Some("2026-11-18".len())
    );
}

#[tokio::test]
async fn metrics_count_stored_objects_for_users_with_the_right() {
    let server = Server::builder().rbac().build();
    let metrics = Request::get("/metrics").body(String::new()).expect("a request");
    let response = server.clone().oneshot(metrics).await.expect("infallible");
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let text = String::from_utf8(body.to_vec()).expect("text");
    for line in [
        "# TYPE apiserver_resource_objects gauge",
        "apiserver_resource_objects{group=\"\",resource=\"namespaces\"} 4",
        "apiserver_current_inflight_requests{request_kind=\"mutating\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert_eq!(
        code(&server.as_user(User::new("carol", ["a"])), "/metrics").await,
        403
    );
}
