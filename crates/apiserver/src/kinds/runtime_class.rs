//! Runtime classes. Pods get theirs in [`super::pod`].

use serde_json::Value;
use windlass_api::naming;

use super::{
    duplicates::Duplicates,
    error_list::{ErrorList, list, text},
    pod::validation::{check_overhead, check_tolerations},
    row::Row,
    strategy::{CheckOrder, Facts, MetadataChecks, Strategy, Write},
};
use crate::{field_path::FieldPath, internal_types, schema::Problem};

pub(super) struct RuntimeClass;

impl Strategy for RuntimeClass {
    fn facts(&self) -> Facts {
        Facts {
            unconditional_update: false,
            create_on_update: true,
            metadata_checks: MetadataChecks {
                metadata: 4,
                finalizers: 0,
                order: CheckOrder::MetadataFirst,
            },
            immutable_fields: &["handler"],
            columns: Some("Name Handler Age"),
            ..Facts::DEFAULT
        }
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check(write.value(), errors);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.text("/handler").into(), row.age()]
    }
}

fn check(class: &Value, errors: &mut ErrorList) {
    if errors.require("handler", &class["handler"]) {
        let handler = text(&class["handler"]);
        errors.invalid_each("handler", handler, naming::label(handler));
    }
    let path = FieldPath::from_root("overhead");
    check_overhead(&class["overhead"]["podFixed"], &path.child("limits"), errors);
    let (scheduling, path) = (&class["scheduling"], FieldPath::from_root("scheduling"));
    errors.labels(path.child("nodeSelector"), &scheduling["nodeSelector"]);
    let tolerations = list(&scheduling["tolerations"]);
    check_tolerations(&scheduling["tolerations"], &path.child("tolerations"), errors);
    let repeats = Duplicates::by(tolerations, |toleration| toleration);
    for (index, toleration) in tolerations.iter().enumerate() {
        if repeats.contains(index) {
            let shown = internal_types::format_as_struct("Toleration", toleration);
            let field = path.child("tolerations");
            errors.add(field.index(index), Problem::DuplicateText(shown));
        }
    }
}
