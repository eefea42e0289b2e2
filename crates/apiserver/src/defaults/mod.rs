//! What the real server fills in where an object of a built-in kind says nothing.
//!
//! ```text
//!   decoded object ─► rules of its kind (path → value) ─► what depends on other fields, in code ─► admission
//! ```
//!
//! It happens on every write, not only the first: a field that a client takes away comes back.

mod pod;
mod rules;
mod services;
mod workloads;

use base64::Engine;
use serde_json::{Map, Value, json};

use crate::{object::Object, registry::Resource};

/// What a rule fills in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plain {
    Text(&'static str),
    Number(i64),
    Flag(bool),
    /// An empty object.
    Empty,
}

impl Plain {
    fn value(self) -> Value {
        match self {
            Self::Text(text) => text.into(),
            Self::Number(number) => number.into(),
            Self::Flag(flag) => flag.into(),
            Self::Empty => Value::Object(Map::new()),
        }
    }
}

/// A path and what stands there if nothing does: `spec.ports[].protocol`. What it leads through must be there.
pub(super) type Rule = (&'static str, Plain);

/// Fills in what a built-in kind's object leaves to the server.
pub(crate) fn fill(resource: &Resource, object: &mut Object) {
    if resource.custom {
        return;
    }
    let mut value = Value::Object(std::mem::take(object.fields_mut()));
    let (group, kind) = (&*resource.group, &*resource.kind);
    for rule in rules::of(group, kind) {
        apply(*rule, &mut value);
    }
    match (group, kind) {
        ("", "Pod") => {
            pod::fill_spec(&mut value["spec"]);
            pod::fill_pod(&mut value["spec"]);
        }
        ("", "PodTemplate") => pod::fill_template(&mut value["template"]),
        ("", "ReplicationController") => workloads::fill_replication_controller(&mut value),
        ("apps", _) => workloads::fill_app(kind, &mut value),
        ("batch", "Job") => workloads::fill_job(&mut value),
        ("batch", "CronJob") => pod::fill_template(&mut value["spec"]["jobTemplate"]["spec"]["template"]),
        ("", "Service") => services::fill_service(&mut value),
        ("", "Secret") => fill_secret(&mut value),
        ("", "Node") => {
            // Either name of the field speaks for both.
            let block = value["spec"]["podCIDR"].clone();
            if block.is_string() {
                set(&mut value["spec"], "podCIDRs", vec![block]);
            } else if let Some(block) = value["spec"]["podCIDRs"].get(0).cloned() {
                set(&mut value["spec"], "podCIDR", block);
            }
            if let Some(capacity) = value["status"].get("capacity").cloned() {
                set(&mut value["status"], "allocatable", capacity);
            }
        }
        ("", "PersistentVolume") => pod::fill_volume_source(&mut value["spec"]),
        ("", "LimitRange") => fill_limits(&mut value),
        ("autoscaling", _) => workloads::fill_autoscaler(&resource.version, &mut value),
        ("networking.k8s.io", "NetworkPolicy") => services::fill_network_policy(&mut value),
        ("rbac.authorization.k8s.io", _) => fill_subjects(&mut value),
        // Zero is no precedence, but is written.
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") if value["spec"]["matchingPrecedence"] == 0 => {
            value["spec"]["matchingPrecedence"] = 1000.into();
        }
        ("storage.k8s.io", "CSIDriver") => {
            set(&mut value["spec"], "volumeLifecycleModes", json!(["Persistent"]));
        }
        _ => {}
    }
    if let Value::Object(fields) = value {
        *object.fields_mut() = fields;
    }
}

/// Sets a field of an object where nothing stands; anything else has no fields.
pub(super) fn set(parent: &mut Value, key: &str, value: impl Into<Value>) {
    let Value::Object(fields) = parent else {
        return;
    };
    match fields.get_mut(key) {
        // Where Go knows no pointer, an empty text is none.
        Some(place) if place.is_null() || *place == "" => *place = value.into(),
        Some(_) => {}
        None => {
            fields.insert(key.to_owned(), value.into());
        }
    }
}

/// The items of a list; none where there is no list.
pub(super) fn items<'a>(parent: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    parent
        .get_mut(key)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// Follows a rule's path, through every item of the lists on it.
pub(super) fn apply(rule: Rule, value: &mut Value) {
    let (path, plain) = rule;
    // Byte by byte: a search that is made for long texts takes longer for a word.
    let Some(dot) = path.bytes().position(|byte| byte == b'.') else {
        set(value, path, plain.value());
        return;
    };
    let (head, rest) = (&path[..dot], &path[dot + 1..]);
    if let Some(list) = head.strip_suffix("[]") {
        for item in items(value, list) {
            apply((rest, plain), item);
        }
    } else if let Some(inner) = value.get_mut(head) {
        apply((rest, plain), inner);
    }
}

/// Follows those of many rules that begin with a field that is there, which are few: a volume has one source of thirty. All of
/// them lead into a field, and none begins with a list.
pub(super) fn apply_matching(rules: &[Rule], value: &mut Value) {
    let Value::Object(fields) = value else { return };
    for (key, inner) in fields {
        for (path, plain) in rules {
            let rest = path
                .strip_prefix(key.as_str())
                .and_then(|rest| rest.strip_prefix('.'));
            if let Some(rest) = rest {
                apply((rest, *plain), inner);
            }
        }
    }
}

/// `stringData` is for writing: it lands in `data`.
fn fill_secret(secret: &mut Value) {
    let Some(Value::Object(texts)) = secret
        .as_object_mut()
        .and_then(|fields| fields.remove("stringData"))
    else {
        return;
    };
    set(secret, "data", json!({}));
    for (key, text) in texts {
        let text = text.as_str().unwrap_or_default();
        secret["data"][key] = base64::engine::general_purpose::STANDARD.encode(text).into();
    }
}

/// A limit range's defaults come from its bounds.
fn fill_limits(range: &mut Value) {
    for limit in items(&mut range["spec"], "limits").filter(|limit| limit["type"] == "Container") {
        for (from, to) in [
            ("max", "default"),
            ("default", "defaultRequest"),
            ("min", "defaultRequest"),
        ] {
            let Some(amounts) = limit.get(from).and_then(Value::as_object).cloned() else {
                continue;
            };
            set(limit, to, json!({}));
            for (resource, amount) in amounts {
                set(&mut limit[to], &resource, amount);
            }
        }
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

fn fill_subjects(binding: &mut Value) {
    if let Some(role) = binding.get_mut("roleRef")
        && role["apiGroup"].as_str().is_none_or(str::is_empty)
    {
        role["apiGroup"] = RBAC.into();
    }
    for subject in items(binding, "subjects") {
        if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
            set(subject, "apiGroup", RBAC);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_reaches_every_item_and_overwrites_nothing() {
        let mut value = json!({"spec": {"ports": [{}, {"protocol": "UDP"}, {"protocol": null}]}});
        apply(("spec.ports[].protocol", Plain::Text("TCP")), &mut value);
        apply(("spec.absent.field", Plain::Number(1)), &mut value);
        assert_eq!(
            value,
            json!({"spec": {"ports": [{"protocol": "TCP"}, {"protocol": "UDP"}, {"protocol": "TCP"}]}})
        );
    }

    #[test]
    fn string_data_lands_in_data() {
        let mut secret = json!({"stringData": {"a": "hi"}, "data": {"a": "eA==", "b": "eQ=="}});
        fill_secret(&mut secret);
        assert_eq!(secret, json!({"data": {"a": "aGk=", "b": "eQ=="}}));
    }
}
