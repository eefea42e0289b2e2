//! Certificate signing requests: approved or denied in `approval`, issued in `status`.

use serde_json::{Map, Value, json};
use windlass_api::{conditions, request::Access};

use super::{
    age,
    error_list::{ErrorList, list, text},
    row::{self, Row},
    selectable::SelectableField,
    strategy::{Creation, Facts, SPEC, STATUS, Strategy},
};
use crate::{
    admission_plugins::AdmissionPlugin,
    auth::{AccessControl, Caller},
    field_path::FieldPath,
    object::Object,
    request::Target,
    status::Status,
    verbs::WriteVerbs,
};

pub(super) struct CertificateSigningRequest;

impl Strategy for CertificateSigningRequest {
    fn facts(&self) -> Facts {
        Facts {
            selects_namespace: false,
            selectable_fields: const { &[SelectableField::text("spec.signerName")] },
            reset_fields: &[SPEC, STATUS],
            subresource_reset_fields: &[
                ("status", &[SPEC, &["status", "conditions"]]),
                ("approval", &[SPEC, &["status", "certificate"]]),
            ],
            columns: Some("Name Age SignerName Requestor RequestedDuration Condition"),
            ..Facts::DEFAULT
        }
    }

    fn admit(&self, creation: &Creation<'_>, request: &mut Object) -> Result<(), Status> {
        if let Some(caller) = creation.caller {
            record_requester(caller, request);
        }
        Ok(())
    }

    fn prepare_subresource(&self, target: &Target, request: &mut Object, old: &Object, now: &str) {
        complete_update(&target.subresource, request, old, now);
    }

    fn prepare_update(&self, request: &mut Object, old: &Object) {
        // The request and its requester are immutable; the rest changes through subresources.
        if let Some(spec) = old.fields().get("spec") {
            request.fields_mut().insert("spec".into(), spec.clone());
        }
    }

    fn validate_subresource(&self, subresource: &str, request: &Value, old: &Value, errors: &mut ErrorList) {
        check_status(subresource, request, old, errors);
    }

    fn authorize_update(
        &self,
        writes: &WriteVerbs,
        caller: Option<&Caller>,
        target: &Target,
        request: &Object,
        old: &Object,
    ) -> Result<(), Status> {
        let plugin = match &*target.subresource {
            "approval" => AdmissionPlugin::CertificateApproval,
            _ => AdmissionPlugin::CertificateSigning,
        };
        if writes.admission.plugins.has(plugin) {
            check_signer(&writes.access, caller, target, request, old)?;
        }
        Ok(())
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        cells(row)
    }
}

fn cells(row: &Row<'_>) -> Vec<Value> {
    let has = |kind: &str| {
        let mut conditions = row::items(row.object, "/status/conditions");
        conditions.any(|condition| condition["type"] == kind)
    };
    let mut condition = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        condition.push_str(",Failed");
    }
    if !row.text("/status/certificate").is_empty() {
        condition.push_str(",Issued");
    }
    let duration = row
        .object
        .pointer("/spec/expirationSeconds")
        .and_then(Value::as_i64);
    vec![
        row.name(),
        row.age(),
        row.text_or("/spec/signerName", "<none>"),
        row.text("/spec/username").into(),
        duration
            .map_or_else(|| "<none>".to_owned(), age::human_duration)
            .into(),
        condition.into(),
    ]
}

/// Writes the caller into a new request, replacing what the client sent; signers decide by it.
fn record_requester(caller: &Caller, object: &mut Object) {
    let user = &caller.user;
    let spec = object
        .fields_mut()
        .entry("spec")
        .or_insert_with(|| Map::new().into());
    let Some(spec) = spec.as_object_mut() else {
        return;
    };
    let known = [
        ("username", json!(user.name), user.name.is_empty()),
        ("uid", json!(user.uid), user.uid.is_empty()),
        ("groups", json!(user.groups), user.groups.is_empty()),
        ("extra", json!(user.extra), user.extra.is_empty()),
    ];
    for (key, value, is_empty) in known {
        spec.remove(key);
        if !is_empty {
            spec.insert(key.to_owned(), value);
        }
    }
}

/// The conditions that only `approval` writes.
const APPROVAL_CONDITIONS: [&str; 2] = ["Approved", "Denied"];

