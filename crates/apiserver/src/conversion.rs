//! Conversion of the two built-in kinds that are served in two versions: events and horizontal pod autoscalers.
//!
//! ```text
//!   events.k8s.io/v1 Event ─────────────────┐                    ┌─ v1 Event
//!   autoscaling/v1 HorizontalPodAutoscaler ─┴► storage version: ─┴─ autoscaling/v2 HorizontalPodAutoscaler
//! ```
//!
//! Objects are converted to the storage version when written and back when read. All other built-in kinds have one
//! version.

use std::{borrow::Cow, sync::Arc};

use serde_json::{Map, Value, json};

use crate::{object::Object, registry::Resource, status::Status, storage::Entry};

/// Field names of the same fields in `events.k8s.io/v1` and in `v1`.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

/// The fields of these that field selectors may name.
const SELECTABLE_FIELDS: [&str; 2] = ["regarding", "reportingController"];

/// Annotations in which `autoscaling/v1` keeps fields that it lacks.
const AUTOSCALER_ANNOTATIONS: [(&str, &str); 2] = [
    ("metrics", "autoscaling.alpha.kubernetes.io/metrics"),
    ("behavior", "autoscaling.alpha.kubernetes.io/behavior"),
];

/// A kind whose resource is stored in another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConvertedKind {
    Event,
    Autoscaler,
}

fn converted_kind(resource: &Resource) -> Option<ConvertedKind> {
    match (&*resource.group, &*resource.version, &*resource.plural) {
        ("events.k8s.io", _, "events") => Some(ConvertedKind::Event),
        ("autoscaling", "v1", "horizontalpodautoscalers") => Some(ConvertedKind::Autoscaler),
        _ => None,
    }
}

/// The stored name of a field that a field selector names. `None` if only the other version has that name.
pub(crate) fn stored_field<'a>(resource: &Resource, field: &'a str) -> Option<Cow<'a, str>> {
    if converted_kind(resource) != Some(ConvertedKind::Event) {
        return Some(field.into());
    }
    let (first, rest) = field.split_at(field.find('.').unwrap_or(field.len()));
    match EVENT_FIELDS
        .iter()
        .find(|(new, old)| [*new, *old].contains(&first))
    {
        None => Some(field.into()),
        Some((new, old)) if *new == first && SELECTABLE_FIELDS.contains(new) => {
            Some(format!("{old}{rest}").into())
        }
        Some(_) => None,
    }
}

/// Whether the resource's version differs from the storage version.
pub(crate) fn needs_conversion(resource: &Resource) -> bool {
    converted_kind(resource).is_some()
}

/// The API version in which a resource's objects are stored: `apps/v1`.
pub(crate) fn stored_version(resource: &Resource) -> String {
    match converted_kind(resource) {
        Some(ConvertedKind::Event) => "v1".to_owned(),
        Some(ConvertedKind::Autoscaler) => "autoscaling/v2".to_owned(),
        None => crate::registry::group_version(&resource.group, &resource.storage_version),
    }
}

/// Decodes a stored object and converts it to the resource's version.
pub(crate) fn decode_for_read(entry: &Entry, resource: &Resource) -> Result<Object, Status> {
    Ok(convert_for_read(entry.object.decode()?, resource))
}

/// Converts an object from the storage version to the resource's version.
pub(crate) fn convert_for_read(mut object: Object, resource: &Resource) -> Object {
    match converted_kind(resource) {
        Some(ConvertedKind::Event) => rename_event_fields(&mut object, |(new, old)| (old, new)),
        Some(ConvertedKind::Autoscaler) => autoscaler_for_read(&mut object),
        None => return object,
    }
    object
        .fields_mut()
        .insert("apiVersion".into(), resource.api_version().into());
    crate::verbs::normalize(&mut object, resource);
    object
}

