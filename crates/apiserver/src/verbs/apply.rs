//! Server-side apply: a configuration has only the fields that its applier wants to set.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::{
    Answer, WriteOptions, WriteVerbs,
    decoding::{apply_field_validation, to_object},
    managed_fields::{ServedVersions, blank},
    prepare::{check_resource_version, match_request, require_name},
    render_entry, tries,
};
use crate::{
    conversion, crd, depth,
    fields::{
        Applied, ApplyError, FieldSet, Managed, ManagedFieldsError, OnConflict, Versions, compare, extract,
    },
    json, limits,
    object::{ManagedFields, Object},
    object_store::ObjectStore,
    patch::PatchKind,
    registry::Resource,
    request::Target,
    status::Status,
    storage::Entry,
    warnings::Warnings,
    yaml,
};

/// The field manager that is treated as kubectl, which may have used client-side apply before.
const KUBECTL_MANAGER: &str = "kubectl";

/// The annotation in which client-side apply keeps the last applied configuration.
const LAST_APPLIED_ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manager of the fields that existed before the first apply.
pub(super) const BEFORE_FIRST_APPLY: &str = "before-first-apply";

impl WriteVerbs {
    pub(super) fn apply(
        &self,
        target: &Target,
        options: &WriteOptions,
        body: &Bytes,
    ) -> Result<Answer, Status> {
        let resource = &target.resource;
        let Configuration {
            config,
            duplicate_keys,
        } = Configuration::read(body)?;
        let served = ServedVersions::new(&self.store, resource, &target.subresource, options);
        let known = self.store.storage.get(&resource.table, &target.key());
        for _ in 0..tries(body, known.as_deref()) {
            let entry = match self.store.current_for(target, options.caller.as_deref()) {
                Ok(entry) => Some(entry),
                Err(status) if status.code == 404 => None,
                Err(status) => return Err(status),
            };
            let old = entry
                .as_ref()
                .map(|entry| conversion::decode_for_read(entry, resource))
                .transpose()?;
            check_kind(&config, &resource.api_version(), &resource.kind)?;
            let now = options.environment(&self.store.environment).now_rfc3339();
            if let (Some(entry), Some(old)) = (&entry, &old)
                && duplicate_keys.is_empty()
                && self.changes_nothing(&served, entry, old, (&config, options, &now))
            {
                return Ok(Answer::Object {
                    code: 200,
                    json: render_entry(entry, resource),
                    warnings: Warnings::default(),
                });
            }
            let live = old.as_ref().map_or_else(|| blank(resource), Object::tree);
            let mut managed =
                Managed::parse(old.as_ref().map_or("", |old| old.managed_fields().stored_json()));
            if managed.is_empty() && old.is_some() {
                let before = served
                    .updater(BEFORE_FIRST_APPLY, &now)
                    .create(blank(resource), live);
                managed = before.map_err(|ManagedFieldsError(why)| {
                    Status::without_reason(format!("failed to create manager for existing fields: {why}"))
                })?;
            }
            let allowed = old
                .as_ref()
                .filter(|_| &*options.field_manager == KUBECTL_MANAGER)
                .and_then(last_applied);
            let allowed = allowed
                .as_ref()
                .and_then(|last| client_side_applied_fields(&served, &resource.api_version(), last, live));
            let on_conflict = match &allowed {
                _ if options.force => OnConflict::Force,
                Some(allowed) => OnConflict::Allow(allowed),
                None => OnConflict::Fail,
            };
            let applied =
                served
                    .updater(&options.field_manager, &now)
                    .apply(live, &config, managed, &on_conflict);
            served.finish()?;
            let applied = applied.map_err(|refused| apply_error_status(&refused, &config))?;
            let Applied { object, managed } = applied;
            let managed_fields = ManagedFields::from_stored(managed.into_json());
            let value = object.unwrap_or_else(|| live.clone());
            let (mut object, _) = to_object(value, resource, PatchKind::Apply.source()).map_err(|why| {
                Status::without_reason(format!(
                    "failed to convert new object ({}) to proper version: {why}",
                    describe(&config)
                ))
            })?;
            object.set_managed_fields(managed_fields);
            if &*options.field_manager == KUBECTL_MANAGER {
                update_last_applied(&mut object, &config);
            }
            if !options.dry_run {
                limits::check_storable(resource, &object)?;
            }
            let warnings = apply_field_validation(duplicate_keys.clone(), options.field_validation).map_err(|_| {
                Status::bad_request(format!(
                    "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
                    duplicate_keys.join("\n  ")
                ))
            })?;
            let (Some(entry), Some(old)) = (entry, old) else {
                match self.create_applied(target, options, object, warnings) {
                    // Another client created it in between.
                    Err(status) if status.code == 409 && self.exists(target) => continue,
                    answer => return answer,
                }
            };
            require_name(&object, target)?;
            match_request(&mut object, target)?;
            let version = object.meta("resourceVersion").to_owned();
            check_resource_version(&version)?;
            if let Some(answer) =
                self.replace(target, options, (&entry, &old), (object, &version), warnings)?
            {
                return Ok(answer);
            }
        }
        Err(Status::modified(resource, &target.name))
    }

