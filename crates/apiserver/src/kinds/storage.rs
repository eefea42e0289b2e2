//! The kinds of `storage.k8s.io`: storage classes, and what CSI drivers write.

use serde_json::{Value, json};

use super::{
    defaulting::{
        DefaultValue::{Flag, Text},
        set_if_absent,
    },
    error_list::{ErrorList, entries, text},
    row::Row,
    strategy::{Facts, METADATA, Plain, SPEC, Strategy, Write},
};
use crate::object::Object;

/// What the kinds of the group have in common.
const FACTS: Facts = Facts {
    subresource_reset_fields: &[("status", &[METADATA, SPEC])],
    ..Facts::RETURNS_DELETED
};

/// Kinds that only CSI drivers and the attach controller write.
pub(super) const CSI_STORAGE_CAPACITY: Plain = Plain(Facts {
    unconditional_update: false,
    subresource_reset_fields: FACTS.subresource_reset_fields,
    ..Facts::DEFAULT
});
pub(super) const VOLUME_ATTACHMENT: Plain = Plain(Facts {
    unconditional_update: false,
    ..FACTS
});

pub(super) struct StorageClass;

impl Strategy for StorageClass {
    fn facts(&self) -> Facts {
        Facts {
            defaults: &[
                ("reclaimPolicy", Text("Delete")),
                ("volumeBindingMode", Text("Immediate")),
            ],
            immutable_fields: &["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"],
            columns: Some("Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age"),
            ..FACTS
        }
    }

    fn validate(&self, write: &Write<'_>, errors: &mut ErrorList) {
        let class = write.value();
        if text(&class["provisioner"]).is_empty() {
            errors.required("provisioner", "");
        }
        for (key, _) in entries(&class["parameters"]) {
            if key.is_empty() {
                errors.invalid("parameters", "", "field can not be empty.");
            }
        }
        errors.one_of("reclaimPolicy", &class["reclaimPolicy"], &["Delete", "Retain"]);
        let modes = ["Immediate", "WaitForFirstConsumer"];
        errors.one_of("volumeBindingMode", &class["volumeBindingMode"], &modes);
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        const DEFAULT: &str = "/metadata/annotations/storageclass.kubernetes.io~1is-default-class";
        let suffix = if row.text(DEFAULT) == "true" {
            " (default)"
        } else {
            ""
        };
        vec![
            format!("{}{suffix}", row.text("/metadata/name")).into(),
            row.text("/provisioner").into(),
            row.text_or("/reclaimPolicy", "Delete"),
            row.text_or("/volumeBindingMode", "Immediate"),
            (row.object.pointer("/allowVolumeExpansion") == Some(&Value::Bool(true))).into(),
            row.age(),
        ]
    }
}

pub(super) struct CsiDriver;

impl Strategy for CsiDriver {
    fn facts(&self) -> Facts {
        Facts {
            unconditional_update: false,
            defaults: &[
                ("spec.attachRequired", Flag(true)),
                ("spec.podInfoOnMount", Flag(false)),
                ("spec.storageCapacity", Flag(false)),
                ("spec.fsGroupPolicy", Text("ReadWriteOnceWithFSType")),
                ("spec.requiresRepublish", Flag(false)),
                ("spec.seLinuxMount", Flag(false)),
            ],
            ..FACTS
        }
    }

    fn set_defaults(&self, driver: &mut Object) {
        let spec = &mut driver.tree_mut()["spec"];
        set_if_absent(spec, "volumeLifecycleModes", json!(["Persistent"]));
    }

    fn validate_changes(&self, write: &Write<'_>, old: &Value, errors: &mut ErrorList) {
        let now = &write.spec()["attachRequired"];
        if *now != old["spec"]["attachRequired"] {
            // The real server's message misspells the field.
            errors.invalid("spec.attachedRequired", now.clone(), "field is immutable");
        }
    }
}

pub(super) struct CsiNode;

impl Strategy for CsiNode {
    fn facts(&self) -> Facts {
        Facts {
            unconditional_update: false,
            columns: Some("Name Drivers:integer Age"),
            ..FACTS
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.count("/spec/drivers").into(), row.age()]
    }
}

pub(super) struct VolumeAttributesClass;

impl Strategy for VolumeAttributesClass {
    fn facts(&self) -> Facts {
        Facts {
            columns: Some("Name DriverName Age"),
            ..FACTS
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.text("/driverName").into(), row.age()]
    }
}
