//! The trait of a kind, and the facts about it that are only data.

use serde_json::{Value, json};

use super::{
    defaulting::DefaultRule, error_list::ErrorList, review::Review, row::Row, selectable::SelectableField,
};
use crate::{
    admission::Admission,
    admission_plugins::{AdmissionPlugin, AdmissionPlugins},
    auth::{AccessControl, Caller},
    object::Object,
    registry::Resource,
    request::Target,
    schema::FieldError,
    status::Status,
    storage::Entry,
    validation,
    verbs::{WriteOptions, WriteVerbs},
    warnings::Warnings,
};

/// How the server treats objects of one kind, like the strategies of a real server. Every method has the behaviour of
/// most kinds as its default, and is called in the order of this trait.
pub(crate) trait Strategy: Send + Sync {
    /// The facts that are only data.
    fn facts(&self) -> Facts {
        Facts::DEFAULT
    }

    /// The review, if objects of this kind are answered instead of stored.
    fn as_review(&self) -> Option<&dyn Review> {
        None
    }

    // Decoding.

    /// Sets the defaults that depend on other fields; constant ones are in [`Facts::defaults`].
    fn set_defaults(&self, _object: &mut Object) {}

    /// The stored name of a field that a field selector names. `None` if only another version has that name.
    fn stored_field(&self, field: &str) -> Option<String> {
        Some(field.to_owned())
    }

