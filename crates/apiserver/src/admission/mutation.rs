//! The two kinds of mutations: an apply configuration that is merged, and a JSON patch.

use std::fmt::Display;

use serde_json::{Map as JsonMap, Number, Value as Json};
use windlass_cel::{Map, Value};

use crate::{
    depth,
    fields::{Shape, atomic_values, extract, merge},
    limits::MAX_BODY_BYTES,
    patch::{DoesNotApply, Operation, apply_operations},
};

/// Merges a configuration, `Object{…}`, into an object. Returns the changed object, or kube-apiserver's message.
pub(super) fn apply_configuration(
    shape: Shape<'_>,
    live: &Json,
    configuration: &Value<'_>,
) -> Result<Json, String> {
    let Value::Map(object) = configuration else {
        return Err("unsupported return type from ApplyConfiguration expression".to_owned());
    };
    check_types(configuration, "Object").map_err(|why| format!("type mismatch: {why}"))?;
    let mut patch = map_to_json(object, &mut Budget::default())?;
    for key in ["apiVersion", "kind"] {
        if let Some(value) = live.get(key) {
            patch.insert(key.to_owned(), value.clone());
        }
    }
    let patch = Json::Object(patch);
    check_depth(&patch)?;
    let refuse = |what: &str, why: &dyn Display| Err(format!("error applying patch: {what}: {why}"));
    if let Err(why) = extract(shape, &patch) {
        return refuse("failed to convert patch object to typed object", &why);
    }
    let atomic = atomic_values(shape, &patch);
    if !atomic.is_empty() {
        let why = format!(
            "may not mutate atomic arrays, maps or structs: {}",
            atomic.join(", ")
        );
        return refuse("invalid ApplyConfiguration", &why);
    }
    if let Err(why) = extract(shape, live) {
        return refuse("failed to convert original object to typed object", &why);
    }
    Ok(merge(shape, live, &patch))
}

/// Applies a JSON patch, a list of `JSONPatch{…}`. Returns the changed object, `None` if a test in it failed, or
/// kube-apiserver's message.
pub(super) fn apply_json_patch(live: &Json, patch: &Value<'_>) -> Result<Option<Json>, String> {
    let Value::List(list) = patch else {
        return Err("type mismatch: JSONPatchType.expression should evaluate to array".to_owned());
    };
    let mut budget = Budget::default();
    let mut operations = Vec::with_capacity(list.len());
    for item in list {
        let Ok(Value::Map(item)) = item else {
            return Err(
                "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch".to_owned(),
            );
        };
        let text = |key: &str| match item.field(key) {
            Some(Ok(Value::String(text))) => (*text).to_owned(),
            _ => String::new(),
        };
        let value = match item.field("value") {
            Some(Ok(value)) => {
                if let Some(name) = constructed_type(&value) {
                    let name = name.to_owned();
                    check_types(&value, &name).map_err(|why| format!("type mismatch: {why}"))?;
                }
                to_json(&value, &mut budget)?
            }
            _ => Json::Null,
        };
        let from = Some(text("from")).filter(|from| !from.is_empty());
        operations.push(Operation::new(text("op"), text("path"), from, value));
    }
    let mut changed = live.clone();
    match apply_operations(&operations, &mut changed) {
        Ok(()) => check_depth(&changed).map(|()| Some(changed)),
        Err(DoesNotApply::TestFailed(_)) => Ok(None),
        Err(why) => Err(format!("JSON Patch: {why}")),
    }
}

fn check_depth(value: &Json) -> Result<(), String> {
    if depth::of_value(value) > depth::limit() {
        return Err("the result of the mutation nests too deep".to_owned());
    }
    Ok(())
}

fn constructed_type<'v>(value: &'v Value<'_>) -> Option<&'v str> {
    match value {
        Value::Map(map) => map.constructed_type(),
        _ => None,
    }
}

