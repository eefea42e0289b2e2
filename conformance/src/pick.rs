//! Parts of an answer that is too large to be recorded whole, such as a document of all schemas.

use serde_json::{Map, Value};

/// Where the shared parameters of an OpenAPI v2 document are.
const SHARED: &str = "#/parameters/";

/// The parts of a document at these JSON pointers; what is not there is absent.
///
/// References to shared parameters are followed: their names are hashes of the server's prose.
pub(crate) fn picked(document: &Value, pointers: &[String]) -> Value {
    let found = pointers.iter().filter_map(|pointer| {
        let part = document.pointer(pointer)?;
        Some((pointer.clone(), followed(part, &document["parameters"])))
    });
    Value::Object(found.collect::<Map<_, _>>())
}

fn followed(value: &Value, shared: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let target = fields.get("$ref").and_then(Value::as_str);
            let target = target.and_then(|target| shared.get(target.strip_prefix(SHARED)?));
            target.cloned().unwrap_or_else(|| {
                let followed = |(key, part): (&String, &Value)| (key.clone(), followed(part, shared));
                Value::Object(fields.iter().map(followed).collect())
            })
        }
        Value::Array(items) => items.iter().map(|item| followed(item, shared)).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shared_parameters_stand_where_they_are_used() {
        let document = json!({
            "paths": {"/a": {"parameters": [{"$ref": "#/parameters/x-1"}, {"$ref": "#/definitions/b"}]}},
            "parameters": {"x-1": {"name": "x"}},
        });
        let pointers = ["/paths/~1a/parameters", "/nothing"].map(str::to_owned);
        assert_eq!(
            picked(&document, &pointers),
            json!({"/paths/~1a/parameters": [{"name": "x"}, {"$ref": "#/definitions/b"}]})
        );
    }
}
