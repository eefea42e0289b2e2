//! Admission policies: a policy and its binding, objects that exist before it, and one that it decides about, as
//! `{"plural": …, "policy": …, "binding": …, "others": [[collection, object]…], "collection": …, "object": …, "change": …}`.

use fastrand::Rng;
use serde_json::{Value, json};

use super::{
    readable::StoredObject,
    seeds::{self, NAME},
    test_server::{Setup, TestServer},
};
use crate::{
    engine::{Outcome, Target},
    invariants::{Invariant, MAX_DEPTH, Meter, Violation},
    mutate::{self, bytes, dictionary, tree},
};

const GROUP_PATH: &str = "/apis/admissionregistration.k8s.io/v1";

/// The objects of an input are created below these.
const COLLECTIONS: &[&str] = &[
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/secrets",
    "/api/v1/namespaces/default/pods",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
    "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
    "/apis/fuzz.example.com/v1/namespaces/default/foos",
    "/apis/fuzz.example.com/v1/namespaces/default/things",
];

pub(super) struct Policies(TestServer);

impl Policies {
    pub(super) fn new() -> Self {
        let definition = |plural: &str, kind: &str| {
            let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                    "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}},
                            "x-kubernetes-preserve-unknown-fields": true}}}}}});
            let definition = json!({"metadata": {"name": format!("{plural}.{}", seeds::GROUP)}, "spec": {
                "group": seeds::GROUP, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}}}],
            }});
            (seeds::DEFINITIONS, definition)
        };
        Self(TestServer::with(Setup {
            objects: vec![definition("foos", "Foo"), definition("things", "Thing")],
            ..Setup::default()
        }))
    }
}

impl Target for Policies {
    fn seeds(&mut self) -> Vec<Vec<u8>> {
        let mut inputs = Vec::new();
        for case in seeds::policies() {
            if !COLLECTIONS.contains(&&*case.collection) {
                continue;
            }
            let change = json!({"metadata": {"labels": {"fuzz": "changed"}}, "data": {"k": "w"}});
            let input = json!({
                "plural": case.plural, "policy": case.policy, "binding": case.binding, "others": case.others,
                "collection": case.collection, "object": case.object, "change": change,
            });
            inputs.push(input.to_string().into_bytes());
        }
        inputs
    }

    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        let Ok(mut case) = serde_json::from_slice::<Value>(input) else {
            return bytes::mutate(input, donor, rng);
        };
        let donor = serde_json::from_slice(donor).unwrap_or_else(|_| dictionary::value(rng));
        // The rest of the input only says where to create what.
        let pointer = match rng.u8(..16) {
            0..8 => "/policy/spec",
            8 => "/policy",
            9 | 10 => "/binding/spec",
            11 => "/others",
            12 => "/change",
            _ => "/object",
        };
        match rng.u8(..8) {
            // The expressions of another policy, about this one's objects.
            0 => {
                for key in ["policy", "binding", "plural"] {
                    case[key] = donor[key].clone();
                }
            }
            1 => mutate_expression(&mut case, &donor, rng),
            _ => {
                if let Some(node) = case.pointer_mut(pointer) {
                    tree::mutate(node, &donor, rng);
                }
            }
        }
        tree::text(&case, rng).into_bytes()
    }

    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation> {
        self.0.next_input();
        let result = run_one(&self.0, input);
        if result.is_err() {
            self.0.reset();
        }
        result
    }
}

/// Mutates the bytes of an expression, with parts of an expression of the donor.
fn mutate_expression(case: &mut Value, donor: &Value, rng: &mut Rng) {
    fn expressions<'a>(node: &'a mut Value, found: &mut Vec<&'a mut String>) {
        match node {
            Value::Array(items) => items.iter_mut().for_each(|item| expressions(item, found)),
            Value::Object(fields) => {
                for (key, value) in fields {
                    if !key.to_lowercase().ends_with("expression") {
                        expressions(value, found);
                    } else if let Value::String(text) = value {
                        found.push(text);
                    }
                }
            }
            _ => {}
        }
    }
    let mut donor = donor["policy"].clone();
    let mut of_donor = Vec::new();
    expressions(&mut donor, &mut of_donor);
    let of_donor = rng.choice(of_donor).cloned().unwrap_or_default();
    let mut own = Vec::new();
    expressions(&mut case["policy"], &mut own);
    if let Some(text) = rng.choice(own) {
        let mutated = bytes::mutate(text.as_bytes(), of_donor.as_bytes(), rng);
        *text = String::from_utf8_lossy(&mutated).into_owned();
    }
}

