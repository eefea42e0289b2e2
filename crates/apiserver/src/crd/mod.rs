//! CustomResourceDefinitions.
//!
//! ```text
//!   a CRD is written ─► check ─► stored ─► lifecycle: names accepted ─► established ─► Definition ─► Catalogue
//!                                              └► deleted: its instances go first      │ one Resource a version
//!                                                                                      ▼
//!   an object is written ─► objects: prune, default, check ─► conversion: storage version ─► storage
//!   an object is read    ◄──────────────────────────────────── conversion: requested version ◄┘
//! ```
//!
//! The storage owns the CRDs and their objects like all others. The registry owns what is served; it is updated from
//! the stored CRDs after every write to one, if that changes what is served. This module keeps no state.
//!
//! Validation rules (`x-kubernetes-validations`) are compiled twice: to check the CRD, and when it is served. The crate
//! `windlass-cel` does both, and evaluates them.
//!

mod ca_bundle;
mod check;
mod conditions;
mod conversion;
mod definition;
mod embedded;
mod lifecycle;
mod names;
mod objects;
mod versions;

use serde_json::{Value, json};

pub(crate) use check::{check, check_status, warnings};
pub(crate) use conversion::{
    Unconverted, WriteConversion, convert_between, convert_by_webhook, convert_for_read, convert_for_request,
    convert_to_stored, has_webhook, needs_conversion, set_default_status, stored_form, written_entry,
};
pub(crate) use definition::{CrdInfo, Definition};
pub(crate) use lifecycle::Definitions;
pub(crate) use objects::{
    Part, check as check_object, check_rules, finalizer_warnings, find_typed, prune_and_default,
};
pub(crate) use versions::compare as compare_versions;

use crate::object::Object;

/// The finalizer that keeps a CRD until its instances are deleted.
const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Applies the server-side defaults to a CRD.
pub(crate) fn set_defaults(crd: &mut Object) {
    let Some(spec) = crd
        .fields_mut()
        .get_mut("spec")
        .filter(|spec| spec["names"].is_object())
    else {
        return;
    };
    let names = &mut spec["names"];
    let kind = names["kind"].as_str().unwrap_or_default().to_owned();
    if names["singular"].as_str().is_none_or(str::is_empty) && !kind.is_empty() {
        names["singular"] = kind.to_lowercase().into();
    }
    if names["listKind"].as_str().is_none_or(str::is_empty) && !kind.is_empty() {
        names["listKind"] = format!("{kind}List").into();
    }
    if spec["conversion"].is_null() {
        spec["conversion"] = json!({"strategy": "None"});
    }
    if let Some(service) = spec
        .pointer_mut("/conversion/webhook/clientConfig/service")
        .filter(|service| service.is_object() && service["port"].is_null())
    {
        service["port"] = 443.into();
    }
    let stored = storage_version(crd);
    if stored.is_string() {
        let status = crd.fields_mut().entry("status").or_insert_with(|| json!({}));
        let known = &status["storedVersions"];
        if status.is_object() && known.as_array().is_none_or(Vec::is_empty) {
            status["storedVersions"] = json!([stored]);
        }
    }
}

/// The initial status of a new CRD.
pub(crate) fn initial_status(crd: &Object) -> Value {
    let stored = storage_version(crd);
    json!({
        "conditions": null,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": if stored.is_null() { Value::Null } else { json!([stored]) },
    })
}

/// Adds the storage version to `status.storedVersions`.
pub(crate) fn record_storage_version(crd: &mut Object) {
    let stored = storage_version(crd);
    let Some(status) = crd
        .fields_mut()
        .get_mut("status")
        .filter(|status| status.is_object())
    else {
        return;
    };
    let mut versions = status["storedVersions"].as_array().cloned().unwrap_or_default();
    if !stored.is_null() && !versions.contains(&stored) {
        versions.push(stored);
        status["storedVersions"] = versions.into();
    }
}

/// Prepares a CRD for deletion: adds the finalizer and the `Terminating` condition.
pub(crate) fn prepare_deletion(crd: &mut Object, now: &str) {
    let mut finalizers: Vec<Value> = crd.finalizers().map(Value::from).collect();
    if !finalizers.contains(&CLEANUP_FINALIZER.into()) {
        finalizers.push(CLEANUP_FINALIZER.into());
    }
    crd.set_meta("finalizers", finalizers);
    conditions::set(crd, conditions::DELETION_PENDING, now);
}

/// The first version that is marked as the storage version.
fn storage_version(crd: &Object) -> Value {
    versions(crd)
        .iter()
        .find(|version| version["storage"] == true)
        .map_or(Value::Null, |version| version["name"].clone())
}

fn spec(crd: &Object) -> &Value {
    crd.fields().get("spec").unwrap_or(&Value::Null)
}

fn versions(crd: &Object) -> &[Value] {
    list(&spec(crd)["versions"])
}

/// The list, or an empty one.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The string, or an empty one.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
