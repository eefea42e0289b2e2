//! The subresource `resize`: the CPU and memory of a running pod and of its containers change in place.

use serde_json::{Value, json};

use super::{initial_status::qos_class, validation};
use crate::{
    field_path::FieldPath,
    kinds::{
        error_list::{ErrorList, entries, list},
        immutable::without_nulls,
    },
    object::Object,
};

/// The lists of containers, in the order in which they are checked.
const CONTAINERS: [&str; 2] = ["initContainers", "containers"];

/// Keeps everything but the resources and resize policies. A pod with other containers is kept as it is, to be rejected.
pub(super) fn keep_rest(pod: &mut Object, old: &Object) {
    let (spec, before) = (pod.tree()["spec"].clone(), &old.tree()["spec"]);
    if CONTAINERS
        .iter()
        .any(|kind| list(&spec[*kind]).len() != list(&before[*kind]).len())
    {
        return;
    }
    super::keep_spec_and_status(pod, old);
    let kept = &mut pod.tree_mut()["spec"];
    set_or_remove(kept, "resources", &spec["resources"]);
    for kind in CONTAINERS {
        let now = list(&spec[kind]);
        let same_names = now
            .iter()
            .zip(list(&before[kind]))
            .all(|(now, before)| now["name"] == before["name"]);
        if !same_names {
            kept[kind] = spec[kind].clone();
            continue;
        }
        let containers = kept.get_mut(kind).and_then(Value::as_array_mut);
        for (container, now) in containers.into_iter().flatten().zip(now) {
            for key in ["resources", "resizePolicy"] {
                set_or_remove(container, key, &now[key]);
            }
        }
    }
}

fn set_or_remove(parent: &mut Value, key: &str, value: &Value) {
    let Some(fields) = parent.as_object_mut() else {
        return;
    };
    match value {
        Value::Null => drop(fields.remove(key)),
        value => drop(fields.insert(key.to_owned(), value.clone())),
    }
}

/// Validates an update of the subresource.
pub(super) fn validate(pod: &Value, old: &Value, errors: &mut ErrorList) {
    let refused = if validation::is_mirror(old) {
        Some("static pods cannot be resized")
    } else if old["spec"]["os"]["name"] == "windows" {
        Some("windows pods cannot be resized")
    } else {
        None
    };
    if let Some(why) = refused {
        *errors = ErrorList::default();
        errors.forbidden("", why);
        return;
    }
    let (spec, before) = (&pod["spec"], &old["spec"]);
    let class = &old["status"]["qosClass"];
    if *class != qos_class(spec) {
        let why = "Pod QOS Class may not change as a result of resizing";
        errors.invalid("spec", class.clone(), why);
    }
    if !runs_where_resize_is_supported(old) {
        errors.forbidden("spec", "Pod running on node without support for resize");
    }
    if is_set(&spec["resources"]) || is_set(&before["resources"]) {
        check_pod_resources(&spec["resources"], &before["resources"], errors);
    }
    if !check_order(spec, before, errors) {
        return;
    }
    check_containers(spec, before, errors);
    if errors.is_empty() && without_nulls(&with_old_amounts(spec, before)) != without_nulls(before) {
        errors.forbidden("spec", "only cpu and memory resources are mutable");
    }
}

fn is_set(resources: &Value) -> bool {
    ["requests", "limits"]
        .iter()
        .any(|key| entries(&resources[*key]).next().is_some())
}

/// Kubelets that support it report the resources of running containers.
fn runs_where_resize_is_supported(pod: &Value) -> bool {
    list(&pod["status"]["containerStatuses"])
        .iter()
        .find(|status| status["state"]["running"].is_object())
        .is_none_or(|status| !status["resources"].is_null())
}

fn check_pod_resources(now: &Value, before: &Value, errors: &mut ErrorList) {
    if !before.is_null() && now.is_null() {
        errors.forbidden("spec.resources", "pod-level resources cannot be removed");
        return;
    }
    for key in ["requests", "limits"] {
        if !before.is_null() && is_removed(&now[key], &before[key]) {
            let why = format!("pod-level resource {key} cannot be removed");
            errors.forbidden(FieldPath::from_root("spec.resources").child(key), &why);
        }
    }
    if without_nulls(&old_amounts(now, before)) != without_nulls(&old_amounts(before, before)) {
        let why = "only cpu and memory resources are mutable at pod-level";
        errors.forbidden("spec", why);
    }
}

