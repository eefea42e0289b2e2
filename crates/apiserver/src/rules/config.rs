//! ConfigMaps, Secrets, leases and events.

use base64::Engine;
use serde_json::Value;

use super::findings::{Findings, list, text};
use crate::{
    golang, json, naming, object::Object, schema::Problem, trail::Trail, validation::STANDARD_FINALIZERS,
};

/// The data of a `ConfigMap` or Secret may be this long.
const DATA: usize = 1024 * 1024;

pub(super) fn check_config_map(map: &Value, findings: &mut Findings) {
    let mut size = 0;
    let (data, binary) = (map["data"].as_object(), map["binaryData"].as_object());
    for (key, value) in data.into_iter().flatten() {
        let field = Trail::from_root("data");
        findings.named(field.entry(key), key, naming::config_key(key));
        if binary.is_some_and(|binary| binary.contains_key(key)) {
            let why = "duplicate of key present in binaryData";
            findings.invalid(field.entry(key), key.as_str(), why);
        }
        size += text(value).len();
    }
    for (key, value) in binary.into_iter().flatten() {
        let field = Trail::from_root("binaryData");
        findings.named(field.entry(key), key, naming::config_key(key));
        size += decoded_len(value);
    }
    if size > DATA {
        findings.add("[]", Problem::TooLong(DATA as u64));
    }
}

pub(super) fn check_secret(secret: &Value, findings: &mut Findings) {
    let mut size = 0;
    for (key, value) in secret["data"].as_object().into_iter().flatten() {
        let field = Trail::from_root("data");
        findings.named(field.entry(key), key, naming::config_key(key));
        size += decoded_len(value);
    }
    if size > DATA {
        findings.add("data", Problem::TooLong(DATA as u64));
    }
    let missing = |key: &str| secret["data"].get(key).is_none();
    let empty = |key: &str| text(&secret["data"][key]).is_empty();
    match text(&secret["type"]) {
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            if text(&secret["metadata"]["annotations"][name]).is_empty() {
                findings.required(format!("metadata.annotations[{name}]"), "");
            }
        }
        "kubernetes.io/dockercfg" => check_json(".dockercfg", secret, findings),
        "kubernetes.io/dockerconfigjson" => check_json(".dockerconfigjson", secret, findings),
        "kubernetes.io/basic-auth" if missing("username") && missing("password") => {
            findings.required("data[username]", "");
            findings.required("data[password]", "");
        }
        "kubernetes.io/ssh-auth" if empty("ssh-privatekey") => {
            findings.required("data[ssh-privatekey]", "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"].into_iter().filter(|key| missing(key)) {
                findings.required(format!("data[{key}]"), "");
            }
        }
        _ => {}
    }
}

fn check_json(key: &str, secret: &Value, findings: &mut Findings) {
    let field = format!("data[{key}]");
    match secret["data"].get(key) {
        None => findings.required(field, ""),
        Some(value) => {
            let why = match json::read(&decoded(value)) {
                Ok((Value::Object(_) | Value::Null, _)) => return,
                Ok((other, _)) => format!(
                    "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                    golang::json_type(&other)
                ),
                Err(why) => why,
            };
            findings.invalid(field, "<secret contents redacted>", &why);
        }
    }
}

/// How many bytes a text in base64 stands for.
fn decoded_len(value: &Value) -> usize {
    let text = text(value);
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}

fn decoded(value: &Value) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD
        .decode(text(value))
        .unwrap_or_default()
}

pub(super) fn check_lease(spec: &Value, findings: &mut Findings) {
    if let Some(seconds) = spec["leaseDurationSeconds"]
        .as_i64()
        .filter(|seconds| *seconds <= 0)
    {
        findings.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0");
    }
    findings.not_negative("spec.leaseTransitions", &spec["leaseTransitions"]);
}

/// What an event of the newer group may not change, under the name that the refusal gives it.
const FIXED: [(&str, &str); 13] = [
    ("regarding", "involvedObject"),
    ("reason", "reason"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingController", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

pub(super) fn check_event(group: &str, event: &Value, old: Option<&Object>, findings: &mut Findings) {
    let about = if group.is_empty() {
        "involvedObject"
    } else {
        "regarding"
    };
    let namespace = text(&event["metadata"]["namespace"]);
    let of = text(&event[about]["namespace"]);
    // What is said of objects outside of namespaces is kept in the default one.
    if of != namespace && !(of.is_empty() && namespace == "default") {
        findings.invalid("involvedObject.namespace", of, "does not match event.namespace");
    }
    // The older form of events takes what it is given, if it does not look like the newer.
    if group.is_empty() {
        if old.is_none() && !event["eventTime"].is_null() {
            check_reporter(event, "reportingComponent", findings);
        }
        return;
    }
    if let Some(old) = old {
        for (field, name) in FIXED {
            if event.get(field) != old.fields().get(field) {
                findings.invalid(name, event[field].clone(), "field is immutable");
            }
        }
        return;
    }
    if event["eventTime"].is_null() {
        findings.required("eventTime", "");
    } else {
        check_reporter(event, "reportingController", findings);
    }
    if !matches!(text(&event["type"]), "Normal" | "Warning") {
        let why = format!("has invalid value: {}", text(&event["type"]));
        findings.invalid("type", "", &why);
    }
}

/// Who says it, and that it says what happened.
fn check_reporter(event: &Value, who: &str, findings: &mut Findings) {
    let controller = text(&event[who]);
    findings.given(who, &event[who]);
    findings.named(who, controller, naming::qualified(controller));
    for key in ["reportingInstance", "action", "reason"] {
        findings.given(key, &event[key]);
    }
}

/// A namespace goes when all who hold it let go: their names must tell who they are.
pub(super) fn check_namespace(spec: &Value, findings: &mut Findings) {
    for finalizer in list(&spec["finalizers"]).iter().map(text) {
        let field = "spec.finalizers";
        findings.named(field, finalizer, naming::qualified(finalizer));
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            findings.invalid(field, finalizer, why);
        }
    }
}
