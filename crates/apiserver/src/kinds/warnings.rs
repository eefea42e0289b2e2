//! Warnings that several kinds share.

use std::fmt::Display;

use serde_json::Value;
use windlass_api::naming;

use crate::{object::Object, schema::quantity};

pub(super) fn has_annotation(object: &Object, name: &str) -> bool {
    let annotations = object.metadata().get("annotations");
    annotations.is_some_and(|annotations| annotations.get(name).is_some())
}

/// A job's name becomes part of its pods' names.
pub(super) fn warn_pod_names(name: &str, warnings: &mut Vec<String>) {
    let problems = naming::label(name);
    if !problems.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
             label is recommended: [{}]",
            problems.join(" ")
        ));
    }
}

/// Byte quantities must be whole numbers.
pub(super) fn warn_fractional_bytes(amount: &Value, field: impl Display, warnings: &mut Vec<String>) {
    if quantity::nanos(amount).is_some_and(|nanos| nanos % 1_000_000_000 != 0) {
        warnings.push(format!(
            "{field}: fractional byte value {amount} is invalid, must be an integer"
        ));
    }
}
