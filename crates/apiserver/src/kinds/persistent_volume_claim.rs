//! Persistent volume claims.

use serde_json::{Value, json};

use super::{
    defaulting::DefaultValue::Text,
    error_list::{ErrorList, entries, list, text},
    immutable::without_nulls,
    persistent_volume::{access_modes, check_access_modes, check_class_and_mode, check_storage},
    row::Row,
    strategy::{Creation, Facts, InitialStatus, Strategy, Write},
    warnings::{has_annotation, warn_fractional_bytes},
};
use crate::{
    admission::add_finalizer, admission_plugins::AdmissionPlugin, field_path::FieldPath, internal_types,
    object::Object, registry::Resource, schema::quantity, status::Status,
};

pub(super) struct PersistentVolumeClaim;

impl Strategy for PersistentVolumeClaim {
    fn facts(&self) -> Facts {
        Facts {
            defaults: &[("spec.volumeMode", Text("Filesystem"))],
            columns: Some(
                "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age +VolumeMode",
            ),
            ..Facts::RETURNS_DELETED
        }
    }

    fn admit(&self, creation: &Creation<'_>, claim: &mut Object) -> Result<(), Status> {
        if creation.has(AdmissionPlugin::StorageObjectInUseProtection) {
            add_finalizer(claim, "kubernetes.io/pvc-protection");
        }
        if creation.has(AdmissionPlugin::DefaultStorageClass) {
            creation.admission.set_default_class(
                claim,
                "storageClassName",
                ("storage.k8s.io", "storageclasses"),
                "storageclass.kubernetes.io/is-default-class",
            );
        }
        Ok(())
    }

    fn initial_status(&self, _resource: &Resource, _claim: &Object, _now: &str) -> InitialStatus {
        InitialStatus::Set(json!({"phase": "Pending"}))
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check_claim(write.spec(), &FieldPath::from_root("spec"), errors);
    }

    fn validate_changes(&self, write: &Write<'_>, old: &Value, errors: &mut ErrorList) {
        check_changes(write.spec(), &old["spec"], errors);
    }

    fn validate_subresource(&self, _subresource: &str, claim: &Value, _old: &Value, errors: &mut ErrorList) {
        let path = FieldPath::from_root("status.capacity");
        for (name, amount) in entries(&claim["status"]["capacity"]) {
            let nanos = quantity::nanos(amount).unwrap_or(0);
            if nanos < 0 {
                let value = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MIN);
                errors.invalid(path.key(name), value, "must be a valid resource quantity");
            }
        }
    }

    fn warn(&self, write: &Write<'_>, warnings: &mut Vec<String>) {
        let class = "volume.beta.kubernetes.io/storage-class";
        if has_annotation(write.object, class) {
            warnings.push(format!(
                "metadata.annotations[{class}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
            ));
        }
        let amount = &write.spec()["resources"]["requests"]["storage"];
        warn_fractional_bytes(amount, "spec.resources.requests[storage]", warnings);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        cells(row)
    }
}

/// Validates a claim, or a claim template.
pub(super) fn check_claim(spec: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let remark = "at least 1 access mode is required";
    if list(&spec["accessModes"]).is_empty() {
        errors.required(path.child("accessModes"), remark);
    }
    errors.selector(&path.child("selector"), &spec["selector"]);
    check_access_modes(spec, &path.child("accessModes"), errors);
    let requests = &spec["resources"]["requests"];
    let resources = path.child("resources");
    let storage = resources.key("storage");
    if requests.get("storage").is_none() {
        errors.required(storage, "");
    }
    check_storage(requests, &storage, errors);
    check_class_and_mode(spec, path, errors);
}

/// A bound claim may request more storage; nothing else may change.
fn check_changes(spec: &Value, old: &Value, errors: &mut ErrorList) {
    let bound = !text(&old["volumeName"]).is_empty();
    let mut same = spec.clone();
    if bound {
        same["resources"]["requests"] = old["resources"]["requests"].clone();
        same["volumeAttributesClassName"] = old["volumeAttributesClassName"].clone();
    } else if text(&old["volumeName"]).is_empty() {
        // The volume binder sets the volume.
        same["volumeName"] = old["volumeName"].clone();
    }
    // A default class may be set on claims that have none.
    if old["storageClassName"].is_null() {
        same["storageClassName"] = Value::Null;
    }
    if without_nulls(&same) != without_nulls(old) {
        let difference = internal_types::difference("PersistentVolumeClaimSpec", old, &same);
        let why = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{difference}"
        );
        errors.forbidden("spec", &why);
    }
}

fn cells(row: &Row<'_>) -> Vec<Value> {
    let bound = !row.text("/spec/volumeName").is_empty();
    let modes = access_modes(row.object.pointer("/status/accessModes"));
    vec![
        row.name(),
        row.phase(),
        row.text("/spec/volumeName").into(),
        if bound {
            row.text_or("/status/capacity/storage", "0")
        } else {
            "".into()
        },
        if bound { modes.into() } else { "".into() },
        row.text("/spec/storageClassName").into(),
        row.text_or("/spec/volumeAttributesClassName", "<unset>"),
        row.age(),
        row.text_or("/spec/volumeMode", "<unset>"),
    ]
}