    /// The error for a field that field selectors may not name. The real server has another one for kinds with
    /// selectable fields of their own.
    fn unknown_field(&self, resource: &Resource, field: &str) -> String {
        if resource.is_custom || !resource.facts.selectable_fields.is_empty() {
            format!("field label not supported: {field}")
        } else {
            format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
    }

    /// Converts an object from the storage version to the resource's.
    fn convert_for_read(&self, _object: &mut Object) {}

    /// Converts an object from the resource's version to the storage version.
    fn convert_to_stored(&self, _object: &mut Object) {}

    // Creation.

    /// Rejects a write that grants more than its writer has.
    fn check_escalation(
        &self,
        _access: &AccessControl,
        _caller: Option<&Caller>,
        _write: &Write<'_>,
    ) -> Result<(), Status> {
        Ok(())
    }

    /// Applies the admission plugins to a new object: completes it, or rejects it.
    fn admit(&self, _creation: &Creation<'_>, _object: &mut Object) -> Result<(), Status> {
        Ok(())
    }

    /// Sets generated fields of a new object, and drops those that a client may not set.
    fn prepare_create(&self, _object: &mut Object) {}

    /// The initial status of a new object.
    fn initial_status(&self, resource: &Resource, _object: &Object, _now: &str) -> InitialStatus {
        if resource.has_status() {
            InitialStatus::Set(json!({}))
        } else {
            InitialStatus::Keep
        }
    }

    /// Sets fields that depend on the name of a new object.
    fn after_naming(&self, _object: &mut Object) {}

    // Updates.

    /// Completes an update of a subresource before anything else happens to it.
    fn prepare_subresource(&self, _target: &Target, _object: &mut Object, _old: &Object, _now: &str) {}

    /// Keeps what a write to a subresource other than the status may not change.
    fn keep_outside_subresource(&self, _subresource: &str, _object: &mut Object, _old: &Object) {}

    /// Keeps the metadata that a write to the status may not change.
    fn keep_metadata_on_status_update(&self, _object: &mut Object, _old: &Object) {}

    /// Keeps the fields that an update may not change, and updates generated ones.
    fn prepare_update(&self, _object: &mut Object, _old: &Object) {}

    /// Applies the admission plugins to an updated object.
    fn admit_update(&self, _plugins: AdmissionPlugins, _object: &mut Object, _old: &Object) {}

    /// Whether a change of metadata increments the generation. A change of anything but metadata and status does.
    fn metadata_increments_generation(&self, _object: &Object, _old: &Object) -> bool {
        false
    }

    // Validation.

    /// Validates the metadata; CRDs and custom resources are validated whole. Also called for the server's own writes.
    /// What is wrong, but no reason to reject the write, becomes a warning.
    fn validate_object(
        &self,
        write: &Write<'_>,
        _subresource: &str,
        _warnings: &mut Warnings,
    ) -> Vec<FieldError> {
        validation::check_metadata(write.object, write.resource)
    }

    /// Errors that hide all others.
    fn validate_first(&self, _object: &Value, _errors: &mut ErrorList) {}

    /// Validates a new or an updated object.
    fn validate(&self, _write: &Write<'_>, _errors: &mut ErrorList) {}

    /// Validates what an update changes. Fields that may not change at all are in [`Facts::immutable_fields`].
    fn validate_changes(&self, _write: &Write<'_>, _old: &Value, _errors: &mut ErrorList) {}

    /// Validates a write to the status, or to another subresource that is a part of the object.
    fn validate_subresource(
        &self,
        _subresource: &str,
        _object: &Value,
        _old: &Value,
        _errors: &mut ErrorList,
    ) {
    }

    /// Rejects a valid update of a subresource by a caller without the right to this change.
    fn authorize_update(
        &self,
        _writes: &WriteVerbs,
        _caller: Option<&Caller>,
        _target: &Target,
        _object: &Object,
        _old: &Object,
    ) -> Result<(), Status> {
        Ok(())
    }

    /// Whether to look for warnings: of an update, only if it changes the generation.
    fn may_warn(&self, write: &Write<'_>) -> bool {
        let generation = |object: &Object| object.metadata().get("generation").cloned();
        write
            .old
            .is_none_or(|old| generation(old) != generation(write.object))
    }

    /// Adds warnings about an accepted object.
    fn warn(&self, _write: &Write<'_>, _warnings: &mut Vec<String>) {}

    /// Sets fields of a new object after validation, and makes the checks that come last.
    fn after_validation(&self, _resource: &Resource, _object: &mut Object) -> Result<(), Status> {
        Ok(())
    }

    /// Allocates what objects of the kind share, such as addresses. The guard is held until the object is written.
    fn allocate<'a>(
        &self,
        _writes: &'a WriteVerbs,
        _resource: &Resource,
        _object: &mut Object,
        _old: Option<&Object>,
        _options: &WriteOptions,
    ) -> Result<Allocation<'a>, Status> {
        Ok(None)
    }

    /// Runs after every write and removal.
    fn after_write(&self, _writes: &WriteVerbs, _entry: &Entry) {}

    /// Runs after a removal, after [`Self::after_write`].
    fn after_removal(&self, _writes: &WriteVerbs, _resource: &Resource, _entry: &Entry) {}

    // Deletion.

    /// Rejects the deletion of an object.
    fn check_delete(&self, _resource: &Resource, _name: &str) -> Result<(), Status> {
        Ok(())
    }

    /// Changes an object when its deletion starts, apart from the deletion timestamp.
    fn prepare_deletion(&self, _object: &mut Object, _now: &str) {}

    /// Whether an object that is being deleted has finalizers elsewhere than in `metadata.finalizers`.
    fn has_other_finalizers(&self, _object: &Object) -> bool {
        false
    }

    /// The grace period of a deletion, for kinds with [`Facts::graceful_deletion`].
    fn grace_seconds(&self, _object: &Object, _requested: Option<i64>) -> i64 {
        0
    }

    // Tables.

    /// The cells of an object's row, one per column of [`Facts::columns`].
    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.text("/metadata/creationTimestamp").into()]
    }

    /// The conditions of an object's row.
    fn row_conditions(&self, _object: &Value) -> Option<Value> {
        None
    }

    /// Removes metadata that tables and partial metadata do not show.
    fn hide_metadata(&self, _metadata: &mut Value) {}
}

/// Held from an allocation until the object is written.
pub(crate) type Allocation<'a> = Option<parking_lot::MutexGuard<'a, ()>>;

/// What admission plugins know about a creation besides the object.
pub(crate) struct Creation<'a> {
    pub(crate) admission: &'a Admission,
    pub(crate) resource: &'a Resource,
    /// The client; `None` for writes of the server itself.
    pub(crate) caller: Option<&'a Caller>,
}

