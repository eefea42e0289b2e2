//! Controller revisions.

use serde_json::Value;

use super::{
    error_list::ErrorList,
    row::{Row, items, text},
    strategy::{Facts, Strategy, Write},
};

pub(super) struct ControllerRevision;

impl Strategy for ControllerRevision {
    fn facts(&self) -> Facts {
        Facts {
            immutable_fields: &["data"],
            columns: Some("Name Controller Revision Age"),
            ..Facts::DEFAULT
        }
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        let revision = write.value();
        if revision["data"].is_null() {
            errors.required("data", "data is mandatory");
        }
        errors.not_negative("revision", &revision["revision"]);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        let owner = items(row.object, "/metadata/ownerReferences").find(|o| o["controller"] == true);
        let owner = owner.map_or("<none>".to_owned(), |o| {
            let version = text(o, "/apiVersion");
            let group = version
                .split_once('/')
                .map_or(String::new(), |(group, _)| format!(".{group}"));
            format!("{}{group}/{}", text(o, "/kind").to_lowercase(), text(o, "/name"))
        });
        vec![
            row.name(),
            owner.into(),
            row.number("/revision").into(),
            row.age(),
        ]
    }
}
