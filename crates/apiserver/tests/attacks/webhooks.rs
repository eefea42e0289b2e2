//! Webhooks, and users of them, that try to take the memory that others need.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use futures::future::join_all;
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use windlass_apiserver::{InProcessWebhook, Limits, Server, User};

use crate::client::{read, send};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn request(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
    read(send(server, method, path, None, body.to_string()).await).await
}

fn user(server: &Server, name: &str) -> Server {
    server.as_user(User::new(name, ["system:authenticated"]))
}

fn limits(webhook_bytes: usize) -> Limits {
    let mut limits = Limits::default();
    limits.webhook_bytes = webhook_bytes;
    limits
}

/// A webhook that allows everything, with that much padding in the response: after a delay to the requests of `greedy`.
fn admission(delay: Duration, padding: usize) -> InProcessWebhook {
    InProcessWebhook::new(tower::service_fn(move |request: Request<Bytes>| async move {
        let review: Value = serde_json::from_slice(request.body()).expect("JSON");
        let request = &review["request"];
        let mut response = json!({"uid": request["uid"], "allowed": true});
        if request["userInfo"]["username"] == "greedy" {
            tokio::time::sleep(delay).await;
        }
        response["padding"] = "x".repeat(padding).into();
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
        Ok::<_, Infallible>(Response::new(Bytes::from(review.to_string())))
    }))
}

/// Configures mutating webhooks of ConfigMaps with these names.
async fn configure(server: &Server, names: &[&str]) {
    let webhooks: Vec<_> = names
        .iter()
        .map(|name| {
            json!({
                "name": format!("{name}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": {"namespace": "default", "name": name}}, "timeoutSeconds": 30,
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
            })
        })
        .collect();
    let configuration = json!({"metadata": {"name": "c"}, "webhooks": webhooks});
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let (code, answer) = request(server, "POST", path, &configuration).await;
    assert_eq!(code, 201, "{answer}");
}

#[tokio::test(start_paused = true)]
async fn user_who_fills_the_memory_for_webhooks_leaves_room_for_others() {
    let server = Server::builder()
        .limits(limits(64 * 1024 * 1024))
        .webhook("large.default.svc", admission(Duration::ZERO, 1024 * 1024))
        .webhook("slow.default.svc", admission(Duration::from_secs(20), 0))
        .build();
    configure(&server, &["large", "slow"]).await;
    let create = async |user_name: &str, name: String| {
        let map = json!({"metadata": {"name": name}});
        request(&user(&server, user_name), "POST", MAPS, &map).await.0
    };
    let fill = join_all((0..80).map(|index| create("greedy", format!("g{index}"))));
    let others = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let administrator = request(&server, "POST", MAPS, &json!({"metadata": {"name": "a"}})).await;
        (create("other", "o".to_owned()).await, administrator.0)
    };
    let (greedy, others) = tokio::join!(fill, others);
    assert_eq!(others, (201, 201));
    let refused = greedy.iter().filter(|code| **code == 429).count();
    assert!((1..80).contains(&refused), "{greedy:?}");
    assert_eq!(create("greedy", "later".to_owned()).await, 201);
}

#[tokio::test(start_paused = true)]
async fn reviews_that_wait_for_a_webhook_are_limited() {
    let server = Server::builder()
        .limits(limits(8 * 1024 * 1024))
        .webhook("slow.default.svc", admission(Duration::from_secs(20), 0))
        .build();
    configure(&server, &["slow"]).await;
    let greedy = user(&server, "greedy");
    let create = async |index: usize| {
        let map = json!({"metadata": {"name": format!("g{index}")}, "data": {"k": "x".repeat(900 * 1024)}});
        request(&greedy, "POST", MAPS, &map).await.0
    };
    let mut codes = join_all((0..20).map(create)).await;
    codes.sort_unstable();
    let created = codes.iter().filter(|code| **code == 201).count();
    assert!((2..10).contains(&created), "{codes:?}");
    assert!(codes[created..].iter().all(|code| *code == 429), "{codes:?}");
    assert_eq!(create(20).await, 201);
}

