//! Compares the validation of CRDs with recorded calls of kube-apiserver's, if `WINDLASS_CEL_CASES` names the folder with
//! the recordings; `.ci/run cel` does.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

use super::check;
use crate::object::Object;

/// An operation, a part of the text of an error that only one of the servers reports, and why.
const KNOWN_DIFFERENCES: &[(&str, &str, &str)] = &[
    ("update", "x-kubernetes-list-map-keys, so it", INVALID_BEFORE),
    (
        "update",
        "cannot be nullable when x-kubernetes-list-type",
        INVALID_BEFORE,
    ),
    ("update", "must be atomic as item of a list", INVALID_BEFORE),
    (
        "update",
        "must not be empty for specified object fields",
        INVALID_BEFORE,
    ),
    ("update", "Unsupported value: \"bogus2\"", INVALID_BEFORE),
    ("update", "selectableFields: Too many: 9", INVALID_BEFORE),
    ("update", "openAPIV3Schema: Required value", INVALID_BEFORE),
    (
        "update",
        "must include at least one of v1, v1beta1",
        INVALID_BEFORE,
    ),
    (
        "update",
        "spec.preserveUnknownFields: Invalid value: true",
        INVALID_BEFORE,
    ),
    ("create", ".default: Invalid value", METADATA_DEFAULT),
    (
        "create",
        "must have at least one stored version",
        "an empty list is the same as none",
    ),
];

const INVALID_BEFORE: &str = "the old CRD has the same error, and this server stores no such CRD";
const METADATA_DEFAULT: &str = "a default within metadata is validated alone, not in an object around it";

#[test]
fn crds_have_the_recorded_errors() {
    let Some(folder) = std::env::var_os("WINDLASS_CEL_CASES") else {
        return;
    };
    let text = fs::read_to_string(Path::new(&folder).join("crd-validation.jsonl")).expect("recorded");
    let (mut cases, mut equal) = (0, 0);
    let mut seen = BTreeSet::new();
    let mut different = Vec::new();
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).expect("a case");
        cases += 1;
        let theirs: BTreeSet<String> = case["errors"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|error| error["text"].as_str())
            .map(str::to_owned)
            .collect();
        let object = |value: &Value| Object::new(value.clone()).expect("an object");
        let old = Some(&case["oldObject"]).filter(|old| !old.is_null()).map(object);
        let ours: BTreeSet<String> = check(&object(&case["object"]), old.as_ref())
            .into_iter()
            .map(|error| format!("{}: {}", error.field, error.message()))
            .collect();
        let unexpected: Vec<_> = ours
            .symmetric_difference(&theirs)
            .filter(|text| {
                let known = KNOWN_DIFFERENCES
                    .iter()
                    .position(|(operation, part, _)| case["operation"] == *operation && text.contains(part));
                seen.extend(known);
                known.is_none()
            })
            .map(|text| {
                format!(
                    "  {} {text}",
                    if ours.contains(text) { "ours  " } else { "theirs" }
                )
            })
            .collect();
        if unexpected.is_empty() {
            equal += 1;
        } else {
            different.push(format!(
                "{} {}\n{}",
                case["test"],
                case["operation"],
                unexpected.join("\n")
            ));
        }
    }
    assert!(cases > 100, "{cases} cases");
    assert!(
        different.is_empty(),
        "{equal} of {cases} equal\n{}",
        different.join("\n")
    );
    let stale: Vec<_> = (0..KNOWN_DIFFERENCES.len())
        .filter(|index| !seen.contains(index))
        .map(|index| KNOWN_DIFFERENCES[index])
        .collect();
    assert!(stale.is_empty(), "not different any more: {stale:#?}");
}
