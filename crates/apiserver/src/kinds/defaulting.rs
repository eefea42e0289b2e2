//! Constant defaults, and what kinds with other defaults share.
//!
//! ```text
//!   decoded object ─► constant defaults of its kind (path → value) ─► defaults that depend on other fields ─► admission
//! ```
//!
//! Defaults are applied on every write, not only on creation: a field that a client removes is set again.

use serde_json::{Map, Value};

use crate::{object::Object, registry::Resource};

/// A default value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DefaultValue {
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
pub(crate) type DefaultRule = (&'static str, DefaultValue);

/// Applies the defaults of a kind.
pub(crate) fn apply_defaults(resource: &Resource, object: &mut Object) {
    for rule in resource.facts.defaults {
        apply_rule(*rule, object.tree_mut());
    }
    resource.strategy.set_defaults(object);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

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
}
