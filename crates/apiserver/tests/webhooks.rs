//! Admission webhooks in the process of the server: on a paused clock, without sockets.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_apiserver::{Builder, InProcessWebhook, Server};

use crate::client::{read, send};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// The requests that a webhook has got.
type Seen = Arc<Mutex<Vec<Value>>>;

/// A webhook that records the requests, and makes its response of each after a delay.
fn webhook(
    seen: &Seen,
    delay: Duration,
    respond: impl Fn(&Value) -> Value + Clone + Send + Sync + 'static,
) -> InProcessWebhook {
    let seen = seen.clone();
    InProcessWebhook::new(tower::service_fn(move |request: Request<Bytes>| {
        let (seen, respond) = (seen.clone(), respond.clone());
        async move {
            tokio::time::sleep(delay).await;
            let mut review: Value = serde_json::from_slice(request.body()).expect("JSON");
            let request = review["request"].take();
            let mut response = respond(&request);
            if response["uid"].is_null() {
                response["uid"] = request["uid"].clone();
            }
            seen.lock().expect("no panic").push(request);
            let answer =
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
            Ok::<_, Infallible>(Response::new(Bytes::from(answer.to_string())))
        }
    }))
}

fn allow(_: &Value) -> Value {
    json!({"allowed": true})
}

fn patch(operations: &Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string())})
}

/// A configuration of webhooks for these plurals of the core group; each has its name and further fields.
async fn configure(server: &Server, kind: &str, plural: &str, webhooks: &[(&str, Value)]) {
    let webhooks: Vec<Value> = webhooks
        .iter()
        .map(|(name, fields)| {
            let mut webhook = json!({
                "name": format!("{name}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": {"namespace": "default", "name": name}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": [plural]}],
            });
            for (key, value) in fields.as_object().expect("an object") {
                webhook[key] = value.clone();
            }
            webhook
        })
        .collect();
    let configuration = json!({"metadata": {"name": "c"}, "webhooks": webhooks});
    let path = format!("{GROUP}/{kind}webhookconfigurations");
    let (code, answer) = request(server, "POST", &path, &configuration).await;
    assert_eq!(code, 201, "{answer}");
}

async fn request(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
    read(send(server, method, path, None, body.to_string()).await).await
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "v"}})
}

fn with(webhooks: impl IntoIterator<Item = (&'static str, InProcessWebhook)>) -> Server {
    let add = |builder: Builder, (name, webhook): (&str, InProcessWebhook)| {
        builder.webhook(&format!("{name}.default.svc"), webhook)
    };
    webhooks.into_iter().fold(Server::builder(), add).build()
}

#[tokio::test(start_paused = true)]
async fn mutating_webhooks_see_what_those_before_them_did() {
    let (first, second) = (Seen::default(), Seen::default());
    let add = |key: &'static str| {
        move |request: &Value| {
            let count = request["object"]["data"]
                .as_object()
                .map_or(0, serde_json::Map::len);
            patch(&json!([{"op": "add", "path": format!("/data/{key}"), "value": count.to_string()}]))
        }
    };
    let server = with([
        ("a", webhook(&first, Duration::ZERO, add("a"))),
        ("b", webhook(&second, Duration::ZERO, add("b"))),
    ]);
    configure(
        &server,
        "mutating",
        "configmaps",
        &[("a", json!({})), ("b", json!({}))],
    )
    .await;
    let (code, answer) = request(&server, "POST", MAPS, &map("x")).await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(answer["data"], json!({"k": "v", "a": "1", "b": "2"}));
    assert_eq!(second.lock().expect("no panic").len(), 1);
    assert_eq!(second.lock().expect("no panic")[0]["object"]["data"]["a"], "1");
    assert_eq!(
        first.lock().expect("no panic").len(),
        1,
        "asked once for each request"
    );
}

