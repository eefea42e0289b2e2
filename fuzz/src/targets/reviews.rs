//! Reviews that an API server, or any pod, sends to the webhooks of a program: admission and conversion, with the annotation of
//! what a version cannot express. An input is a path and a body, as `{"path": …, "body": …}`, or a body of any bytes.

use bytes::Bytes;
use fastrand::Rng;
use http::Request;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::{Value, json};
use windlass_icecream::{Icecream, v1beta1};
use windlass_webhook::{Change, FieldErrors, WebhookService, Webhooks, convert, mutate, validate};

use super::digest;
use crate::{
    engine::{Outcome, Target},
    invariants::{Invariant, Meter, Violation},
    mutate::{dictionary, tree},
};

pub(super) struct Reviews {
    runtime: tokio::runtime::Runtime,
    service: WebhookService,
}

impl Reviews {
    pub(super) fn new() -> anyhow::Result<Self> {
        let webhooks = Webhooks::new("fuzz")
            .with(validate(check).on_delete())
            .with(mutate::<Pod, _>(label))
            .with(convert::<Icecream>().version::<v1beta1::Icecream>().keep_losses());
        Ok(Self {
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()?,
            service: webhooks.service(),
        })
    }

    fn answer(&self, path: &str, body: &[u8]) -> (u16, Bytes) {
        let request = Request::post(format!("/{path}")).body(Bytes::copy_from_slice(body));
        let request = request.unwrap_or_else(|_| Request::new(Bytes::copy_from_slice(body)));
        let response = self.runtime.block_on(self.service.answer(request));
        (response.status().as_u16(), response.into_body())
    }
}

fn check(change: Change<'_, ConfigMap>, _: &windlass_webhook::ReviewRequest) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if let Change::Updated { old, new } = &change {
        errors.immutable("data", &old.data, &new.data);
    }
    let data = change.new_object().and_then(|map| map.data.as_ref());
    for (key, value) in data.into_iter().flatten() {
        if value.is_empty() {
            errors.invalid(format!("data[{key}]"), value, "must not be empty");
        }
    }
    errors
}

/// Adds, changes, moves and removes fields and items.
fn label(pod: &mut Pod, _: &windlass_webhook::ReviewRequest) {
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert("seen".to_owned(), "yes".to_owned());
    pod.metadata.annotations = None;
    if let Some(spec) = &mut pod.spec {
        spec.containers.reverse();
        spec.containers.truncate(3);
        for container in &mut spec.containers {
            container.image_pull_policy = Some("Always".to_owned());
            container.ports.get_or_insert_default().pop();
        }
    }
}

const PATHS: [&str; 3] = [
    "validate.configmaps.fuzz",
    "mutate.pods.fuzz",
    "convert.icecreams.controller.nicoleh.io",
];

fn admission(operation: &str, object: &Value, old: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": operation, "name": "a", "namespace": "b", "object": object, "oldObject": old,
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "dryRun": false,
        "userInfo": {"username": "c", "groups": ["d"], "extra": {"e": ["f"]}}, "options": {"kind": "CreateOptions"},
    }})
}

impl Target for Reviews {
    fn seeds(&mut self) -> Vec<Vec<u8>> {
        let map = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "annotations": {"a": "b"}, "unknown": 1},
            "spec": {"containers": [{"name": "a", "unknown": 2, "ports": [{"containerPort": 1}, {"containerPort": 2}]}, {"name": "b"}]}});
        let losses = json!([{"path": "/spec/deploymentName", "lost": "x", "seen": "0"}]).to_string();
        let icecream = |version: &str| {
            json!({"apiVersion": format!("controller.nicoleh.io/{version}"), "kind": "Icecream",
                "metadata": {"name": "a", "uid": "u", "annotations": {"conversion.windlass.dev/v1alpha1": losses, "conversion.windlass.dev/v1beta1": losses}},
                "spec": {"deploymentName": "a", "replicas": 2, "deployment": {"name": "a", "replicas": 2}, "unknown": [1]}})
        };
        let conversion = |from: &str, to: &str| {
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {
                "uid": "u", "desiredAPIVersion": format!("controller.nicoleh.io/{to}"), "objects": [icecream(from), icecream(to)],
            }})
        };
        let bodies = [
            (
                0,
                admission("CREATE", &map(json!({"a": "", "b": "c"})), &Value::Null),
            ),
            (
                0,
                admission("UPDATE", &map(json!({"a": "b"})), &map(json!({"a": "c"}))),
            ),
            (0, admission("DELETE", &Value::Null, &map(json!({})))),
            (1, admission("CREATE", &pod, &Value::Null)),
            (2, conversion("v1alpha1", "v1beta1")),
            (2, conversion("v1beta1", "v1alpha1")),
        ];
        let seeds = bodies.map(|(path, body)| {
            json!({"path": PATHS[path], "body": body})
                .to_string()
                .into_bytes()
        });
        seeds.to_vec()
    }

    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        let Ok(mut case) = serde_json::from_slice::<Value>(input) else {
            return input.to_vec();
        };
        let donor = serde_json::from_slice(donor).unwrap_or_else(|_| dictionary::value(rng));
        tree::mutate(&mut case, &donor, rng);
        tree::text(&case, rng).into_bytes()
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        let case = serde_json::from_slice::<Value>(input).unwrap_or_default();
        let path = case["path"].as_str().unwrap_or(PATHS[0]);
        let body = case
            .get("body")
            .map_or_else(|| input.to_vec(), |body| body.to_string().into_bytes());
        let meter = Meter::start();
        let (code, answer) = self.answer(path, &body);
        let allocated = meter.check(input.len())?;
        let parsed: Value = serde_json::from_slice(&answer)
            .map_err(|error| Invariant::WellFormed.violated(format!("the answer is no JSON: {error}")))?;
        let is_answer = code == 200 && parsed["response"]["uid"].is_string();
        let is_refused = (400..500).contains(&code) && parsed["kind"] == "Status";
        if !is_answer && !is_refused {
            return Err(Invariant::WellFormed.violated(format!("status {code}: {parsed}")));
        }
        if self.answer(path, &body) != (code, answer) {
            return Err(Invariant::ReadableAgain.violated("two answers differ"));
        }
        let response = &parsed["response"];
        let text = json!([
            code,
            parsed["message"],
            response["status"]["message"],
            response["result"]["message"],
            response["patch"].is_string()
        ]);
        Ok(Outcome {
            accepted: response["allowed"] == true || response["result"]["status"] == "Success",
            fingerprint: format!("{code} {}", digest(&text.to_string().replace('"', ""))),
            allocated,
        })
    }
}
