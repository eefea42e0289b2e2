//! Persistent volumes, and what they share with claims.

use serde_json::{Value, json};
use windlass_api::naming;

use super::{
    defaulting::DefaultValue::Text,
    error_list::{ErrorList, list, text},
    pod::defaults::fill_volume_source,
    row::{self, Row},
    strategy::{Creation, Facts, InitialStatus, Strategy, Write},
};
use crate::{
    admission::add_finalizer,
    admission_plugins::AdmissionPlugin,
    field_path::FieldPath,
    internal_types,
    object::Object,
    registry::Resource,
    schema::{Problem, quantity},
    status::Status,
};

const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

/// The fields of a volume's spec that are not its source.
const NOT_SOURCES: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

pub(super) struct PersistentVolume;

impl Strategy for PersistentVolume {
    fn facts(&self) -> Facts {
        Facts {
            defaults: &[
                ("spec.persistentVolumeReclaimPolicy", Text("Retain")),
                ("spec.volumeMode", Text("Filesystem")),
            ],
            columns: Some(
                "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age +VolumeMode",
            ),
            ..Facts::RETURNS_DELETED
        }
    }

    fn set_defaults(&self, volume: &mut Object) {
        fill_volume_source(&mut volume.tree_mut()["spec"]);
    }

    fn admit(&self, creation: &Creation<'_>, volume: &mut Object) -> Result<(), Status> {
        if creation.has(AdmissionPlugin::StorageObjectInUseProtection) {
            add_finalizer(volume, "kubernetes.io/pv-protection");
        }
        Ok(())
    }

    fn initial_status(&self, _resource: &Resource, _volume: &Object, now: &str) -> InitialStatus {
        InitialStatus::Set(json!({"phase": "Pending", "lastPhaseTransitionTime": now}))
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check(write.spec(), errors);
    }

    fn validate_changes(&self, write: &Write<'_>, old: &Value, errors: &mut ErrorList) {
        let (spec, before) = (write.spec(), &old["spec"]);
        if source(spec) != source(before) {
            let difference = internal_types::difference("PersistentVolumeSource", before, spec);
            let why = format!("spec.persistentvolumesource is immutable after creation\n{difference}");
            errors.forbidden("spec.persistentvolumesource", &why);
        }
    }

    fn warn(&self, write: &Write<'_>, warnings: &mut Vec<String>) {
        if write.spec()["persistentVolumeReclaimPolicy"] == "Recycle" {
            warnings.push(
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
                 approach is to use dynamic provisioning."
                    .to_owned(),
            );
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        cells(row)
    }
}

fn check(spec: &Value, errors: &mut ErrorList) {
    if list(&spec["accessModes"]).is_empty() {
        errors.required("spec.accessModes", "");
    }
    check_access_modes(spec, &FieldPath::from_root("spec.accessModes"), errors);
    let capacity = &spec["capacity"];
    if capacity.as_object().is_none_or(serde_json::Map::is_empty) {
        errors.required("spec.capacity", "");
    }
    if capacity.get("storage").is_none() || capacity.as_object().is_some_and(|all| all.len() > 1) {
        let problem = Problem::NotSupported(capacity.clone(), vec!["storage".into()]);
        errors.add("spec.capacity", problem);
    }
    check_storage(capacity, &FieldPath::from_root("spec.capacity[storage]"), errors);
    let fields = spec.as_object().into_iter().flatten();
    if fields
        .into_iter()
        .all(|(key, _)| NOT_SOURCES.contains(&key.as_str()))
    {
        errors.required("spec", "must specify a volume type");
    }
    let policies = ["Delete", "Recycle", "Retain"];
    errors.one_of(
        "spec.persistentVolumeReclaimPolicy",
        &spec["persistentVolumeReclaimPolicy"],
        &policies,
    );
    check_class_and_mode(spec, &FieldPath::from_root("spec"), errors);
}

/// The fields of the volume source.
fn source(spec: &Value) -> Vec<(&String, &Value)> {
    let fields = spec.as_object().into_iter().flatten();
    fields
        .filter(|(key, _)| !NOT_SOURCES.contains(&key.as_str()))
        .collect()
}

pub(super) fn check_access_modes(spec: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let modes = list(&spec["accessModes"]);
    for mode in modes {
        errors.one_of(path, mode, &ACCESS_MODES);
    }
    if modes.len() > 1 && modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        let why = "may not use ReadWriteOncePod with other access modes";
        errors.forbidden(path, why);
    }
}

pub(super) fn check_storage(amounts: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let amount = &amounts["storage"];
    if quantity::nanos(amount).is_some_and(|nanos| nanos <= 0) {
        errors.invalid(path, amount.clone(), "must be greater than zero");
    }
}

pub(super) fn check_class_and_mode(spec: &Value, path: &FieldPath<'_>, errors: &mut ErrorList) {
    let class = text(&spec["storageClassName"]);
    if !class.is_empty() {
        errors.invalid_each(path.child("storageClassName"), class, naming::subdomain(class));
    }
    errors.one_of_if_given(
        path.child("volumeMode"),
        &spec["volumeMode"],
        &["Block", "Filesystem"],
    );
}

fn cells(row: &Row<'_>) -> Vec<Value> {
    let claim = match row.object.pointer("/spec/claimRef") {
        Some(claim) if claim.is_object() => {
            format!("{}/{}", row::text(claim, "/namespace"), row::text(claim, "/name"))
        }
        _ => String::new(),
    };
    vec![
        row.name(),
        row.text_or("/spec/capacity/storage", "0"),
        access_modes(row.object.pointer("/spec/accessModes")).into(),
        row.text("/spec/persistentVolumeReclaimPolicy").into(),
        row.phase(),
        claim.into(),
        row.text("/spec/storageClassName").into(),
        row.text_or("/spec/volumeAttributesClassName", "<unset>"),
        row.text("/status/reason").into(),
        row.age(),
        row.text_or("/spec/volumeMode", "<unset>"),
    ]
}

/// The access modes in short: `RWO,ROX`.
pub(super) fn access_modes(modes: Option<&Value>) -> String {
    let has = |mode: &str| {
        modes
            .and_then(Value::as_array)
            .is_some_and(|m| m.iter().any(|x| x == mode))
    };
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    short
        .iter()
        .filter(|(mode, _)| has(mode))
        .map(|(_, short)| *short)
        .collect::<Vec<_>>()
        .join(",")
}