/// Converts a stored entry to the resource's version.
pub(crate) fn convert_entry_for_read(entry: &Arc<Entry>, resource: &Resource) -> Arc<Entry> {
    if !needs_conversion(resource) {
        return entry.clone();
    }
    match decode_for_read(entry, resource) {
        Ok(mut object) => Arc::new(Entry {
            key: entry.key.clone(),
            revision: entry.revision,
            object: object.encode(entry.revision, &[]),
        }),
        Err(error) => {
            tracing::error!(
                error = error.message(),
                "cannot convert a stored object; returning it in its storage version"
            );
            entry.clone()
        }
    }
}

/// Converts an object to the storage version, unless it already has it.
pub(crate) fn convert_to_stored(resource: &Resource, object: &mut Object) {
    let stored = stored_version(resource);
    if object.fields().get("apiVersion").and_then(Value::as_str) == Some(&stored) {
        return;
    }
    match converted_kind(resource) {
        Some(ConvertedKind::Event) => {
            rename_event_fields(object, |names| names);
            // `v1` serializes these even when they are empty.
            let fields = object.fields_mut();
            for key in ["reportingComponent", "reportingInstance"] {
                fields.entry(key).or_insert_with(|| "".into());
            }
            for key in ["firstTimestamp", "lastTimestamp", "eventTime"] {
                fields.entry(key).or_insert(Value::Null);
            }
            for key in ["involvedObject", "source"] {
                fields.entry(key).or_insert_with(|| json!({}));
            }
        }
        Some(ConvertedKind::Autoscaler) => autoscaler_to_stored(object),
        None => {}
    }
    object.fields_mut().insert("apiVersion".into(), stored.into());
}

/// Renames the fields of an event from one version's names to the other's.
fn rename_event_fields(
    event: &mut Object,
    names: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let fields = event.fields_mut();
    for (from, to) in EVENT_FIELDS.map(names) {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}

fn is_cpu_utilization(metric: &Value) -> bool {
    metric["type"] == "Resource"
        && metric["resource"]["name"] == "cpu"
        && metric["resource"]["target"]["type"] == "Utilization"
}

fn autoscaler_for_read(scaler: &mut Object) {
    let mut notes = Map::new();
    if let Some(spec) = scaler.fields_mut().get_mut("spec").and_then(Value::as_object_mut) {
        let metrics = match spec.remove("metrics") {
            Some(Value::Array(metrics)) => metrics,
            _ => Vec::new(),
        };
        let (cpu, others): (Vec<_>, Vec<_>) = metrics.into_iter().partition(is_cpu_utilization);
        if let Some(cpu) = cpu.first() {
            let share = cpu["resource"]["target"]["averageUtilization"].clone();
            spec.insert("targetCPUUtilizationPercentage".into(), share);
        }
        let behavior = spec.remove("behavior").unwrap_or_default();
        let others = if others.is_empty() {
            Value::Null
        } else {
            others.into()
        };
        for ((_, annotation), kept) in AUTOSCALER_ANNOTATIONS.iter().zip([others, behavior]) {
            if !kept.is_null() {
                notes.insert((*annotation).to_owned(), kept.to_string().into());
            }
        }
    }
    let status = scaler
        .fields_mut()
        .get_mut("status")
        .and_then(Value::as_object_mut);
    if let Some(status) = status {
        let current = status.remove("currentMetrics").unwrap_or_default();
        let cpu = current.as_array().into_iter().flatten();
        let share = cpu
            .filter(|metric| metric["type"] == "Resource" && metric["resource"]["name"] == "cpu")
            .map(|metric| metric["resource"]["current"]["averageUtilization"].clone())
            .next();
        if let Some(share) = share.filter(|share| !share.is_null()) {
            status.insert("currentCPUUtilizationPercentage".into(), share);
        }
        status.remove("conditions");
    }
    if !notes.is_empty() {
        let annotations = scaler
            .metadata_mut()
            .entry("annotations")
            .or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.extend(notes);
        }
    }
}

