//! Admission of pods with a `RuntimeClass`.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::{object::Object, object_store::ObjectStore, registry::Resource, status::Status, storage::Key};

/// Rejects a pod that sets `overhead` without a `RuntimeClass`.
pub(super) fn check_overhead(resource: &Resource, pod: &Object) -> Result<(), Status> {
    let spec = &pod.tree()["spec"];
    let given = spec["overhead"]
        .as_object()
        .is_some_and(|costs| !costs.is_empty());
    if given && spec["runtimeClassName"].is_null() {
        let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
        return Err(Status::forbidden(resource, pod.name(), why));
    }
    Ok(())
}

/// Sets the overhead, node selector and tolerations of a pod's `RuntimeClass`, or rejects the pod.
pub(super) fn admit_runtime_class(
    store: &ObjectStore,
    resource: &Resource,
    pod: &mut Object,
) -> Result<(), Status> {
    let null = Value::Null;
    let spec = pod.fields().get("spec").unwrap_or(&null);
    let overhead = !spec["overhead"].as_object().is_none_or(serde_json::Map::is_empty);
    let Some(name) = spec["runtimeClassName"].as_str().map(str::to_owned) else {
        return Ok(());
    };
    let refuse = |why: &str| Err(Status::forbidden(resource, pod.name(), why));
    let Some(class) = store.builtin_entry(("node.k8s.io", "runtimeclasses"), &Key::new("", &name)) else {
        return refuse(&format!("pod rejected: RuntimeClass {name:?} not found"));
    };
    let class = class.object.decode()?.into_value();
    let cost = &class["overhead"]["podFixed"];
    if overhead && !cost.is_null() && spec["overhead"] != *cost {
        return refuse("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead");
    }
    let labels = class["scheduling"]["nodeSelector"].as_object();
    for (key, wanted) in labels.into_iter().flatten() {
        let current = &spec["nodeSelector"][key];
        if !current.is_null() && current != wanted {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            return refuse(&format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                text(wanted),
                text(current)
            ));
        }
    }
    let Some(spec) = pod.fields_mut().get_mut("spec") else {
        return Ok(());
    };
    if !cost.is_null() {
        spec["overhead"] = cost.clone();
    }
    for (key, wanted) in labels.into_iter().flatten() {
        if !spec["nodeSelector"].is_object() {
            spec["nodeSelector"] = json!({});
        }
        spec["nodeSelector"][key] = wanted.clone();
    }
    let more = class["scheduling"]["tolerations"].as_array();
    if let Some(more) = more.filter(|more| !more.is_empty()) {
        let mut all = spec["tolerations"].as_array().cloned().unwrap_or_default();
        let mut known: HashSet<_> = all.iter().cloned().collect();
        all.extend(more.iter().filter(|one| known.insert((*one).clone())).cloned());
        spec["tolerations"] = all.into();
    }
    Ok(())
}