/// Containers are neither added, removed, renamed nor reordered.
fn check_order(spec: &Value, before: &Value, errors: &mut ErrorList) -> bool {
    let count = errors.len();
    for kind in ["containers", "initContainers"] {
        let (now, before) = (list(&spec[kind]), list(&before[kind]));
        let path = FieldPath::from_root("spec");
        let path = path.child(kind);
        if now.len() != before.len() {
            let why = format!("{kind} may not be added or removed on resize");
            errors.forbidden(path, &why);
            continue;
        }
        for (index, (now, before)) in now.iter().zip(before).enumerate() {
            if now["name"] != before["name"] {
                let why = format!("{kind} may not be renamed or reordered on resize");
                errors.forbidden(path.index(index).child("name"), &why);
            }
        }
    }
    errors.len() == count
}

fn check_containers(spec: &Value, before: &Value, errors: &mut ErrorList) {
    for kind in CONTAINERS {
        let path = FieldPath::from_root("spec");
        let path = path.child(kind);
        for (index, (now, before)) in list(&spec[kind]).iter().zip(list(&before[kind])).enumerate() {
            let path = path.index(index);
            let path = path.child("resources");
            for key in ["requests", "limits"] {
                if is_removed(&now["resources"][key], &before["resources"][key]) {
                    let why = format!("resource {key} cannot be removed");
                    errors.forbidden(path.child(key), &why);
                }
            }
        }
    }
    for (now, before) in list(&spec["containers"]).iter().zip(list(&before["containers"])) {
        if is_otherwise_changed(now, before) {
            errors.forbidden("spec", "only cpu and memory resources are mutable");
        }
    }
    let path = FieldPath::from_root("spec.initContainers");
    let initial = list(&spec["initContainers"])
        .iter()
        .zip(list(&before["initContainers"]));
    for (index, (now, before)) in initial.enumerate() {
        if is_otherwise_changed(now, before) {
            let why = "only cpu and memory resources for init or sidecar containers are mutable";
            errors.forbidden(path.index(index), why);
        }
        if now == before || now["restartPolicy"] == "Always" {
            continue;
        }
        for policy in list(&now["resizePolicy"]) {
            if policy["restartPolicy"] == "RestartContainer" {
                let why =
                    "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
                errors.forbidden(path.index(index), why);
            }
        }
    }
}

fn is_removed(now: &Value, before: &Value) -> bool {
    entries(before).any(|(name, _)| now.get(name).is_none())
}

/// Whether a container differs in more than CPU and memory.
fn is_otherwise_changed(now: &Value, before: &Value) -> bool {
    let mut same = now.clone();
    same["resources"] = old_amounts(&now["resources"], &before["resources"]);
    let mut before = before.clone();
    before["resources"] = old_amounts(&before["resources"], &before["resources"]);
    without_nulls(&same) != without_nulls(&before)
}

/// The spec with the old CPU and memory of every container and of the pod.
fn with_old_amounts(spec: &Value, before: &Value) -> Value {
    let mut same = spec.clone();
    for kind in CONTAINERS {
        let containers = same.get_mut(kind).and_then(Value::as_array_mut);
        for (container, before) in containers.into_iter().flatten().zip(list(&before[kind])) {
            container["resources"] = before["resources"].clone();
        }
    }
    set_or_remove(&mut same, "resources", &before["resources"]);
    same
}

/// Resources with the old amounts of CPU and memory, and without empty lists.
fn old_amounts(now: &Value, before: &Value) -> Value {
    let mut amounts = json!({"claims": now["claims"]});
    for key in ["requests", "limits"] {
        let others = entries(&now[key]).filter(|(name, _)| !is_resizable(name));
        let kept = entries(&before[key]).filter(|(name, _)| is_resizable(name));
        for (name, amount) in others.chain(kept) {
            amounts[key][name] = amount.clone();
        }
    }
    amounts
}

fn is_resizable(name: &str) -> bool {
    matches!(name, "cpu" | "memory")
}
