//! Leases.

use serde_json::Value;

use super::{
    error_list::ErrorList,
    row::Row,
    strategy::{CheckOrder, Facts, MetadataChecks, Strategy, Write},
};
use crate::object::Object;

pub(super) struct Lease;

impl Strategy for Lease {
    fn facts(&self) -> Facts {
        Facts {
            unconditional_update: false,
            create_on_update: true,
            metadata_checks: MetadataChecks {
                metadata: 3,
                finalizers: 0,
                order: CheckOrder::MetadataFirst,
            },
            columns: Some("Name Holder Age"),
            ..Facts::DEFAULT
        }
    }

    fn prepare_create(&self, lease: &mut Object) {
        drop_disabled_fields(lease);
    }

    fn prepare_update(&self, lease: &mut Object, _old: &Object) {
        drop_disabled_fields(lease);
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        let spec = write.spec();
        let duration = spec["leaseDurationSeconds"].as_i64();
        if let Some(seconds) = duration.filter(|seconds| *seconds <= 0) {
            errors.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0");
        }
        errors.not_negative("spec.leaseTransitions", &spec["leaseTransitions"]);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.text("/spec/holderIdentity").into(), row.age()]
    }
}

/// Drops the fields of coordinated leader election, which is disabled by default.
fn drop_disabled_fields(lease: &mut Object) {
    if let Some(spec) = lease.fields_mut().get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}
