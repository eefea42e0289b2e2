//! Events of the core group and of `events.k8s.io`, which are the same objects.
//!
//! ```text
//!   events.k8s.io/v1 Event ─► stored as v1 Event ─► v1 Event
//! ```

use serde_json::{Value, json};
use windlass_api::naming;

use super::{
    age,
    error_list::{ErrorList, text},
    row::{Row, number},
    selectable::SelectableField,
    strategy::{CheckOrder, Facts, MetadataChecks, Strategy, Write},
};
use crate::object::Object;

static SELECTABLE_FIELDS: [SelectableField; 11] = [
    SelectableField::text("involvedObject.kind"),
    SelectableField::text("involvedObject.namespace"),
    SelectableField::text("involvedObject.name"),
    SelectableField::text("involvedObject.uid"),
    SelectableField::text("involvedObject.apiVersion"),
    SelectableField::text("involvedObject.resourceVersion"),
    SelectableField::text("involvedObject.fieldPath"),
    SelectableField::text("reason"),
    SelectableField::text("reportingComponent"),
    SelectableField::text("source").at(&["source.component", "reportingComponent"]),
    SelectableField::text("type"),
];

/// An event of the core group.
pub(super) struct Event;

/// An event of `events.k8s.io`.
pub(super) struct RegardingEvent;

impl Strategy for Event {
    fn facts(&self) -> Facts {
        Facts {
            create_on_update: true,
            metadata_checks: MetadataChecks {
                metadata: 2,
                finalizers: 0,
                order: CheckOrder::MetadataFirst,
            },
            selectable_fields: &SELECTABLE_FIELDS,
            columns: Some("Last_Seen Type Reason Object +Subobject +Source Message +First_Seen +Count +Name"),
            ..Facts::DEFAULT
        }
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check(write, errors);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        cells(row)
    }
}

impl Strategy for RegardingEvent {
    fn facts(&self) -> Facts {
        Facts {
            stored_group: Some(""),
            stored_version: Some("v1"),
            ..Event.facts()
        }
    }

    fn stored_field(&self, field: &str) -> Option<String> {
        let (first, rest) = field.split_at(field.find('.').unwrap_or(field.len()));
        match RENAMED_FIELDS
            .iter()
            .find(|(new, old)| [*new, *old].contains(&first))
        {
            None => Some(field.to_owned()),
            Some((new, old)) if *new == first && RENAMED_SELECTABLE_FIELDS.contains(new) => {
                Some(format!("{old}{rest}"))
            }
            Some(_) => None,
        }
    }

    fn convert_for_read(&self, event: &mut Object) {
        rename_fields(event, |(new, old)| (old, new));
    }

    fn convert_to_stored(&self, event: &mut Object) {
        rename_fields(event, |names| names);
        // `v1` serializes these even when they are empty.
        let fields = event.fields_mut();
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

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check(write, errors);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        cells(row)
    }
}

/// Field names of the same fields in `events.k8s.io/v1` and in `v1`.
const RENAMED_FIELDS: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

/// The renamed fields that field selectors may name.
const RENAMED_SELECTABLE_FIELDS: [&str; 2] = ["regarding", "reportingController"];

/// Immutable fields of `events.k8s.io` events, and their names in errors.
const IMMUTABLE_FIELDS: [(&str, &str); 13] = [
    ("regarding", "involvedObject"),
    ("reason", "reason"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingController", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

/// Renames the fields of an event from one version's names to the other's.
fn rename_fields(
    event: &mut Object,
    names: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let fields = event.fields_mut();
    for (from, to) in RENAMED_FIELDS.map(names) {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}

fn check(write: &Write<'_>, errors: &mut ErrorList) {
    let (event, old) = (write.value(), write.old);
    let is_core = write.resource.group.is_empty();
    let about = if is_core { "involvedObject" } else { "regarding" };
    let namespace = text(&event["metadata"]["namespace"]);
    let of = text(&event[about]["namespace"]);
    // Events about cluster-scoped objects are in the default namespace.
    if of != namespace && !(of.is_empty() && namespace == "default") {
        errors.invalid("involvedObject.namespace", of, "does not match event.namespace");
    }
    // A `v1` event is validated only if it has `eventTime`, like an `events.k8s.io` event.
    if is_core {
        if old.is_none() && !event["eventTime"].is_null() {
            check_reporter(event, "reportingComponent", errors);
        }
        return;
    }
    if let Some(old) = old {
        for (field, name) in IMMUTABLE_FIELDS {
            if event.get(field) != old.fields().get(field) {
                errors.invalid(name, event[field].clone(), "field is immutable");
            }
        }
        return;
    }
    if event["eventTime"].is_null() {
        errors.required("eventTime", "");
    } else {
        check_reporter(event, "reportingController", errors);
    }
    if !matches!(text(&event["type"]), "Normal" | "Warning") {
        let why = format!("has invalid value: {}", text(&event["type"]));
        errors.invalid("type", "", &why);
    }
}

/// Checks the fields about the reporter and what happened.
fn check_reporter(event: &Value, who: &str, errors: &mut ErrorList) {
    let controller = text(&event[who]);
    errors.require(who, &event[who]);
    errors.invalid_each(who, controller, naming::qualified(controller));
    for key in ["reportingInstance", "action", "reason"] {
        errors.require(key, &event[key]);
    }
}

fn cells(row: &Row<'_>) -> Vec<Value> {
    let since = |pointer: &str| age::since(row.text(pointer), row.now);
    let first = match row.text("/firstTimestamp") {
        "" => since("/eventTime"),
        _ => since("/firstTimestamp"),
    };
    let (last, count) = match row.object.pointer("/series") {
        Some(series) if series.is_object() => (since("/series/lastObservedTime"), number(series, "/count")),
        _ if row.text("/lastTimestamp").is_empty() => (first.clone(), row.number("/count").max(1)),
        _ => (since("/lastTimestamp"), row.number("/count").max(1)),
    };
    let kind = row.text("/involvedObject/kind").to_lowercase();
    let target = match row.text("/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let (component, instance) = match row.text("/source/component") {
        "" => (row.text("/reportingComponent"), row.text("/reportingInstance")),
        component => (component, row.text("/source/host")),
    };
    let source = if instance.is_empty() {
        component.to_owned()
    } else {
        format!("{component}, {instance}")
    };
    vec![
        last.into(),
        row.text("/type").into(),
        row.text("/reason").into(),
        target.into(),
        row.text("/involvedObject/fieldPath").into(),
        source.into(),
        row.text("/message").trim().into(),
        first.into(),
        count.into(),
        row.name(),
    ]
}
