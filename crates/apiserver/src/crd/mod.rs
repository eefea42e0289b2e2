//! CustomResourceDefinitions: kinds that are objects themselves.
//!
//! ```text
//!   a CRD is written ─► check ─► stored ─► lifecycle: names accepted ─► established ─► Definition ─► Catalogue
//!                                              └► deleted: its objects go first        │ one Resource a version
//!                                                                                      ▼
//!   an object is written ─► objects: prune, default, check ─► forms: the stored version ─► storage
//!   an object is read    ◄──────────────────────────────────── forms: the version asked for ◄┘
//! ```
//!
//! Who owns what: the storage owns the CRDs and their objects, as it does all others; the registry owns what is served,
//! which is brought in line with the stored CRDs after every write to one. Nothing here is remembered in between.
//!
//! What is not done: **rules in CEL** (`x-kubernetes-validations`). A CRD that has them is accepted, and they are stored
//! and published as they are; their expressions are not compiled and objects are not held to them. And conversion
//! webhooks: a CRD that asks for them is accepted, and its objects are converted by their version's name only.

mod check;
mod conditions;
mod definition;
mod embedded;
mod forms;
mod lifecycle;
mod names;
mod objects;
mod versions;

use serde_json::{Value, json};

pub(crate) use check::{check, check_status, warnings};
pub(crate) use definition::{Defined, Definition};
pub(crate) use forms::{seen, to_stored};
pub(crate) use objects::{Part, accept, check as check_object, finalizer_warnings, find};
pub(crate) use versions::compare as compare_versions;

use crate::{object::Object, registry::Resource};

/// The finalizer that holds a CRD until its objects are gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Whether objects of the resource are CRDs.
pub(crate) fn is_definition(resource: &Resource) -> bool {
    (&*resource.group, &*resource.kind) == ("apiextensions.k8s.io", "CustomResourceDefinition")
}

/// Fills in what a CRD leaves to the server.
pub(crate) fn complete(crd: &mut Object) {
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
}

/// The status that a new CRD begins with.
pub(crate) fn first_status(crd: &Object) -> Value {
    let stored = storage_version(crd);
    json!({
        "conditions": null,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": if stored.is_null() { Value::Null } else { json!([stored]) },
    })
}

/// Notes that objects will be stored at another version from now on.
pub(crate) fn note_storage_version(crd: &mut Object) {
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

/// Marks a CRD that is being deleted.
pub(crate) fn prepare_deletion(crd: &mut Object, now: &str) {
    let mut finalizers: Vec<Value> = crd.finalizers().map(Value::from).collect();
    if !finalizers.contains(&CLEANUP.into()) {
        finalizers.push(CLEANUP.into());
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

/// A list, empty where there is none.
fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text, empty where there is none.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