    /// Whether an apply surely changes nothing, as most do, found out without merging.
    fn changes_nothing(
        &self,
        served: &ServedVersions<'_>,
        entry: &Arc<Entry>,
        old: &Object,
        (config, options, now): (&Value, &WriteOptions, &str),
    ) -> bool {
        let resource = served.resource();
        let managed_fields = old.managed_fields().stored_json();
        !self.admission.may_see(resource, served.subresource())
            && is_stored_entry(&self.store, resource, entry)
            && last_applied(old).is_none()
            && follows_rules(resource, old)
            && !served.has_removed_version(managed_fields)
            && served
                .updater(&options.field_manager, now)
                .is_noop_apply(old.tree(), config, managed_fields)
    }

    fn exists(&self, target: &Target) -> bool {
        let entry = self.store.storage.get(&target.resource.table, &target.key());
        entry.is_some()
    }

    /// Creates the object of an apply that found none.
    fn create_applied(
        &self,
        target: &Target,
        options: &WriteOptions,
        mut object: Object,
        warnings: Warnings,
    ) -> Result<Answer, Status> {
        let resource = &target.resource;
        if !target.subresource.is_empty() {
            return Err(Status::not_found(resource, &target.name));
        }
        let uid = object.meta("uid");
        if !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Status::conflict(resource, &target.name, &why));
        }
        require_name(&object, target)?;
        match_request(&mut object, target)?;
        object.metadata_mut().remove("resourceVersion");
        self.insert(target, options, object, warnings)
    }
}

/// Whether the stored object may be written again: rules may have been added since it was, and some never accept one.
fn follows_rules(resource: &Resource, object: &Object) -> bool {
    let mut warnings = Warnings::default();
    resource.rules().is_none()
        || (crd::check_rules(resource, object, Some(object), &mut warnings).is_empty() && warnings.is_empty())
}

/// Whether the entry is the stored one, not converted to this version or the current schema.
fn is_stored_entry(store: &ObjectStore, resource: &Resource, entry: &Arc<Entry>) -> bool {
    let stored = || store.storage.get(&resource.table, &entry.key);
    !conversion::needs_conversion(resource)
        && (!resource.is_custom || stored().is_some_and(|stored| Arc::ptr_eq(&stored, entry)))
}

/// The decoded body of an apply.
pub(crate) struct Configuration {
    pub(crate) config: Value,
    /// Messages about duplicate keys.
    duplicate_keys: Vec<String>,
}

