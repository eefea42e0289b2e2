//! Pod templates as objects of their own.

use serde_json::Value;

use super::{
    error_list::ErrorList,
    pod::{defaults::fill_template, validation::check_template},
    row::{Row, labels},
    strategy::{Facts, Strategy, Write},
};
use crate::{field_path::FieldPath, object::Object};

pub(super) struct PodTemplate;

impl Strategy for PodTemplate {
    fn facts(&self) -> Facts {
        Facts {
            has_generation: true,
            columns: Some("Name Containers Images Pod_Labels"),
            ..Facts::RETURNS_DELETED
        }
    }

    fn set_defaults(&self, template: &mut Object) {
        fill_template(&mut template.tree_mut()["template"]);
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        check_template(
            &write.value()["template"],
            &FieldPath::from_root("template"),
            errors,
        );
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let [containers, images] = row.containers("/template/spec");
        let labels = labels(row.object.pointer("/template/metadata/labels"));
        vec![row.name(), containers, images, labels.into()]
    }
}
