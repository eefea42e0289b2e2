//! Who may do what, on a server in this process: the policy follows what is written, and tokens end when they should.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass_apiserver::{Server, User, storage::Memory};
use windlass_rights::Recorder;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const PODS: &str = "/api/v1/namespaces/default/pods";

async fn ask(server: &Server, request: http::request::Builder, body: &Value) -> (StatusCode, Value) {
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
    let (status, value) = ask(server, Request::post(path), &body).await;
    assert_eq!(status, 201, "{path}: {value}");
    value
}

async fn code(server: &Server, path: &str) -> u16 {
    ask(server, Request::get(path), &Value::Null).await.0.as_u16()
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
async fn rights_come_and_go_with_what_is_written() {
    let server = Server::builder().rbac().build();
    let alice = server.as_user(User::new("alice", ["makers"]));
    assert_eq!(code(&alice, PODS).await, 403);
    // The binding comes first: a role that is not there yet grants nothing.
    post(&server, BINDINGS, binding("b", "r", &user("alice"))).await;
    assert_eq!(code(&alice, PODS).await, 403);
    post(&server, ROLES, role("r", "list")).await;
    assert_eq!(code(&alice, PODS).await, 200);
    let changed = Request::put(format!("{ROLES}/r"));
    assert_eq!(ask(&server, changed, &role("r", "get")).await.0, 200);
    assert_eq!(code(&alice, PODS).await, 403);
    let changed = Request::put(format!("{ROLES}/r"));
    assert_eq!(ask(&server, changed, &role("r", "list")).await.0, 200);
    assert_eq!(code(&alice, PODS).await, 200);
    // Another subject, then the same one again by its group.
    let others = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "makers"});
    for (subject, expected) in [(user("bob"), 403), (others, 200)] {
        let changed = Request::put(format!("{BINDINGS}/b"));
        assert_eq!(ask(&server, changed, &binding("b", "r", &subject)).await.0, 200);
        assert_eq!(code(&alice, PODS).await, expected, "{subject}");
    }
    let gone = Request::delete(format!("{BINDINGS}/b"));
    assert_eq!(ask(&server, gone, &Value::Null).await.0, 200);
    assert_eq!(code(&alice, PODS).await, 403);
    assert_eq!(
        code(&server, PODS).await,
        200,
        "who holds the server is its administrator"
    );
}

#[tokio::test]
async fn the_policy_is_read_anew_where_the_history_does_not_reach_back() {
    // No table remembers more than its last event, so that every look but the first comes too late for some.
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
        assert_eq!(ask(&server, gone, &Value::Null).await.0, 200);
    }
    assert_eq!(code(&alice, PODS).await, 403);
    assert_eq!(
        code(&alice, &format!("{PODS}/x")).await,
        404,
        "the other bindings are still there"
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_ends_a_minute_after_its_time() {
    let server = Server::builder().rbac().build();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    post(&server, accounts, json!({"metadata": {"name": "robot"}})).await;
    let asked = json!({"spec": {"expirationSeconds": 600}});
    let token = post(&server, &format!("{accounts}/robot/token"), asked).await;
    let token = token["status"]["token"].as_str().expect("a token").to_owned();
    let outside = server.guarded();
    let come = || {
        let request = Request::get("/api").header("authorization", format!("Bearer {token}"));
        ask(&outside, request, &Value::Null)
    };
    assert_eq!(come().await.0, 200);
    tokio::time::advance(Duration::from_secs(600 + 59)).await;
    assert_eq!(come().await.0, 200, "clocks differ");
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(come().await.0, 401);
    let review = json!({"spec": {"token": token}});
    let review = post(&server, "/apis/authentication.k8s.io/v1/tokenreviews", review).await;
    assert_eq!(
        review["status"]["error"],
        "[invalid bearer token, service account token has expired]"
    );
}

#[tokio::test]
async fn a_token_of_another_server_is_nobodys() {
    let [one, other] = [1, 2].map(|seed| Server::seeded(seed).rbac().build());
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    for server in [&one, &other] {
        post(server, accounts, json!({"metadata": {"name": "robot"}})).await;
    }
    let token = post(&one, &format!("{accounts}/robot/token"), json!({})).await;
    let token = token["status"]["token"].as_str().expect("a token");
    let request = || Request::get("/api").header("authorization", format!("Bearer {token}"));
    assert_eq!(ask(&one.guarded(), request(), &Value::Null).await.0, 200);
    assert_eq!(ask(&other.guarded(), request(), &Value::Null).await.0, 401);
    // Nor does it help to change what it says.
    let (head, rest) = token.split_once('.').expect("three parts");
    let (claims, signature) = rest.split_once('.').expect("three parts");
    let (before, after) = claims.split_at(20);
    let other = if after.starts_with('x') { 'y' } else { 'x' };
    let forged = format!("{head}.{before}{other}{}.{signature}", &after[1..]);
    let request = Request::get("/api").header("authorization", format!("Bearer {forged}"));
    assert_eq!(ask(&one.guarded(), request, &Value::Null).await.0, 401);
}

#[tokio::test]
async fn without_rbac_nobody_is_asked() {
    let server = Server::new();
    for server in [
        server.clone(),
        server.guarded(),
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
async fn the_recorder_knows_who_asked_and_who_was_refused() {
    let recorder = Recorder::new();
    let server = Server::builder().rbac().recorder(recorder.clone()).build();
    code(&server.as_user(User::new("alice", [""; 0])), PODS).await;
    let request = Request::get(PODS).header("impersonate-user", "bob");
    ask(&server, request, &Value::Null).await;
    code(&server.guarded(), "/version").await;
    let seen: Vec<_> = recorder
        .uses()
        .all
        .into_iter()
        .map(|one| (one.user, one.access.to_string(), one.count, one.refused))
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
async fn roles_that_gather_each_other_come_to_an_end() {
    let server = Server::builder().rbac().build();
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let gathering = |name: &str, other: &str| {
        json!({
            "metadata": {"name": name, "labels": {"circle": name}},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"circle": other}}]},
        })
    };
    post(&server, roles, gathering("a", "b")).await;
    post(&server, roles, gathering("b", "c")).await;
    post(&server, roles, gathering("c", "a")).await;
    let mut source = role("source", "get");
    source["metadata"]["labels"] = json!({"circle": "b"});
    post(&server, roles, source).await;
    // Two that gather each other and something else, each in another order.
    for (name, other, verb) in [("p", "q", "list"), ("q", "p", "watch")] {
        let mut source = role(&format!("z-{name}"), verb);
        source["metadata"]["labels"] = json!({"circle": other});
        post(&server, roles, source).await;
        post(&server, roles, gathering(name, other)).await;
    }
    for name in ["p", "q"] {
        let (_, role) = ask(&server, Request::get(format!("{roles}/{name}")), &Value::Null).await;
        assert_eq!(role["rules"].as_array().map(Vec::len), Some(2), "{name}: {role}");
    }
    for name in ["a", "b", "c"] {
        let (_, role) = ask(&server, Request::get(format!("{roles}/{name}")), &Value::Null).await;
        assert_eq!(role["rules"][0]["verbs"], json!(["get"]), "{name}");
    }
}
