//! Selects parts of a response that is too large to record in full, such as a document of all schemas.

use serde_json::{Map, Value};

/// Reference prefix of shared parameters in an OpenAPI v2 document.
const PARAMETERS_REF: &str = "#/parameters/";

/// Returns the parts of a document at these JSON pointers, without those that do not exist.
///
/// References to shared parameters are resolved, because their names contain hashes of the server's descriptions.
pub(crate) fn pick(document: &Value, pointers: &[String]) -> Value {
    let found = pointers.iter().filter_map(|pointer| {
        let part = document.pointer(pointer)?;
        Some((pointer.clone(), resolve_references(part, &document["parameters"])))
    });
    Value::Object(found.collect::<Map<_, _>>())
}

fn resolve_references(value: &Value, shared: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let target = fields.get("$ref").and_then(Value::as_str);
            let target = target.and_then(|target| shared.get(target.strip_prefix(PARAMETERS_REF)?));
            target.cloned().unwrap_or_else(|| {
                let resolve =
                    |(key, part): (&String, &Value)| (key.clone(), resolve_references(part, shared));
                Value::Object(fields.iter().map(resolve).collect())
            })
        }
        Value::Array(items) => items
            .iter()
            .map(|item| resolve_references(item, shared))
            .collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_to_shared_parameters_are_resolved() {
        let document = json!({
            "paths": {"/a": {"parameters": [{"$ref": "#/parameters/x-1"}, {"$ref": "#/definitions/b"}]}},
            "parameters": {"x-1": {"name": "x"}},
        });
        let pointers = ["/paths/~1a/parameters", "/nothing"].map(str::to_owned);
        assert_eq!(
            pick(&document, &pointers),
            json!({"/paths/~1a/parameters": [{"name": "x"}, {"$ref": "#/definitions/b"}]})
        );
    }
}