impl Configuration {
    /// Reads JSON first, which most clients send, then YAML.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Status> {
        let name = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
        let (config, duplicate_keys) = match json::read(body) {
            Ok((config, duplicates)) => {
                let duplicates = duplicates.iter().map(|path| name(path));
                let message = |name| format!("line 1: key {name:?} already set in map");
                (config, duplicates.map(message).collect())
            }
            Err(_) => {
                // The brackets of a YAML string are no depth; YAML's reader says itself what is too deep.
                depth::settle();
                yaml::read(body).map_err(|why| {
                    Status::bad_request(format!(
                        "error decoding YAML: error converting YAML to JSON: {why}"
                    ))
                })?
            }
        };
        match config {
            Value::Null => Ok(Self {
                config: Value::Object(Map::new()),
                duplicate_keys,
            }),
            config @ Value::Object(_) => Ok(Self {
                config,
                duplicate_keys,
            }),
            other => Err(Status::bad_request(format!(
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into \
                 Go value of type map[string]interface {{}}",
                crate::golang::json_type(&other)
            ))),
        }
    }
}

/// `apps/v1, Kind=Deployment`; `/v1, Kind=Pod`
fn group_version_kind(config: &Value) -> String {
    let text = |key: &str| config[key].as_str().unwrap_or_default();
    let version = text("apiVersion");
    let version = match version.matches('/').count() {
        0 => format!("/{version}"),
        1 => version.to_owned(),
        _ => "/".to_owned(),
    };
    format!("{version}, Kind={}", text("kind"))
}

/// Rejects a configuration of another kind, or with managed fields.
pub(crate) fn check_kind(config: &Value, version: &str, kind: &str) -> Result<(), Status> {
    if config["apiVersion"] != version || config["kind"] != kind {
        return Err(Status::bad_request(format!(
            "invalid object type: {}",
            group_version_kind(config)
        )));
    }
    if config["metadata"]
        .get("managedFields")
        .is_some_and(Value::is_array)
    {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

/// A configuration's name and kind for error messages.
pub(super) fn describe(config: &Value) -> String {
    let text = |key: &str| config["metadata"][key].as_str().unwrap_or_default();
    format!(
        "{}/{}; {}",
        text("namespace"),
        text("name"),
        group_version_kind(config)
    )
}

/// The real server's status for a failed apply.
pub(crate) fn apply_error_status(refused: &ApplyError, config: &Value) -> Status {
    match refused {
        ApplyError::Conflicts(conflicts) => Status::apply_conflicts(conflicts),
        ApplyError::Invalid(why) => Status::without_reason(format!(
            "failed to create typed patch object ({}): {why}",
            describe(config)
        )),
        ApplyError::Unaccountable(ManagedFieldsError(why)) => Status::without_reason(why.as_str()),
    }
}

/// The configuration of the last client-side apply, if there was one.
fn last_applied(object: &Object) -> Option<Value> {
    let annotations = object.metadata().get("annotations")?;
    serde_json::from_str(annotations[LAST_APPLIED_ANNOTATION].as_str()?).ok()
}

/// The fields of the last client-side apply that still have its values. kubectl may take them over without a conflict.
fn client_side_applied_fields<'a>(
    served: &'a impl Versions,
    version: &str,
    last: &'a Value,
    live: &'a Value,
) -> Option<FieldSet<'a>> {
    if last["apiVersion"] != version {
        return None;
    }
    let shape = served.shape(version)?;
    let mut fields = extract(shape, last).ok()?;
    let comparison = compare(shape, last, live)?;
    fields.subtract(&comparison.changed);
    fields.subtract(&comparison.removed);
    Some(fields)
}

/// Updates the last-applied annotation, so that client-side apply still works afterwards.
fn update_last_applied(object: &mut Object, config: &Value) {
    let annotations = object.metadata_mut().get_mut("annotations");
    let Some(note) = annotations.and_then(|annotations| annotations.get_mut(LAST_APPLIED_ANNOTATION)) else {
        return;
    };
    if note.as_str().is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = config["metadata"]
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove(LAST_APPLIED_ANNOTATION);
    }
    *note = format!("{config}\n").into();
}
