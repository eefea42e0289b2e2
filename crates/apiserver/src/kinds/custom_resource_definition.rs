//! CustomResourceDefinitions. What they define is in [`crate::crd`].

use super::{
    defaulting::DefaultValue::Number,
    strategy::{DeletionMarks, Facts, InitialStatus, MetadataChecks, Strategy, Write},
};
use crate::{
    crd, object::Object, registry::Resource, schema::FieldError, storage::Entry, validation,
    verbs::WriteVerbs, warnings::Warnings,
};

pub(super) struct CustomResourceDefinition;

impl Strategy for CustomResourceDefinition {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            unconditional_update: false,
            compiles: true,
            metadata_checks: MetadataChecks {
                finalizers: 0,
                ..Facts::DEFAULT.metadata_checks
            },
            // Its instances are always deleted with it, and its finalizer waits for them.
            deletion_marks: DeletionMarks::TimestampOnly,
            defaults: &[("spec.conversion.webhook.clientConfig.service.port", Number(443))],
            ..Facts::DEFAULT
        }
    }

    fn set_defaults(&self, definition: &mut Object) {
        crd::set_defaults(definition);
    }

    fn initial_status(&self, _resource: &Resource, definition: &Object, _now: &str) -> InitialStatus {
        InitialStatus::Set(crd::initial_status(definition))
    }

    fn prepare_update(&self, definition: &mut Object, old: &Object) {
        // A write to the status sets all of it.
        if definition.fields().get("status") == old.fields().get("status") {
            crd::record_storage_version(definition);
        }
    }

    fn validate_object(
        &self,
        write: &Write<'_>,
        subresource: &str,
        _warnings: &mut Warnings,
    ) -> Vec<FieldError> {
        let mut errors = validation::check_metadata(write.object, write.resource);
        errors.extend(if subresource == "status" {
            crd::check_status(write.object)
        } else {
            crd::check(write.object, write.old)
        });
        errors
    }

    fn may_warn(&self, _write: &Write<'_>) -> bool {
        true
    }

    fn warn(&self, write: &Write<'_>, warnings: &mut Vec<String>) {
        warnings.extend(crd::warnings(write.object, write.old));
    }

    fn after_write(&self, writes: &WriteVerbs, entry: &Entry) {
        writes.definitions.sync(&entry.key.name);
    }

    fn prepare_deletion(&self, definition: &mut Object, now: &str) {
        crd::prepare_deletion(definition, now);
    }
}
