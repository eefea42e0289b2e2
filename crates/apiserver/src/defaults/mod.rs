//! Defaulting of built-in kinds.
//!
//! ```text
//!   decoded object ─► constant defaults of its kind (path → value) ─► defaults that depend on other fields ─► admission
//! ```
//!
//! Defaults are applied on every write, not only on creation: a field that a client removes is set again.

mod pod;
mod rules;
mod services;
mod workloads;

use base64::Engine;
use serde_json::{Map, Value, json};

use crate::{object::Object, registry::Resource};

/// A default value.
#[derive(Clone, Copy, Debug)]
pub(super) enum DefaultValue {
    Text(&'static str),
    Number(i64),
    Flag(bool),
    /// An empty object.
    Empty,
}

impl DefaultValue {
    fn value(self) -> Value {
        match self {
            Self::Text(text) => text.into(),
            Self::Number(number) => number.into(),
            Self::Flag(flag) => flag.into(),
            Self::Empty => Value::Object(Map::new()),
        }
    }
}

/// A path and its default: `spec.ports[].protocol`. The parents of the field must be present.
pub(super) type DefaultRule = (&'static str, DefaultValue);

/// Applies the defaults of a built-in kind.
pub(crate) fn apply_defaults(resource: &Resource, object: &mut Object) {
    if resource.is_custom {
        return;
    }
    let mut value = Value::Object(std::mem::take(object.fields_mut()));
    let (group, kind) = (&*resource.group, &*resource.kind);
    for rule in rules::for_kind(group, kind) {
        apply_rule(*rule, &mut value);
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
            // `podCIDR` and the first of `podCIDRs` are kept equal.
            let block = value["spec"]["podCIDR"].clone();
            if block.is_string() {
                set_if_absent(&mut value["spec"], "podCIDRs", vec![block]);
            } else if let Some(block) = value["spec"]["podCIDRs"].get(0).cloned() {
                set_if_absent(&mut value["spec"], "podCIDR", block);
            }
            if let Some(capacity) = value["status"].get("capacity").cloned() {
                set_if_absent(&mut value["status"], "allocatable", capacity);
            }
        }
        ("", "PersistentVolume") => pod::fill_volume_source(&mut value["spec"]),
        ("", "LimitRange") => fill_limits(&mut value),
        ("autoscaling", _) => workloads::fill_autoscaler(&resource.version, &mut value),
        ("networking.k8s.io", "NetworkPolicy") => services::fill_network_policy(&mut value),
        ("rbac.authorization.k8s.io", _) => fill_subjects(&mut value),
        // Zero is not a valid precedence, but is serialized.
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") if value["spec"]["matchingPrecedence"] == 0 => {
            value["spec"]["matchingPrecedence"] = 1000.into();
        }
        ("storage.k8s.io", "CSIDriver") => {
            set_if_absent(&mut value["spec"], "volumeLifecycleModes", json!(["Persistent"]));
        }
        _ => {}
    }
    if let Value::Object(fields) = value {
        *object.fields_mut() = fields;
    }
}

/// Sets a field of an object if it is absent. Does nothing if `parent` is not an object.
pub(super) fn set_if_absent(parent: &mut Value, key: &str, value: impl Into<Value>) {
    let Value::Object(fields) = parent else {
        return;
    };
    match fields.get_mut(key) {
        // A field that is not a pointer in Go counts as absent if it is an empty string.
        Some(place) if place.is_null() || *place == "" => *place = value.into(),
        Some(_) => {}
        None => {
            fields.insert(key.to_owned(), value.into());
        }
    }
}

/// The items of a list; empty if there is no list.
pub(super) fn items<'a>(parent: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    parent
        .get_mut(key)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// Follows a rule's path, through every item of the lists on it.
pub(super) fn apply_rule(rule: DefaultRule, value: &mut Value) {
    let (path, plain) = rule;
    // Byte by byte: a substring search made for long texts is slower for a word.
    let Some(dot) = path.bytes().position(|byte| byte == b'.') else {
        set_if_absent(value, path, plain.value());
        return;
    };
    let (head, rest) = (&path[..dot], &path[dot + 1..]);
    if let Some(list) = head.strip_suffix("[]") {
        for item in items(value, list) {
            apply_rule((rest, plain), item);
        }
    } else if let Some(inner) = value.get_mut(head) {
        apply_rule((rest, plain), inner);
    }
}

/// Applies those of many rules whose first field is present. These are few: a volume has one source of thirty. Each
/// rule leads into a field, and none starts with a list.
pub(super) fn apply_matching(rules: &[DefaultRule], value: &mut Value) {
    let Value::Object(fields) = value else { return };
    for (key, inner) in fields {
        for (path, plain) in rules {
            let rest = path
                .strip_prefix(key.as_str())
                .and_then(|rest| rest.strip_prefix('.'));
            if let Some(rest) = rest {
                apply_rule((rest, *plain), inner);
            }
        }
    }
}

/// Moves `stringData`, which is write-only, into `data`.
fn fill_secret(secret: &mut Value) {
    let Some(Value::Object(texts)) = secret
        .as_object_mut()
        .and_then(|fields| fields.remove("stringData"))
    else {
        return;
    };
    set_if_absent(secret, "data", json!({}));
    for (key, text) in texts {
        let text = text.as_str().unwrap_or_default();
        secret["data"][key] = base64::engine::general_purpose::STANDARD.encode(text).into();
    }
}

/// A limit range's defaults derive from its bounds.
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
            set_if_absent(limit, to, json!({}));
            for (resource, amount) in amounts {
                set_if_absent(&mut limit[to], &resource, amount);
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
            set_if_absent(subject, "apiGroup", RBAC);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_applies_to_every_item_and_overwrites_nothing() {
        let mut value = json!({"spec": {"ports": [{}, {"protocol": "UDP"}, {"protocol": null}]}});
        apply_rule(("spec.ports[].protocol", DefaultValue::Text("TCP")), &mut value);
        apply_rule(("spec.absent.field", DefaultValue::Number(1)), &mut value);
        assert_eq!(
            value,
            json!({"spec": {"ports": [{"protocol": "TCP"}, {"protocol": "UDP"}, {"protocol": "TCP"}]}})
        );
    }

    #[test]
    fn string_data_moves_into_data() {
        let mut secret = json!({"stringData": {"a": "hi"}, "data": {"a": "eA==", "b": "eQ=="}});
        fill_secret(&mut secret);
        assert_eq!(secret, json!({"data": {"a": "aGk=", "b": "eQ=="}}));
    }
}
