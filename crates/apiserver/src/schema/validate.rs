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

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{
    FieldError, ListType, NodeId, Problem, SchemaView, formats, number,
    result::{Place, Report, ValidationResult},
};

/// Returns the errors of `value` that `old` does not have. `at` is the field that contains it, empty for the whole
/// object.
pub(crate) fn validate(
    schema: SchemaView<'_>,
    value: &Value,
    old: Option<&Value>,
    at: &str,
) -> Vec<FieldError> {
    let report = Report::new(at);
    check(schema, value, old, Place::root(&report));
    report.into_inner().into_errors()
}

/// Validates a value, ignoring the errors if it is unchanged.
fn check(schema: SchemaView<'_>, value: &Value, old: Option<&Value>, place: Place<'_>) -> ValidationResult {
    if old != Some(value) {
        return check_strictly(schema, value, old, place);
    }
    let mut outcome = check_strictly(schema, value, old, place.unreported());
    outcome.is_valid = true;
    outcome
}

fn check_strictly(
    schema: SchemaView<'_>,
    value: &Value,
    old: Option<&Value>,
    place: Place<'_>,
) -> ValidationResult {
    let mut outcome = ValidationResult::default();
    if value.is_null() {
        check_type(schema, value, place, &mut outcome);
        check_choices(schema, value, place, &mut outcome);
        return outcome;
    }
    if !schema.types().is_empty() || schema.node().format.is_some() {
        check_type(schema, value, place, &mut outcome);
        outcome.match_count += 1;
    }
    outcome.merge(&check_alternatives(schema, value, old, place));
    outcome.match_count += 1;
    match value {
        Value::String(text) => {
            check_text(schema, text, place, &mut outcome);
            outcome.match_count += 1;
            if let Some(format) = &schema.node().format
                && let Some(good) = formats::check(format, text)
            {
                if !good {
                    outcome.wrong_type(place, format, text);
                }
                outcome.match_count += 1;
            }
        }
        Value::Number(given) => {
            outcome.merge(&number::check(schema, given, place));
            outcome.match_count += 2;
        }
        Value::Array(items) => {
            outcome.merge(&check_items(schema, items, old, place));
            outcome.match_count += 2;
        }
        _ => {}
    }
    check_choices(schema, value, place, &mut outcome);
    outcome.match_count += 1;
    if let Value::Object(fields) = value {
        outcome.merge(&check_fields(schema, fields, old, place));
        outcome.match_count += 1;
    }
    outcome.match_count += 1;
    outcome
}

/// Counts a match if the type fits.
fn check_type(schema: SchemaView<'_>, value: &Value, place: Place<'_>, outcome: &mut ValidationResult) {
    let types = schema.types();
    let wanted = || types.join(",");
    let has = |name: &str| types.contains(&name);
    if value.is_null() {
        if !types.is_empty() && !schema.node().nullable {
            outcome.wrong_type(place, &wanted(), "null");
        } else {
            outcome.match_count += 1;
        }
        return;
    }
    let (found, size) = found_type(value);
    let whole = found == "number" && value.as_f64().is_some_and(number::is_whole);
    let fits = has(found) || (whole && has("integer")) || (found == "integer" && has("number"));
    let textual = matches!(value, Value::String(_) | Value::Array(_));
    match schema.node().format.as_deref() {
        Some(format) if !textual && !fits && size != format => outcome.wrong_type(place, format, size),
        // A format replaces the type check of a string; the library does the same for lists.
        Some(_) if textual && !has("number") && !has("integer") => outcome.match_count += 1,
        _ if !fits => outcome.wrong_type(place, &wanted(), found),
        _ => outcome.match_count += 1,
    }
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
    place: Place<'_>,
) -> ValidationResult {
    let mut outcome = ValidationResult::default();
    let Some(nested) = &schema.node().nested else {
        outcome.match_count = 1;
        return outcome;
    };
    // The nested schemas describe the same value, so `old` applies; but ratcheting does not.
    let reported = |id: &NodeId| check_strictly(schema.at(*id), value, old, place);
    let tried = |id: &NodeId| check_strictly(schema.at(*id), value, old, place.unreported());
    // The errors of an alternative are reported only if it is the closest: it is validated again then.
    let closest = |(id, result): (&NodeId, ValidationResult)| {
        if place.is_reported() { reported(id) } else { result }
    };
    if !nested.any_of.is_empty() {
        match valid_or_closest(nested.any_of.iter().map(|id| (id, tried(id)))) {
            Ok(fitting) => outcome.merge(&fitting),
            Err(found) => {
                outcome.invalid_without_field(place, || {
                    format!(
                        "{:?} must validate at least one schema (anyOf)",
                        place.to_string()
                    )
                });
                outcome.merge(&closest(found));
            }
        }
    }
    if !nested.one_of.is_empty() {
        let mut results: Vec<_> = nested.one_of.iter().map(|id| (id, tried(id))).collect();
        let fitting = results.iter().filter(|(_, result)| result.is_valid).count();
        if fitting == 1 {
            results.retain(|(_, result)| result.is_valid);
            outcome.merge(&results[0].1);
        } else {
            outcome.invalid_without_field(place, || {
                let found = match fitting {
                    0 => "Found none valid".to_owned(),
                    count => format!("Found {count} valid alternatives"),
                };
                let path = place.to_string();
                format!("{path:?} must validate one and only one schema (oneOf). {found}")
            });
            if fitting == 0
                && let Err(found) = valid_or_closest(results.into_iter())
            {
                outcome.merge(&closest(found));
            }
        }
    }
    if !nested.all_of.is_empty() {
        let mut fitting = 0;
        for id in &nested.all_of {
            let result = reported(id);
            fitting += usize::from(result.is_valid);
            outcome.merge(&result);
        }
        if fitting < nested.all_of.len() {
            outcome.invalid_without_field(place, || {
                let none = if fitting == 0 { ". None validated" } else { "" };
                let path = place.to_string();
                format!("{path:?} must validate all the schemas (allOf){none}")
            });
        }
    }
    if nested.not.as_ref().is_some_and(|not| tried(not).is_valid) {
        outcome.invalid_without_field(place, || {
            format!("{:?} must not validate the schema (not)", place.to_string())
        });
    }
    outcome.match_count += 1;
    outcome
}

