//! Computes `metadata.managedFields` of objects that are about to be written.

use std::{borrow::Cow, cell::RefCell, sync::Arc};

use serde_json::{Map, Value};

use super::{WriteOptions, apply};
use crate::{
    conversion, crd, depth,
    fields::{
        FieldSet, Managed, OnConflict, ReplicasPath, ReplicasPaths, SCALE_API_VERSION, Shape, Updater,
        Versions,
    },
    object::{ManagedFields, Object},
    object_store::ObjectStore,
    registry::{self, Catalogue, Resource},
    schema::{self, Schema, Source},
    status::Status,
    webhook::Answers,
};

/// The versions of one resource, for field managers that wrote at different versions: those that are served, and for
/// custom resources all that the CRD has.
pub(super) struct ServedVersions<'a> {
    catalogue: Arc<Catalogue>,
    resource: &'a Resource,
    version: String,
    subresource: &'a str,
    /// The answers of the webhook that converts custom resources; none for the server's own writes.
    answers: Option<&'a Answers>,
    /// Why a conversion has failed.
    failure: RefCell<Option<Status>>,
}

impl<'a> ServedVersions<'a> {
    pub(super) fn new(
        store: &ObjectStore,
        resource: &'a Resource,
        subresource: &'a str,
        options: &'a WriteOptions,
    ) -> Self {
        Self {
            catalogue: store.registry.catalogue(),
            resource,
            version: resource.api_version(),
            subresource,
            answers: options.caller.as_ref().map(|caller| &caller.answers),
            failure: RefCell::default(),
        }
    }

    pub(super) fn resource(&self) -> &'a Resource {
        self.resource
    }

    pub(super) fn subresource(&self) -> &str {
        self.subresource
    }

    /// An error if a conversion has failed, or a webhook has to be asked first. What was computed is wrong then.
    pub(super) fn finish(&self) -> Result<(), Status> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Sets the managed fields that were computed after a create or an update. If a conversion has failed, the object gets
    /// none, as in the real server: only an apply fails then.
    fn finish_or_clear(&self, object: &mut Object, computed: String) -> Result<(), Status> {
        let managed_fields = match self.finish() {
            Ok(()) => ManagedFields::from_stored(computed),
            // What is too deep for this stack is computed on a larger one. No webhook has failed if there was no room for its answer.
            Err(status) if status.is_unfinished() || status.is_without_room() || depth::must_restart() => {
                return Err(status);
            }
            Err(_) => ManagedFields::None,
        };
        object.set_managed_fields(managed_fields);
        Ok(())
    }

    fn resource_at(&self, version: &str) -> Option<&Resource> {
        if version == self.version {
            return Some(self.resource);
        }
        let others = self.catalogue.resources.iter();
        others
            .map(|resource| &**resource)
            .find(|other| other.table == self.resource.table && other.api_version() == version)
    }

    /// The schema at a version; `None` if the resource has no such version.
    fn schema_at(&self, version: &str) -> Option<&Schema> {
        match &self.resource.crd {
            Some(crd) if version != self.version => crd.conversion.schema(version),
            _ => self.resource_at(version)?.schema.as_ref(),
        }
    }

    /// Whether stored managed fields have an entry in a version that a custom resource's CRD no longer has. A real server
    /// cannot compute such managed fields: an apply fails, and every other write clears them.
    pub(super) fn has_removed_version(&self, managed_fields: &str) -> bool {
        self.resource.is_custom
            && Managed::versions_in(managed_fields).any(|version| self.conversion_error(version).is_some())
    }

    /// The updater for one write by the named field manager.
    pub(super) fn updater<'w>(&'w self, manager_name: &'w str, now: &'w str) -> Updater<'w, Self> {
        Updater {
            manager_name,
            version: &self.version,
            subresource: self.subresource,
            now,
            versions: self,
        }
    }
}

impl Versions for ServedVersions<'_> {
    fn shape<'s>(&'s self, version: &str) -> Option<Shape<'s>> {
        let schema = self.schema_at(version)?.view();
        Some(Shape::for_resource(Some(schema), self.resource.is_custom))
    }

    fn convert(&self, object: &Value, version: &str) -> Option<Value> {
        if self.resource.is_custom {
            self.schema_at(version)?;
            let mut object = Object::new(object.clone())?;
            if let Some(answers) = self.answers.filter(|_| crd::has_webhook(self.resource)) {
                let converted = crd::convert_by_webhook(self.resource, object, version, answers);
                return match converted {
                    Ok(converted) => Some(converted.into_tree()),
                    Err(status) => {
                        self.failure.borrow_mut().get_or_insert(status);
                        None
                    }
                };
            }
            // Fields that the other version lacks stay, as in the real server.
            object.fields_mut().insert("apiVersion".into(), version.into());
            return Some(object.into_tree());
        }
        let to = self.resource_at(version)?;
        let from = self.resource_at(object["apiVersion"].as_str().unwrap_or_default())?;
        let mut object = Object::new(object.clone())?;
        conversion::convert_to_stored(from, &mut object);
        Some(conversion::convert_for_read(object, to).into_tree())
    }

    fn reset_fields(&self, version: &str) -> FieldSet<'static> {
        // A real server knows those of custom resources for the version of the request only.
        if self.resource.is_custom && version != self.version {
            return FieldSet::default();
        }
        let resource = self.resource_at(version).unwrap_or(self.resource);
        FieldSet::from_paths(resource.reset_fields(self.subresource))
    }

    fn conversion_error(&self, version: &str) -> Option<String> {
        let removed = self.resource.is_custom && self.schema_at(version).is_none();
        removed.then(|| format!("request to convert CR to an invalid group/version: {version}"))
    }
}

