//! Disruption budgets.

use serde_json::Value;

use super::{
    error_list::ErrorList,
    row::Row,
    strategy::{CheckOrder, Facts, MetadataChecks, Strategy, Write},
};
use crate::{field_path::FieldPath, internal_types, schema::Problem};

pub(super) struct PodDisruptionBudget;

impl Strategy for PodDisruptionBudget {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            unconditional_update: false,
            metadata_checks: MetadataChecks {
                metadata: 2,
                finalizers: 0,
                order: CheckOrder::MetadataFirst,
            },
            counters: &[
                "disruptionsAllowed",
                "currentHealthy",
                "desiredHealthy",
                "expectedPods",
            ],
            columns: Some("Name Min_Available Max_Unavailable Allowed_Disruptions:integer Age"),
            ..Facts::DEFAULT
        }
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check(write.spec(), errors);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![
            row.name(),
            row.text_or("/spec/minAvailable", "N/A"),
            row.text_or("/spec/maxUnavailable", "N/A"),
            row.number("/status/disruptionsAllowed").into(),
            row.age(),
        ]
    }
}

fn check(spec: &Value, errors: &mut ErrorList) {
    let (available, unavailable) = (&spec["minAvailable"], &spec["maxUnavailable"]);
    if !available.is_null() && !unavailable.is_null() {
        let shown = internal_types::format_as_struct("PodDisruptionBudgetSpec", spec);
        let why = "minAvailable and maxUnavailable cannot be both set".to_owned();
        errors.add("spec", Problem::InvalidText(shown, why));
    }
    let path = FieldPath::from_root("spec");
    for (name, value) in [("minAvailable", available), ("maxUnavailable", unavailable)] {
        if !value.is_null() {
            errors.count_or_percent(path.child(name), value);
            errors.at_most_100_percent(path.child(name), value);
        }
    }
    errors.selector(&path.child("selector"), &spec["selector"]);
    errors.one_of_if_given(
        "spec.unhealthyPodEvictionPolicy",
        &spec["unhealthyPodEvictionPolicy"],
        &["AlwaysAllow", "IfHealthyBudget"],
    );
}
