//! Value constraints in a schema.

use std::sync::Arc;

use serde_json::Value;

use super::{Pattern, Patterns};

/// Value constraints; few schemas have any.
#[derive(Debug, Default)]
pub(super) struct ValueLimits {
    pub(super) minimum: Option<f64>,
    pub(super) maximum: Option<f64>,
    pub(super) exclusive_minimum: bool,
    pub(super) exclusive_maximum: bool,
    pub(super) multiple_of: Option<f64>,
    pub(super) min_length: Option<u64>,
    pub(super) max_length: Option<u64>,
    pub(super) min_items: Option<u64>,
    pub(super) max_items: Option<u64>,
    pub(super) min_properties: Option<u64>,
    pub(super) max_properties: Option<u64>,
    pub(super) pattern: Option<Arc<Pattern>>,
}

impl ValueLimits {
    pub(super) fn from_document(document: &Value, patterns: &mut Patterns) -> Result<Option<Self>, String> {
        const KEYS: [&str; 11] = [
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
        ];
        let pattern = document["pattern"].as_str().filter(|pattern| !pattern.is_empty());
        if pattern.is_none() && KEYS.iter().all(|key| document.get(key).is_none()) {
            return Ok(None);
        }
        let at = |key: &str| document.get(key).and_then(Value::as_f64);
        let count = |key: &str| document.get(key).and_then(Value::as_u64);
        let flag = |key: &str| document.get(key).and_then(Value::as_bool).unwrap_or(false);
        Ok(Some(Self {
            minimum: at("minimum"),
            maximum: at("maximum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: at("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            pattern: pattern.map(|text| patterns.compile(text)).transpose()?,
        }))
    }
}
