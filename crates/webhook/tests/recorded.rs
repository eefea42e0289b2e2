//! The reviews that a real API server sends, recorded by `conformance`: replayed, and damaged.

use std::path::Path;

use bytes::Bytes;
use http::Request;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use windlass_webhook::{
    Change, Operation, Target, Verdict, WebhookService, Webhooks, mutate_target, validate_target,
};

/// All recorded reviews of a kind.
fn reviews(kind: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/recordings");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the recordings")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("admission-webhook-") || name.starts_with("crd-conversion-")
        })
        .collect();
    files.sort();
    let mut found = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).expect("a recording");
        collect(serde_json::from_str(&text).expect("JSON"), kind, &mut found);
    }
    found
}

fn collect(value: Value, kind: &str, found: &mut Vec<Value>) {
    match value {
        Value::Object(fields)
            if fields.get("kind") == Some(&json!(kind)) && fields.contains_key("request") =>
        {
            let mut review = Value::Object(fields);
            // The recordings have words instead of what differs each time.
            if review["request"]["userInfo"].is_string() {
                review["request"]["userInfo"] = json!({"username": "admin", "groups": ["system:masters"]});
            }
            found.push(review);
        }
        Value::Object(fields) => fields
            .into_iter()
            .for_each(|(_, value)| collect(value, kind, found)),
        Value::Array(items) => items.into_iter().for_each(|item| collect(item, kind, found)),
        _ => {}
    }
}

fn service() -> WebhookService {
    let target = || Target::new("", "v1", "any");
    let see = |change: Change<'_, Value>, request: &windlass_webhook::ReviewRequest| {
        let matches = match request.operation {
            Operation::Create | Operation::Connect => matches!(change, Change::Created(_)),
            Operation::Update => matches!(change, Change::Updated { .. }),
            Operation::Delete => matches!(change, Change::Deleted(_)),
        };
        if matches {
            Verdict::allow()
        } else {
            Verdict::deny(format!("{change:?}"))
        }
    };
    Webhooks::new("hooks")
        .with(
            validate_target(target(), see)
                .name("see.hooks.test")
                .on_terminating(),
        )
        .with(
            mutate_target(target(), |object: &mut DynamicObject, _| {
                object
                    .metadata
                    .labels
                    .get_or_insert_default()
                    .insert("a".to_owned(), "b".to_owned());
            })
            .name("label.hooks.test"),
        )
        .with(
            mutate_target(target(), |map: &mut ConfigMap, _| {
                map.data
                    .get_or_insert_default()
                    .insert("a".to_owned(), "b".to_owned());
            })
            .name("map.hooks.test"),
        )
        .service()
}

async fn answer(service: &WebhookService, name: &str, body: impl Into<Bytes>) -> (u16, Value) {
    let request = Request::post(format!("/{name}.hooks.test?timeout=10s")).body(body.into());
    let response = service.answer(request.expect("a request")).await;
    let code = response.status().as_u16();
    (
        code,
        serde_json::from_slice(response.body()).expect("every answer is JSON"),
    )
}

#[tokio::test]
async fn every_recorded_review_is_understood() {
    let service = service();
    let reviews = reviews("AdmissionReview");
    assert!(reviews.len() > 30, "{} reviews", reviews.len());
    let mut operations = [0; 4];
    for review in &reviews {
        // Of deletions of several objects and of connections, some have no objects.
        let request = &review["request"];
        if review["apiVersion"] != "admission.k8s.io/v1" {
            continue;
        }
        let (code, body) = answer(&service, "see", review.to_string()).await;
        assert_eq!(code, 200, "{body} for {review}");
        assert_eq!(body["response"]["uid"], request["uid"]);
        assert_eq!(body["response"]["allowed"], true, "{body} for {review}");
        let (code, body) = answer(&service, "label", review.to_string()).await;
        assert_eq!(code, 200, "{body} for {review}");
        let names = ["CREATE", "UPDATE", "DELETE", "CONNECT"];
        if let Some(index) = names.iter().position(|name| request["operation"] == *name) {
            operations[index] += 1;
        }
    }
    assert!(operations.iter().all(|count| *count > 0), "{operations:?}");
}

/// The next number: an xorshift, so that a failure can be repeated.
fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state >> 1).unwrap_or_default()
}

/// Replaces some value of a tree.
fn damage(value: &mut Value, state: &mut u64) {
    let stops = next(state).is_multiple_of(4);
    match value {
        Value::Object(fields) if !stops && !fields.is_empty() => {
            let index = next(state) % fields.len();
            if let Some(field) = fields.values_mut().nth(index) {
                damage(field, state);
            }
        }
        Value::Array(items) if !stops && !items.is_empty() => {
            let index = next(state) % items.len();
            damage(&mut items[index], state);
        }
        other => {
            *other = match next(state) % 8 {
                0 => Value::Null,
                1 => json!([]),
                2 => json!({}),
                3 => json!("x\u{0}\u{10ffff}"),
                4 => json!(-1),
                5 => json!(1e300),
                6 => json!({"metadata": {"deletionTimestamp": "x"}}),
                _ => json!([[other.clone()]]),
            }
        }
    }
}