/// Checks that constructed objects have the types of the places where they are: `Object.spec` in the field `spec`.
fn check_types(value: &Value<'_>, path: &str) -> Result<(), String> {
    let mut problems = Vec::new();
    collect_mismatches(value, path, &mut problems);
    if problems.is_empty() {
        Ok(())
    } else {
        Err(problems.join("\n"))
    }
}

/// The greatest number of problems that a message lists.
const MAX_PROBLEMS: usize = 20;

fn collect_mismatches(value: &Value<'_>, path: &str, problems: &mut Vec<String>) {
    if problems.len() >= MAX_PROBLEMS {
        return;
    }
    match value {
        Value::Map(map) => {
            let Some(type_) = map.constructed_type() else {
                return;
            };
            if type_ != path {
                problems.push(format!(
                    "unexpected type name {type_:?}, expected {path:?}, which matches field name path from root Object type"
                ));
            }
            for key in map.keys() {
                if let (Value::String(name), Some(Ok(value))) = (&key, map.get(&key)) {
                    collect_mismatches(&value, &format!("{path}.{}", &**name), problems);
                }
            }
        }
        // What comes from JSON has no constructed objects in it.
        Value::List(list)
            if list
                .iter()
                .next()
                .is_some_and(|first| is_constructed(first.ok().as_ref())) =>
        {
            for item in list.iter().flatten() {
                collect_mismatches(&item, path, problems);
            }
        }
        _ => {}
    }
}

fn is_constructed(value: Option<&Value<'_>>) -> bool {
    value.is_some_and(|value| constructed_type(value).is_some())
}

/// The bytes that the result of a mutation may have: an expression can repeat an object often at no cost.
struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Self(MAX_BODY_BYTES)
    }
}

impl Budget {
    fn spend(&mut self, bytes: usize) -> Result<(), String> {
        let left = self.0.checked_sub(bytes);
        self.0 = left.ok_or("the result of the mutation is too large")?;
        Ok(())
    }
}

/// Converts the value of an expression to JSON.
fn to_json(value: &Value<'_>, budget: &mut Budget) -> Result<Json, String> {
    budget.spend(4)?;
    Ok(match value {
        Value::Null | Value::Optional(None) => Json::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => (*value).into(),
        Value::Uint(value) => (*value).into(),
        Value::Double(value) => double(*value),
        Value::String(text) => {
            budget.spend(text.len())?;
            (**text).into()
        }
        Value::Bytes(bytes) => {
            use base64::Engine;
            budget.spend(bytes.len() * 2)?;
            base64::engine::general_purpose::STANDARD.encode(bytes).into()
        }
        Value::List(list) => {
            let mut items = Vec::new();
            for item in list {
                items.push(to_json(&item.map_err(|error| error.to_string())?, budget)?);
            }
            items.into()
        }
        Value::Map(map) => map_to_json(map, budget)?.into(),
        Value::Optional(Some(value)) => to_json(value, budget)?,
        other => {
            return Err(format!(
                "JSONPath valueExpression evaluated to a type that could not marshal to JSON: {}",
                other.type_name()
            ));
        }
    })
}

fn map_to_json(map: &Map<'_>, budget: &mut Budget) -> Result<JsonMap<String, Json>, String> {
    let mut fields = JsonMap::new();
    for key in map.keys() {
        let Value::String(name) = &key else {
            return Err(format!("map key is of type {}, not string", key.type_name()));
        };
        budget.spend(name.len())?;
        if let Some(value) = map.get(&key) {
            let value = value.map_err(|error| error.to_string())?;
            fields.insert((**name).to_owned(), to_json(&value, budget)?);
        }
    }
    Ok(fields)
}

/// A float; whole ones as integers, as Go writes them.
fn double(value: f64) -> Json {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "a whole number in range")]
    if value.fract() == 0.0 && value.abs() < EXACT {
        return (value as i64).into();
    }
    Number::from_f64(value).map_or(Json::Null, Json::Number)
}
