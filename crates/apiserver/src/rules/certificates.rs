//! The status of certificate signing requests. `approval` may only decide, `status` may only issue.

use serde_json::Value;
use windlass_api::conditions;

use super::error_list::{ErrorList, list, text};
use crate::field_path::FieldPath;

/// Conditions that may only be true.
const TRUE_ONLY_CONDITIONS: [&str; 3] = ["Approved", "Denied", "Failed"];

pub(super) fn check_status(part: &str, request: &Value, old: &Value, errors: &mut ErrorList) {
    let (status, before) = (&request["status"], &old["status"]);
    check_conditions(&status["conditions"], &before["conditions"], errors);
    let count = |conditions: &Value, kind: &str| {
        let conditions = list(conditions).iter();
        conditions.filter(|condition| condition["type"] == kind).count()
    };
    let changes = TRUE_ONLY_CONDITIONS.map(|kind| {
        let (known, said) = (
            count(&before["conditions"], kind),
            count(&status["conditions"], kind),
        );
        (kind, said.cmp(&known))
    });
    for (kind, change) in changes {
        if change.is_lt() {
            let why = format!("updates may not remove a condition of type {kind:?}");
            errors.forbidden("status.conditions", &why);
        }
    }
    for (kind, change) in changes {
        if part != "approval" && kind != "Failed" && change.is_gt() {
            let why = format!("updates may not add a condition of type {kind:?}");
            errors.forbidden("status.conditions", &why);
        }
    }
    // `approval` cannot change the certificate; `status` can set it once.
    if !text(&before["certificate"]).is_empty() && before["certificate"] != status["certificate"] {
        let why = "updates may not modify existing certificate content";
        errors.forbidden("status.certificate", why);
    }
}

fn check_conditions(conditions: &Value, before: &Value, errors: &mut ErrorList) {
    let path = FieldPath::from_root("status.conditions");
    let has = |conditions: &[Value], kind: &str| conditions::find(conditions, kind).is_some();
    let was_contradictory = has(list(before), "Approved") && has(list(before), "Denied");
    for (index, condition) in list(conditions).iter().enumerate() {
        let path = path.index(index);
        let earlier = &list(conditions)[..index];
        let kind = text(&condition["type"]);
        if kind.is_empty() {
            errors.required(path.child("type"), "");
        }
        let choices: &[_] = if TRUE_ONLY_CONDITIONS.contains(&kind) {
            &["True"]
        } else {
            &["False", "True", "Unknown"]
        };
        errors.one_of_required(path.child("status"), &condition["status"], choices);
        let opposite = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !opposite.is_empty() && !was_contradictory && has(earlier, opposite) {
            let why = "Approved and Denied conditions are mutually exclusive";
            errors.invalid("status.conditions", kind, why);
        }
        if has(earlier, kind) {
            errors.duplicate(path.child("type"), kind);
        }
    }
}