fn autoscaler_to_stored(scaler: &mut Object) {
    let mut kept = AUTOSCALER_ANNOTATIONS.map(|_| Value::Null);
    if let Some(annotations) = scaler
        .metadata_mut()
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    {
        for ((_, annotation), kept) in AUTOSCALER_ANNOTATIONS.iter().zip(&mut kept) {
            let text = annotations.remove(*annotation);
            let text = text.as_ref().and_then(Value::as_str).unwrap_or_default();
            *kept = serde_json::from_str(text).unwrap_or_default();
        }
        if annotations.is_empty() {
            scaler.metadata_mut().remove("annotations");
        }
    }
    let [others, behavior] = kept;
    if let Some(spec) = scaler.fields_mut().get_mut("spec").and_then(Value::as_object_mut) {
        let mut metrics = match others {
            Value::Array(others) => others,
            _ => Vec::new(),
        };
        if let Some(share) = spec.remove("targetCPUUtilizationPercentage") {
            metrics.push(json!({"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": share},
            }}));
        }
        if !metrics.is_empty() {
            spec.insert("metrics".into(), metrics.into());
        }
        if !behavior.is_null() {
            spec.insert("behavior".into(), behavior);
        }
    }
    let status = scaler
        .fields_mut()
        .get_mut("status")
        .and_then(Value::as_object_mut);
    if let Some(status) = status {
        let share = status.remove("currentCPUUtilizationPercentage");
        let current = share.map_or(Value::Null, |share| {
            json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": share}}}])
        });
        status.insert("currentMetrics".into(), current);
        // `autoscaling/v2` omits zero.
        if status
            .get("currentReplicas")
            .is_some_and(|replicas| *replicas == 0)
        {
            status.remove("currentReplicas");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        registry::Registry,
        storage::{Key, Revision},
    };

    fn round_trip(group: &str, version: &str, plural: &str, object: Value) -> (Value, Value) {
        let catalogue = Registry::new().catalogue();
        let resource = catalogue.find(group, version, plural).expect("built in");
        let mut stored = Object::new(object).expect("an object");
        convert_to_stored(resource, &mut stored);
        let entry = Entry {
            key: Key::new("n", "x"),
            revision: Revision(1),
            object: stored.clone().encode(Revision(1), &[]),
        };
        let mut shown = decode_for_read(&entry, resource).expect("readable");
        shown.metadata_mut().remove("resourceVersion");
        (stored.into_value(), shown.into_value())
    }

    #[test]
    fn event_is_converted_between_groups() {
        let event = json!({
            "kind": "Event", "apiVersion": "events.k8s.io/v1", "metadata": {"name": "x"}, "action": "a", "reason": "r",
            "regarding": {"kind": "Pod"}, "note": "n", "reportingController": "c", "reportingInstance": "i",
            "eventTime": "2020-01-01T00:00:00.000000Z", "deprecatedSource": {}, "deprecatedFirstTimestamp": null,
            "deprecatedLastTimestamp": null, "type": "Normal",
        });
        let (stored, shown) = round_trip("events.k8s.io", "v1", "events", event.clone());
        assert_eq!(stored["apiVersion"], "v1");
        assert_eq!(
            (&stored["involvedObject"], &stored["message"]),
            (&json!({"kind": "Pod"}), &json!("n"))
        );
        assert_eq!(stored["reportingComponent"], "c");
        assert_eq!(shown, event);
    }

    #[test]
    fn autoscaler_cpu_target_is_converted_to_a_metric() {
        let scaler = json!({
            "kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1", "metadata": {"name": "x"},
            "spec": {"maxReplicas": 3, "minReplicas": 1, "targetCPUUtilizationPercentage": 80,
                "scaleTargetRef": {"kind": "Deployment", "name": "x", "apiVersion": "apps/v1"}},
            "status": {"currentReplicas": 0, "desiredReplicas": 0},
        });
        let (stored, shown) = round_trip("autoscaling", "v1", "horizontalpodautoscalers", scaler.clone());
        assert_eq!(stored["apiVersion"], "autoscaling/v2");
        assert_eq!(
            stored["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"],
            80
        );
        assert_eq!(shown, scaler);
    }
}
