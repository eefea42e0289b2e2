//! Short descriptions of built-in kinds and fields, for `kubectl explain`.
//!
//! Those of Kubernetes are not ours to ship. `descriptions.txt` has the fields that people look up most, in our own words,
//! and every kind says where to read about the others.

use std::{collections::HashMap, sync::LazyLock};

use serde_json::Value;

const TEXT: &str = include_str!("descriptions.txt");

/// Where all fields are described.
const REFERENCE: &str = "https://kubernetes.io/docs/reference/kubernetes-api/";

/// By `Type` and `Type.field`.
static DESCRIPTIONS: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
    let lines = TEXT.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(": ")).collect()
});

/// Adds the descriptions of a built-in schema, whose full name is `name`, and of its fields.
pub(super) fn describe(name: &str, is_kind: bool, schema: &mut Value) {
    let short = name.rsplit('.').next().unwrap_or_default();
    let own = DESCRIPTIONS.get(short).copied();
    let description = match (own, is_kind) {
        (Some(own), true) => Some(format!("{own} All fields: {REFERENCE}")),
        (Some(own), false) => Some(own.to_owned()),
        (None, true) => Some(format!("Described at {REFERENCE}")),
        (None, false) => None,
    };
    if let Some(description) = description {
        schema["description"] = description.into();
    }
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (field, property) in properties.into_iter().flatten() {
        let key = format!("{short}.{field}");
        if let (Some(description), Some(property)) = (DESCRIPTIONS.get(&*key), property.as_object_mut()) {
            property.insert("description".to_owned(), (*description).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::registry::built_in_schemas;

    #[test]
    fn every_description_is_of_an_existing_type_or_field() {
        let mut known = HashSet::new();
        for (name, schema) in &built_in_schemas().schemas {
            let short = name.rsplit('.').next().unwrap_or_default();
            known.insert(short.to_owned());
            let properties = schema["properties"].as_object().into_iter().flatten();
            known.extend(properties.map(|(field, _)| format!("{short}.{field}")));
        }
        let unknown: Vec<_> = DESCRIPTIONS.keys().filter(|key| !known.contains(**key)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        let lines = TEXT
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        assert_eq!(
            lines.count(),
            DESCRIPTIONS.len(),
            "each is there once, as `Type.field: text`"
        );
    }
}
