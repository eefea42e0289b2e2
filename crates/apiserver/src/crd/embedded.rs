//! Embedded resources (`x-kubernetes-embedded-resource`): they have a kind, and metadata that is validated like any
//! other.

use serde_json::{Map, Value};
use windlass_api::naming;

use crate::{
    field_path::FieldPath,
    json::ReportedPaths,
    object::Object,
    registry::object_meta,
    schema::{ErrorReport, FieldError, Problem, SchemaView, Source, decode},
    validation,
};

/// How to handle kinds and metadata of the wrong JSON type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnMalformed {
    /// Reject the object.
    Reject,
    /// Drop them: the object was stored before its schema described them.
    Drop,
}

/// Normalizes the metadata of embedded resources. Returns the sorted paths of unknown metadata fields, or why the
/// object is rejected.
pub(super) fn coerce_embedded(
    schema: SchemaView<'_>,
    object: &mut Map<String, Value>,
    malformed: OnMalformed,
) -> Result<Vec<String>, String> {
    let mut coercer = Coercer {
        malformed,
        unknown: ReportedPaths::default(),
    };
    coercer.fields(schema, object, &FieldPath::Root)?;
    Ok(coercer.unknown.into_sorted_paths())
}

struct Coercer {
    malformed: OnMalformed,
    unknown: ReportedPaths,
}

impl Coercer {
    fn fields(
        &mut self,
        schema: SchemaView<'_>,
        object: &mut Map<String, Value>,
        path: &FieldPath<'_>,
    ) -> Result<(), String> {
        if schema.node().embedded {
            self.resource(object, path)?;
        }
        for (name, field) in object {
            if let Some(property) = schema.property(name) {
                self.value(property, field, &path.child(name))?;
            } else if let Some(additional) = schema.additional() {
                self.value(additional, field, &path.key(name))?;
            }
        }
        Ok(())
    }

