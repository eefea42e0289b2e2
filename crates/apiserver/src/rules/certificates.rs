//! What may be said of a request for a certificate, and by whom: who decides does not sign, who signs does not decide.

use serde_json::Value;

use super::findings::{Findings, list, text};
use crate::trail::Trail;

/// Conditions that are there or not, and never false.
const FINAL: [&str; 3] = ["Approved", "Denied", "Failed"];

pub(super) fn check_status(part: &str, request: &Value, old: &Value, findings: &mut Findings) {
    let (status, before) = (&request["status"], &old["status"]);
    check_conditions(&status["conditions"], &before["conditions"], findings);
    let count = |conditions: &Value, kind: &str| {
        let conditions = list(conditions).iter();
        conditions.filter(|condition| condition["type"] == kind).count()
    };
    let changes = FINAL.map(|kind| {
        let (known, said) = (
            count(&before["conditions"], kind),
            count(&status["conditions"], kind),
        );
        (kind, said.cmp(&known))
    });
    for (kind, change) in changes {
        if change.is_lt() {
            let why = format!("updates may not remove a condition of type {kind:?}");
            findings.forbidden("status.conditions", &why);
        }
    }
    for (kind, change) in changes {
        if part != "approval" && kind != "Failed" && change.is_gt() {
            let why = format!("updates may not add a condition of type {kind:?}");
            findings.forbidden("status.conditions", &why);
        }
    }
    // `approval` keeps the certificate as it is; here it is given once.
    if !text(&before["certificate"]).is_empty() && before["certificate"] != status["certificate"] {
        let why = "updates may not modify existing certificate content";
        findings.forbidden("status.certificate", why);
    }
}

fn check_conditions(conditions: &Value, before: &Value, findings: &mut Findings) {
    let path = Trail::from_root("status.conditions");
    let has = |conditions: &[Value], kind: &str| conditions.iter().any(|c| c["type"] == kind);
    let was_torn = has(list(before), "Approved") && has(list(before), "Denied");
    for (index, condition) in list(conditions).iter().enumerate() {
        let path = path.item(index);
        let earlier = &list(conditions)[..index];
        let kind = text(&condition["type"]);
        if kind.is_empty() {
            findings.required(path.at("type"), "");
        }
        let choices: &[_] = if FINAL.contains(&kind) {
            &["True"]
        } else {
            &["False", "True", "Unknown"]
        };
        findings.one_of_required(path.at("status"), &condition["status"], choices);
        let opposite = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if !opposite.is_empty() && !was_torn && has(earlier, opposite) {
            let why = "Approved and Denied conditions are mutually exclusive";
            findings.invalid("status.conditions", kind, why);
        }
        if has(earlier, kind) {
            findings.duplicate(path.at("type"), kind);
        }
    }
}
