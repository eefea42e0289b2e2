//! What single kinds do otherwise: the few rules that are neither schema nor data.

use serde_json::{Value, json};

use crate::{
    object::Object,
    registry::Resource,
    schema::{FieldError, Problem},
    status::Status,
    strategies,
};

/// The namespaces that must not go.
const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The finalizer that holds a CRD until its objects are gone.
pub(crate) const CUSTOM_RESOURCE_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

fn of(resource: &Resource) -> (&str, &str) {
    (&resource.group, &resource.kind)
}

/// What a new object begins with, whatever the client said.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Object, now: &str) {
    if resource.custom {
        if resource.has_status() {
            object.fields_mut().remove("status");
        }
        return;
    }
    if of(resource) == ("apiextensions.k8s.io", "CustomResourceDefinition") {
        complete_definition(object);
    }
    strategies::prepare_create(resource, object);
    if let Some(status) = strategies::first_status(resource, object, now) {
        object.fields_mut().insert("status".into(), status);
    }
}

/// What a changed object keeps, whatever the client said.
pub(crate) fn prepare_update(resource: &Resource, object: &mut Object, old: &Object) {
    if of(resource) == ("apiextensions.k8s.io", "CustomResourceDefinition") {
        complete_definition(object);
    }
    if !resource.custom {
        strategies::prepare_update(resource, object, old);
    }
}

/// What a deletion leaves on the object besides its time.
pub(crate) fn prepare_deletion(resource: &Resource, object: &mut Object) {
    match of(resource) {
        ("", "Namespace") => {
            object.fields_mut().entry("status").or_insert_with(|| json!({}))["phase"] = "Terminating".into();
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let finalizers = object
                .finalizers()
                .map(Value::from)
                .chain([CUSTOM_RESOURCE_CLEANUP.into()]);
            let finalizers: Vec<_> = finalizers.collect();
            object.set_meta("finalizers", finalizers);
        }
        _ => {}
    }
}

/// Whether an object that is being deleted stays for another reason than `metadata.finalizers`.
pub(crate) fn holds(resource: &Resource, object: &Object) -> bool {
    of(resource) == ("", "Namespace")
        && object.fields().get("spec").is_some_and(|spec| {
            spec["finalizers"]
                .as_array()
                .is_some_and(|finalizers| !finalizers.is_empty())
        })
}

/// Whether nothing keeps an object that is being deleted any more.
pub(crate) fn is_finished(resource: &Resource, object: &Object) -> bool {
    let grace = object
        .metadata()
        .get("deletionGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    object.is_deleting() && grace == 0 && object.finalizers().next().is_none() && !holds(resource, object)
}

/// Whether objects of the kind get a time in which to go.
pub(crate) fn is_graceful(resource: &Resource) -> bool {
    of(resource) == ("", "Pod")
}

/// What the client of a deletion should know.
pub(crate) fn deletion_warnings(resource: &Resource, said_policy: bool) -> Vec<String> {
    if said_policy || of(resource) != ("batch", "Job") {
        return Vec::new();
    }
    vec![
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning"
            .to_owned(),
    ]
}

/// How long an object may take to go. Only pods have a grace period, and only once they are on a node.
pub(crate) fn grace_seconds(resource: &Resource, object: &Object, asked: Option<i64>) -> i64 {
    if !is_graceful(resource) {
        return 0;
    }
    let text = |path: &str| object.text_at(path);
    if text("spec.nodeName").is_empty() || matches!(text("status.phase").as_str(), "Succeeded" | "Failed") {
        return 0;
    }
    let own = object
        .fields()
        .get("spec")
        .and_then(|spec| spec["terminationGracePeriodSeconds"].as_i64());
    asked.or(own).unwrap_or(30).max(0)
}

/// Whether `deletionGracePeriodSeconds` is shown on objects of the kind that are being deleted.
pub(crate) fn shows_grace(resource: &Resource) -> bool {
    of(resource) != ("", "Namespace")
}

/// Refuses deletions that would take the cluster with them.
pub(crate) fn may_delete(resource: &Resource, name: &str) -> Result<(), Status> {
    if of(resource) == ("", "Namespace") && IMMORTAL_NAMESPACES.contains(&name) {
        return Err(Status::forbidden(
            resource,
            name,
            "this namespace may not be deleted",
        ));
    }
    Ok(())
}

/// What is wrong with an object beyond its schema.
pub(crate) fn check(resource: &Resource, object: &Object) -> Vec<FieldError> {
    match of(resource) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => check_definition(object),
        _ => Vec::new(),
    }
}

fn check_definition(crd: &Object) -> Vec<FieldError> {
    let spec = crd.fields().get("spec").unwrap_or(&Value::Null);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let mut errors = Vec::new();
    let wanted = format!("{plural}.{group}");
    if crd.name() != wanted {
        let why = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::new(
            "metadata.name",
            Problem::Invalid(crd.name().into(), why.into()),
        ));
    }
    for (path, value) in [
        ("spec.group", &spec["group"]),
        ("spec.scope", &spec["scope"]),
        ("spec.names.plural", &spec["names"]["plural"]),
        ("spec.names.kind", &spec["names"]["kind"]),
    ] {
        if text(value).is_empty() {
            errors.push(FieldError::new(path, Problem::Required(String::new())));
        }
    }
    let versions = spec["versions"].as_array().map_or(&[][..], Vec::as_slice);
    if versions
        .iter()
        .filter(|version| version["storage"] == true)
        .count()
        != 1
    {
        let why = "must have exactly one version marked as storage version";
        errors.push(FieldError::new(
            "spec.versions",
            Problem::Invalid(spec["versions"].clone(), why.into()),
        ));
    }
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
        match &version["schema"]["openAPIV3Schema"] {
            Value::Null => {
                errors.push(FieldError::new(
                    path,
                    Problem::Required("schemas are required".into()),
                ));
            }
            schema => {
                if let Err(why) = crate::schema::Schema::of_crd(schema) {
                    errors.push(FieldError::new(path, Problem::Invalid(schema.clone(), why)));
                }
            }
        }
    }
    errors
}

/// A CRD with the names that it leaves to the server.
fn complete_definition(crd: &mut Object) {
    let Some(spec) = crd
        .fields_mut()
        .get_mut("spec")
        .filter(|spec| spec["names"].is_object())
    else {
        return;
    };
    let names = &mut spec["names"];
    let kind = names["kind"].as_str().unwrap_or_default().to_owned();
    if names["singular"].as_str().is_none_or(str::is_empty) {
        names["singular"] = kind.to_lowercase().into();
    }
    if names["listKind"].as_str().is_none_or(str::is_empty) {
        names["listKind"] = format!("{kind}List").into();
    }
    if spec["conversion"].is_null() {
        spec["conversion"] = json!({"strategy": "None"});
    }
}
