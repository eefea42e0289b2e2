//! Compares the validation of objects with recorded calls of kube-apiserver's validator.

use std::{collections::BTreeMap, path::Path};

use libtest_mimic::Failed;
use serde_json::Value as Json;
use windlass_cel::rules::{Rules, Validation, Violation};

use super::{differences::Differences, lines};

pub(super) fn compare_all(folder: &Path) -> Result<(), Failed> {
    let mut differences = Differences::of("validations")?;
    let mut skipped = BTreeMap::new();
    for case in lines(&folder.join("validate.jsonl"))? {
        if let Some(why) = skip(&case) {
            *skipped.entry(why).or_insert(0) += 1;
            continue;
        }
        let name = format!(
            "{} of {} and {}",
            case["test"].as_str().unwrap_or_default(),
            case["object"],
            case["oldObject"]
        );
        differences.add(&name, difference(&case).map(|details| ("outcome", details)));
    }
    for (why, count) in skipped {
        eprintln!("validate                 {count} skipped: {why}");
    }
    differences.finish()
}

/// Why a case says nothing about what a server does.
fn skip(case: &Json) -> Option<&'static str> {
    if case["test"] == "cel.TestValidationExpressionsAtSchemaLevels"
        && case["schema"].to_string().contains("allOf")
    {
        return Some("no server accepts rules below allOf: they are not structural");
    }
    if case["oldObject"].as_array().is_some_and(Vec::is_empty) && case["object"] == case["oldObject"] {
        return Some("an old list that is nil in Go, which JSON cannot express");
    }
    None
}

fn difference(case: &Json) -> Option<String> {
    let schema = &case["schema"];
    // Some tests take a number for the root of a resource.
    let rules = if case["root"] == true && schema["type"] == "object" {
        Rules::compile(schema)
    } else {
        Rules::compile_part(schema)
    };
    let path = case["path"]
        .as_str()
        .filter(|path| *path != "<nil>")
        .unwrap_or_default();
    let outcomes = case["outcomes"].as_array().map_or(&[][..], Vec::as_slice);
    let old = Some(&case["oldObject"]).filter(|old| !old.is_null());
    let budget = case["budget"].as_u64().unwrap_or_default();
    let outcome = rules.as_ref().map(|rules| {
        rules.root().validate(&Validation {
            old,
            ratchet: case["ratcheting"] == true,
            path,
            budget,
            call_limit: case["perCallLimit"].as_u64().unwrap_or(u64::MAX),
            ..Validation::create(&case["object"])
        })
    });
    let (errors, warnings, remaining) = match &outcome {
        Some(outcome) => (
            described(&outcome.violations),
            described(&outcome.warnings),
            outcome
                .remaining_budget
                .map_or(-1, |left| i64::try_from(left).unwrap_or(i64::MAX)),
        ),
        None => (Vec::new(), Vec::new(), i64::try_from(budget).unwrap_or(i64::MAX)),
    };
    let same = |outcome: &Json| {
        let texts = |list: &Json| {
            let mut texts: Vec<String> = list
                .as_array()
                .into_iter()
                .flatten()
                .map(|one| {
                    one.get("text")
                        .unwrap_or(one)
                        .as_str()
                        .unwrap_or_default()
                        .to_owned()
                })
                .collect();
            texts.sort();
            texts
        };
        texts(&outcome["errors"]) == errors
            && texts(&outcome["warnings"]) == warnings
            && outcome["remainingBudget"].as_i64() == Some(remaining)
    };
    if outcomes.iter().any(same) {
        return None;
    }
    let theirs: Vec<_> = outcomes
        .iter()
        .map(|outcome| format!("  theirs: {outcome}"))
        .collect();
    Some(format!(
        "  ours: {remaining} {errors:#?} {warnings:#?}\n{}",
        theirs.join("\n")
    ))
}

fn described(violations: &[Violation]) -> Vec<String> {
    let mut texts: Vec<String> = violations.iter().map(ToString::to_string).collect();
    texts.sort();
    texts
}