/// The first result without errors, or the closest alternative. There is at least one.
fn valid_or_closest<'a>(
    results: impl Iterator<Item = (&'a NodeId, ValidationResult)>,
) -> Result<ValidationResult, (&'a NodeId, ValidationResult)> {
    let mut best: Option<(&NodeId, ValidationResult)> = None;
    for (id, result) in results {
        if result.is_valid {
            return Ok(result);
        }
        if best
            .as_ref()
            .is_none_or(|(_, best)| result.match_count > best.match_count)
        {
            best = Some((id, result));
        }
    }
    best.map_or_else(|| Ok(ValidationResult::default()), Err)
}

/// Only the first error of a string is reported.
fn check_text(schema: SchemaView<'_>, text: &str, place: Place<'_>, outcome: &mut ValidationResult) {
    let Some(limits) = &schema.node().limits else {
        return;
    };
    let length = text.chars().count() as u64;
    if let Some(most) = limits.max_length.filter(|most| length > *most) {
        let what = || format!("should be at most {most} chars long");
        outcome.problem(place, what, || Problem::TooLong(most));
    } else if let Some(least) = limits.min_length.filter(|least| length < *least) {
        let why = || format!("{place} in body should be at least {least} chars long");
        outcome.invalid(place, text, why);
    } else if let Some(pattern) = &limits.pattern {
        if !place.may_match(pattern, text) {
            outcome.invalid(place, text, || {
                format!("{place} in body is too long to match '{}'", pattern.text())
            });
        } else if !pattern.is_match(text) {
            outcome.invalid(place, text, || {
                format!("{place} in body should match '{}'", pattern.text())
            });
        }
    }
}

fn check_choices(schema: SchemaView<'_>, value: &Value, place: Place<'_>, outcome: &mut ValidationResult) {
    let choices = &schema.node().enum_values;
    if choices.is_empty() || choices.iter().any(|choice| is_choice(value, choice)) {
        return;
    }
    let what = || {
        format!(
            "should be one of {}",
            crate::golang::format_value(&choices.clone().into())
        )
    };
    outcome.problem(place, what, || {
        let texts = choices.iter().map(|choice| match choice {
            Value::String(_) => choice.clone(),
            other => other.to_string().into(),
        });
        Problem::NotSupported(value.clone(), texts.collect())
    });
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

fn check_items(
    schema: SchemaView<'_>,
    items: &[Value],
    old: Option<&Value>,
    place: Place<'_>,
) -> ValidationResult {
    let mut outcome = ValidationResult::default();
    if let Some(inner) = schema.items() {
        let before = OldItems::new(&schema.node().list_type, old);
        for (index, item) in items.iter().enumerate() {
            let old = before.as_ref().and_then(|before| before.corresponding(item));
            outcome.merge(&check(inner, item, old, place.index(index)));
        }
    }
    let count = items.len();
    if let Some(limits) = &schema.node().limits {
        if let Some(least) = limits.min_items.filter(|least| (count as u64) < *least) {
            let why = || format!("{place} in body should have at least {least} items");
            outcome.invalid(place, count, why);
        }
        if let Some(most) = limits.max_items.filter(|most| count as u64 > *most) {
            let what = || format!("should have at most {most} items");
            outcome.problem(place, what, || Problem::TooMany(count, most));
        }
    }
    outcome
}

/// The items of an old list of the type `map`, by their keys.
struct OldItems<'a> {
    keys: &'a [Box<str>],
    items: HashMap<Vec<Option<&'a Value>>, &'a Value>,
}

