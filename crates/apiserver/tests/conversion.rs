//! Conversion webhooks in the process of the server.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::timeout;
use windlass_apiserver::{InProcessWebhook, Server};

use crate::client::{read, send};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/example.com/v1/namespaces/default/boxes";
const V2: &str = "/apis/example.com/v2/namespaces/default/boxes";

/// Changes an answer.
type Distort = fn(&mut Value);

/// The requests that the webhook has got.
type Seen = Arc<Mutex<Vec<Value>>>;

/// Converts between `spec.size` of v1 and `spec.measure.size` of v2.
fn convert(mut object: Value, wanted: &str) -> Value {
    let spec = object["spec"].take();
    object["spec"] = if wanted.ends_with("/v2") {
        json!({"measure": {"size": spec["size"]}})
    } else {
        json!({"size": spec["measure"]["size"]})
    };
    object["apiVersion"] = wanted.into();
    object
}

/// A webhook that records the requests, and answers after a delay. `distort` may change its answer.
fn webhook(
    seen: &Seen,
    delay: Duration,
    distort: impl Fn(&mut Value) + Clone + Send + Sync + 'static,
) -> InProcessWebhook {
    let seen = seen.clone();
    InProcessWebhook::new(tower::service_fn(move |request: Request<Bytes>| {
        let (seen, distort) = (seen.clone(), distort.clone());
        async move {
            tokio::time::sleep(delay).await;
            let mut review: Value = serde_json::from_slice(request.body()).expect("JSON");
            let request = review["request"].take();
            let wanted = request["desiredAPIVersion"].as_str().expect("a version");
            let objects = request["objects"].as_array().expect("a list").clone();
            let converted: Vec<_> = objects
                .into_iter()
                .map(|object| convert(object, wanted))
                .collect();
            let mut answer = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
                "response": {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": converted},
            });
            distort(&mut answer);
            seen.lock().expect("no panic").push(request);
            Ok::<_, Infallible>(Response::new(Bytes::from(answer.to_string())))
        }
    }))
}

fn definition(stored: &str) -> Value {
    let version = |name: &str, spec: Value| {
        json!({
            "name": name, "served": true, "storage": name == stored, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }}},
        })
    };
    let size = json!({"type": "integer", "maximum": 100});
    let sized = json!({"type": "object", "properties": {"size": size}});
    let measured = json!({"type": "object", "properties": {"measure": sized}});
    json!({"metadata": {"name": "boxes.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "boxes", "kind": "Box"},
        "versions": [version("v1", sized), version("v2", measured)],
        "conversion": {"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "default", "name": "convert", "path": "/convert"}},
        }},
    }})
}

async fn request(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
    read(send(server, method, path, None, body.to_string()).await).await
}

/// A server with the CRD, which stores v2.
async fn server_with(distort: impl Fn(&mut Value) + Clone + Send + Sync + 'static) -> (Server, Seen) {
    let seen = Seen::default();
    let server = Server::builder()
        .webhook("convert.default.svc", webhook(&seen, Duration::ZERO, distort))
        .build();
    let (code, answer) = request(&server, "POST", DEFINITIONS, &definition("v2")).await;
    assert_eq!(code, 201, "{answer}");
    (server, seen)
}

fn old(name: &str, size: u64) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": name}, "spec": {"size": size}})
}

fn new(name: &str, size: u64) -> Value {
    json!({"apiVersion": "example.com/v2", "kind": "Box", "metadata": {"name": name}, "spec": {"measure": {"size": size}}})
}

