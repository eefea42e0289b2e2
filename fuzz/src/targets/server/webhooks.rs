//! Responses of webhooks. An input is one or more HTTP responses, in the syntax of `request`; the first line says in which
//! scene they are sent, and with which status code. The n-th call gets the n-th response, all further calls the last one.
//!
//! In a body, `{{uid}}` is the UID of the review, and `"{{objects}}"` the objects of a `ConversionReview` in the desired
//! version. A patch may be written as JSON; it is sent in base64. A body with `content-encoding: gzip` is compressed.

use std::{
    io::Write,
    sync::{Arc, Mutex, PoisonError},
};

use ::bytes::Bytes;
use base64::{Engine, engine::general_purpose::STANDARD};
use fastrand::Rng;
use flate2::{Compression, write::GzEncoder};
use http::{Request, Response};
use serde_json::{Value, json};
use windlass_apiserver::InProcessWebhook;

use super::{
    readable::StoredObject,
    request::{self, Draft},
    seeds::{self, NAME},
    test_server::{self, Setup, TestServer},
};
use crate::{
    engine::{Outcome, Target},
    invariants::{COPIED_BYTES, Invariant, MAX_DEPTH, Meter, Violation},
    mutate,
};

/// In how many scenes each recorded response is tried; mutation finds the others.
const SCENES_PER_REPLY: usize = 7;

/// The most responses of an input.
const MAX_REPLIES: usize = 4;

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ANYTHINGS: &str = "/apis/any.example.org/v1/namespaces/default/anythings";
/// Of a CRD that stores v2 and is converted by a webhook.
const BOXES_V1: &str = "/apis/boxes.example.org/v1/namespaces/default/boxes";
const BOXES_V2: &str = "/apis/boxes.example.org/v2/namespaces/default/boxes";

const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

/// A webhook about admission.
struct AdmissionWebhook {
    /// Its name, also in the label that selects objects for it.
    label: &'static str,
    host: &'static str,
    /// The collection of its configuration.
    stage: &'static str,
    policy: &'static str,
}

const ADMISSION: &[AdmissionWebhook] = &[
    AdmissionWebhook {
        label: "mutating-fail",
        host: "mutating-fail.default.svc",
        stage: MUTATING,
        policy: "Fail",
    },
    AdmissionWebhook {
        label: "mutating-ignore",
        host: "mutating-ignore.default.svc",
        stage: MUTATING,
        policy: "Ignore",
    },
    AdmissionWebhook {
        label: "validating-fail",
        host: "validating-fail.default.svc",
        stage: VALIDATING,
        policy: "Fail",
    },
    AdmissionWebhook {
        label: "validating-ignore",
        host: "validating-ignore.default.svc",
        stage: VALIDATING,
        policy: "Ignore",
    },
];

/// What is done with an object while its webhook responds as the input says.
const OPERATIONS: &[&str] = &[
    "create",
    "generate",
    "update",
    "patch",
    "apply",
    "apply-new",
    "dry-run",
    "delete",
    "delete-collection",
];

/// What is done with objects in the version that is not stored.
const CONVERSIONS: &[&str] = &[
    "get",
    "list",
    "watch",
    "table",
    "metadata",
    "create",
    "generate",
    "update",
    "patch",
    "apply",
    "apply-new",
    "dry-run",
    "delete",
    "delete-collection",
];

const STATUSES: &[&str] = &[
    "200", "200", "200", "200", "201", "204", "301", "307", "400", "404", "500", "503", "hang", "close",
];

const HEADERS: &[(&str, &[&str])] = &[
    (
        "content-type",
        &["application/json", "application/yaml", "text/plain", "", "\u{1}"],
    ),
    ("content-encoding", &["gzip", "identity", "deflate"]),
    (
        "location",
        &["/other", "https://mutating-fail.default.svc:443/", ""],
    ),
    ("content-length", &["0", "5", "-1", "18446744073709551616"]),
];

/// The responses that webhooks give; without any, they allow everything and convert faithfully.
type Replies = Arc<Mutex<Vec<Draft>>>;

pub(super) struct Webhooks {
    server: TestServer,
    replies: Replies,
}

impl Webhooks {
    pub(super) fn new() -> Self {
        let replies = Replies::default();
        Self {
            server: TestServer::with(setup(&replies)),
            replies,
        }
    }
}