#[tokio::test(start_paused = true)]
async fn validating_webhooks_see_the_object_that_is_written() {
    let seen = Seen::default();
    let server = with([("a", webhook(&seen, Duration::from_secs(3), allow))]);
    configure(&server, "validating", "services", &[("a", json!({}))]).await;
    let service =
        json!({"metadata": {"generateName": "x-"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    let (code, answer) = request(&server, "POST", SERVICES, &service).await;
    assert_eq!(code, 201, "{answer}");
    let seen = seen.lock().expect("no panic");
    assert_eq!(seen.len(), 1);
    let object = &seen[0]["object"];
    for pointer in [
        "/metadata/name",
        "/metadata/uid",
        "/metadata/creationTimestamp",
        "/metadata/managedFields/0/time",
        "/spec/clusterIP",
        "/spec/ports/0/nodePort",
    ] {
        assert!(object.pointer(pointer).is_some(), "{pointer}");
        assert_eq!(object.pointer(pointer), answer.pointer(pointer), "{pointer}");
    }
    assert_eq!(seen[0]["name"], answer["metadata"]["name"]);
}

#[tokio::test(start_paused = true)]
async fn webhooks_are_asked_once_about_a_service_while_others_are_created_and_deleted() {
    let seen = Seen::default();
    let slow = webhook(&seen, Duration::from_secs(3), allow);
    let server = Server::seeded(1).webhook("a.default.svc", slow).build();
    let service = |name: &str, label: &str| {
        json!({"metadata": {"name": name, "labels": {"asked": label}}, "spec": {
            "type": "NodePort", "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}],
        }})
    };
    for index in 0..10 {
        let old = service(&format!("old-{index}"), "no");
        assert_eq!(request(&server, "POST", SERVICES, &old).await.0, 201);
    }
    let selector = json!({"objectSelector": {"matchLabels": {"asked": "yes"}}});
    configure(&server, "validating", "services", &[("a", selector)]).await;
    let create = async |index: u64| {
        tokio::time::sleep(Duration::from_millis(index * 100)).await;
        let body = service(&format!("new-{index}"), "yes");
        request(&server, "POST", SERVICES, &body).await
    };
    let disturb = async {
        for index in 0..10 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let other = service(&format!("other-{index}"), "no");
            assert_eq!(request(&server, "POST", SERVICES, &other).await.0, 201);
            let old = format!("{SERVICES}/old-{index}");
            assert_eq!(request(&server, "DELETE", &old, &Value::Null).await.0, 200);
        }
    };
    let (created, ()) = tokio::join!(futures::future::join_all((0..10).map(create)), disturb);
    let mut addresses: Vec<_> = created
        .iter()
        .map(|(code, answer)| {
            assert_eq!(*code, 201, "{answer}");
            answer["spec"]["clusterIP"].to_string()
        })
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 10);
    // One more call is right only if another service has got the same.
    let calls = seen.lock().expect("no panic").len();
    assert!((10..=13).contains(&calls), "{calls}");
}

#[tokio::test(start_paused = true)]
async fn validating_webhooks_are_asked_at_once_and_the_first_refusal_wins() {
    let seen = Seen::default();
    let deny = |why: &'static str| move |_: &Value| json!({"allowed": false, "status": {"message": why, "code": 418, "reason": "Teapot"}});
    let server = with([
        ("a", webhook(&seen, Duration::from_secs(5), deny("slow"))),
        ("b", webhook(&seen, Duration::from_secs(2), deny("fast"))),
        ("c", webhook(&seen, Duration::from_secs(1), allow)),
    ]);
    let webhooks = [("a", json!({})), ("b", json!({})), ("c", json!({}))];
    configure(&server, "validating", "configmaps", &webhooks).await;
    let started = Instant::now();
    let (code, answer) = request(&server, "POST", MAPS, &map("x")).await;
    assert_eq!(started.elapsed().as_secs(), 5, "not one after the other");
    assert_eq!(code, 418);
    assert_eq!(answer["reason"], "Teapot");
    assert_eq!(
        answer["message"],
        "admission webhook \"b.example.com\" denied the request: fast"
    );
    assert_eq!(
        request(&server, "GET", &format!("{MAPS}/x"), &Value::Null)
            .await
            .0,
        404
    );
}

#[tokio::test(start_paused = true)]
async fn hanging_webhook_delays_only_its_own_request_until_its_timeout() {
    let server = with([("a", webhook(&Seen::default(), Duration::from_hours(1), allow))]);
    let selector = json!({"matchLabels": {"slow": "yes"}});
    for (failure_policy, expected) in [("Fail", 500), ("Ignore", 201)] {
        let fields =
            json!({"timeoutSeconds": 7, "failurePolicy": failure_policy, "objectSelector": selector});
        configure(&server, "validating", "configmaps", &[("a", fields)]).await;
        let mut slow = map("slow");
        slow["metadata"]["labels"] = json!({"slow": "yes"});
        let started = Instant::now();
        let hanging = request(&server, "POST", MAPS, &slow);
        let other = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let created = request(&server, "POST", MAPS, &map(&failure_policy.to_lowercase())).await;
            (created.0, started.elapsed().as_secs())
        };
        let ((code, answer), (other, after)) = tokio::join!(hanging, other);
        assert_eq!((other, after), (201, 1));
        assert_eq!((code, started.elapsed().as_secs()), (expected, 7), "{answer}");
        if failure_policy == "Fail" {
            assert_eq!(
                answer["message"],
                "Internal error occurred: failed calling webhook \"a.example.com\": failed to call webhook: Post \
                 \"https://a.default.svc:443/?timeout=7s\": context deadline exceeded"
            );
        }
        let path = format!("{GROUP}/validatingwebhookconfigurations/c");
        assert_eq!(request(&server, "DELETE", &path, &Value::Null).await.0, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn timeout_of_the_request_is_shorter_than_that_of_the_webhook() {
    let server = with([("a", webhook(&Seen::default(), Duration::from_hours(1), allow))]);
    configure(
        &server,
        "mutating",
        "configmaps",
        &[("a", json!({"failurePolicy": "Ignore"}))],
    )
    .await;
    let (code, answer) = request(&server, "POST", &format!("{MAPS}?timeout=2s"), &map("x")).await;
    assert_eq!((code, &answer["reason"]), (504, &json!("Timeout")), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn webhook_that_panics_fails_its_request_only() {
    let panics = InProcessWebhook::new(tower::service_fn(|_: Request<Bytes>| async {
        assert!(std::hint::black_box(false), "the webhook is broken");
        Ok::<_, Infallible>(Response::new(Bytes::new()))
    }));
    let server = with([("a", panics)]);
    configure(&server, "mutating", "configmaps", &[("a", json!({}))]).await;
    let (code, answer) = request(&server, "POST", MAPS, &map("x")).await;
    assert_eq!(code, 500);
    let message = answer["message"].as_str().expect("a message");
    assert!(message.ends_with("?timeout=10s\": EOF"), "{message}");
    assert_eq!(
        request(&server, "GET", &format!("{MAPS}/x"), &Value::Null)
            .await
            .0,
        404
    );
}

#[tokio::test(start_paused = true)]
async fn webhook_that_writes_to_the_server_does_not_wait_for_itself() {
    // The server exists only after its webhooks.
    let slot: Arc<Mutex<Option<Server>>> = Arc::default();
    let server_of_webhook = slot.clone();
    let writes = InProcessWebhook::new(tower::service_fn(move |review: Request<Bytes>| {
        let server = server_of_webhook
            .lock()
            .expect("no panic")
            .clone()
            .expect("set below");
        async move {
            let review: Value = serde_json::from_slice(review.body()).expect("JSON");
            let name = review["request"]["name"].as_str().expect("a name");
            // Each write asks this webhook again, three levels deep.
            if name.len() < 3 {
                let (code, answer) =
                    Box::pin(request(&server, "POST", MAPS, &map(&format!("{name}x")))).await;
                assert_eq!(code, 201, "{answer}");
            }
            let response = json!({"uid": review["request"]["uid"], "allowed": true});
            let answer =
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
            Ok::<_, Infallible>(Response::new(Bytes::from(answer.to_string())))
        }
    }));
    let server = with([("a", writes)]);
    *slot.lock().expect("no panic") = Some(server.clone());
    configure(&server, "validating", "configmaps", &[("a", json!({}))]).await;
    let (code, answer) = request(&server, "POST", MAPS, &map("x")).await;
    assert_eq!(code, 201, "{answer}");
    for name in ["x", "xx", "xxx"] {
        assert_eq!(
            request(&server, "GET", &format!("{MAPS}/{name}"), &Value::Null)
                .await
                .0,
            200
        );
    }
    slot.lock().expect("no panic").take();
}

#[tokio::test(start_paused = true)]
async fn change_during_a_webhook_is_not_lost_and_is_shown_to_it() {
    let seen = Seen::default();
    let server = with([("a", webhook(&seen, Duration::from_secs(5), allow))]);
    assert_eq!(request(&server, "POST", MAPS, &map("x")).await.0, 201);
    configure(&server, "validating", "configmaps", &[("a", json!({}))]).await;
    let path = format!("{MAPS}/x");
    let change = |key: &'static str, after: u64| {
        let (server, path) = (&server, &path);
        async move {
            tokio::time::sleep(Duration::from_secs(after)).await;
            request(server, "PATCH", path, &json!({"data": {key: "new"}})).await
        }
    };
    let ((first, _), (second, answer)) = tokio::join!(change("a", 0), change("b", 1));
    assert_eq!((first, second), (200, 200));
    assert_eq!(answer["data"], json!({"k": "v", "a": "new", "b": "new"}));
    let seen = seen.lock().expect("no panic");
    let last = &seen.last().expect("asked")["object"]["data"];
    assert_eq!(*last, answer["data"], "the webhook has seen what was written");
    assert_eq!(seen.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn deleted_collection_asks_about_each_object_at_once() {
    let seen = Seen::default();
    let server = with([("a", webhook(&seen, Duration::from_secs(1), allow))]);
    for index in 0..150 {
        let created = request(&server, "POST", MAPS, &map(&format!("m{index}"))).await;
        assert_eq!(created.0, 201);
    }
    configure(&server, "validating", "configmaps", &[("a", json!({}))]).await;
    let started = Instant::now();
    let (code, answer) = request(&server, "DELETE", MAPS, &Value::Null).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(answer["items"].as_array().map(Vec::len), Some(150));
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    let seen = std::mem::take(&mut *seen.lock().expect("no panic"));
    assert_eq!(seen.len(), 150);
    assert!(seen.iter().all(|request| request["name"].is_null()));
    let (_, left) = request(&server, "GET", MAPS, &Value::Null).await;
    assert_eq!(left["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn denied_deletion_of_a_collection_says_why_and_deletes_no_more() {
    let deny_last = |request: &Value| {
        let denied = request["oldObject"]["metadata"]["name"] == "m2";
        json!({"allowed": !denied, "status": {"message": "it is in use"}})
    };
    let server = with([("a", webhook(&Seen::default(), Duration::ZERO, deny_last))]);
    for index in 0..4 {
        assert_eq!(
            request(&server, "POST", MAPS, &map(&format!("m{index}"))).await.0,
            201
        );
    }
    configure(&server, "validating", "configmaps", &[("a", json!({}))]).await;
    let (code, answer) = request(&server, "DELETE", MAPS, &Value::Null).await;
    assert_eq!(code, 400);
    assert_eq!(
        answer["message"],
        "admission webhook \"a.example.com\" denied the request: it is in use"
    );
    assert_eq!(
        request(&server, "GET", &format!("{MAPS}/m2"), &Value::Null)
            .await
            .0,
        200
    );
}

#[tokio::test(start_paused = true)]
async fn configurations_of_admission_cannot_be_locked() {
    let deny = |_: &Value| json!({"allowed": false});
    let server = with([("a", webhook(&Seen::default(), Duration::ZERO, deny))]);
    let everything = json!({"rules": [
        {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]},
    ]});
    configure(&server, "validating", "*", &[("a", everything)]).await;
    let (code, answer) = request(&server, "POST", MAPS, &map("x")).await;
    assert_eq!(code, 400);
    assert_eq!(
        answer["message"],
        "admission webhook \"a.example.com\" denied the request without explanation"
    );
    let path = format!("{GROUP}/validatingwebhookconfigurations/c");
    assert_eq!(request(&server, "DELETE", &path, &Value::Null).await.0, 200);
    assert_eq!(request(&server, "POST", MAPS, &map("x")).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn hostile_answers_are_errors_and_write_nothing() {
    let deep = "[".repeat(200_000);
    let many = vec![json!({"op": "add", "path": "/data/a", "value": "x"}); 20_000];
    let answers = [
        json!({"allowed": "yes"}),
        json!({"allowed": true, "uid": "forged"}),
        json!({"allowed": true, "patchType": "JSONPatch", "patch": "!"}),
        json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode("{}")}),
        json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(&deep)}),
        json!({"allowed": true, "patchType": "JSONPatch", "patch": [1, 2, 300]}),
        json!({"allowed": true, "patchType": "Merge", "patch": STANDARD.encode(r#"[{"op":"add"}]"#)}),
        json!({"allowed": true, "status": 7}),
        patch(&json!(many)),
        patch(&json!([{"op": "replace", "path": "", "value": 7}])),
        patch(&json!([{"op": "remove", "path": "/metadata"}])),
        patch(&json!([{"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}])),
        patch(&json!([{"op": "add", "path": "/data", "value": "text"}])),
        patch(&json!([{"op": "frobnicate", "path": "/data"}])),
        patch(&json!([7])),
    ];
    for answer in answers {
        let shown = answer.to_string();
        let respond = move |_: &Value| answer.clone();
        let server = with([("a", webhook(&Seen::default(), Duration::ZERO, respond))]);
        configure(&server, "mutating", "configmaps", &[("a", json!({}))]).await;
        let (code, answer) = request(&server, "POST", MAPS, &map("x")).await;
        let shown = &shown[..shown.len().min(100)];
        assert!((400..=599).contains(&code), "{shown}: {code} {answer}");
        let (_, all) = request(&server, "GET", "/api/v1/configmaps", &Value::Null).await;
        assert_eq!(all["items"], json!([]), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn writes_of_the_server_itself_ask_no_webhook() {
    let deny = |_: &Value| json!({"allowed": false});
    let server = Server::builder()
        .kubernetes_service(6443)
        .webhook("a.default.svc", webhook(&Seen::default(), Duration::ZERO, deny))
        .build();
    configure(&server, "validating", "services", &[("a", json!({"rules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"]},
    ]}))])
    .await;
    let path = format!("{SERVICES}/kubernetes");
    assert_eq!(request(&server, "DELETE", &path, &Value::Null).await.0, 200);
    assert_eq!(
        request(&server, "GET", &path, &Value::Null).await.0,
        200,
        "created again"
    );
}

/// Maps in maps, this many levels.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!("end"), |inner, _| json!({ "a": inner }))
}

#[tokio::test(start_paused = true)]
async fn details_of_a_denial_are_those_of_a_status() {
    // Deep values are built as text: most readers and writers recurse over them.
    let deep = format!("{}1{}", "{\"a\":".repeat(9_000), "}".repeat(9_000));
    let text = format!(
        r#"{{"allowed":false,"status":{{"message":"no","details":{{"name":"n","kind":{{}},"retryAfterSeconds":3,
            "causes":[{{"message":"m","field":7}},8],"deep":{deep}}},"metadata":{{"continue":"c","resourceVersion":{deep}}}}}}}"#
    );
    let service = move |request: Request<Bytes>| {
        let body = String::from_utf8_lossy(request.body()).into_owned();
        let (_, rest) = body.split_once("\"uid\":\"").expect("a uid");
        let (uid, _) = rest.split_once('"').expect("a uid");
        let response = text.replacen('{', &format!("{{\"uid\":\"{uid}\","), 1);
        let answer = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{response}}}"#
        );
        async move { Ok::<_, Infallible>(Response::new(Bytes::from(answer))) }
    };
    let server = with([("a", InProcessWebhook::new(tower::service_fn(service)))]);
    configure(&server, "validating", "configmaps", &[("a", json!({}))]).await;
    let (code, answer) = request(&server, "POST", MAPS, &map("x")).await;
    assert_eq!(code, 400, "{answer}");
    let details = json!({"name": "n", "retryAfterSeconds": 3, "causes": [{"message": "m"}]});
    assert_eq!(answer["details"], details);
    assert_eq!(answer["metadata"], json!({"continue": "c"}));
}

#[tokio::test(start_paused = true)]
async fn deep_answer_of_an_excused_webhook_does_not_write_twice() {
    // Too deep for the stack of the request, and not for a larger one.
    for answer in [
        json!({"allowed": true, "deep": nested(150)}),
        patch(&json!([{"op": "add", "path": "/data", "value": nested(150)}])),
    ] {
        let seen = Seen::default();
        let respond = move |_: &Value| answer.clone();
        let server = with([("a", webhook(&seen, Duration::ZERO, respond))]);
        let ignore = json!({"failurePolicy": "Ignore"});
        configure(&server, "mutating", "configmaps", &[("a", ignore)]).await;
        let (code, answer) = request(&server, "POST", MAPS, &map("x")).await;
        assert!(code == 201 || code == 500, "{code} {answer}");
        let (deleted, answer) = request(&server, "DELETE", &format!("{MAPS}/x"), &Value::Null).await;
        assert_eq!(deleted, if code == 201 { 200 } else { 404 }, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn deleted_collection_asks_once_about_objects_that_stay() {
    let seen = Seen::default();
    let deny_marked = |request: &Value| {
        let marked = !request["oldObject"]["metadata"]["deletionTimestamp"].is_null();
        json!({"allowed": !marked})
    };
    let server = with([("a", webhook(&seen, Duration::from_secs(1), deny_marked))]);
    for index in 0..150 {
        let mut map = map(&format!("m{index}"));
        map["metadata"]["finalizers"] = json!(["example.com/stay"]);
        assert_eq!(request(&server, "POST", MAPS, &map).await.0, 201);
    }
    configure(&server, "validating", "configmaps", &[("a", json!({}))]).await;
    let (code, answer) = request(&server, "DELETE", MAPS, &Value::Null).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(seen.lock().expect("no panic").len(), 150);
}

#[tokio::test(start_paused = true)]
async fn webhook_that_always_writes_what_it_is_asked_about_ends() {
    let server: Arc<Mutex<Option<Server>>> = Arc::default();
    let inner = server.clone();
    let service = move |_: Request<Bytes>| {
        let server = inner.lock().expect("no panic").clone().expect("a server");
        async move {
            let path = format!("{MAPS}?dryRun=All");
            let (code, _) = request(&server, "POST", &path, &map("x")).await;
            Ok::<_, Infallible>(
                Response::builder()
                    .status(code)
                    .body(Bytes::new())
                    .expect("a response"),
            )
        }
    };
    *server.lock().expect("no panic") =
        Some(with([("a", InProcessWebhook::new(tower::service_fn(service)))]));
    let server = server.lock().expect("no panic").clone().expect("a server");
    configure(
        &server,
        "validating",
        "configmaps",
        &[("a", json!({"sideEffects": "None"}))],
    )
    .await;
    let (code, answer) = request(&server, "POST", MAPS, &map("x")).await;
    assert_eq!(code, 500, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn invalid_scale_is_not_shown_to_validating_webhooks() {
    const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
    let seen = Seen::default();
    let server = with([("a", webhook(&seen, Duration::ZERO, allow))]);
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"name": "x"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    assert_eq!(request(&server, "POST", DEPLOYMENTS, &deployment).await.0, 201);
    configure(&server, "validating", "deployments/scale", &[("a", json!({"rules": [
        {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments/scale"]},
    ]}))])
    .await;
    let path = format!("{DEPLOYMENTS}/x/scale");
    let scale = |replicas: i64| json!({"metadata": {"name": "x", "namespace": "default"}, "spec": {"replicas": replicas}});
    let (code, answer) = request(&server, "PUT", &path, &scale(-1)).await;
    assert_eq!((code, seen.lock().expect("no panic").len()), (422, 0), "{answer}");
    let (code, answer) = request(&server, "PUT", &path, &scale(2)).await;
    assert_eq!((code, seen.lock().expect("no panic").len()), (200, 1), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn patch_of_a_custom_resource_that_leaves_no_object_is_an_error() {
    const BOXES: &str = "/apis/example.com/v1/namespaces/default/boxes";
    let definition = json!({"metadata": {"name": "boxes.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "boxes", "kind": "Box"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        }}}],
    }});
    for value in [
        json!([]),
        json!(["a"]),
        json!("text"),
        json!(7),
        Value::Null,
        json!({}),
        json!({"metadata": []}),
    ] {
        let answer = patch(&json!([{"op": "replace", "path": "", "value": value}]));
        let server = with([(
            "a",
            webhook(&Seen::default(), Duration::ZERO, move |_| answer.clone()),
        )]);
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        assert_eq!(request(&server, "POST", crds, &definition).await.0, 201);
        configure(&server, "mutating", "boxes", &[("a", json!({"failurePolicy": "Ignore", "rules": [
            {"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["boxes"]},
        ]}))])
        .await;
        let body = json!({"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": "x"}});
        let (code, answer) = request(&server, "POST", BOXES, &body).await;
        assert!((400..=599).contains(&code), "{value}: {code} {answer}");
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(!message.contains("could not be handled"), "{value}: {message}");
        let (_, all) = request(&server, "GET", BOXES, &Value::Null).await;
        assert_eq!(all["items"], json!([]), "{value}");
    }
}

#[tokio::test(start_paused = true)]
async fn write_has_34_seconds_for_all_webhooks() {
    let seen = Seen::default();
    let hanging = || webhook(&seen, Duration::from_secs(1_000), allow);
    let server = with([("a", hanging()), ("b", hanging())]);
    assert_eq!(request(&server, "POST", MAPS, &map("x")).await.0, 201);
    let ignore = json!({"failurePolicy": "Ignore", "timeoutSeconds": 30});
    configure(
        &server,
        "mutating",
        "configmaps",
        &[("a", ignore.clone()), ("b", ignore)],
    )
    .await;
    let one = format!("{MAPS}/x");
    let changes = json!({"data": {"k": "w"}});
    for (method, path, body, seconds) in [
        ("POST", MAPS.to_owned(), map("y"), 34),
        ("POST", format!("{MAPS}?timeout=40s"), map("y"), 34),
        ("POST", format!("{MAPS}?timeout=31s"), map("y"), 31),
        ("PATCH", one.clone(), changes, 34),
        ("PUT", one.clone(), map("x"), 34),
        ("DELETE", one.clone(), Value::Null, 34),
        ("DELETE", MAPS.to_owned(), Value::Null, 34),
    ] {
        let started = Instant::now();
        let (code, answer) = request(&server, method, &path, &body).await;
        assert_eq!((code, &answer["reason"]), (504, &json!("Timeout")), "{method}");
        assert_eq!(
            answer["message"],
            "Timeout: request did not complete within requested timeout - context deadline exceeded"
        );
        assert_eq!(started.elapsed().as_secs(), seconds, "{method} {path}");
    }
    let (code, kept) = request(&server, "GET", &one, &Value::Null).await;
    assert_eq!((code, &kept["data"]["k"]), (200, &json!("v")));
}

#[tokio::test(start_paused = true)]
async fn answers_without_room_are_no_failures_that_a_policy_excuses() {
    let large = |_: &Value| json!({"allowed": true, "padding": "x".repeat(1024 * 1024)});
    let mut limits = windlass_apiserver::Limits::default();
    limits.webhook_bytes = 64 * 1024;
    let server = Server::builder()
        .limits(limits)
        .webhook("a.default.svc", webhook(&Seen::default(), Duration::ZERO, large))
        .build();
    let user = server.as_user(windlass_apiserver::User::new("alice", ["system:authenticated"]));
    let ignore = json!({"failurePolicy": "Ignore"});
    for kind in ["mutating", "validating"] {
        configure(&server, kind, "configmaps", &[("a", ignore.clone())]).await;
        let (code, answer) = request(&user, "POST", MAPS, &map("x")).await;
        assert_eq!(
            (code, &answer["reason"]),
            (429, &json!("TooManyRequests")),
            "{answer}"
        );
        let path = format!("{GROUP}/{kind}webhookconfigurations/c");
        assert_eq!(request(&server, "DELETE", &path, &Value::Null).await.0, 200);
    }
    assert_eq!(request(&user, "POST", MAPS, &map("x")).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn deep_answer_about_one_of_a_collection_does_not_lose_the_others() {
    let seen = Seen::default();
    let deep_for_last = |request: &Value| {
        let is_last = request["oldObject"]["metadata"]["name"] == "m3";
        json!({"allowed": true, "deep": if is_last { nested(150) } else { Value::Null }})
    };
    let server = with([("a", webhook(&seen, Duration::ZERO, deep_for_last))]);
    for index in 0..4 {
        let mut map = map(&format!("m{index}"));
        map["metadata"]["finalizers"] = json!(["example.com/stay"]);
        assert_eq!(request(&server, "POST", MAPS, &map).await.0, 201);
    }
    configure(&server, "validating", "configmaps", &[("a", json!({}))]).await;
    let (code, answer) = request(&server, "DELETE", MAPS, &Value::Null).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(answer["items"].as_array().map(Vec::len), Some(4));
    assert_eq!(seen.lock().expect("no panic").len(), 4);
}
