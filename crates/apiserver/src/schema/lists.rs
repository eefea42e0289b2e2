//! Lists whose items must be unique: sets, and maps by key.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{FieldError, ListType, Problem, SchemaView};

/// Reports duplicate items of sets and maps in a custom resource.
pub(crate) fn check_lists(schema: SchemaView<'_>, object: &Map<String, Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    fields(schema, object, "", &mut errors);
    errors
}

fn fields(schema: SchemaView<'_>, object: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    for (name, field) in object {
        if let Some(property) = schema.property(name) {
            let here = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            walk(property, field, &here, errors);
        } else if let Some(additional) = schema.additional() {
            walk(additional, field, &format!("{path}[{name}]"), errors);
        }
    }
}

fn walk(schema: SchemaView<'_>, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(object) => fields(schema, object, path, errors),
        Value::Array(items) => {
            check(&schema.node().list_type, items, path, errors);
            if let Some(inner) = schema.items() {
                for (index, item) in items.iter().enumerate() {
                    walk(inner, item, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn check(list: &ListType, items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let mut complain = |index: usize, problem: Problem| {
        errors.push(FieldError::new(format!("{path}[{index}]"), problem));
    };
    let identities: Vec<Value> = match list {
        ListType::Atomic => return,
        ListType::Set => items.to_vec(),
        ListType::Map(keys) => {
            if let Some(index) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
                let why = "must be an object for an array of list-type map".to_owned();
                return complain(index, Problem::Invalid(items[index].clone(), why));
            }
            let key = |item: &Value| {
                keys.iter()
                    .filter_map(|key| Some((key.to_string(), item.get(&**key)?.clone())))
                    .collect::<Map<_, _>>()
            };
            items.iter().map(|item| key(item).into()).collect()
        }
    };
    // An item that occurs three times is reported once, at its second occurrence.
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, identity) in identities.into_iter().enumerate() {
        let times = seen.entry(identity.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            complain(index, Problem::Duplicate(identity));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::Schema, *};

    #[test]
    fn duplicate_item_is_reported_once() {
        let schema = Schema::from_crd(&json!({"type": "object", "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "maps": {"type": "object", "additionalProperties": {"type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["a", "b"], "items": {"type": "object"}}},
        }}))
        .expect("valid");
        let value = json!({
            "set": ["x", "y", "x", "x"],
            "maps": {"m": [{"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 2}, {"a": 1}], "n": ["x"]},
        });
        let errors = check_lists(schema.view(), value.as_object().expect("an object"));
        let said: Vec<_> = errors
            .iter()
            .map(|e| format!("{}: {}", e.field, e.message()))
            .collect();
        assert_eq!(
            said,
            [
                r#"maps[m][1]: Duplicate value: {"a":1,"b":2}"#,
                r#"maps[n][0]: Invalid value: "x": must be an object for an array of list-type map"#,
                r#"set[2]: Duplicate value: "x""#,
            ]
        );
    }
}