impl<'a> OldItems<'a> {
    fn new(list: &'a ListType, old: Option<&'a Value>) -> Option<Self> {
        let (ListType::Map(keys), Some(Value::Array(old))) = (list, old) else {
            return None;
        };
        let mut items = HashMap::with_capacity(old.len());
        for item in old {
            items.entry(identity(keys, item)).or_insert(item);
        }
        Some(Self { keys, items })
    }

    /// The old item that corresponds to a new one.
    fn corresponding(&self, item: &Value) -> Option<&'a Value> {
        self.items.get(&identity(self.keys, item)).copied()
    }
}

/// The values of an item's keys.
fn identity<'v>(keys: &[Box<str>], item: &'v Value) -> Vec<Option<&'v Value>> {
    keys.iter().map(|key| item.get(&**key)).collect()
}

fn check_fields(
    schema: SchemaView<'_>,
    fields: &Map<String, Value>,
    old: Option<&Value>,
    place: Place<'_>,
) -> ValidationResult {
    let mut outcome = ValidationResult::default();
    let facts = schema.node();
    let count = fields.len();
    if let Some(limits) = &facts.limits {
        if let Some(least) = limits.min_properties.filter(|least| (count as u64) < *least) {
            let why = || format!("{place} in body should have at least {least} properties");
            outcome.invalid(place, count, why);
        }
        if let Some(most) = limits.max_properties.filter(|most| count as u64 > *most) {
            let what = || format!("should have at most {most} properties");
            outcome.problem(place, what, || Problem::TooMany(count, most));
        }
    }
    // `apiVersion` and `kind` may have changed by conversion.
    let before = |name: &str| {
        old.filter(|_| !place.is_root() || !matches!(name, "apiVersion" | "kind"))?
            .get(name)
    };
    // The library's paths of what is not a property have a dot in front.
    let dotted = place.dotted();
    for (name, field) in fields.iter().filter(|(name, _)| schema.property(name).is_none()) {
        if facts.forbids_additional() {
            let why = || format!("{} in body is a forbidden property", dotted.child(name));
            outcome.invalid(place, name.as_str(), why);
        } else if let Some(inner) = schema.additional() {
            outcome.merge(&check(inner, field, before(name), dotted.child(name)));
        }
    }
    for (name, field) in fields {
        if let Some(property) = schema.property(name) {
            outcome.merge(&check(property, field, before(name), place.child(name)));
        }
    }
    for name in facts
        .required
        .iter()
        .filter(|name| !fields.contains_key(&***name))
    {
        let problem = || Problem::Required(String::new());
        outcome.problem(dotted.child(name), || "is required".to_owned(), problem);
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
    fn errors_are_limited_in_number_and_length() {
        let schema = json!({"type": "object", "properties": {
            "list": {"type": "array", "items": {"type": "integer"}},
            "map": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "object", "required": ["a"]}}},
        }});
        let many = messages(&schema, &json!({"list": vec![""; 5000]}), None);
        assert_eq!(many.len(), 1001);
        assert_eq!(many[1000], ": and 4000 more errors");
        // Each error has a path of 100 KB.
        let long = json!({"map": {"x".repeat(100_000): vec![json!({}); 2000]}});
        let long = messages(&schema, &long, None);
        assert_eq!(long.len(), 4);
        assert_eq!(long[3], ": and 1997 more errors");
    }

    #[test]
    fn work_of_large_patterns_is_limited() {
        let schema = json!({"type": "object", "properties": {
            "large": {"type": "array", "items": {"type": "string", "pattern": "^\\pL{1,40}$"}},
            "small": {"type": "array", "items": {"type": "string", "pattern": "^a*$"}},
        }});
        let value = json!({"large": vec!["é".repeat(20); 100], "small": ["a".repeat(1_000_000)]});
        assert_eq!(messages(&schema, &value, None), Vec::<String>::new());
        let value = json!({"large": ["a".repeat(1_000_000)]});
        let errors = messages(&schema, &value, None);
        assert!(
            errors[0].ends_with("large[0] in body is too long to match '^\\pL{1,40}$'"),
            "{}",
            &errors[0][1_000_000..]
        );
    }

    /// The errors of a rejected alternative take no room from others.
    #[test]
    fn error_after_many_tried_alternatives_is_reported() {
        let either = json!({"anyOf": [{"type": "integer"}, {"type": "string"}]});
        let schema = json!({"type": "object", "properties": {
            "list": {"type": "array", "items": either}, "number": {"type": "integer"},
        }});
        assert_eq!(
            messages(&schema, &json!({"list": vec!["x"; 5000], "number": "y"}), None),
            [r#"number: Invalid value: "string": number in body must be of type integer: "string""#]
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
