//! Conversion of the built-in kinds that are served in two versions: events and horizontal pod autoscalers.
//!
//! ```text
//!   events.k8s.io/v1 Event ─────────────────┐                    ┌─ v1 Event
//!   autoscaling/v1 HorizontalPodAutoscaler ─┴► storage version: ─┴─ autoscaling/v2 HorizontalPodAutoscaler
//! ```
//!
//! Objects are converted to the storage version when written and back when read. All other built-in kinds have one
//! version.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    object::Object,
    registry::{Resource, group_version},
    status::Status,
    storage::Entry,
};

/// Whether the resource's version differs from the storage version.
pub(crate) fn needs_conversion(resource: &Resource) -> bool {
    resource.facts.stored_version.is_some()
}

/// The API version in which a resource's objects are stored: `apps/v1`.
pub(crate) fn stored_version(resource: &Resource) -> String {
    match resource.facts.stored_version {
        Some(version) => version.to_owned(),
        None => group_version(&resource.group, &resource.storage_version),
    }
}

/// Decodes a stored object and converts it to the resource's version.
pub(crate) fn decode_for_read(entry: &Entry, resource: &Resource) -> Result<Object, Status> {
    Ok(convert_for_read(entry.object.decode()?, resource))
}

/// Converts an object from the storage version to the resource's version.
pub(crate) fn convert_for_read(mut object: Object, resource: &Resource) -> Object {
    if !needs_conversion(resource) {
        return object;
    }
    resource.strategy.convert_for_read(&mut object);
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
    resource.strategy.convert_to_stored(object);
    object.fields_mut().insert("apiVersion".into(), stored.into());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