fn setup(replies: &Replies) -> Setup {
    let webhook = {
        let replies = replies.clone();
        InProcessWebhook::new(tower::service_fn(move |request: Request<Bytes>| {
            let reply = next(&replies);
            async move { respond(reply, request.body()).await }
        }))
    };
    let mut setup = Setup::default();
    for AdmissionWebhook {
        label,
        host,
        stage,
        policy,
    } in ADMISSION
    {
        setup.webhooks.push((host, webhook.clone()));
        let configuration = json!({"metadata": {"name": label}, "webhooks": [{
            "name": format!("{label}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "default", "name": label, "path": "/a"}}, "failurePolicy": policy,
            "objectSelector": {"matchLabels": {"webhook": label}},
            "rules": [{"apiGroups": ["", "any.example.org"], "apiVersions": ["v1"], "operations": ["*"],
                "resources": ["configmaps", "anythings"]}],
        }]});
        setup.objects.push((stage, configuration));
    }
    setup.webhooks.push(("convert.default.svc", webhook));
    let version = |name: &str, is_stored: bool| {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({"name": name, "served": true, "storage": is_stored, "schema": {"openAPIV3Schema": schema},
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]})
    };
    let definition = json!({"metadata": {"name": "boxes.boxes.example.org"}, "spec": {
        "group": "boxes.example.org", "scope": "Namespaced", "names": {"plural": "boxes", "singular": "box", "kind": "Box"},
        "versions": [version("v1", false), version("v2", true)],
        "conversion": {"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"service": {"namespace": "default", "name": "convert", "path": "/convert"}},
        }},
    }});
    setup.objects.push((seeds::DEFINITIONS, definition));
    setup
}

fn lock(replies: &Replies) -> std::sync::MutexGuard<'_, Vec<Draft>> {
    replies.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next response; `None` for a faithful one.
fn next(replies: &Replies) -> Option<Draft> {
    let mut replies = lock(replies);
    if replies.len() > 1 {
        return Some(replies.remove(0));
    }
    replies.first().cloned()
}

async fn respond(reply: Option<Draft>, review: &[u8]) -> Result<Response<Bytes>, &'static str> {
    let review: Value = serde_json::from_slice(review).unwrap_or_default();
    let uid = review["request"]["uid"].as_str().unwrap_or_default();
    let Some(reply) = reply else {
        let mut response = json!({
            "uid": uid, "allowed": true, "result": {"status": "Success"}, "convertedObjects": converted(&review),
        });
        let unused: &[&str] = if review["kind"] == "ConversionReview" {
            &["allowed"]
        } else {
            &["result", "convertedObjects"]
        };
        for field in unused {
            response.as_object_mut().and_then(|fields| fields.remove(*field));
        }
        let answer =
            json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response});
        return Ok(Response::new(answer.to_string().into()));
    };
    let status = match &*reply.target {
        "hang" => std::future::pending().await,
        "close" => return Err("closed"),
        code => code.parse::<u16>().unwrap_or(200),
    };
    let mut response = Response::builder().status(status);
    for (name, value) in &reply.headers {
        response = response.header(name.as_str(), value.as_slice());
    }
    let mut body = reply.body.clone();
    if reply.header("content-encoding") == b"gzip" && !body.starts_with(&[0x1f, 0x8b]) {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        if encoder.write_all(&body_text(&body, uid, &review)).is_ok() {
            body = encoder.finish().unwrap_or_default();
        }
    } else {
        body = body_text(&body, uid, &review);
    }
    response.body(body.into()).map_err(|_| "an invalid header")
}

/// A body with its placeholders replaced, and with its patch in base64.
fn body_text(body: &[u8], uid: &str, review: &Value) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(body) else {
        return body.to_vec();
    };
    let mut text = text.replace("{{uid}}", uid);
    if text.contains("\"{{objects}}\"") {
        text = text.replace("\"{{objects}}\"", &converted(review).to_string());
    }
    if let Ok(mut answer) = serde_json::from_str::<Value>(&text)
        && let Some(patch) = answer.pointer_mut("/response/patch")
        && (patch.is_object() || patch.get(0).is_some_and(|first| !first.is_number()))
    {
        *patch = STANDARD.encode(patch.to_string()).into();
        return answer.to_string().into_bytes();
    }
    text.into_bytes()
}

/// The objects of a review in the desired version.
fn converted(review: &Value) -> Value {
    let mut objects = review["request"]["objects"].clone();
    for object in objects.as_array_mut().into_iter().flatten() {
        object["apiVersion"] = review["request"]["desiredAPIVersion"].clone();
    }
    objects
}

