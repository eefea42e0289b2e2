//! Generated fields of jobs and daemon sets.

use serde_json::{Map, Value, json};

use crate::object::Object;

/// The annotation with the number of template changes of a daemon set, which replaces a removed field.
const TEMPLATE_GENERATION_ANNOTATION: &str = "deprecated.daemonset.template.generation";

/// Generates a job's selector from its uid, unless `manualSelector` is set.
pub(super) fn generate_selector(job: &mut Object) {
    let (uid, name) = (job.meta("uid").to_owned(), job.name().to_owned());
    let Some(spec) = job.fields_mut().get_mut("spec").filter(|spec| spec.is_object()) else {
        return;
    };
    if spec["manualSelector"] == true {
        return;
    }
    let template = &mut spec["template"]["metadata"];
    if !template["labels"].is_object() {
        template["labels"] = Value::Object(Map::new());
    }
    for (key, value) in [
        ("controller-uid", &uid),
        ("batch.kubernetes.io/controller-uid", &uid),
        ("job-name", &name),
        ("batch.kubernetes.io/job-name", &name),
    ] {
        // Validation rejects other values.
        if template["labels"][key].is_null() {
            template["labels"][key] = value.as_str().into();
        }
    }
    if !spec["selector"].is_object() {
        spec["selector"] = json!({});
    }
    if !spec["selector"]["matchLabels"].is_object() {
        spec["selector"]["matchLabels"] = json!({});
    }
    spec["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] = uid.into();
}

/// Copies the template's labels to a job without labels of its own; those that equal the template's may be defaults.
pub(super) fn label_job(job: &mut Object) {
    let spec = job.fields().get("spec");
    let Some(labels) = spec
        .and_then(|spec| spec["template"]["metadata"].get("labels"))
        .cloned()
    else {
        return;
    };
    let own = job.metadata().get("labels").and_then(Value::as_object);
    if own.is_none_or(|own| own.iter().all(|(key, value)| labels.get(key) == Some(value))) {
        job.set_meta("labels", labels);
    }
}

/// Sets the template generation of a daemon set to 0 where it is absent.
pub(super) fn default_template_generation(set: &mut Object) {
    let annotations = set
        .metadata_mut()
        .entry("annotations")
        .or_insert_with(|| json!({}));
    if annotations
        .get(TEMPLATE_GENERATION_ANNOTATION)
        .is_none_or(|count| !count.is_string())
    {
        annotations[TEMPLATE_GENERATION_ANNOTATION] = "0".into();
    }
}

/// Updates the template generation of a daemon set.
pub(super) fn update_template_generation(set: &mut Object, old: Option<&Object>) {
    let template = |set: &Object| set.fields().get("spec").map(|spec| spec["template"].clone());
    let count = match old {
        None => 1,
        Some(old) => {
            let annotation = old
                .metadata()
                .get("annotations")
                .map(|all| &all[TEMPLATE_GENERATION_ANNOTATION]);
            let before = annotation
                .and_then(Value::as_str)
                .and_then(|text| text.parse::<i64>().ok());
            before.unwrap_or(1) + i64::from(template(old) != template(set))
        }
    };
    let annotations = set
        .metadata_mut()
        .entry("annotations")
        .or_insert_with(|| json!({}));
    annotations[TEMPLATE_GENERATION_ANNOTATION] = count.to_string().into();
}

/// Removes the template generation from a daemon set's metadata in views.
pub(super) fn hide_template_generation(metadata: &mut Value) {
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else {
        return;
    };
    annotations.remove(TEMPLATE_GENERATION_ANNOTATION);
    if annotations.is_empty()
        && let Some(metadata) = metadata.as_object_mut()
    {
        metadata.remove("annotations");
    }
}
