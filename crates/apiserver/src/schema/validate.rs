//! Validates objects against a CRD's schema, with the real server's messages.
//!
//! The real server validates with a general JSON schema library, and its messages show that: a number of the wrong type
//! is reported twice, an `anyOf` reports the errors of the closest alternative, and messages contain a path where the
//! error's field is empty. So this module reproduces not only *which* values are rejected, but also the order of the
//! checks, how the closest alternative is found (`match_count`), and which messages are duplicates.
//!
//! Updates are ratcheted: errors of a value that is equal to the one it replaces are dropped. List items correspond if
//! their keys are equal (`x-kubernetes-list-type: map`).
//!
//! Validation rules (`x-kubernetes-validations`) are evaluated afterwards, by [`crate::crd`].

use serde_json::{Map, Value};

use super::{FieldError, ListType, NodeId, Problem, SchemaView, formats, number, result::ValidationResult};

/// Returns the errors of `value` that `old` does not have. `at` is the field that contains it, empty for the whole
/// object.
pub(crate) fn validate(
    schema: SchemaView<'_>,
    value: &Value,
    old: Option<&Value>,
    at: &str,
) -> Vec<FieldError> {
    check(schema, value, old, "").into_errors(at)
}

/// Validates a value, ignoring the errors if it is unchanged.
fn check(schema: SchemaView<'_>, value: &Value, old: Option<&Value>, path: &str) -> ValidationResult {
    let mut outcome = check_strictly(schema, value, old, path);
    if old == Some(value) {
        outcome.clear_errors();
    }
    outcome
}

fn check_strictly(
    schema: SchemaView<'_>,
    value: &Value,
    old: Option<&Value>,
    path: &str,
) -> ValidationResult {
    let mut outcome = check_type(schema, value, path);
    if value.is_null() {
        check_choices(schema, value, path, &mut outcome);
        return outcome;
    }
    if schema.types().is_empty() && schema.node().format.is_none() {
        outcome = ValidationResult::default();
    } else {
        outcome.match_count += 1;
    }
    outcome.merge(check_alternatives(schema, value, old, path));
    outcome.match_count += 1;
    match value {
        Value::String(text) => {
            check_text(schema, text, path, &mut outcome);
            outcome.match_count += 1;
            if let Some(format) = &schema.node().format
                && let Some(good) = formats::check(format, text)
            {
                if !good {
                    outcome.wrong_type(path, format, text);
                }
                outcome.match_count += 1;
            }
        }
        Value::Number(given) => {
            outcome.merge(number::check(schema, given, path));
            outcome.match_count += 2;
        }
        Value::Array(items) => {
            outcome.merge(check_items(schema, items, old, path));
            outcome.match_count += 2;
        }
        _ => {}
    }
    check_choices(schema, value, path, &mut outcome);
    outcome.match_count += 1;
    if let Value::Object(fields) = value {
        outcome.merge(check_fields(schema, fields, old, path));
        outcome.match_count += 1;
    }
    outcome.match_count += 1;
    outcome
}

/// Counts a match if the type fits.
fn check_type(schema: SchemaView<'_>, value: &Value, path: &str) -> ValidationResult {
    let mut outcome = ValidationResult::default();
    let types = schema.types();
    let wanted = || types.join(",");
    let has = |name: &str| types.contains(&name);
    if value.is_null() {
        if !types.is_empty() && !schema.node().nullable {
            outcome.wrong_type(path, &wanted(), "null");
        } else {
            outcome.match_count = 1;
        }
        return outcome;
    }
    let (found, size) = found_type(value);
    let whole = found == "number" && value.as_f64().is_some_and(number::is_whole);
    let fits = has(found) || (whole && has("integer")) || (found == "integer" && has("number"));
    let textual = matches!(value, Value::String(_) | Value::Array(_));
    match schema.node().format.as_deref() {
        Some(format) if !textual && !fits && size != format => outcome.wrong_type(path, format, size),
        // A format replaces the type check of a string; the library does the same for lists.
        Some(_) if textual && !has("number") && !has("integer") => outcome.match_count = 1,
        _ if !fits => outcome.wrong_type(path, &wanted(), found),
        _ => outcome.match_count = 1,
    }
    outcome
}