impl Target for Webhooks {
    fn seeds(&mut self) -> Vec<Vec<u8>> {
        let conversions: Vec<String> = CONVERSIONS
            .iter()
            .map(|what| format!("convert/boxes/{what}"))
            .collect();
        let admissions: Vec<String> = ADMISSION
            .iter()
            .flat_map(|webhook| OPERATIONS.iter().map(move |what| (webhook.label, what)))
            .flat_map(|(label, what)| {
                ["configmaps", "anythings"].map(|kind| format!("{label}/{kind}/{what}"))
            })
            .collect();
        let mut inputs = Vec::new();
        for (index, (converts, body)) in seeds::webhook_replies().into_iter().enumerate() {
            let scenes = if converts { &conversions } else { &admissions };
            let some = scenes.iter().cycle().skip(index * SCENES_PER_REPLY);
            inputs.extend(
                some.take(SCENES_PER_REPLY)
                    .map(|scene| Draft::new(scene, "200", "application/json", body.clone()).to_bytes()),
            );
        }
        inputs
    }

    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        let (mut drafts, donors) = (request::parse_all(input), request::parse_all(donor));
        let position = rng.usize(..drafts.len());
        match rng.u8(..16) {
            0 => drafts.extend(donors),
            1 if drafts.len() > 1 => drop(drafts.remove(position)),
            2 => drafts[position].target = choose(STATUSES, rng),
            3 => {
                if let Some((name, values)) = rng.choice(HEADERS) {
                    drafts[position].set_header(name, choose(values, rng).into_bytes());
                }
            }
            4 => {
                // The same response in another scene.
                let scene = drafts[0].method.clone();
                drafts[0].method = if scene.starts_with("convert") {
                    format!("convert/boxes/{}", choose(CONVERSIONS, rng))
                } else {
                    let label = ADMISSION[rng.usize(..ADMISSION.len())].label;
                    let kind = choose(&["configmaps", "anythings"], rng);
                    format!("{label}/{kind}/{}", choose(OPERATIONS, rng))
                };
            }
            5 => {
                let body = mutate::bytes::mutate(&drafts[position].body, &donors[0].body, rng);
                drafts[position].body = body;
            }
            _ => drafts[position].mutate_body(&donors[0], rng),
        }
        drafts.truncate(MAX_REPLIES);
        request::join(&drafts)
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        self.server.next_input();
        let result = self.run_one(input);
        lock(&self.replies).clear();
        if result.is_err() {
            self.server.reset();
        }
        result
    }
}

fn choose(values: &[&'static str], rng: &mut Rng) -> String {
    rng.choice(values).copied().unwrap_or_default().to_owned()
}

/// A request, and where its objects are.
struct Scene {
    request: Draft,
    /// Where the objects are read and written: in the stored version.
    collection: &'static str,
    /// The object that exists before the request.
    base: Value,
    /// Whether the request is one that writes.
    writes: bool,
}

impl Scene {
    /// Parses `WEBHOOK/PLURAL/OPERATION`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let (webhook, plural, operation) = (parts.next()?, parts.next()?, parts.next()?);
        let (collection, path, mut base) = match plural {
            "configmaps" => (
                MAPS,
                MAPS,
                json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}),
            ),
            "anythings" => (
                ANYTHINGS,
                ANYTHINGS,
                json!({"apiVersion": "any.example.org/v1", "kind": "Anything", "spec": {"a": [1, {"b": "c"}]}}),
            ),
            "boxes" => (
                BOXES_V2,
                BOXES_V1,
                json!({"apiVersion": "boxes.example.org/v1", "kind": "Box", "spec": {"size": 1, "list": ["a"]}}),
            ),
            _ => return None,
        };
        base["metadata"] = json!({"name": NAME, "labels": {"webhook": webhook}, "annotations": {"a": "b"}});
        let mut changed = base.clone();
        changed["metadata"]["annotations"]["a"] = "changed".into();
        let merge_patch = json!({"metadata": {"annotations": {"a": "changed", "b": "added"}}}).to_string();
        let object = format!("{path}/{NAME}");
        let new = |value: &Value| {
            let mut value = value.clone();
            value["metadata"]["name"] = "new".into();
            value
        };
        let json = "application/json";
        let read = |target: &str, accept: &str| {
            let mut draft = Draft::new("GET", target, json, "");
            draft.set_header("accept", accept.as_bytes().to_vec());
            draft
        };
        let request = match operation {
            "create" => Draft::new("POST", path, json, new(&base).to_string()),
            "dry-run" => Draft::new(
                "POST",
                &format!("{path}?dryRun=All"),
                json,
                new(&base).to_string(),
            ),
            "generate" => {
                let mut generated = base.clone();
                generated["metadata"]["name"] = Value::Null;
                generated["metadata"]["generateName"] = "made-".into();
                Draft::new("POST", path, json, generated.to_string())
            }
            "update" => Draft::new("PUT", &object, json, changed.to_string()),
            "merge_patch" => Draft::new("PATCH", &object, MERGE, merge_patch),
            "apply" => Draft::new(
                "PATCH",
                &format!("{object}?fieldManager=fuzz&force=true"),
                APPLY,
                changed.to_string(),
            ),
            "apply-new" => Draft::new(
                "PATCH",
                &format!("{path}/new?fieldManager=fuzz"),
                APPLY,
                new(&base).to_string(),
            ),
            "delete" => Draft::new("DELETE", &object, json, ""),
            "delete-collection" => Draft::new(
                "DELETE",
                &format!("{path}?labelSelector=webhook%3D{webhook}"),
                json,
                "",
            ),
            "get" => read(&object, json),
            "table" => read(path, TABLE),
            "metadata" => read(&object, METADATA),
            "list" => read(path, json),
            "watch" => read(&format!("{path}?watch=1&timeoutSeconds=2"), json),
            _ => return None,
        };
        let writes = request.method != "GET" && operation != "dry-run";
        Some(Self {
            request,
            collection,
            base,
            writes,
        })
    }
}