    fn value(
        &mut self,
        schema: SchemaView<'_>,
        value: &mut Value,
        path: &FieldPath<'_>,
    ) -> Result<(), String> {
        match value {
            Value::Object(object) => self.fields(schema, object, path),
            Value::Array(items) => {
                let Some(inner) = schema.items() else {
                    return Ok(());
                };
                for (index, item) in items.iter_mut().enumerate() {
                    self.value(inner, item, &path.index(index))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn resource(&mut self, object: &mut Map<String, Value>, path: &FieldPath<'_>) -> Result<(), String> {
        for key in ["apiVersion", "kind"] {
            match object.get(key) {
                None | Some(Value::String(_)) => {}
                Some(_) if self.malformed == OnMalformed::Drop => {
                    object.remove(key);
                }
                Some(other) => {
                    return Err(invalid_value_message(&path.child(key), other, "must be a string"));
                }
            }
        }
        let Some(metadata) = object.get_mut("metadata") else {
            return Ok(());
        };
        let given = metadata.clone();
        match coerce_metadata(metadata, self.malformed) {
            Ok(unknown) => {
                self.unknown.add_below(&path.child("metadata"), &unknown);
                Ok(())
            }
            Err(why) => Err(invalid_value_message(&path.child("metadata"), &given, &why)),
        }
    }
}

/// Decodes metadata like Go. Returns the paths of unknown fields.
pub(super) fn coerce_metadata(metadata: &mut Value, malformed: OnMalformed) -> Result<Vec<String>, String> {
    let given = metadata.clone();
    match decode(object_meta().view(), metadata, Source::Json) {
        Ok(unknown) => Ok(unknown),
        Err(why) if malformed == OnMalformed::Reject => Err(why),
        Err(_) => {
            // Field by field, so that only the malformed fields are dropped.
            let fields = match given {
                Value::Object(fields) => fields,
                _ => Map::new(),
            };
            let readable = fields.into_iter().filter(|(name, field)| {
                let mut alone = Value::Object([(name.clone(), field.clone())].into_iter().collect());
                decode(object_meta().view(), &mut alone, Source::Json).is_ok()
            });
            *metadata = readable.collect::<Map<_, _>>().into();
            decode(object_meta().view(), metadata, Source::Json)
        }
    }
}

fn invalid_value_message(field: &FieldPath<'_>, value: &Value, why: &str) -> String {
    let error = FieldError::new(field.to_string(), Problem::Invalid(value.clone(), why.to_owned()));
    format!("{field}: {}", error.message())
}

/// Validates the kinds and metadata of embedded resources. `is_resource`: the object itself is one.
pub(super) fn check_embedded(
    schema: SchemaView<'_>,
    object: &Map<String, Value>,
    path: &FieldPath<'_>,
    is_resource: bool,
) -> Vec<FieldError> {
    let mut errors = ErrorReport::default();
    check_fields(schema, object, path, is_resource, &mut errors);
    errors.into_errors()
}

fn check_fields(
    schema: SchemaView<'_>,
    object: &Map<String, Value>,
    path: &FieldPath<'_>,
    is_resource: bool,
    errors: &mut ErrorReport,
) {
    if is_resource {
        check_resource(object, path, errors);
    }
    for (name, field) in object {
        if let Some(property) = schema.property(name) {
            check_value(property, field, &path.child(name), errors);
        } else if let Some(additional) = schema.additional() {
            check_value(additional, field, &path.key(name), errors);
        }
    }
}

fn check_value(schema: SchemaView<'_>, value: &Value, path: &FieldPath<'_>, errors: &mut ErrorReport) {
    match value {
        Value::Object(object) => check_fields(schema, object, path, schema.node().embedded, errors),
        Value::Array(items) => {
            if let Some(inner) = schema.items() {
                for (index, item) in items.iter().enumerate() {
                    check_value(inner, item, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_resource(object: &Map<String, Value>, path: &FieldPath<'_>, errors: &mut ErrorReport) {
    for key in ["apiVersion", "kind"] {
        if !object.contains_key(key) {
            let required = Problem::Required(String::new());
            errors.add(|| FieldError::new(path.child(key).to_string(), required));
        }
    }
    for (name, value) in object {
        let here = path.child(name);
        let mut complain = |value: &Value, why: String| {
            errors.add(|| FieldError::new(here.to_string(), Problem::Invalid(value.clone(), why)));
        };
        match (&**name, value) {
            ("apiVersion" | "kind", Value::String(text)) if text.is_empty() => {
                complain(value, "must not be empty".to_owned());
            }
            ("apiVersion", Value::String(text)) if text.matches('/').count() > 1 => {
                complain(value, format!("unexpected GroupVersion string: {text}"));
            }
            ("apiVersion", Value::String(_)) => {}
            ("kind", Value::String(text)) => {
                let problems = naming::label_1035(&text.to_lowercase());
                if !problems.is_empty() {
                    let why = problems.join(",");
                    complain(
                        value,
                        format!("may have mixed case, but should otherwise match: {why}"),
                    );
                }
            }
            ("apiVersion" | "kind", _) => complain(value, "must be a string".to_owned()),
            ("metadata", Value::Object(fields)) => check_metadata(fields, &here, errors),
            _ => {}
        }
    }
}

/// Validates metadata; a name is not required.
fn check_metadata(fields: &Map<String, Value>, path: &FieldPath<'_>, errors: &mut ErrorReport) {
    let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
    for key in ["generateName", "name"] {
        for why in naming::path_segment(text(key)) {
            let problem = || Problem::Invalid(text(key).into(), why);
            errors.add(|| FieldError::new(path.child(key).to_string(), problem()));
        }
    }
    if !text("namespace").is_empty() {
        for why in naming::label(text("namespace")) {
            let problem = || Problem::Invalid(text("namespace").into(), why);
            errors.add(|| FieldError::new(path.child("namespace").to_string(), problem()));
        }
    }
    let whole = Value::Object(
        [("metadata".to_owned(), fields.clone().into())]
            .into_iter()
            .collect(),
    );
    let object = Object::new(whole).expect("it has metadata");
    for error in validation::check_custom_metadata(&object) {
        errors.add(|| {
            let field = error
                .field
                .strip_prefix("metadata")
                .map(|rest| format!("{path}{rest}"));
            FieldError::new(field.unwrap_or(error.field), error.problem)
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::Schema;

    fn schema() -> Schema {
        Schema::from_crd(&json!({"type": "object", "properties": {
            "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        }}))
        .expect("valid")
    }

    #[test]
    fn embedded_metadata_is_decoded_as_metadata() {
        let mut value =
            json!({"pod": {"kind": "Pod", "metadata": {"name": "x", "other": 1, "creationTimestamp": null}}});
        let object = value.as_object_mut().expect("an object");
        let unknown = coerce_embedded(schema().view(), object, OnMalformed::Reject).expect("readable");
        assert_eq!(unknown, ["pod.metadata.other"]);
        assert_eq!(value, json!({"pod": {"kind": "Pod", "metadata": {"name": "x"}}}));
    }

    #[test]
    fn malformed_embedded_metadata_is_rejected_or_dropped() {
        let given = json!({"pod": {"kind": 5, "metadata": {"name": "x", "labels": 7}}});
        let mut value = given.clone();
        let object = value.as_object_mut().expect("an object");
        let refused = coerce_embedded(schema().view(), object, OnMalformed::Reject);
        assert_eq!(
            refused,
            Err("pod.kind: Invalid value: 5: must be a string".to_owned())
        );
        let mut value = given;
        let object = value.as_object_mut().expect("an object");
        coerce_embedded(schema().view(), object, OnMalformed::Drop).expect("readable");
        assert_eq!(value, json!({"pod": {"metadata": {"name": "x"}}}));
    }

    #[test]
    fn embedded_resource_needs_a_kind() {
        let value = json!({"pod": {"apiVersion": "", "metadata": {"labels": {"a": "-"}}}});
        let errors = check_embedded(
            schema().view(),
            value.as_object().expect("an object"),
            &FieldPath::Root,
            false,
        );
        let fields: Vec<_> = errors.iter().map(|e| &*e.field).collect();
        assert_eq!(fields, ["pod.kind", "pod.apiVersion", "pod.metadata.labels"]);
    }
}