/// A server with a CRD that stores v2, and a webhook that converts it.
async fn server_with_boxes(webhook_bytes: usize) -> Server {
    let convert = InProcessWebhook::new(tower::service_fn(|request: Request<Bytes>| async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut review: Value = serde_json::from_slice(request.body()).expect("JSON");
        let wanted = review["request"]["desiredAPIVersion"].take();
        let mut objects = review["request"]["objects"].take();
        for object in objects.as_array_mut().expect("a list") {
            object["apiVersion"] = wanted.clone();
        }
        let answer = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
            "response": {"uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects},
        });
        Ok::<_, Infallible>(Response::new(Bytes::from(answer.to_string())))
    }));
    let server = Server::builder()
        .limits(limits(webhook_bytes))
        .webhook("convert.default.svc", convert)
        .build();
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == "v2", "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        }}})
    };
    let definition = json!({"metadata": {"name": "boxes.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "boxes", "kind": "Box"},
        "versions": [version("v1"), version("v2")],
        "conversion": {"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "default", "name": "convert"}},
        }},
    }});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, answer) = request(&server, "POST", path, &definition).await;
    assert_eq!(code, 201, "{answer}");
    server
}

/// The boxes of a namespace, in this version.
fn boxes(version: &str, namespace: usize) -> String {
    format!("/apis/example.com/{version}/namespaces/n{namespace}/boxes")
}

/// Creates boxes of 30 KiB in a new namespace, in the version in which they are stored.
async fn create_boxes(server: &Server, namespace: usize, count: usize) {
    let object = json!({"metadata": {"name": format!("n{namespace}")}});
    assert_eq!(
        request(server, "POST", "/api/v1/namespaces", &object).await.0,
        201
    );
    for index in 0..count {
        let object = json!({
            "apiVersion": "example.com/v2", "kind": "Box", "metadata": {"name": format!("b{index}")},
            "data": "x".repeat(30 * 1024),
        });
        let path = boxes("v2", namespace);
        assert_eq!(request(server, "POST", &path, &object).await.0, 201);
    }
}

#[tokio::test(start_paused = true)]
async fn idle_watches_of_converted_objects_hold_no_memory_for_webhooks() {
    let server = server_with_boxes(256 * 1024).await;
    let user = user(&server, "a");
    let mut watches = Vec::new();
    for index in 0..20 {
        create_boxes(&server, index, 1).await;
        let path = format!("{}?watch=1", boxes("v1", index));
        let mut watch = send(&user, "GET", &path, None, "").await.into_body();
        let mut received = Vec::new();
        while !received.ends_with(b"}\n") {
            let frame = watch.frame().await.expect("an event").expect("never fails");
            received.extend_from_slice(frame.data_ref().expect("data"));
        }
        assert!(received.starts_with(br#"{"type":"ADDED""#), "watch {index}");
        // It has sent all, and waits.
        let idle = tokio::time::timeout(Duration::from_secs(1), watch.frame()).await;
        assert!(idle.is_err());
        watches.push(watch);
    }
}

#[tokio::test(start_paused = true)]
async fn converted_object_counts_once_however_many_read_it() {
    let server = server_with_boxes(512 * 1024).await;
    create_boxes(&server, 0, 3).await;
    let user = user(&server, "a");
    let watch = async |index: usize| {
        let path = format!("{}?watch=1", boxes("v1", 0));
        let mut watch = send(&user, "GET", &path, None, "").await.into_body();
        // The rest is not read.
        let frame = watch.frame().await.expect("an event").expect("never fails");
        let head = frame.data_ref().expect("data");
        assert!(head.starts_with(br#"{"type":"ADDED""#), "watch {index}");
        watch
    };
    assert_eq!(join_all((0..20).map(watch)).await.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn converted_objects_count_until_their_list_is_sent() {
    let server = server_with_boxes(2 * 1024 * 1024).await;
    let user = user(&server, "a");
    let mut unread = Vec::new();
    for index in 0..8 {
        create_boxes(&server, index, 10).await;
        unread.push(send(&user, "GET", &boxes("v1", index), None, "").await);
    }
    let codes: Vec<_> = unread.iter().map(|response| response.status().as_u16()).collect();
    let answered = codes.iter().filter(|code| **code == 200).count();
    assert!((2..8).contains(&answered), "{codes:?}");
    drop(unread);
    let (code, _) = request(&user, "GET", &boxes("v1", 7), &Value::Null).await;
    assert_eq!(code, 200);
}