/// The versions to which objects were converted.
fn wanted(seen: &Seen) -> Vec<String> {
    let requests = std::mem::take(&mut *seen.lock().expect("no panic"));
    let wanted = requests
        .iter()
        .map(|request| request["desiredAPIVersion"].as_str().expect("a version"));
    wanted.map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn object_is_written_and_read_in_every_version() {
    let (server, seen) = server_with(|_| {}).await;
    let (code, answer) = request(&server, "POST", V1, &old("a", 3)).await;
    assert_eq!(code, 201, "{answer}");
    assert_eq!(answer["spec"], json!({"size": 3}));
    assert_eq!(
        wanted(&seen),
        ["example.com/v2", "example.com/v1"],
        "to storage, and back"
    );
    let (_, stored) = request(&server, "GET", &format!("{V2}/a"), &Value::Null).await;
    assert_eq!(stored["spec"], json!({"measure": {"size": 3}}));
    assert_eq!(stored["metadata"]["uid"], answer["metadata"]["uid"]);
    assert_eq!(
        stored["metadata"]["resourceVersion"],
        answer["metadata"]["resourceVersion"]
    );
    let (_, shown) = request(&server, "GET", &format!("{V1}/a"), &Value::Null).await;
    assert_eq!(shown, answer);
    assert_eq!(
        wanted(&seen),
        ["example.com/v1"],
        "a get is converted each time, as on a real server, unless it is of the storage version"
    );

    let patch = json!({"spec": {"size": 4}});
    let (code, answer) = request(&server, "PATCH", &format!("{V1}/a"), &patch).await;
    assert_eq!((code, &answer["spec"]), (200, &json!({"size": 4})), "{answer}");
    let (code, answer) = request(&server, "PUT", &format!("{V2}/a"), &{
        let mut object = new("a", 5);
        object["metadata"]["resourceVersion"] = answer["metadata"]["resourceVersion"].clone();
        object
    })
    .await;
    assert_eq!(code, 200, "{answer}");
    let (_, shown) = request(&server, "GET", &format!("{V1}/a"), &Value::Null).await;
    assert_eq!(shown["spec"], json!({"size": 5}));
    let apply = "application/apply-patch+yaml";
    for (path, object, expected) in [
        (V1, old("a", 6), json!({"size": 6})),
        (V2, new("a", 7), json!({"measure": {"size": 7}})),
        (V1, old("b", 8), json!({"size": 8})),
    ] {
        let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
        let url = format!("{path}/{name}?fieldManager=me&force=true");
        let (code, answer) = read(send(&server, "PATCH", &url, Some(apply), object.to_string()).await).await;
        assert!(matches!(code, 200 | 201), "{answer}");
        assert_eq!(answer["spec"], expected);
    }
    let (code, answer) = request(
        &server,
        "PATCH",
        &format!("{V1}/a/status"),
        &json!({"status": {"x": 1}}),
    )
    .await;
    assert_eq!(
        (code, &answer["status"], &answer["spec"]),
        (200, &json!({"x": 1}), &json!({"size": 7})),
        "{answer}"
    );
    let (code, _) = request(&server, "DELETE", &format!("{V1}/a"), &Value::Null).await;
    assert_eq!(code, 200);
    assert_eq!(
        request(&server, "GET", &format!("{V2}/a"), &Value::Null).await.0,
        404
    );
}

#[tokio::test(start_paused = true)]
async fn object_written_in_another_version_is_shared_by_its_readers() {
    let (server, _) = server_with(|_| {}).await;
    // The same without a webhook.
    let mut plain = definition("v2");
    plain["metadata"]["name"] = "crates.example.com".into();
    plain["spec"]["names"] = json!({"plural": "crates", "kind": "Crate"});
    plain["spec"]["conversion"] = json!({"strategy": "None"});
    assert_eq!(request(&server, "POST", DEFINITIONS, &plain).await.0, 201);
    for (plural, kind) in [("boxes", "Box"), ("crates", "Crate")] {
        let path = |version: &str| format!("/apis/example.com/{version}/namespaces/default/{plural}");
        let mut object = old("a", 3);
        object["kind"] = kind.into();
        assert_eq!(request(&server, "POST", &path("v1"), &object).await.0, 201);
        let read = async || {
            let response = send(&server, "GET", &format!("{}/a", path("v2")), None, "").await;
            response
                .into_body()
                .collect()
                .await
                .expect("never fails")
                .to_bytes()
        };
        let (one, other) = (read().await, read().await);
        assert_eq!(one, other);
        assert_eq!(one.as_ptr(), other.as_ptr(), "{plural}");
    }
}

#[tokio::test(start_paused = true)]
async fn storage_version_needs_no_webhook() {
    let (server, seen) = server_with(|_| panic!("not asked")).await;
    assert_eq!(request(&server, "POST", V2, &new("a", 3)).await.0, 201);
    assert_eq!(
        request(&server, "GET", &format!("{V2}/a"), &Value::Null).await.0,
        200
    );
    let (_, list) = request(&server, "GET", V2, &Value::Null).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(request(&server, "DELETE", V2, &Value::Null).await.0, 200);
    assert_eq!(wanted(&seen), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn object_is_invalid_in_the_version_of_its_request() {
    let (server, _) = server_with(|_| {}).await;
    let (code, answer) = request(&server, "POST", V1, &old("a", 300)).await;
    assert_eq!(code, 422);
    let message = answer["message"].as_str().expect("a message");
    assert!(message.contains("spec.size"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn lists_are_converted_in_batches_and_once() {
    let (server, seen) = server_with(|_| {}).await;
    for index in 0..450 {
        assert_eq!(
            request(&server, "POST", V2, &new(&format!("b{index}"), index % 100))
                .await
                .0,
            201
        );
    }
    for round in 0..2 {
        let (code, list) = request(&server, "GET", V1, &Value::Null).await;
        let items = list["items"].as_array().expect("a list");
        assert_eq!((code, items.len()), (200, 450));
        for item in items {
            let name = item["metadata"]["name"].as_str().expect("a name");
            let index: u64 = name[1..].parse().expect("a number");
            assert_eq!(
                (&item["spec"], &item["apiVersion"]),
                (&json!({"size": index % 100}), &json!("example.com/v1"))
            );
        }
        let calls = wanted(&seen).len();
        assert_eq!(calls, if round == 0 { 3 } else { 0 });
    }
    let (_, page) = request(&server, "GET", &format!("{V1}?limit=7"), &Value::Null).await;
    assert_eq!(page["items"].as_array().map(Vec::len), Some(7));
    let token = page["metadata"]["continue"].as_str().expect("a token");
    let (_, page) = request(
        &server,
        "GET",
        &format!("{V1}?limit=7&continue={token}"),
        &Value::Null,
    )
    .await;
    assert_eq!(page["items"][0]["apiVersion"], "example.com/v1");
}

/// The next event of a watch.
async fn event(body: &mut windlass_apiserver::Body, rest: &mut Vec<u8>) -> Value {
    loop {
        if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            return serde_json::from_slice(&line).expect("JSON");
        }
        let frame = timeout(Duration::from_secs(5), body.frame())
            .await
            .expect("an event");
        let data = frame
            .expect("the watch goes on")
            .expect("never fails")
            .into_data();
        rest.extend_from_slice(&data.unwrap_or_default());
    }
}

#[tokio::test(start_paused = true)]
async fn watches_show_changes_in_their_version() {
    let (server, _) = server_with(|_| {}).await;
    for index in 1..=3 {
        assert_eq!(
            request(&server, "POST", V2, &new(&format!("b{index}"), index))
                .await
                .0,
            201
        );
    }
    let watch = send(
        &server,
        "GET",
        &format!("{V1}?watch=1&labelSelector=!hidden"),
        None,
        "",
    )
    .await;
    let (mut body, mut rest) = (watch.into_body(), Vec::new());
    for index in 1..=3 {
        let event = event(&mut body, &mut rest).await;
        assert_eq!(
            (&event["type"], &event["object"]["spec"]),
            (&json!("ADDED"), &json!({"size": index}))
        );
    }
    let path = format!("{V2}/b1");
    request(
        &server,
        "PATCH",
        &path,
        &json!({"spec": {"measure": {"size": 9}}}),
    )
    .await;
    request(
        &server,
        "PATCH",
        &path,
        &json!({"metadata": {"labels": {"hidden": "yes"}}}),
    )
    .await;
    assert_eq!(request(&server, "POST", V1, &old("b4", 4)).await.0, 201);
    assert_eq!(
        request(&server, "DELETE", &format!("{V2}/b2"), &Value::Null)
            .await
            .0,
        200
    );
    for (kind, name, size) in [
        ("MODIFIED", "b1", 9),
        ("DELETED", "b1", 9),
        ("ADDED", "b4", 4),
        ("DELETED", "b2", 2),
    ] {
        let event = event(&mut body, &mut rest).await;
        let object = &event["object"];
        assert_eq!(
            (&event["type"], &object["metadata"]["name"], &object["spec"]),
            (&json!(kind), &json!(name), &json!({"size": size})),
        );
        assert_eq!(object["apiVersion"], "example.com/v1");
    }
}

#[tokio::test(start_paused = true)]
async fn change_of_the_storage_version_keeps_every_version_readable() {
    let (server, _) = server_with(|_| {}).await;
    assert_eq!(request(&server, "POST", V1, &old("a", 3)).await.0, 201);
    let path = format!("{DEFINITIONS}/boxes.example.com");
    let (code, answer) = request(
        &server,
        "PATCH",
        &path,
        &json!({"spec": definition("v1")["spec"]}),
    )
    .await;
    assert_eq!(code, 200, "{answer}");
    let (_, answer) = request(&server, "GET", &path, &Value::Null).await;
    assert_eq!(answer["status"]["storedVersions"], json!(["v2", "v1"]));
    for (path, spec) in [(V1, json!({"size": 3})), (V2, json!({"measure": {"size": 3}}))] {
        let (code, answer) = request(&server, "GET", &format!("{path}/a"), &Value::Null).await;
        assert_eq!((code, &answer["spec"]), (200, &spec), "{answer}");
        // An update that changes nothing rewrites it, once.
        let (_, first) = request(&server, "PUT", &format!("{path}/a"), &answer).await;
        let (_, second) = request(&server, "PUT", &format!("{path}/a"), &first).await;
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        assert_eq!(version(&first) != version(&answer), path == V1);
        assert_eq!(version(&first), version(&second));
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_answers_are_errors_and_write_nothing() {
    let cases: [(&str, Distort); 14] = [
        ("failed: cannot convert", |answer| {
            answer["response"]["result"] = json!({"status": "Failure", "message": "cannot convert"});
        }),
        (
            "failed: response.result.status was 'Failed', not 'Success'",
            |answer| {
                answer["response"]["result"] = json!({"status": "Failed"});
            },
        ),
        ("failed: no response provided", |answer| {
            answer["response"] = Value::Null;
        }),
        ("failed: expected response.uid=", |answer| {
            answer["response"]["uid"] = "zz".into();
        }),
        ("returned 0 objects, expected 1", |answer| {
            answer["response"]["convertedObjects"] = json!([]);
        }),
        (
            "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v9)",
            |answer| answer["response"]["convertedObjects"][0]["apiVersion"] = "example.com/v9".into(),
        ),
        (
            "returned invalid object at index 0: invalid kind (expected Box, received Other)",
            |answer| answer["response"]["convertedObjects"][0]["kind"] = "Other".into(),
        ),
        (
            "returned invalid object: must have the same name: a != other",
            |answer| {
                answer["response"]["convertedObjects"][0]["metadata"]["name"] = "other".into();
            },
        ),
        (
            "returned invalid object: must have the same namespace: default != kube-system",
            |answer| {
                answer["response"]["convertedObjects"][0]["metadata"]["namespace"] = "kube-system".into();
            },
        ),
        ("returned invalid object: must have the same UID: ", |answer| {
            answer["response"]["convertedObjects"][0]["metadata"]["uid"] = "forged".into();
        }),
        (
            "returned invalid metadata: metadata.labels: Invalid value: \"bad label!\"",
            |answer| {
                answer["response"]["convertedObjects"][0]["metadata"]["labels"] = json!({"a": "bad label!"});
            },
        ),
        (
            "returned invalid object: must have the same name: a != ",
            |answer| answer["response"]["convertedObjects"][0]["metadata"] = json!(7),
        ),
        // The real server names no webhook here.
        (
            "json: cannot unmarshal array into Go value of type map[string]interface {}",
            |answer| answer["response"]["convertedObjects"][0] = json!([]),
        ),
        ("failed: ", |answer| *answer = json!([1])),
    ];
    for (expected, distort) in cases {
        let (server, _) = server_with(distort).await;
        let (code, answer) = request(&server, "POST", V1, &old("a", 1)).await;
        assert_eq!(code, 500, "{answer}");
        let message = answer["message"].as_str().expect("a message");
        let start = if expected.starts_with("json: ") {
            expected.to_owned()
        } else {
            format!("conversion webhook for example.com/v1, Kind=Box {expected}")
        };
        assert!(message.starts_with(&start), "{message}\n{start}");
        assert_eq!(
            request(&server, "GET", &format!("{V2}/a"), &Value::Null).await.0,
            404
        );
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_is_restored_except_for_labels_and_annotations() {
    let (server, _) = server_with(|answer| {
        let metadata = &mut answer["response"]["convertedObjects"][0]["metadata"];
        metadata["labels"] = json!({"converted": "yes"});
        metadata["finalizers"] = json!(["example.com/forged"]);
        metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]);
        metadata["creationTimestamp"] = "2000-01-01T00:00:00Z".into();
        metadata["managedFields"] = json!([]);
    })
    .await;
    let (code, answer) = request(&server, "POST", V1, &old("a", 1)).await;
    assert_eq!(code, 201, "{answer}");
    let (_, stored) = request(&server, "GET", &format!("{V2}/a"), &Value::Null).await;
    let metadata = &stored["metadata"];
    assert_eq!(metadata["labels"], json!({"converted": "yes"}));
    assert!(metadata["finalizers"].is_null() && metadata["ownerReferences"].is_null());
    assert_ne!(metadata["creationTimestamp"], "2000-01-01T00:00:00Z");
    assert!(!metadata["managedFields"].is_null());
}

#[tokio::test(start_paused = true)]
async fn failing_webhook_ends_a_watch_with_its_error() {
    let broken = Arc::new(Mutex::new(false));
    let is_broken = broken.clone();
    let (server, _) = server_with(move |answer| {
        if *is_broken.lock().expect("no panic") {
            answer["response"]["result"] = json!({"status": "Failure", "message": "broken"});
        }
    })
    .await;
    let watch = send(&server, "GET", &format!("{V1}?watch=1"), None, "").await;
    let (mut body, mut rest) = (watch.into_body(), Vec::new());
    assert_eq!(request(&server, "POST", V2, &new("a", 1)).await.0, 201);
    assert_eq!(event(&mut body, &mut rest).await["type"], "ADDED");
    *broken.lock().expect("no panic") = true;
    assert_eq!(request(&server, "POST", V2, &new("b", 1)).await.0, 201);
    let event = event(&mut body, &mut rest).await;
    assert_eq!(event["type"], "ERROR");
    assert_eq!(
        event["object"]["message"],
        "conversion webhook for example.com/v2, Kind=Box failed: broken"
    );
    // Deletions pass in the storage version, and the definition can go.
    assert_eq!(request(&server, "GET", V1, &Value::Null).await.0, 500);
    assert_eq!(request(&server, "DELETE", V2, &Value::Null).await.0, 200);
    let path = format!("{DEFINITIONS}/boxes.example.com");
    assert_eq!(request(&server, "DELETE", &path, &Value::Null).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn slow_webhook_is_asked_once_about_a_deletion() {
    let seen = Seen::default();
    let slow = webhook(&seen, Duration::from_millis(1_500), |_| {});
    let server = Server::builder().webhook("convert.default.svc", slow).build();
    assert_eq!(
        request(&server, "POST", DEFINITIONS, &definition("v2")).await.0,
        201
    );
    let mut object = new("a", 1);
    object["metadata"]["finalizers"] = json!(["example.com/stay"]);
    assert_eq!(request(&server, "POST", V2, &object).await.0, 201);
    wanted(&seen);
    let (code, answer) = request(&server, "DELETE", &format!("{V1}/a"), &Value::Null).await;
    assert_eq!(code, 200, "{answer}");
    let asked = wanted(&seen);
    assert!(asked.len() <= 3, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn converted_object_that_is_too_large_is_not_stored() {
    let grow = |answer: &mut Value| {
        let object = &mut answer["response"]["convertedObjects"][0];
        if object["apiVersion"] == "example.com/v2" {
            object["status"] = json!({"padding": "x".repeat(5 * 1024 * 1024)});
        } else {
            object["status"] = Value::Null;
        }
    };
    let (server, _) = server_with(grow).await;
    for path in [V1.to_owned(), format!("{V1}?dryRun=All")] {
        let (code, answer) = request(&server, "POST", &path, &old("a", 1)).await;
        assert_eq!(code, 500, "{path} {}", answer["message"]);
        assert_eq!(answer["message"], "etcdserver: request is too large");
    }
    let (code, answer) = request(&server, "GET", V2, &Value::Null).await;
    assert_eq!((code, &answer["items"]), (200, &json!([])));
}

/// Converts objects to v1 as text, however deep they are, by changing nothing but their version.
async fn relabel(request: Request<Bytes>) -> Result<Response<Bytes>, Infallible> {
    let body = String::from_utf8_lossy(request.body()).into_owned();
    let after = |key: &str| body.split_once(key).expect("a field").1;
    let uid = after("\"uid\":\"").split('"').next().expect("a uid");
    let (objects, _) = after("\"objects\":")
        .split_once(r#"},"response""#)
        .expect("objects");
    let objects = objects.replace("example.com/v2", "example.com/v1");
    let answer = format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview",
            "response":{{"uid":"{uid}","result":{{"status":"Success"}},"convertedObjects":{objects}}}}}"#
    );
    Ok(Response::new(answer.into()))
}

#[tokio::test(start_paused = true)]
async fn deep_objects_are_converted_alone_in_lists_and_in_watches() {
    let server = Server::builder()
        .webhook(
            "convert.default.svc",
            InProcessWebhook::new(tower::service_fn(relabel)),
        )
        .build();
    assert_eq!(
        request(&server, "POST", DEFINITIONS, &definition("v2")).await.0,
        201
    );
    assert_eq!(request(&server, "POST", V2, &new("a", 1)).await.0, 201);
    for levels in [125, 200, 5_000] {
        let deep = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
        let status = format!(r#"{{"status":{deep}}}"#);
        let path = format!("{V2}/a/status");
        let response = send(&server, "PATCH", &path, None, status).await;
        assert_eq!(response.status(), 200, "{levels}");
        for path in [format!("{V1}/a"), V1.to_owned()] {
            let response = send(&server, "GET", &path, None, "").await;
            assert_eq!(response.status(), 200, "{levels} {path}");
            let body = response
                .into_body()
                .collect()
                .await
                .expect("never fails")
                .to_bytes();
            assert!(
                memchr::memmem::find(&body, deep.as_bytes()).is_some(),
                "{levels} {path}"
            );
        }
        let watch = format!("{V1}?watch=1&timeoutSeconds=1");
        let response = send(&server, "GET", &watch, None, "").await;
        let body = response
            .into_body()
            .collect()
            .await
            .expect("never fails")
            .to_bytes();
        assert!(
            memchr::memmem::find(&body, deep.as_bytes()).is_some(),
            "watch {levels}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn failed_conversion_of_managed_fields_clears_them_and_does_not_fail_an_update() {
    let fails = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let failing = fails.clone();
    let (server, _) = server_with(move |answer| {
        if failing.load(std::sync::atomic::Ordering::Relaxed) {
            answer["response"]["result"] = json!({"status": "Failed", "message": "down"});
        }
    })
    .await;
    assert_eq!(request(&server, "POST", V1, &old("a", 1)).await.0, 201);
    fails.store(true, std::sync::atomic::Ordering::Relaxed);
    // Its only manager has written it in the other version.
    let path = format!("{V2}/a");
    let (code, answer) = request(
        &server,
        "PATCH",
        &path,
        &json!({"spec": {"measure": {"size": 2}}}),
    )
    .await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(answer["metadata"]["managedFields"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn no_room_for_a_conversion_of_managed_fields_refuses_an_update_and_keeps_them() {
    let is_large = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let padded = is_large.clone();
    let distort = move |answer: &mut Value| {
        if padded.load(std::sync::atomic::Ordering::Relaxed) {
            answer["padding"] = "x".repeat(100_000).into();
        }
    };
    let mut limits = windlass_apiserver::Limits::default();
    limits.webhook_bytes = 64 * 1024;
    let server = Server::builder()
        .limits(limits)
        .webhook(
            "convert.default.svc",
            webhook(&Seen::default(), Duration::ZERO, distort),
        )
        .build();
    assert_eq!(
        request(&server, "POST", DEFINITIONS, &definition("v2")).await.0,
        201
    );
    assert_eq!(request(&server, "POST", V1, &old("a", 1)).await.0, 201);
    is_large.store(true, std::sync::atomic::Ordering::Relaxed);
    // Its only manager has written it in the other version.
    let path = format!("{V2}/a");
    let alice = server.as_user(windlass_apiserver::User::new("alice", ["system:authenticated"]));
    let changes = json!({"spec": {"measure": {"size": 2}}});
    let (code, answer) = request(&alice, "PATCH", &path, &changes).await;
    assert_eq!(
        (code, &answer["reason"]),
        (429, &json!("TooManyRequests")),
        "{answer}"
    );
    let (_, kept) = request(&server, "GET", &path, &Value::Null).await;
    assert_eq!(
        kept["metadata"]["managedFields"].as_array().map(Vec::len),
        Some(1)
    );
    // A webhook of the other version needs the same conversion.
    let rules = json!([{"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["boxes"]}]);
    let configuration = json!({"metadata": {"name": "c"}, "webhooks": [{
        "name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": rules,
        "clientConfig": {"service": {"namespace": "default", "name": "never-asked"}},
    }]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(request(&server, "POST", path, &configuration).await.0, 201);
    let (code, answer) = request(&alice, "POST", V2, &new("b", 1)).await;
    assert_eq!(
        (code, &answer["reason"]),
        (429, &json!("TooManyRequests")),
        "{answer}"
    );
}

#[tokio::test(start_paused = true)]
async fn watchers_of_a_version_ask_once_about_a_change() {
    let seen = Seen::default();
    let slow = webhook(&seen, Duration::from_secs(1), |_| {});
    let server = Server::builder().webhook("convert.default.svc", slow).build();
    assert_eq!(
        request(&server, "POST", DEFINITIONS, &definition("v2")).await.0,
        201
    );
    let watch = async || {
        let path = format!("{V1}?watch=1&timeoutSeconds=10");
        let body = send(&server, "GET", &path, None, "").await.into_body();
        let text = body.collect().await.expect("never fails").to_bytes();
        let events = memchr::memmem::find_iter(&text, br#""type":"ADDED""#).count();
        let failures = memchr::memmem::find_iter(&text, br#""type":"ERROR""#).count();
        (events, failures)
    };
    let create = async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        request(&server, "POST", V2, &new("a", 1)).await.0
    };
    let (a, b, c, d, code) = tokio::join!(watch(), watch(), watch(), watch(), create());
    assert_eq!(code, 201);
    assert_eq!([a, b, c, d], [(1, 0); 4]);
    assert_eq!(wanted(&seen), ["example.com/v1"]);
}

#[tokio::test(start_paused = true)]
async fn readers_of_the_same_objects_share_a_failure_of_the_conversion() {
    let seen = Seen::default();
    let fail = |answer: &mut Value| {
        answer["response"]["result"] = json!({"status": "Failed", "message": "down"});
    };
    let slow = webhook(&seen, Duration::from_secs(1), fail);
    let server = Server::builder().webhook("convert.default.svc", slow).build();
    assert_eq!(
        request(&server, "POST", DEFINITIONS, &definition("v2")).await.0,
        201
    );
    assert_eq!(request(&server, "POST", V2, &new("a", 1)).await.0, 201);
    let started = tokio::time::Instant::now();
    let list = || request(&server, "GET", V1, &Value::Null);
    let (a, b, c) = tokio::join!(list(), list(), list());
    assert_eq!([a.0, b.0, c.0], [500; 3]);
    assert_eq!(started.elapsed().as_secs(), 1);
    assert_eq!(wanted(&seen).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn readers_ask_themselves_after_the_conversion_of_more_objects_has_failed() {
    let seen = Seen::default();
    // It converts each object, but not both together.
    let fail = |answer: &mut Value| {
        if answer["response"]["convertedObjects"]
            .as_array()
            .map_or(0, Vec::len)
            > 1
        {
            answer["response"]["result"] = json!({"status": "Failed", "message": "down"});
        }
    };
    let slow = webhook(&seen, Duration::from_secs(1), fail);
    let server = Server::builder().webhook("convert.default.svc", slow).build();
    assert_eq!(
        request(&server, "POST", DEFINITIONS, &definition("v2")).await.0,
        201
    );
    assert_eq!(request(&server, "POST", V2, &new("a", 1)).await.0, 201);
    let elsewhere = V2.replace("default", "kube-system");
    assert_eq!(request(&server, "POST", &elsewhere, &new("a", 1)).await.0, 201);
    let started = tokio::time::Instant::now();
    let list = |path: &'static str| request(&server, "GET", path, &Value::Null);
    let all = "/apis/example.com/v1/boxes";
    let (both, one, other) = tokio::join!(list(all), list(V1), list(V1));
    assert_eq!([both.0, one.0, other.0], [500, 200, 200]);
    assert_eq!(started.elapsed().as_secs(), 2);
    assert_eq!(wanted(&seen).len(), 2, "the others ask together");
}

#[tokio::test(start_paused = true)]
async fn readers_ask_once_more_together_when_the_one_who_asks_is_gone() {
    let seen = Seen::default();
    let slow = webhook(&seen, Duration::from_secs(5), |_| {});
    let server = Server::builder().webhook("convert.default.svc", slow).build();
    assert_eq!(
        request(&server, "POST", DEFINITIONS, &definition("v2")).await.0,
        201
    );
    assert_eq!(request(&server, "POST", V2, &new("a", 1)).await.0, 201);
    let list = || request(&server, "GET", V1, &Value::Null);
    let gone = timeout(Duration::from_secs(2), list());
    let (gone, a, b, c) = tokio::join!(gone, list(), list(), list());
    assert!(gone.is_err());
    assert_eq!([a.0, b.0, c.0], [200; 3]);
    assert_eq!(wanted(&seen).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn deep_form_of_a_manager_does_not_write_twice() {
    let deep = |answer: &mut Value| {
        let object = &mut answer["response"]["convertedObjects"][0];
        if object["apiVersion"] == "example.com/v1" {
            object["status"] = (0..150).fold(json!(1), |inner, _| json!({ "a": inner }));
        } else {
            object["status"] = Value::Null;
        }
    };
    let (server, _) = server_with(deep).await;
    assert_eq!(request(&server, "POST", V1, &old("a", 1)).await.0, 201);
    // Its manager wrote another version, whose form is too deep for the stack of a request.
    let path = format!("{V2}/a");
    let (code, before) = request(&server, "GET", &path, &Value::Null).await;
    assert_eq!(code, 200, "{before}");
    let mut changed = before.clone();
    changed["spec"]["measure"]["size"] = 7.into();
    let (code, answer) = request(&server, "PUT", &path, &changed).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(answer["metadata"]["generation"], 2);
    let version = |object: &Value| -> u64 {
        let version = object["metadata"]["resourceVersion"].as_str().expect("a version");
        version.parse().expect("a number")
    };
    assert_eq!(version(&answer), version(&before) + 1);
}
