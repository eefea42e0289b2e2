//! What the server generates for jobs and daemon sets.

use serde_json::{Map, Value, json};

use crate::object::Object;

/// Counts a daemon set's templates, in the annotation that outlived the field.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// A job selects its pods by its own uid, unless its owner wants to choose.
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
        // What the template says otherwise is for the rules to refuse.
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

/// A job without labels of its own has those of its pods; the template's own may have been put there as defaults.
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

/// A daemon set that does not say how many templates it has had is taken to have had none.
pub(super) fn note_template(set: &mut Object) {
    let annotations = set
        .metadata_mut()
        .entry("annotations")
        .or_insert_with(|| json!({}));
    if annotations
        .get(TEMPLATE_GENERATION)
        .is_none_or(|count| !count.is_string())
    {
        annotations[TEMPLATE_GENERATION] = "0".into();
    }
}

/// Notes how many templates a daemon set has had.
pub(super) fn count_template(set: &mut Object, old: Option<&Object>) {
    let template = |set: &Object| set.fields().get("spec").map(|spec| spec["template"].clone());
    let count = match old {
        None => 1,
        Some(old) => {
            let annotation = old
                .metadata()
                .get("annotations")
                .map(|all| &all[TEMPLATE_GENERATION]);
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
    annotations[TEMPLATE_GENERATION] = count.to_string().into();
}

/// The count stands among the annotations only where a daemon set is shown whole.
pub(super) fn hide_count(metadata: &mut Value) {
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else {
        return;
    };
    annotations.remove(TEMPLATE_GENERATION);
    if annotations.is_empty()
        && let Some(metadata) = metadata.as_object_mut()
    {
        metadata.remove("annotations");
    }
}