fn run_one(server: &TestServer, input: &[u8]) -> Result<Outcome, Violation> {
    let Ok(case) = serde_json::from_slice::<Value>(input) else {
        return Ok(Outcome::default());
    };
    let text = |key: &str| case[key].as_str().unwrap_or_default();
    let plural @ ("validatingadmissionpolicies" | "mutatingadmissionpolicies") = text("plural") else {
        return Ok(Outcome::default());
    };
    let Some(collection) = COLLECTIONS.iter().find(|known| **known == text("collection")) else {
        return Ok(Outcome::default());
    };
    let mut allocated = 0;
    let mut send = |method: &str, target: &str, headers: &[(&str, &str)], body: String| {
        let meter = Meter::start();
        let response = server.send(method, target, headers, body.into_bytes());
        allocated = allocated.max(meter.check(input.len())?);
        Ok::<_, Violation>(response)
    };
    let mut others = Vec::new();
    for other in case["others"].as_array().into_iter().flatten().take(3) {
        let Some(path) = COLLECTIONS.iter().find(|known| other[0] == **known) else {
            continue;
        };
        let response = send("POST", path, &[], other[1].to_string())?;
        response.check()?;
        if let (true, Some(name)) = (
            response.is_success(),
            response.json()["metadata"]["name"].as_str(),
        ) {
            others.push((*path, name.to_owned()));
        }
    }

    let policies = format!("{GROUP_PATH}/{plural}");
    let bindings = format!("{GROUP_PATH}/{}bindings", plural.replace("policies", "policy"));
    let policy = named(&case["policy"]);
    let mut binding = named(&case["binding"]);
    if binding["spec"].is_object() {
        binding["spec"]["policyName"] = NAME.into();
    }
    let created = send("POST", &policies, &[], policy.to_string())?;
    created.check()?;
    let bound = send("POST", &bindings, &[], binding.to_string())?;
    bound.check()?;
    let mut fingerprint = format!("{plural} {} {}", created.digest(), bound.digest());
    let [policy, binding] = [(&policies, &created), (&bindings, &bound)]
        .map(|(collection, response)| (StoredObject::new(server, collection, NAME), response.is_success()));
    for (object, is_stored) in [&policy, &binding] {
        if *is_stored {
            object.check_reads()?;
        }
    }

    let object = StoredObject::new(server, collection, NAME);
    if object.exists() {
        // One of the others has its name.
        object.delete()?;
        others.retain(|(path, name)| (path, &**name) != (collection, NAME));
    }
    let response = send("POST", collection, &[], named(&case["object"]).to_string())?;
    response.check_form()?;
    fingerprint = format!("{fingerprint} {}", response.digest());
    let is_success = response.is_success();
    if !is_success && object.exists() {
        let why = format!("a create that failed has written: {}", response.text());
        return Err(Invariant::ReadableAgain.violated(why));
    }
    if object.exists() {
        object.check_reads()?;
        let before = server.get(&format!("{collection}/{NAME}"), "application/json");
        let path = format!("{collection}/{NAME}");
        let merge = [("content-type", "application/merge-patch+json")];
        let changed = send("PATCH", &path, &merge, case["change"].to_string())?;
        changed.check_form()?;
        let after = server.get(&path, "application/json");
        if !changed.is_success() && after.body != before.body {
            return Err(Invariant::ReadableAgain
                .violated(format!("a patch that failed has written: {}", changed.text())));
        }
        object.check_reads()?;
        let deleted = send("DELETE", &format!("{path}?dryRun=All"), &[], String::new())?;
        deleted.check_form()?;
        fingerprint = format!("{fingerprint} {} {}", changed.digest(), deleted.code);
    }

    // Nothing may keep an administrator from removing a policy.
    for (stored, is_stored) in [binding, policy] {
        if is_stored {
            stored.check()?;
            stored.delete()?;
        }
    }
    remove_object(server, collection)?;
    for (path, name) in &others {
        StoredObject::new(server, path, name).delete()?;
    }
    Ok(Outcome {
        accepted: created.is_success() && bound.is_success() && is_success,
        fingerprint,
        allocated,
    })
}

/// The object with the name of the case's objects.
fn named(object: &Value) -> Value {
    let mut object = object.clone();
    if object.is_object() {
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        object["metadata"]["name"] = NAME.into();
    }
    object
}

/// Checks the object that the policies were about, and deletes it.
fn remove_object(server: &TestServer, collection: &str) -> Result<(), Violation> {
    let object = StoredObject::new(server, collection, NAME);
    if !object.exists() {
        return Ok(());
    }
    let stored = server.get(&format!("{collection}/{NAME}"), "application/json");
    if mutate::depth(&stored.body) > MAX_DEPTH {
        object.check_reads()?;
    } else {
        object.check()?;
    }
    object.delete()
}