/// Completes an update of a subresource, and keeps what this subresource may not change.
fn complete_update(part: &str, object: &mut Object, old: &Object, now: &str) {
    let before = old.fields().get("status").unwrap_or(&Value::Null);
    match part {
        "approval" => {
            let status = object.fields_mut().remove("status").unwrap_or_default();
            let mut conditions = status["conditions"].clone();
            set_missing_times(&mut conditions, before, now);
            let mut status = if before.is_object() {
                before.clone()
            } else {
                json!({})
            };
            match conditions {
                Value::Array(_) => status["conditions"] = conditions,
                _ => drop(status.as_object_mut().map(|status| status.remove("conditions"))),
            }
            object.fields_mut().insert("status".into(), status);
        }
        "status" => {
            let Some(conditions) = object
                .fields_mut()
                .get_mut("status")
                .and_then(|status| status.get_mut("conditions"))
            else {
                return;
            };
            for kind in APPROVAL_CONDITIONS {
                keep_conditions(conditions, before, kind);
            }
            set_missing_times(conditions, before, now);
        }
        _ => {}
    }
}

/// Keeps the conditions of a type, unless some were added or removed, which validation rejects.
fn keep_conditions(conditions: &mut Value, before: &Value, kind: &str) {
    let known = conditions_of_type(&before["conditions"], kind);
    if conditions_of_type(conditions, kind).len() != known.len() {
        return;
    }
    let current = conditions.as_array_mut().into_iter().flatten();
    for (current, known) in current.filter(|current| current["type"] == kind).zip(known) {
        *current = known.clone();
    }
}

/// Sets missing times of conditions.
fn set_missing_times(conditions: &mut Value, before: &Value, now: &str) {
    let is_missing = |condition: &Value, key: &str| condition[key].as_str().is_none_or(str::is_empty);
    for condition in conditions.as_array_mut().into_iter().flatten() {
        if !condition.is_object() {
            continue;
        }
        if is_missing(condition, "lastUpdateTime") {
            condition["lastUpdateTime"] = now.into();
        }
        if is_missing(condition, "lastTransitionTime") {
            let known = conditions_of_type(
                &before["conditions"],
                condition["type"].as_str().unwrap_or_default(),
            );
            let known = known.into_iter().find(|known| {
                known["status"] == condition["status"] && !is_missing(known, "lastTransitionTime")
            });
            condition["lastTransitionTime"] =
                known.map_or_else(|| now.into(), |known| known["lastTransitionTime"].clone());
        }
    }
}

fn conditions_of_type<'a>(conditions: &'a Value, kind: &str) -> Vec<&'a Value> {
    let all = conditions.as_array().into_iter().flatten();
    all.filter(|condition| condition["type"] == kind).collect()
}

/// Conditions that may only be true.
const TRUE_ONLY_CONDITIONS: [&str; 3] = ["Approved", "Denied", "Failed"];

fn check_status(part: &str, request: &Value, old: &Value, errors: &mut ErrorList) {
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

/// Rejects an approval or a signature by a caller without the right for the request's signer.
fn check_signer(
    access: &AccessControl,
    caller: Option<&Caller>,
    target: &Target,
    object: &Object,
    old: &Object,
) -> Result<(), Status> {
    let Some(caller) = caller else {
        return Ok(());
    };
    let resource = &target.resource;
    let verb = match &*target.subresource {
        "approval" => "approve",
        "status" if signer_result(object) != signer_result(old) => "sign",
        _ => return Ok(()),
    };
    let spec = old.fields().get("spec").unwrap_or(&Value::Null);
    let signer = spec["signerName"].as_str().unwrap_or_default();
    let domain = signer.split('/').next().unwrap_or_default();
    let may = |name: &str| {
        let right = Access::resource(verb, &resource.group, "signers").with_name(name);
        access.decide(&caller.user, &right).is_allowed()
    };
    if may(signer) || may(&format!("{domain}/*")) {
        return Ok(());
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(Status::forbidden(resource, &target.name, &why))
}

/// The result of a signer: the certificate, or conditions that say why there is none.
fn signer_result(object: &Object) -> [Option<&Value>; 2] {
    let status = object.fields().get("status");
    ["certificate", "conditions"].map(|key| status.and_then(|status| status.get(key)))
}
