//! Checking an object against its schema, with the words that the real server uses.

use std::collections::HashSet;

use serde_json::Value;

use super::{Limits, ListType, Type, View};

/// One thing that is wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldError {
    /// `spec.containers[0].image`
    pub(crate) field: String,
    pub(crate) problem: Problem,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Problem {
    /// A field that must be there is not; with a remark or none.
    Required(String),
    /// The value is not allowed, and why.
    Invalid(Value, String),
    /// The value has another JSON type.
    WrongType(Value, String),
    /// The value is not one of these.
    NotSupported(Value, Vec<Value>),
    /// The value may not be there twice.
    Duplicate(Value),
    /// As `Invalid`, `NotSupported` and `Duplicate`, where the message shows a value in an order that JSON trees do
    /// not keep.
    InvalidText(String, String),
    NotSupportedText(String, Vec<Value>),
    DuplicateText(String),
    /// The value names something that is not there.
    NotFound(Value),
    /// The field must not be set, and why.
    Forbidden(String),
    /// The value is longer than this many bytes, items or characters.
    TooLong(u64),
    /// More than this many items.
    TooMany(usize, u64),
}

impl FieldError {
    pub(crate) fn new(field: impl Into<String>, problem: Problem) -> Self {
        Self {
            field: field.into(),
            problem,
        }
    }

    /// The machine-readable reason (`FieldValueInvalid`).
    pub(crate) fn reason(&self) -> &'static str {
        match self.problem {
            Problem::Required(_) => "FieldValueRequired",
            Problem::Invalid(..) | Problem::InvalidText(..) => "FieldValueInvalid",
            Problem::NotFound(_) => "FieldValueNotFound",
            Problem::WrongType(..) => "FieldValueTypeInvalid",
            Problem::NotSupported(..) | Problem::NotSupportedText(..) => "FieldValueNotSupported",
            Problem::Duplicate(_) | Problem::DuplicateText(_) => "FieldValueDuplicate",
            Problem::Forbidden(_) => "FieldValueForbidden",
            Problem::TooLong(_) => "FieldValueTooLong",
            Problem::TooMany(..) => "FieldValueTooMany",
        }
    }

    /// The text without the field (`Invalid value: 0: must be positive`).
    pub(crate) fn message(&self) -> String {
        match &self.problem {
            Problem::Required(remark) if remark.is_empty() => "Required value".to_owned(),
            Problem::Required(remark) => format!("Required value: {remark}"),
            Problem::Invalid(value, why) | Problem::WrongType(value, why) => {
                format!("Invalid value: {}: {why}", shown(value))
            }
            Problem::InvalidText(text, why) => format!("Invalid value: {text}: {why}"),
            Problem::NotSupported(value, choices) => unsupported(&shown(value), choices),
            Problem::NotSupportedText(text, choices) => unsupported(text, choices),
            Problem::Duplicate(value) => format!("Duplicate value: {}", shown(value)),
            Problem::DuplicateText(text) => format!("Duplicate value: {text}"),
            Problem::NotFound(value) => format!("Not found: {}", shown(value)),
            Problem::Forbidden(why) => format!("Forbidden: {why}"),
            Problem::TooLong(limit) => format!("Too long: may not be more than {limit} bytes"),
            Problem::TooMany(count, limit) => format!("Too many: {count}: must have at most {limit} items"),
        }
    }
}

fn unsupported(value: &str, choices: &[Value]) -> String {
    let choices: Vec<_> = choices.iter().map(shown).collect();
    format!(
        "Unsupported value: {value}: supported values: {}",
        choices.join(", ")
    )
}

/// Values stand in messages as JSON, objects and lists included.
fn shown(value: &Value) -> String {
    value.to_string()
}

/// Everything that is wrong with `value`, in the order of its fields.
pub(crate) fn validate(schema: View<'_>, value: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, value, path, &mut errors);
    errors
}

