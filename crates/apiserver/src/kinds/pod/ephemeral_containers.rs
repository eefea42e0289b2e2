//! The subresource `ephemeralcontainers`: debugging containers are added to a running pod, and never changed or removed.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::validation;
use crate::{
    internal_types,
    kinds::error_list::{ErrorList, list, text},
    object::Object,
};

/// Keeps everything but the ephemeral containers.
pub(super) fn keep_rest(pod: &mut Object, old: &Object) {
    let containers = pod.tree()["spec"]["ephemeralContainers"].clone();
    super::keep_spec_and_status(pod, old);
    let Some(spec) = pod.tree_mut()["spec"].as_object_mut() else {
        return;
    };
    match containers {
        Value::Null => drop(spec.remove("ephemeralContainers")),
        containers => drop(spec.insert("ephemeralContainers".to_owned(), containers)),
    }
}

/// Validates an update of the subresource.
pub(super) fn validate(pod: &Value, old: &Value, errors: &mut ErrorList) {
    if validation::is_mirror(old) {
        *errors = ErrorList::default();
        errors.forbidden("", "static pods do not support ephemeral containers");
        return;
    }
    validation::check_annotation_changes(pod, old, errors);
    let now: HashMap<_, _> = list(&pod["spec"]["ephemeralContainers"])
        .iter()
        .map(|container| (text(&container["name"]), container))
        .collect();
    for before in list(&old["spec"]["ephemeralContainers"]) {
        let name = text(&before["name"]);
        let why = match now.get(name) {
            None => format!("existing ephemeral containers {name:?} may not be removed\n"),
            Some(now) if *now != before => {
                let difference = internal_types::difference("EphemeralContainer", before, now);
                format!("existing ephemeral containers {name:?} may not be changed\n{difference}")
            }
            Some(_) => continue,
        };
        errors.forbidden("spec.ephemeralContainers", &why);
    }
}

/// The names that no ephemeral container may have.
pub(super) fn other_names(spec: &Value) -> HashSet<&str> {
    let containers = list(&spec["containers"]).iter();
    containers
        .chain(list(&spec["initContainers"]))
        .map(|container| text(&container["name"]))
        .collect()
}