impl Creation<'_> {
    /// Whether a plugin is enabled.
    pub(super) fn has(&self, plugin: AdmissionPlugin) -> bool {
        self.admission.plugins.has(plugin)
    }
}

/// The status of a new object.
pub(crate) enum InitialStatus {
    /// As the client sent it.
    Keep,
    /// None, whatever the client sent.
    Remove,
    /// This one, whatever the client sent.
    Set(Value),
}

/// A creation, or an update of `old`.
pub(crate) struct Write<'a> {
    pub(crate) resource: &'a Resource,
    pub(crate) object: &'a Object,
    pub(crate) old: Option<&'a Object>,
}

impl Write<'_> {
    /// The new state. An absent field reads as null.
    pub(super) fn value(&self) -> &Value {
        self.object.tree()
    }

    pub(super) fn spec(&self) -> &Value {
        &self.object.tree()["spec"]
    }

    pub(super) fn is_new(&self) -> bool {
        self.old.is_none()
    }
}

/// The names of nested fields.
pub(crate) type Path = &'static [&'static str];

pub(super) const SPEC: Path = &["spec"];
pub(crate) const STATUS: Path = &["status"];
pub(super) const METADATA: Path = &["metadata"];

/// What is only data about a kind: its row. [`Facts::DEFAULT`] is what most kinds have in Kubernetes 1.36.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about a kind, each read in one place"
)]
pub(crate) struct Facts {
    /// Whether `metadata.generation` counts changes of the spec.
    pub(crate) has_generation: bool,
    /// Whether a PUT without a resourceVersion overwrites the object unconditionally.
    pub(crate) unconditional_update: bool,
    /// Whether a PUT creates the object if it does not exist.
    pub(crate) create_on_update: bool,
    /// Whether a deletion returns the object instead of a `Status`.
    pub(crate) returns_deleted: bool,
    /// Whether OpenAPI says that a deletion returns the object.
    pub(crate) documents_returned: bool,
    /// Whether dependents are orphaned by default: kinds from before garbage collection.
    pub(crate) orphan_by_default: bool,
    /// Whether objects have a grace period.
    pub(crate) graceful_deletion: bool,
    /// How a deletion that has to wait changes the metadata.
    pub(crate) deletion_marks: DeletionMarks,
    /// The deprecation warning for every request.
    pub(crate) deprecation: Option<&'static str>,
    /// The warning for a deletion without a propagation policy.
    pub(crate) deletion_warning: Option<&'static str>,
    /// The syntax of names.
    pub(crate) name_rule: NameRule,
    /// Whether a write compiles expressions or patterns, which takes long.
    pub(crate) compiles: bool,
    /// Whether a write is compared with all rights of its writer, which takes long if there are many.
    pub(crate) grants_rights: bool,
    /// Whether admission policies do not see its objects, so that none can lock administrators out for good.
    pub(crate) exempt_from_policies: bool,
    /// Whether admission webhooks do not see them.
    pub(crate) exempt_from_webhooks: bool,
    /// Whether [`Strategy::allocate`] gives it something that no other object may have.
    pub(crate) is_allocated: bool,
    /// How often and when updates validate the metadata.
    pub(crate) metadata_checks: MetadataChecks,
    /// The constant defaults, in the order in which they apply.
    pub(crate) defaults: &'static [DefaultRule],
    /// The fields that may not change.
    pub(crate) immutable_fields: &'static [&'static str],
    /// Whether field selectors may name `metadata.namespace`.
    pub(crate) selects_namespace: bool,
    /// The fields that field selectors may name, besides `metadata.name` and `metadata.namespace`.
    pub(crate) selectable_fields: &'static [SelectableField],
    /// The fields that a write to the object ignores, besides a status with its own subresource. They never get an owner
    /// in the managed fields.
    pub(crate) reset_fields: &'static [Path],
    /// The fields that a write to a subresource ignores.
    pub(crate) subresource_reset_fields: &'static [(&'static str, &'static [Path])],
    /// The counters of the status, which cannot be negative.
    pub(crate) counters: &'static [&'static str],
    /// The counters that may not exceed `status.replicas`.
    pub(crate) replica_counters: &'static [&'static str],
    /// The name of `readyReplicas` in the error of a larger `availableReplicas`.
    pub(crate) ready_replicas: &'static str,
    /// The columns of its table: `Name[:type]`, with a leading `+` for those of wide output only; `_` is a space. Kinds
    /// without any show the creation time.
    pub(crate) columns: Option<&'static str>,
    /// The API version in which objects are stored, if it is not the resource's own.
    pub(crate) stored_version: Option<&'static str>,
    /// The group that errors name, and whose table has the objects, if it is not the resource's own.
    pub(crate) stored_group: Option<&'static str>,
}

