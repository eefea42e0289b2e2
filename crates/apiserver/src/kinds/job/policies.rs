//! Pod failure policies and success policies of jobs.

use std::collections::HashSet;

use serde_json::Value;
use windlass_api::naming;

use super::super::{
    duplicates::{Duplicates, field_values},
    error_list::{ErrorList, list, text},
};
use crate::{field_path::FieldPath, internal_types, schema::Problem};

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];

pub(super) fn check(spec: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    if !spec["podFailurePolicy"].is_null() {
        let path = path.child("podFailurePolicy");
        let path = path.child("rules");
        let pod = &spec["template"]["spec"];
        let mut containers = field_values(list(&pod["containers"]), "name");
        containers.extend(field_values(list(&pod["initContainers"]), "name"));
        for (index, rule) in list(&spec["podFailurePolicy"]["rules"]).iter().enumerate() {
            check_failure(spec, &containers, rule, &path.index(index), errors);
        }
    }
    let success = &spec["successPolicy"];
    if !success.is_null() {
        let path = path.child("successPolicy");
        if spec["completionMode"] == "Indexed" {
            check_success(spec, &path.child("rules"), errors);
        } else {
            let why = "requires indexed completion mode".to_owned();
            errors.add(
                path,
                Problem::InvalidText(internal_types::format_as_struct("SuccessPolicy", success), why),
            );
        }
    }
    let replacement = &spec["podReplacementPolicy"];
    let policies: &[&str] = if spec["podFailurePolicy"].is_null() {
        &["Failed", "TerminatingOrFailed"]
    } else {
        &["Failed"]
    };
    errors.one_of_if_given(path.child("podReplacementPolicy"), replacement, policies);
}

fn check_failure(
    spec: &Value,
    containers: &HashSet<&str>,
    rule: &Value,
    path: &FieldPath<'_>,
    errors: &mut ErrorList,
) {
    match text(&rule["action"]) {
        "" => {
            let why = "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]";
            errors.required(path.child("action"), why);
        }
        "FailIndex" => {
            if spec["backoffLimitPerIndex"].is_null() {
                let why = "requires the backoffLimitPerIndex to be set";
                errors.invalid(path.child("action"), "FailIndex", why);
            }
        }
        _ => errors.one_of(path.child("action"), &rule["action"], &ACTIONS),
    }
    let (codes, conditions) = (&rule["onExitCodes"], list(&rule["onPodConditions"]));
    if !codes.is_null() {
        check_codes(containers, codes, &path.child("onExitCodes"), errors);
    }
    for (index, condition) in conditions.iter().enumerate() {
        let path = path.child("onPodConditions");
        let path = path.index(index);
        let kind = text(&condition["type"]);
        errors.invalid_each(path.child("type"), kind, naming::qualified(kind));
        errors.one_of(
            path.child("status"),
            &condition["status"],
            &["False", "True", "Unknown"],
        );
    }
    let why = match (codes.is_null(), conditions.is_empty()) {
        (false, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (true, true) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    errors.add(path, Problem::InvalidText(String::new(), why.to_owned()));
}

fn check_codes(containers: &HashSet<&str>, codes: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    if text(&codes["operator"]).is_empty() {
        errors.required(path.child("operator"), "valid values: [\"In\" \"NotIn\"]");
    } else {
        errors.one_of(path.child("operator"), &codes["operator"], &["In", "NotIn"]);
    }
    if let Some(name) = codes["containerName"].as_str()
        && !containers.contains(name)
    {
        let why = "must be one of the container or initContainer names in the pod template";
        errors.invalid(path.child("containerName"), name, why);
    }
    let (values, path) = (list(&codes["values"]), path.child("values"));
    if values.is_empty() {
        errors.invalid(path, Value::Array(Vec::new()), "at least one value is required");
    }
    let repeats = Duplicates::by(values, |value| value);
    for (index, value) in values.iter().enumerate() {
        if codes["operator"] == "In" && *value == 0 {
            errors.invalid(path.index(index), 0, "must not be 0 for the In operator");
        }
        if repeats.contains(index) {
            errors.duplicate(path.index(index), value.clone());
        }
    }
    if !values.is_sorted_by_key(serde_json::Value::as_i64) {
        errors.invalid(path, values.to_vec(), "must be ordered");
    }
}

fn check_success(spec: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let rules = list(&spec["successPolicy"]["rules"]);
    if rules.is_empty() {
        let why = "at least one rules must be specified when the successPolicy is specified";
        errors.required(path, why);
    }
    let completions = spec["completions"].as_i64().unwrap_or(0);
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        let (count, indexes) = (rule["succeededCount"].as_i64(), rule["succeededIndexes"].as_str());
        if count.is_none() && indexes.is_none() {
            let why = "at least one of succeededCount or succeededIndexes must be specified";
            errors.required(path, why);
        }
        let mut total = None;
        if let Some(indexes) = indexes {
            match count_indexes(indexes, completions) {
                Ok(count) => total = Some(count),
                Err(why) => {
                    let why = format!("error parsing succeededIndexes: {why}");
                    errors.invalid(path.child("succeededIndexes"), indexes, &why);
                    total = Some(0);
                }
            }
        }
        let Some(count) = count else { continue };
        let field = path.child("succeededCount");
        errors.not_negative(field, &rule["succeededCount"]);
        if count > completions {
            let why =
                format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.invalid(field, count, &why);
        }
        if let Some(total) = total.filter(|total| count > *total) {
            let why = format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.invalid(field, count, &why);
        }
    }
}

/// The number of indexes in `1,3-5`.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let parse = |text: &str| -> Result<i64, String> {
        let index: i64 = text
            .parse()
            .map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if index >= completions {
            return Err(format!("too large index: {text:?}"));
        }
        Ok(index)
    };
    let (mut total, mut last) = (0, None);
    for part in text.split(',').filter(|_| !text.is_empty()) {
        if part.matches('-').count() > 1 {
            return Err(format!(
                "the fragment {part:?} violates the requirement that an index interval can have at most two parts separated by '-'"
            ));
        }
        let (first, end) = match part.split_once('-') {
            Some((first, end)) => {
                let (first, end) = (parse(first)?, parse(end)?);
                if first >= end {
                    return Err(format!("non-increasing order, previous: {first}, current: {end}"));
                }
                (first, end)
            }
            None => (parse(part)?, parse(part)?),
        };
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!(
                "non-increasing order, previous: {last}, current: {first}"
            ));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted_in_order() {
        assert_eq!(count_indexes("", 5), Ok(0));
        assert_eq!(count_indexes("1,3-4", 5), Ok(3));
        for bad in ["5", "x", "3-1", "2,1", "1-2-3", "1-"] {
            assert!(count_indexes(bad, 5).is_err(), "{bad}");
        }
    }
}