/// The JSON type of a value, and the name of its Go size.
fn found_type(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

fn check_alternatives(
    schema: SchemaView<'_>,
    value: &Value,
    old: Option<&Value>,
    path: &str,
) -> ValidationResult {
    let mut outcome = ValidationResult::default();
    let Some(nested) = &schema.node().nested else {
        outcome.match_count = 1;
        return outcome;
    };
    // The nested schemas describe the same value, so `old` applies; but ratcheting does not.
    let of = |id: &NodeId| check_strictly(schema.at(*id), value, old, path);
    if !nested.any_of.is_empty() {
        match valid_or_closest(nested.any_of.iter().map(of)) {
            Ok(fitting) => outcome.merge(fitting),
            Err(closest) => {
                outcome.invalid_without_field(format!("{path:?} must validate at least one schema (anyOf)"));
                outcome.merge(closest);
            }
        }
    }
    if !nested.one_of.is_empty() {
        let mut results: Vec<_> = nested.one_of.iter().map(of).collect();
        let fitting = results.iter().filter(|result| result.is_valid()).count();
        let found = match fitting {
            0 => "Found none valid".to_owned(),
            count => format!("Found {count} valid alternatives"),
        };
        if fitting == 1 {
            let place = results
                .iter()
                .position(ValidationResult::is_valid)
                .expect("one fits");
            outcome.merge(results.swap_remove(place));
        } else {
            outcome.invalid_without_field(format!(
                "{path:?} must validate one and only one schema (oneOf). {found}"
            ));
            if fitting == 0
                && let Err(closest) = valid_or_closest(results.into_iter())
            {
                outcome.merge(closest);
            }
        }
    }
    if !nested.all_of.is_empty() {
        let results: Vec<_> = nested.all_of.iter().map(of).collect();
        let fitting = results.iter().filter(|result| result.is_valid()).count();
        let all = fitting == results.len();
        for result in results {
            outcome.merge(result);
        }
        if !all {
            let none = if fitting == 0 { ". None validated" } else { "" };
            outcome.invalid_without_field(format!("{path:?} must validate all the schemas (allOf){none}"));
        }
    }
    if nested.not.as_ref().is_some_and(|not| of(not).is_valid()) {
        outcome.invalid_without_field(format!("{path:?} must not validate the schema (not)"));
    }
    outcome.match_count += 1;
    outcome
}

/// The first result without errors, or the closest one.
fn valid_or_closest(
    results: impl Iterator<Item = ValidationResult>,
) -> Result<ValidationResult, ValidationResult> {
    let mut best: Option<ValidationResult> = None;
    for result in results {
        if result.is_valid() {
            return Ok(result);
        }
        if best
            .as_ref()
            .is_none_or(|best| result.match_count > best.match_count)
        {
            best = Some(result);
        }
    }
    Err(best.unwrap_or_default())
}

/// Only the first error of a string is reported.
fn check_text(schema: SchemaView<'_>, text: &str, path: &str, outcome: &mut ValidationResult) {
    let Some(limits) = &schema.node().limits else {
        return;
    };
    let length = text.chars().count() as u64;
    if let Some(most) = limits.max_length.filter(|most| length > *most) {
        let what = format!("should be at most {most} chars long");
        outcome.problem(path, &what, Problem::TooLong(most));
    } else if let Some(least) = limits.min_length.filter(|least| length < *least) {
        let why = format!("{path} in body should be at least {least} chars long");
        outcome.invalid(path, text, why);
    } else if let Some((pattern, _)) = limits.pattern.as_ref().filter(|(_, regex)| !regex.is_match(text)) {
        outcome.invalid(path, text, format!("{path} in body should match '{pattern}'"));
    }
}

fn check_choices(schema: SchemaView<'_>, value: &Value, path: &str, outcome: &mut ValidationResult) {
    let choices = &schema.node().enum_values;
    if choices.is_empty() || choices.iter().any(|choice| is_choice(value, choice)) {
        return;
    }
    let texts: Vec<Value> = choices
        .iter()
        .map(|choice| match choice {
            Value::String(_) => choice.clone(),
            other => other.to_string().into(),
        })
        .collect();
    let what = format!(
        "should be one of {}",
        crate::golang::format_value(&choices.clone().into())
    );
    outcome.problem(path, &what, Problem::NotSupported(value.clone(), texts));
}

/// Numbers are compared in the type of the choice: `3.7` matches the choice `3`.
fn is_choice(value: &Value, choice: &Value) -> bool {
    match (value, choice) {
        (Value::Null, _) => false,
        (Value::Number(given), Value::Number(wanted)) => match wanted.as_i64() {
            #[expect(clippy::cast_possible_truncation, reason = "as Go converts it")]
            Some(wanted) => {
                let given = given
                    .as_i64()
                    .or_else(|| given.as_f64().map(|given| given as i64));
                given == Some(wanted)
            }
            None => given.as_f64() == wanted.as_f64(),
        },
        _ => value == choice,
    }
}

fn check_items(schema: SchemaView<'_>, items: &[Value], old: Option<&Value>, path: &str) -> ValidationResult {
    let mut outcome = ValidationResult::default();
    if let Some(inner) = schema.items() {
        let before = old.and_then(Value::as_array);
        for (index, item) in items.iter().enumerate() {
            let old = before.and_then(|before| corresponding_item(&schema.node().list_type, before, item));
            outcome.merge(check(inner, item, old, &format!("{path}[{index}]")));
        }
    }
    let count = items.len();
    if let Some(limits) = &schema.node().limits {
        if let Some(least) = limits.min_items.filter(|least| (count as u64) < *least) {
            let why = format!("{path} in body should have at least {least} items");
            outcome.invalid(path, count, why);
        }
        if let Some(most) = limits.max_items.filter(|most| count as u64 > *most) {
            let what = format!("should have at most {most} items");
            outcome.problem(path, &what, Problem::TooMany(count, most));
        }
    }
    outcome
}

/// The old item that corresponds to a new one.
fn corresponding_item<'a>(list: &ListType, before: &'a [Value], item: &Value) -> Option<&'a Value> {
    let ListType::Map(keys) = list else { return None };
    before
        .iter()
        .find(|old| keys.iter().all(|key| old.get(&**key) == item.get(&**key)))
}

