//! Compares the compilation of validation rules with recorded calls of kube-apiserver's compiler.

use std::path::Path;

use libtest_mimic::Failed;
use serde_json::Value as Json;
use windlass_cel::{Env, Schema, Type};

use super::{differences::Differences, lines};

pub(super) fn compare_all(folder: &Path) -> Result<(), Failed> {
    let mut differences = Differences::of("rules")?;
    for case in lines(&folder.join("compile.jsonl"))? {
        if case["otherEnvironment"] == true {
            continue;
        }
        let schema = if case["root"] == true {
            Schema::from_openapi_root(&case["schema"], "selfType")
        } else {
            Schema::from_openapi(&case["schema"], "selfType")
        };
        let Some(schema) = schema else { continue };
        for result in case["results"].as_array().into_iter().flatten() {
            let rule = result["rule"].as_str().unwrap_or_default();
            let found = difference(&schema, result).map(|details| ("compilation", details));
            differences.add(rule, found);
        }
    }
    differences.finish()
}

fn difference(schema: &Schema, expected: &Json) -> Option<String> {
    let mut env = Env::kubernetes();
    env.declare_schema("self", schema);
    let old = if expected["optionalOldSelf"] == true {
        env.declare_optional_schema("oldSelf", schema)
    } else {
        env.declare_schema("oldSelf", schema)
    };
    let rule = expected["rule"].as_str().unwrap_or_default();
    if rule.trim().is_empty() {
        return None;
    }
    let theirs = expected["error"]
        .as_object()
        .map(|error| {
            let detail = error
                .values()
                .filter_map(Json::as_str)
                .max_by_key(|text| text.len());
            detail.unwrap_or_default().to_owned()
        })
        .or_else(|| expected["error"].as_str().map(str::to_owned));
    let ours = match env.compile(rule) {
        Ok(program) if *program.result_type() == Type::Bool => Ok(program),
        Ok(_) => Err("cel expression must evaluate to a bool".to_owned()),
        Err(issues) if issues.is_instantiation() => Err(format!("program instantiation failed: {issues}")),
        Err(issues) => Err(format!("compilation failed: {issues}")),
    };
    match (ours, theirs) {
        (Ok(program), None) => {
            let cost = program.estimated_cost().max;
            let uses_old = program.uses_variable(old);
            let same = Some(cost) == expected["maxCost"].as_u64() && expected["usesOldSelf"] == uses_old;
            (!same).then(|| {
                format!(
                    "  ours: {cost} {uses_old}, theirs: {} {}",
                    expected["maxCost"], expected["usesOldSelf"]
                )
            })
        }
        (Err(ours), Some(theirs)) => {
            let same = theirs.ends_with(&ours) || normalised(&theirs).ends_with(&normalised(&ours));
            (!same).then(|| format!("  ours: {ours}\ntheirs: {theirs}"))
        }
        (Ok(_), Some(theirs)) => Some(format!("  ours: compiles\ntheirs: {theirs}")),
        (Err(ours), None) => Some(format!("  ours: {ours}\ntheirs: compiles")),
    }
}

/// Without the number of a type's name.
fn normalised(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(index) = rest.find("selfType") {
        let end = index + "selfType".len();
        out.push_str(&rest[..end]);
        rest = rest[end..].trim_start_matches(|sign: char| sign.is_ascii_digit());
    }
    out.push_str(rest);
    out
}