impl Webhooks {
    fn run_one(&self, input: &[u8]) -> Result<Outcome, Violation> {
        let replies = request::parse_all(input);
        let Some(scene) = Scene::parse(&replies[0].method) else {
            return Ok(Outcome::default());
        };
        let server = &self.server;
        let mut base = scene.base.clone();
        base["apiVersion"] = if scene.collection == BOXES_V2 {
            "boxes.example.org/v2".into()
        } else {
            base["apiVersion"].take()
        };
        let created = server.send("POST", scene.collection, &[], base.to_string().into());
        created.check()?;
        let before = self.objects(scene.collection)?;
        let Some(request) = scene.request.build() else {
            return Ok(Outcome::default());
        };

        // The responses of an honest webhook are also in memory, so the bytes of a response count whenever it is sent.
        let length = replies
            .iter()
            .map(|reply| reply.body.len())
            .sum::<usize>()
            .max(input.len());
        *lock(&self.replies) = replies;
        let meter = Meter::start();
        let response = server.call(request);
        let copies = scene.request.method != "GET" && meter.allocated() < COPIED_BYTES;
        let allocated = if copies && input.windows(4).any(|word| word == b"copy") {
            meter.allocated()
        } else {
            meter.check(length)?
        };
        lock(&self.replies).clear();
        response.check_form()?;

        let after = self.objects(scene.collection)?;
        let events = self.events_since(scene.collection, &before)?;
        check_effect(&scene, &response, &before, &after, events)?;
        for object in after["items"].as_array().into_iter().flatten() {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if before["items"]
                .as_array()
                .is_some_and(|items| items.contains(object))
                && name != NAME
            {
                continue;
            }
            let stored = StoredObject::new(server, scene.collection, name);
            if mutate::depth(object.to_string().as_bytes()) > MAX_DEPTH {
                stored.check_reads()?;
            } else {
                stored.check()?;
            }
            if scene.collection == BOXES_V2 {
                StoredObject::new(server, BOXES_V1, name).check_reads()?;
            }
            stored.delete()?;
        }
        Ok(Outcome {
            accepted: response.is_success(),
            fingerprint: format!("{} {}", scene.request.method, response.digest()),
            allocated,
        })
    }

    /// Lists a collection.
    fn objects(&self, collection: &str) -> Result<Value, Violation> {
        let list = self.server.get(collection, "application/json");
        list.check()?;
        if list.code != 200 || list.is_deep() {
            return Err(Invariant::ReadableAgain.violated(format!("LIST of {collection}: {}", list.text())));
        }
        Ok(list.json())
    }

    /// How many events a collection had since this list.
    fn events_since(&self, collection: &str, list: &Value) -> Result<usize, Violation> {
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let target = format!("{collection}?watch=1&timeoutSeconds=1&resourceVersion={version}");
        let watch = self.server.get(&target, "application/json");
        watch.check()?;
        Ok(watch
            .body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .count())
    }
}

/// Checks that a request that failed wrote nothing, and that one that succeeded wrote once.
fn check_effect(
    scene: &Scene,
    response: &test_server::Response,
    before: &Value,
    after: &Value,
    events: usize,
) -> Result<(), Violation> {
    let violated = |why: &str| {
        Err(Invariant::ReadableAgain.violated(format!(
            "{why}: {} {}: {}\nbefore: {before}\nafter: {after}",
            scene.request.method,
            scene.request.target,
            response.text()
        )))
    };
    // Of a collection, objects may be deleted before one fails.
    let is_collection = scene.request.target.contains("labelSelector");
    if !scene.writes || (!response.is_success() && !is_collection) {
        if events != 0 || before["items"] != after["items"] {
            return violated("a request that failed or only reads has written");
        }
        return Ok(());
    }
    if events > 1 && !is_collection {
        return violated(&format!("a request wrote {events} times"));
    }
    if response.is_success() && scene.request.method == "POST" && events != 1 {
        return violated(&format!("a create wrote {events} times"));
    }
    Ok(())
}