fn check_fields(
    schema: SchemaView<'_>,
    fields: &Map<String, Value>,
    old: Option<&Value>,
    path: &str,
) -> ValidationResult {
    let mut outcome = ValidationResult::default();
    let facts = schema.node();
    let count = fields.len();
    if let Some(limits) = &facts.limits {
        if let Some(least) = limits.min_properties.filter(|least| (count as u64) < *least) {
            let why = format!("{path} in body should have at least {least} properties");
            outcome.invalid(path, count, why);
        }
        if let Some(most) = limits.max_properties.filter(|most| count as u64 > *most) {
            let what = format!("should have at most {most} properties");
            outcome.problem(path, &what, Problem::TooMany(count, most));
        }
    }
    // `apiVersion` and `kind` may have changed by conversion.
    let before = |name: &str| {
        old.filter(|_| !path.is_empty() || !matches!(name, "apiVersion" | "kind"))?
            .get(name)
    };
    for (name, field) in fields.iter().filter(|(name, _)| schema.property(name).is_none()) {
        if facts.forbids_additional() {
            let why = format!("{path}.{name} in body is a forbidden property");
            outcome.invalid(path, name.as_str(), why);
        } else if let Some(inner) = schema.additional() {
            outcome.merge(check(inner, field, before(name), &format!("{path}.{name}")));
        }
    }
    for (name, field) in fields {
        if let Some(property) = schema.property(name) {
            let place = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            outcome.merge(check(property, field, before(name), &place));
        }
    }
    for name in facts
        .required
        .iter()
        .filter(|name| !fields.contains_key(&***name))
    {
        let place = format!("{path}.{name}");
        outcome.problem(&place, "is required", Problem::Required(String::new()));
    }
    outcome
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::Schema, *};

    fn messages(schema: &Value, value: &Value, old: Option<&Value>) -> Vec<String> {
        let schema = Schema::from_crd(schema).expect("valid");
        let errors = validate(schema.view(), value, old, "");
        errors
            .iter()
            .map(|e| format!("{}: {}", e.field, e.message()))
            .collect()
    }

    #[test]
    fn invalid_fields_have_the_real_servers_messages() {
        let schema = json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"},
            "replicas": {"type": "integer", "minimum": 1, "maximum": 10},
            "color": {"type": "string", "enum": ["red", "blue"]},
            "size": {"type": "integer", "enum": [1, 2]},
            "code": {"type": "string", "pattern": "^a+$", "maxLength": 3},
            "either": {"x-kubernetes-int-or-string": true},
            "when": {"type": "string", "format": "date-time"},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "none": {"type": "object", "additionalProperties": false},
        }});
        let cases = [
            (json!({"name": "x", "replicas": 3, "either": "50%"}), vec![]),
            (json!({}), vec!["name: Required value"]),
            (
                json!({"name": "x", "replicas": "3"}),
                vec![
                    r#"replicas: Invalid value: "string": replicas in body must be of type integer: "string""#,
                ],
            ),
            (
                json!({"name": "x", "color": "green"}),
                vec![r#"color: Unsupported value: "green": supported values: "red", "blue""#],
            ),
            (
                json!({"name": "x", "size": 3}),
                vec![r#"size: Unsupported value: 3: supported values: "1", "2""#],
            ),
            (
                json!({"name": "x", "code": "bbbb"}),
                vec!["code: Too long: may not be more than 3 bytes"],
            ),
            (
                json!({"name": "x", "when": 5}),
                vec![r#"when: Invalid value: "int64": when in body must be of type date-time: "int64""#],
            ),
            (json!({"name": "x", "when": ["not", "a", "time"]}), vec![]),
            (
                json!({"name": "x", "map": {"k": true}}),
                vec![r#"map.k: Invalid value: "boolean": map.k in body must be of type integer: "boolean""#],
            ),
            (
                json!({"name": "x", "none": {"k": 1}}),
                vec![r#"none: Invalid value: "k": none.k in body is a forbidden property"#],
            ),
        ];
        for (value, expected) in cases {
            assert_eq!(messages(&schema, &value, None), expected, "{value}");
        }
    }

    #[test]
    fn any_of_reports_the_closest_alternative() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "anyOf": [{"required": ["a"]}, {"properties": {"b": {"minLength": 3}}}]});
        assert_eq!(
            messages(&schema, &json!({"b": "x"}), None),
            [
                r#"<nil>: Invalid value: "": "" must validate at least one schema (anyOf)"#,
                r#"b: Invalid value: "x": b in body should be at least 3 chars long"#,
            ]
        );
    }

    #[test]
    fn unchanged_invalid_values_are_accepted() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": 5}, "o": {"type": "string"},
            "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                  "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "maximum": 1}}}}}});
        let old = json!({"n": 9, "l": [{"k": "a", "v": 9}]});
        assert_eq!(
            messages(
                &schema,
                &json!({"n": 9, "o": "x", "l": [{"k": "b", "v": 1}, {"k": "a", "v": 9}]}),
                Some(&old)
            ),
            Vec::<String>::new()
        );
        assert_eq!(
            messages(&schema, &json!({"n": 8, "l": [{"k": "b", "v": 9}]}), Some(&old)),
            [
                "l[0].v: Invalid value: 9: l[0].v in body should be less than or equal to 1",
                "n: Invalid value: 8: n in body should be less than or equal to 5",
            ]
        );
    }
}
