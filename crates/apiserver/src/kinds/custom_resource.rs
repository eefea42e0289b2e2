//! Custom resources: one strategy for all kinds that CRDs define.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    age,
    row::Row,
    strategy::{Facts, InitialStatus, METADATA, MetadataChecks, SPEC, Strategy, Write},
};
use crate::{
    crd, object::Object, registry::Resource, schema::FieldError, status::Status, storage::Entry,
    verbs::WriteVerbs, view::JsonPath, warnings::Warnings,
};

/// An object of a kind that a CRD defines. Its schema and columns are in [`Resource`].
pub(crate) struct CustomResource;

impl Strategy for CustomResource {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            unconditional_update: false,
            // An unqualified finalizer is only a warning.
            metadata_checks: MetadataChecks {
                finalizers: 0,
                ..MetadataChecks::THREE
            },
            subresource_reset_fields: &[("status", &[METADATA, SPEC])],
            ..Facts::DEFAULT
        }
    }

    fn initial_status(&self, resource: &Resource, _object: &Object, _now: &str) -> InitialStatus {
        if resource.has_status() {
            InitialStatus::Remove
        } else {
            InitialStatus::Keep
        }
    }

    fn validate_object(
        &self,
        write: &Write<'_>,
        subresource: &str,
        warnings: &mut Warnings,
    ) -> Vec<FieldError> {
        let part = if subresource == "status" {
            crd::Part::Status
        } else {
            crd::Part::Whole
        };
        crd::check_object(write.resource, write.object, write.old, part, warnings)
    }

    fn may_warn(&self, _write: &Write<'_>) -> bool {
        true
    }

    fn warn(&self, write: &Write<'_>, warnings: &mut Vec<String>) {
        warnings.extend(crd::finalizer_warnings(write.object, write.old));
    }

    fn after_validation(&self, resource: &Resource, object: &mut Object) -> Result<(), Status> {
        crd::set_default_status(resource, object);
        Ok(())
    }

    fn after_removal(&self, writes: &WriteVerbs, resource: &Resource, _entry: &Entry) {
        // It may have been the last instance that a terminating definition waits for.
        writes
            .definitions
            .after_removal_of_instance(&resource.qualified_name());
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let columns = &row.resource.printer_columns;
        if columns.is_empty() {
            return vec![row.name(), row.age()];
        }
        let own = columns.iter().map(|column| {
            let found = JsonPath::parse(&column.json_path)
                .map(|path| path.find(row.object))
                .unwrap_or_default();
            match found.first() {
                None => Value::Null,
                Some(value) => typed_cell(value, &column.kind, row.now),
            }
        });
        std::iter::once(row.name()).chain(own).collect()
    }
}

/// A value as shown in a column of a type; `null` if it has another type.
fn typed_cell(value: &Value, kind: &str, now: Timestamp) -> Value {
    match (kind, value) {
        ("integer", Value::Number(number)) if number.is_i64() => value.clone(),
        #[expect(clippy::cast_possible_truncation, reason = "as Go converts it")]
        ("integer", Value::Number(number)) => (number.as_f64().unwrap_or_default() as i64).into(),
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("string", Value::String(text)) => text.as_str().into(),
        ("string", Value::Null) => "<no value>".into(),
        ("string", other) => other.to_string().into(),
        ("date", Value::String(text)) => match text.parse::<Timestamp>() {
            Ok(_) => age::since(text, now).into(),
            Err(_) => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}
