//! Finds the atomic lists, maps and structs in a configuration, which a mutation may not set: it would remove what it does
//! not name.

use serde_json::Value;

use super::{
    PathElement,
    shape::{Granularity, Shape, ValueType},
};

/// The paths of the atomic values in a configuration, at most this many.
pub(crate) fn atomic_values(shape: Shape<'_>, config: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(shape, config, &mut Vec::new(), &mut found);
    found
}

/// The greatest number of paths that a message lists.
const MAX_FOUND: usize = 100;

fn collect<'a>(shape: Shape<'a>, value: &'a Value, path: &mut Vec<PathElement<'a>>, found: &mut Vec<String>) {
    if found.len() >= MAX_FOUND {
        return;
    }
    let is_leaf = matches!(
        shape.granularity(value),
        Granularity::Leaf(ValueType::List | ValueType::Map)
    );
    if is_leaf && (value.is_array() || value.is_object()) {
        found.push(path.iter().map(ToString::to_string).collect());
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(field) = shape.field(name).filter(|field| field.declared) {
                    path.push(PathElement::field(name));
                    collect(field.shape, value, path, found);
                    path.pop();
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX)));
                collect(shape.items(), item, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}