fn walk(schema: View<'_>, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let facts = schema.facts();
    if value.is_null() && facts.nullable {
        return;
    }
    if !fits(facts.kind, value) {
        let wanted = type_name(facts.kind);
        let found = found_type(value);
        errors.push(FieldError::new(
            path,
            Problem::WrongType(
                Value::String(found.to_owned()),
                format!("{path} in body must be of type {wanted}: {found:?}"),
            ),
        ));
        return;
    }
    if !facts.choices.is_empty() && !facts.choices.contains(value) {
        errors.push(FieldError::new(
            path,
            Problem::NotSupported(value.clone(), facts.choices.clone()),
        ));
    }
    if let Some(limits) = &facts.limits {
        check_limits(limits, value, path, errors);
    }
    match value {
        Value::Object(fields) => {
            for name in facts
                .required
                .iter()
                .filter(|name| !fields.contains_key(&***name))
            {
                errors.push(FieldError::new(
                    join(path, name),
                    Problem::Required(String::new()),
                ));
            }
            for (name, field) in fields {
                if let Some(property) = schema.property(name) {
                    walk(property, field, &join(path, name), errors);
                } else if let Some(inner) = schema.additional() {
                    walk(inner, field, &join(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = schema.items() {
                for (index, item) in items.iter().enumerate() {
                    walk(inner, item, &format!("{path}[{index}]"), errors);
                }
            }
            check_unique(&facts.list, items, path, errors);
        }
        _ => {}
    }
}

fn check_limits(limits: &Limits, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut complain = |what: String| {
        errors.push(FieldError::new(
            path,
            Problem::Invalid(value.clone(), format!("{path} in body {what}")),
        ));
    };
    if let Some(number) = value.as_f64() {
        if let Some(minimum) = limits.minimum {
            if limits.exclusive_minimum && number <= minimum {
                complain(format!("should be greater than {minimum}"));
            } else if number < minimum {
                complain(format!("should be greater than or equal to {minimum}"));
            }
        }
        if let Some(maximum) = limits.maximum {
            if limits.exclusive_maximum && number >= maximum {
                complain(format!("should be less than {maximum}"));
            } else if number > maximum {
                complain(format!("should be less than or equal to {maximum}"));
            }
        }
        if let Some(factor) = limits
            .multiple_of
            .filter(|factor| (number / factor).fract() != 0.0)
        {
            complain(format!("should be a multiple of {factor}"));
        }
    }
    if let Some(text) = value.as_str() {
        let length = text.chars().count() as u64;
        if let Some(least) = limits.min_length.filter(|least| length < *least) {
            complain(format!("should be at least {least} chars long"));
        }
        if let Some((pattern, _)) = limits.pattern.as_ref().filter(|(_, regex)| !regex.is_match(text)) {
            complain(format!("should match '{pattern}'"));
        }
        if let Some(most) = limits.max_length.filter(|most| length > *most) {
            errors.push(FieldError::new(path, Problem::TooLong(most)));
        }
    }
    let mut complain = |what: String| {
        errors.push(FieldError::new(
            path,
            Problem::Invalid(value.clone(), format!("{path} in body {what}")),
        ));
    };
    if let Some(items) = value.as_array() {
        if let Some(least) = limits.min_items.filter(|least| (items.len() as u64) < *least) {
            complain(format!("should have at least {least} items"));
        }
        if let Some(most) = limits.max_items.filter(|most| items.len() as u64 > *most) {
            errors.push(FieldError::new(path, Problem::TooMany(items.len(), most)));
        }
    } else if let Some(fields) = value.as_object() {
        if let Some(least) = limits
            .min_properties
            .filter(|least| (fields.len() as u64) < *least)
        {
            complain(format!("should have at least {least} properties"));
        }
        if let Some(most) = limits.max_properties.filter(|most| fields.len() as u64 > *most) {
            complain(format!("should have at most {most} properties"));
        }
    }
}

fn check_unique(list: &ListType, items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let identity = |item: &Value| match list {
        ListType::Atomic => None,
        ListType::Set => Some(item.clone()),
        ListType::Map(keys) => Some(Value::Object(
            keys.iter()
                .filter_map(|key| Some((key.to_string(), item.get(&**key)?.clone())))
                .collect(),
        )),
    };
    let mut seen = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let Some(identity) = identity(item) else { return };
        if !seen.insert(identity.to_string()) {
            errors.push(FieldError::new(
                format!("{path}[{index}]"),
                Problem::Duplicate(identity),
            ));
        }
    }
}

fn fits(kind: Type, value: &Value) -> bool {
    let integral = || value.as_f64().is_some_and(|number| number.fract() == 0.0);
    match kind {
        Type::Any => true,
        Type::Object => value.is_object(),
        Type::Array => value.is_array(),
        Type::String => value.is_string(),
        Type::Integer => integral(),
        Type::Number => value.is_number(),
        Type::Boolean => value.is_boolean(),
        Type::IntOrString => value.is_string() || integral(),
        Type::NumberOrString => value.is_string() || value.is_number(),
    }
}

fn type_name(kind: Type) -> &'static str {
    match kind {
        Type::Any => "any",
        Type::Object => "object",
        Type::Array => "array",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::IntOrString => "integer,string",
        Type::NumberOrString => "number,string",
    }
}

fn found_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::Schema, *};

    #[test]
    fn each_wrong_field_is_told_in_the_servers_words() {
        let schema = Schema::of_crd(&json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"},
            "replicas": {"type": "integer", "minimum": 1, "maximum": 10},
            "color": {"type": "string", "enum": ["red", "blue"]},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                      "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
            "code": {"type": "string", "pattern": "^a+$", "maxLength": 3},
            "either": {"x-kubernetes-int-or-string": true},
        }}))
        .expect("valid");
        let said = |value: Value| {
            let errors = validate(schema.view(), &value, "spec");
            errors
                .iter()
                .map(|e| format!("{}: {}", e.field, e.message()))
                .collect::<Vec<_>>()
        };
        let cases = [
            (json!({"name": "x", "replicas": 3, "either": "50%"}), vec![]),
            (json!({}), vec!["spec.name: Required value"]),
            (
                json!({"name": "x", "replicas": 0}),
                vec![
                    "spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal to 1",
                ],
            ),
            (
                json!({"name": "x", "replicas": "3"}),
                vec![
                    r#"spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string""#,
                ],
            ),
            (
                json!({"name": "x", "color": "green"}),
                vec![r#"spec.color: Unsupported value: "green": supported values: "red", "blue""#],
            ),
            (
                json!({"name": "x", "ports": [{"k": "a"}, {"k": "b"}, {"k": "a"}]}),
                vec![r#"spec.ports[2]: Duplicate value: {"k":"a"}"#],
            ),
            (
                json!({"name": "x", "code": "bbbb"}),
                vec![
                    r#"spec.code: Invalid value: "bbbb": spec.code in body should match '^a+$'"#,
                    "spec.code: Too long: may not be more than 3 bytes",
                ],
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(said(value.clone()), expected, "{value}");
        }
    }
}
