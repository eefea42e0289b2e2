//! ConfigMaps, and the data that they and Secrets hold.

use serde_json::Value;
use windlass_api::naming;

use super::{
    error_list::{ErrorList, text},
    immutable::check_immutable_data,
    row::Row,
    strategy::{Facts, Strategy, Write},
};
use crate::{field_path::FieldPath, schema::Problem};

/// Limit on the data of a `ConfigMap` or Secret, in bytes.
pub(super) const MAX_DATA_BYTES: usize = 1024 * 1024;

pub(super) struct ConfigMap;

impl Strategy for ConfigMap {
    fn facts(&self) -> Facts {
        Facts {
            columns: Some("Name Data Age"),
            ..Facts::DEFAULT
        }
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check(write.value(), errors);
    }

    fn validate_changes(&self, write: &Write<'_>, old: &Value, errors: &mut ErrorList) {
        check_immutable_data(write.value(), old, errors);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let count = row.count("/data") + row.count("/binaryData");
        vec![row.name(), count.into(), row.age()]
    }
}

fn check(map: &Value, errors: &mut ErrorList) {
    let mut size = 0;
    let (data, binary) = (map["data"].as_object(), map["binaryData"].as_object());
    for (key, value) in data.into_iter().flatten() {
        let field = FieldPath::from_root("data");
        errors.invalid_each(field.key(key), key, naming::config_key(key));
        if binary.is_some_and(|binary| binary.contains_key(key)) {
            let why = "duplicate of key present in binaryData";
            errors.invalid(field.key(key), key.as_str(), why);
        }
        size += text(value).len();
    }
    for (key, value) in binary.into_iter().flatten() {
        let field = FieldPath::from_root("binaryData");
        errors.invalid_each(field.key(key), key, naming::config_key(key));
        size += decoded_len(value);
    }
    if size > MAX_DATA_BYTES {
        errors.add("[]", Problem::TooLong(MAX_DATA_BYTES as u64));
    }
}

/// The decoded length of a base64 string.
pub(super) fn decoded_len(value: &Value) -> usize {
    let text = text(value);
    let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
    (text.len() / 4 * 3).saturating_sub(padding)
}