#[tokio::test]
async fn damaged_reviews_are_answered() {
    let service = service();
    let mut state = 0x2545_f491_4f6c_dd1d;
    let mut codes = std::collections::BTreeMap::<u16, usize>::new();
    for review in reviews("AdmissionReview") {
        for _ in 0..20 {
            let mut damaged = review.clone();
            for _ in 0..=next(&mut state) % 3 {
                damage(&mut damaged, &mut state);
            }
            let mut bytes = damaged.to_string().into_bytes();
            if next(&mut state).is_multiple_of(4) {
                let index = next(&mut state) % bytes.len();
                bytes[index] ^= 1 << (next(&mut state) % 8);
            }
            if next(&mut state).is_multiple_of(8) {
                bytes.truncate(next(&mut state) % bytes.len());
            }
            for name in ["see", "label", "map"] {
                let (code, _) = answer(&service, name, bytes.clone()).await;
                assert!(
                    matches!(code, 200 | 400),
                    "{code} for {}",
                    String::from_utf8_lossy(&bytes)
                );
                *codes.entry(code).or_default() += 1;
            }
        }
    }
    assert!(codes.len() == 2, "{codes:?}");
}

#[tokio::test]
async fn recorded_conversions_are_answered_whole() {
    // No such kind is known here, so that each is refused with a message, and none is converted in part.
    let reviews = reviews("ConversionReview");
    assert!(!reviews.is_empty());
    let webhooks = crate::conversion::webhooks();
    let service = webhooks.service();
    let mut state = 1;
    for review in reviews {
        for round in 0..20 {
            let mut review = review.clone();
            if round > 0 {
                damage(&mut review, &mut state);
            }
            let request = Request::post("/convert.cones.example.com").body(Bytes::from(review.to_string()));
            let response = service.answer(request.expect("a request")).await;
            let body: Value = serde_json::from_slice(response.body()).expect("JSON");
            match response.status().as_u16() {
                200 => {
                    let is_empty = body["response"]["convertedObjects"] == json!([]);
                    let has_failed = body["response"]["result"]["status"] == "Failure";
                    assert_eq!(
                        is_empty,
                        has_failed || review["request"]["objects"].as_array().is_none_or(Vec::is_empty),
                        "{body}"
                    );
                }
                code => assert_eq!(code, 400, "{body}"),
            }
        }
    }
}

/// The recorded reviews, with the kind and the fields of these tests in place of those of the recording.
#[tokio::test]
async fn recorded_conversions_of_a_known_kind_succeed() {
    let known = |version: &Value| {
        let version = version.as_str().unwrap_or_default();
        let version = version.rsplit('/').next().unwrap_or_default();
        ["v1", "v2"]
            .contains(&version)
            .then(|| Value::from(format!("example.com/{version}")))
    };
    let service = crate::conversion::webhooks().service();
    let mut converted = 0;
    for mut review in reviews("ConversionReview") {
        // A server that was offered `v1beta1` first.
        if review["apiVersion"] != "apiextensions.k8s.io/v1" {
            continue;
        }
        let request = &mut review["request"];
        let Some(wanted) = known(&request["desiredAPIVersion"]) else {
            continue;
        };
        request["desiredAPIVersion"] = wanted.clone();
        for object in request["objects"].as_array_mut().into_iter().flatten() {
            object["apiVersion"] = known(&object["apiVersion"]).unwrap_or("example.com/v1".into());
            object["kind"] = "Cone".into();
            // The recordings have words instead of times.
            let time = || Value::from("2026-01-02T03:04:05Z");
            object["metadata"]["creationTimestamp"] = time();
            let managed = object["metadata"]["managedFields"].as_array_mut();
            for entry in managed.into_iter().flatten() {
                entry["time"] = time();
            }
            object["spec"] = if object["apiVersion"] == "example.com/v1" {
                json!({"balls": 3, "flavor": "mango"})
            } else {
                json!({"scoops": 3, "flavor": "mango"})
            };
        }
        let body = Bytes::from(review.to_string());
        let request = Request::post("/convert.cones.example.com?timeout=30s").body(body);
        let response = service.answer(request.expect("a request")).await;
        let answer: Value = serde_json::from_slice(response.body()).expect("JSON");
        let response = &answer["response"];
        assert_eq!(response["uid"], review["request"]["uid"], "{answer}");
        assert_eq!(response["result"], json!({"status": "Success"}), "{answer}");
        let (sent, received) = (&review["request"]["objects"], &response["convertedObjects"]);
        let (sent, received) = (
            sent.as_array().expect("objects"),
            received.as_array().expect("objects"),
        );
        assert_eq!(sent.len(), received.len());
        for (sent, received) in sent.iter().zip(received) {
            assert_eq!(received["apiVersion"], wanted);
            assert_eq!(received["metadata"], sent["metadata"]);
            let scoops = if wanted == "example.com/v1" {
                "balls"
            } else {
                "scoops"
            };
            assert_eq!(received["spec"][scoops], 3, "{received}");
            converted += 1;
        }
    }
    assert!(converted > 0);
}
