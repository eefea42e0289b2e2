//! Lists whose items must be unique: sets, and maps by key.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{ErrorReport, FieldError, ListType, Problem, SchemaView};
use crate::field_path::FieldPath;

/// Reports duplicate items of sets and maps in a custom resource.
pub(crate) fn check_lists(schema: SchemaView<'_>, object: &Map<String, Value>) -> Vec<FieldError> {
    let mut errors = ErrorReport::default();
    fields(schema, object, &FieldPath::Root, &mut errors);
    errors.into_errors()
}

fn fields(
    schema: SchemaView<'_>,
    object: &Map<String, Value>,
    path: &FieldPath<'_>,
    errors: &mut ErrorReport,
) {
    for (name, field) in object {
        if let Some(property) = schema.property(name) {
            walk(property, field, &path.child(name), errors);
        } else if let Some(additional) = schema.additional() {
            walk(additional, field, &path.key(name), errors);
        }
    }
}

fn walk(schema: SchemaView<'_>, value: &Value, path: &FieldPath<'_>, errors: &mut ErrorReport) {
    match value {
        Value::Object(object) => fields(schema, object, path, errors),
        Value::Array(items) => {
            check(&schema.node().list_type, items, path, errors);
            if let Some(inner) = schema.items() {
                for (index, item) in items.iter().enumerate() {
                    walk(inner, item, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn check(list: &ListType, items: &[Value], path: &FieldPath<'_>, errors: &mut ErrorReport) {
    let mut complain = |index: usize, problem: &dyn Fn() -> Problem| {
        errors.add(|| FieldError::new(path.index(index).to_string(), problem()));
    };
    let identities: Vec<Value> = match list {
        ListType::Atomic => return,
        ListType::Set => items.to_vec(),
        ListType::Map(keys) => {
            if let Some(index) = items.iter().position(|item| !item.is_object() && !item.is_null()) {
                let why = "must be an object for an array of list-type map";
                return complain(index, &|| Problem::Invalid(items[index].clone(), why.to_owned()));
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
            complain(index, &|| Problem::Duplicate(identity.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::Schema, *};

    #[test]
    fn duplicates_below_a_long_key_are_limited() {
        let list = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}});
        let schema =
            Schema::from_crd(&json!({"type": "object", "additionalProperties": list})).expect("valid");
        let items: Vec<u32> = (0..2000).chain(0..2000).collect();
        let value = json!({"x".repeat(100_000): items});
        let errors = check_lists(schema.view(), value.as_object().expect("an object"));
        let count: usize = errors.iter().map(FieldError::count).sum();
        assert_eq!((errors.len(), count), (4, 2000));
    }

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