impl ReplicasPaths for ServedVersions<'_> {
    fn path(&self, version: &str) -> ReplicasPath<'_> {
        let Some(resource) = self.resource_at(version) else {
            return ReplicasPath::NotServed;
        };
        let pointer = match &resource.scale {
            Some(paths) => &*paths.spec_replicas,
            None if resource.is_custom => return ReplicasPath::NoScale,
            None => "/spec/replicas",
        };
        ReplicasPath::At(pointer.trim_start_matches('/').split('/').collect())
    }
}

/// Why apply cannot change the Scale of a custom resource: the real server mistakes the Scale for the custom resource.
const CUSTOM_SCALE_ERROR: &str = "request to convert CR to an invalid group/version: autoscaling/v1";

/// The only version of a Scale. No field of it is reset.
struct ScaleVersions;

impl Versions for ScaleVersions {
    fn shape<'s>(&'s self, version: &str) -> Option<Shape<'s>> {
        (version == SCALE_API_VERSION).then(|| Shape::for_resource(Some(registry::scale().view()), false))
    }

    fn convert(&self, _: &Value, _: &str) -> Option<Value> {
        None
    }

    fn reset_fields(&self, _: &str) -> FieldSet<'static> {
        FieldSet::default()
    }
}

/// An object with no field set, as the real server creates before it decodes a body.
pub(super) fn blank(resource: &Resource) -> &Value {
    resource.empty_object.get_or_init(|| {
        let mut blank = Value::Object(Map::new());
        if let Some(schema) = resource.schema.as_ref().filter(|_| !resource.is_custom) {
            // An empty object decodes into every schema.
            let _ = schema::decode(schema.view(), &mut blank, Source::Json);
        }
        blank["apiVersion"] = resource.api_version().into();
        blank["kind"] = resource.kind.to_string().into();
        blank
    })
}

/// Sets the managed fields of a new object.
pub(crate) fn set_managed_fields_on_create(
    store: &ObjectStore,
    resource: &Resource,
    options: &WriteOptions,
    object: &mut Object,
) -> Result<(), Status> {
    let served = ServedVersions::new(store, resource, "", options);
    let now = options.environment(&store.environment).now_rfc3339();
    let submitted = object.take_managed_fields();
    let writer = served.updater(&options.field_manager, &now);
    let blank = blank(resource);
    let managed_fields = match SubmittedFields::of(&submitted) {
        SubmittedFields::Set(submitted) if served.has_removed_version(&submitted.clone().into_json()) => {
            Ok(String::new())
        }
        SubmittedFields::Set(submitted) => writer
            .update(blank, object.tree(), || submitted.clone())
            .map(|updated| updated.unwrap_or(submitted).into_json()),
        _ => writer.managed_fields_of_new(blank, object.tree()),
    };
    served.finish_or_clear(object, managed_fields.unwrap_or_default())
}

/// Sets the managed fields of an updated object.
pub(crate) fn set_managed_fields_on_update(
    store: &ObjectStore,
    resource: &Resource,
    subresource: &str,
    options: &WriteOptions,
    object: &mut Object,
    old: &Object,
) -> Result<(), Status> {
    let served = ServedVersions::new(store, resource, subresource, options);
    let now = options.environment(&store.environment).now_rfc3339();
    let submitted = object.take_managed_fields();
    // A write to a subresource cannot set managed fields.
    let submitted = if subresource.is_empty() && submitted != *old.managed_fields() {
        SubmittedFields::of(&submitted)
    } else {
        SubmittedFields::Unset
    };
    let unchanged = match &submitted {
        SubmittedFields::Unset => Cow::Borrowed(old.managed_fields().stored_json()),
        SubmittedFields::Reset => Cow::Borrowed(""),
        SubmittedFields::Set(submitted) => Cow::Owned(submitted.clone().into_json()),
    };
    if served.has_removed_version(&unchanged) {
        return Ok(());
    }
    let managed = || match submitted {
        SubmittedFields::Unset => Managed::parse(old.managed_fields().stored_json()),
        SubmittedFields::Reset => Managed::default(),
        SubmittedFields::Set(submitted) => submitted,
    };
    let updated = served
        .updater(&options.field_manager, &now)
        .update(old.tree(), object.tree(), managed)
        .map(|updated| updated.map_or_else(|| unchanged.into_owned(), Managed::into_json));
    served.finish_or_clear(object, updated.unwrap_or_default())
}