impl Facts {
    pub(crate) const DEFAULT: Self = Self {
        has_generation: false,
        unconditional_update: true,
        create_on_update: false,
        returns_deleted: false,
        is_allocated: false,
        compiles: false,
        grants_rights: false,
        exempt_from_policies: false,
        exempt_from_webhooks: false,
        documents_returned: false,
        orphan_by_default: false,
        graceful_deletion: false,
        deletion_marks: DeletionMarks::All,
        deprecation: None,
        deletion_warning: None,
        name_rule: NameRule::Subdomain,
        metadata_checks: MetadataChecks {
            metadata: 4,
            finalizers: 2,
            order: CheckOrder::MetadataFirst,
        },
        defaults: &[],
        immutable_fields: &[],
        selects_namespace: true,
        selectable_fields: &[],
        reset_fields: &[],
        subresource_reset_fields: &[("status", &[SPEC])],
        counters: &[],
        replica_counters: &[],
        ready_replicas: "readyReplicas",
        columns: None,
        stored_version: None,
        stored_group: None,
    };

    /// A kind whose deletion returns the object.
    pub(super) const RETURNS_DELETED: Self = Self {
        returns_deleted: true,
        documents_returned: true,
        ..Self::DEFAULT
    };
}

/// The metadata of an object that is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeletionMarks {
    /// The deletion timestamp, the grace period, the next generation, and a finalizer for the propagation policy.
    All,
    /// All but the grace period.
    WithoutGracePeriod,
    /// The deletion timestamp only; a second deletion sets the grace period.
    TimestampOnly,
}

/// The syntax of `metadata.name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// Lower-case letters, digits, `-` and `.`, at most 253.
    Subdomain,
    /// Lower-case letters, digits and `-`, at most 63.
    Label,
    /// Anything valid as a path segment: the RBAC kinds have names such as `system:node`.
    PathSegment,
}

/// How many of the real server's update checks validate the metadata.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetadataChecks {
    pub(crate) metadata: usize,
    /// How many checks validate finalizer names. Only the older checks do; without them, any name is valid.
    pub(crate) finalizers: usize,
    pub(crate) order: CheckOrder,
}

impl MetadataChecks {
    /// Three checks of the metadata, one of them of finalizer names; most kinds have four.
    pub(super) const THREE: Self = Self {
        metadata: 3,
        finalizers: 1,
        order: CheckOrder::MetadataFirst,
    };
}

/// The order in which a kind's update checks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckOrder {
    /// All of the metadata, then the rules, then immutable fields.
    MetadataFirst,
    /// The metadata once more between rules and immutable fields.
    MetadataBetween,
    /// Like [`CheckOrder::MetadataBetween`], with immutable fields before the rules.
    ChangesFirst,
}

/// A kind that is only data.
pub(super) struct Plain(pub(super) Facts);

impl Strategy for Plain {
    fn facts(&self) -> Facts {
        self.0
    }
}

/// A kind whose table has the name and the age.
pub(super) struct NameAndAge(pub(super) Facts);

impl Strategy for NameAndAge {
    fn facts(&self) -> Facts {
        Facts {
            columns: Some("Name Age"),
            ..self.0
        }
    }

    fn cells(&self, row: &Row<'_>) -> Vec<Value> {
        vec![row.name(), row.age()]
    }
}