/// The managed fields in a client's request.
enum SubmittedFields<'a> {
    /// Absent or invalid: the stored ones stay.
    Unset,
    /// An empty list, or one empty entry: the client resets them.
    Reset,
    Set(Managed<'a>),
}

impl<'a> SubmittedFields<'a> {
    fn of(managed_fields: &'a ManagedFields) -> Self {
        let managed = match managed_fields {
            ManagedFields::None => return Self::Unset,
            ManagedFields::Stored(json) => Managed::parse(json),
            ManagedFields::Submitted(submitted) => match submitted.as_array().map(Vec::as_slice) {
                Some([]) => return Self::Reset,
                Some([Value::Object(entry)]) if entry.is_empty() => return Self::Reset,
                _ => Managed::from_client(submitted).unwrap_or_default(),
            },
        };
        if managed.is_empty() {
            return Self::Unset;
        }
        Self::Set(managed)
    }
}

/// The managed fields of an object after an update of its scale.
pub(crate) fn managed_fields_after_scale(
    store: &ObjectStore,
    resource: &Resource,
    options: &WriteOptions,
    managed_fields: &ManagedFields,
    [old, new]: [&Value; 2],
) -> ManagedFields {
    let served = ServedVersions::new(store, resource, "scale", options);
    let now = options.environment(&store.environment).now_rfc3339();
    let parent = Managed::parse(managed_fields.stored_json());
    let scale = parent.to_scale(&served);
    let updated = scale_updater(&options.field_manager, &now).update(old, new, || scale.clone());
    let scale = updated.map(|updated| updated.unwrap_or(scale));
    let scale = scale.unwrap_or_default();
    ManagedFields::from_stored(parent.to_parent(scale, &served.version, &served).into_json())
}

/// Applies a configuration to a scale. Returns the new scale and the object's new managed fields.
pub(crate) fn apply_to_scale(
    store: &ObjectStore,
    resource: &Resource,
    options: &WriteOptions,
    managed_fields: &ManagedFields,
    live: &Value,
    config: &Value,
) -> Result<(Value, ManagedFields), Status> {
    apply::check_kind(config, SCALE_API_VERSION, "Scale")?;
    let served = ServedVersions::new(store, resource, "scale", options);
    let now = options.environment(&store.environment).now_rfc3339();
    let parent = Managed::parse(managed_fields.stored_json());
    let mut scale = parent.to_scale(&served);
    let blank = serde_json::json!({"kind": "Scale", "apiVersion": SCALE_API_VERSION, "metadata": {}, "spec": {},
        "status": {"replicas": 0}});
    if scale.is_empty() && resource.is_custom {
        return Err(Status::without_reason(format!(
            "failed to create manager for existing fields: failed to convert live object (/; {SCALE_API_VERSION}, Kind=Scale) to \
             proper version: {CUSTOM_SCALE_ERROR}"
        )));
    }
    if scale.is_empty() {
        scale = scale_updater(apply::BEFORE_FIRST_APPLY, &now)
            .create(&blank, live)
            .unwrap_or_default();
    }
    let on_conflict = if options.force {
        OnConflict::Force
    } else {
        OnConflict::Fail
    };
    let applied = scale_updater(&options.field_manager, &now)
        .apply(live, config, scale, &on_conflict)
        .map_err(|refused| apply::apply_error_status(&refused, config))?;
    if resource.is_custom && applied.object.is_some() {
        return Err(Status::without_reason(format!(
            "failed to convert new object ({}) to proper version: {CUSTOM_SCALE_ERROR}",
            apply::describe(config)
        )));
    }
    let managed_fields = parent
        .to_parent(applied.managed, &served.version, &served)
        .into_json();
    Ok((
        applied.object.unwrap_or_else(|| live.clone()),
        ManagedFields::from_stored(managed_fields),
    ))
}

fn scale_updater<'a>(manager_name: &'a str, now: &'a str) -> Updater<'a, ScaleVersions> {
    Updater {
        manager_name,
        version: SCALE_API_VERSION,
        subresource: "scale",
        now,
        versions: &ScaleVersions,
    }
}

/// Keeps the old managed fields where the new ones differ only in times and nothing else has changed.
pub(super) fn keep_unchanged_times(object: &mut Object, old: &Object) {
    if object.managed_fields() == old.managed_fields() || object.tree() != old.tree() {
        return;
    }
    let (new, known) = (
        Managed::parse(object.managed_fields().stored_json()),
        Managed::parse(old.managed_fields().stored_json()),
    );
    if new.equals_ignoring_times(&known) {
        object.set_managed_fields(old.managed_fields().clone());
    }
}
