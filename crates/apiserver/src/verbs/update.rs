//! Update and patch of existing objects.

use bytes::Bytes;
use serde_json::Value;

use super::{
    Answer, WriteOptions, WriteVerbs,
    decoding::{
        all_problems, apply_field_validation, check, check_kind, decode_update, not_a_struct, to_object,
        wrong_custom_kind,
    },
    invalid,
    managed_fields::{keep_unchanged_times, set_managed_fields_on_create, set_managed_fields_on_update},
    prepare::{
        check_resource_version, dry_run_answer, match_namespace, match_request, prepare_update, require_name,
    },
    render_entry, tries,
};
use crate::{
    admission::{Admitted, Operation},
    auth::Caller,
    conversion,
    crd::{self, WriteConversion},
    kinds::{self, UpdateErrors, Write},
    limits,
    media::Encoding,
    object::Object,
    object_store::ObjectStore,
    patch::PatchKind,
    registry::Resource,
    request::Target,
    schema::{FieldError, Problem, Schema},
    status::Status,
    storage::{Change, Entry, Expect},
    validation,
    warnings::Warnings,
};

impl WriteVerbs {
    pub(crate) fn update(
        &self,
        target: &Target,
        options: &WriteOptions,
        body: &[u8],
        encoding: Encoding,
    ) -> Result<Answer, Status> {
        let resource = &target.resource;
        let known = self.store.storage.get(&resource.table, &target.key());
        let managed_fields = known.as_ref().map_or("", |entry| entry.object.managed_fields());
        let (object, warnings) =
            decode_update(managed_fields, resource, body, encoding, options.field_validation)?;
        let tries = tries(body, known.as_deref());
        self.update_with(target, options, object, &warnings, tries)
            .map_err(|status| status.with_warnings(&warnings))
    }

    fn update_with(
        &self,
        target: &Target,
        options: &WriteOptions,
        mut object: Object,
        warnings: &Warnings,
        tries: usize,
    ) -> Result<Answer, Status> {
        let resource = &target.resource;
        let known = self.store.storage.get(&resource.table, &target.key());
        require_name(&object, target)?;
        match_request(&mut object, target)?;
        if resource.facts.create_on_update && target.subresource.is_empty() && known.is_none() {
            let uid = object.meta("uid");
            if !uid.is_empty() {
                return Err(uid_mismatch(resource, &object, uid, ""));
            }
            object.metadata_mut().remove("resourceVersion");
            set_managed_fields_on_create(&self.store, resource, options, &mut object)?;
            return self.insert(target, options, object, warnings.clone());
        }
        let version = object.meta("resourceVersion").to_owned();
        check_resource_version(&version)?;
        let mut object = Some(object);
        for _ in 0..tries {
            // A request with a resource version is tried once.
            let attempt = if version.is_empty() {
                object.clone()
            } else {
                object.take()
            };
            let Some(mut object) = attempt else {
                break;
            };
            let entry = self.store.current_for(target, options.caller.as_deref())?;
            let uid = object.meta("uid");
            let old = conversion::decode_for_read(&entry, resource)?;
            if !uid.is_empty() && uid != old.meta("uid") {
                return Err(uid_mismatch(resource, &old, uid, old.meta("uid")));
            }
            set_managed_fields_on_update(
                &self.store,
                resource,
                &target.subresource,
                options,
                &mut object,
                &old,
            )?;
            if let Some(answer) = self.replace(
                target,
                options,
                (&entry, &old),
                (object, &version),
                warnings.clone(),
            )? {
                return Ok(answer);
            }
        }
        Err(Status::modified(resource, &target.name))
    }

    pub(crate) fn patch(
        &self,
        target: &Target,
        options: &WriteOptions,
        body: &Bytes,
        kind: PatchKind,
    ) -> Result<Answer, Status> {
        if kind == PatchKind::Apply {
            return self.apply(target, options, body);
        }
        let resource = &target.resource;
        let (patch, duplicates) = kind.decode(body)?;
        let schema = resource.schema.as_ref().map(Schema::view);
        let known = self.store.storage.get(&resource.table, &target.key());
        for _ in 0..tries(body, known.as_deref()) {
            let entry = self.store.current_for(target, options.caller.as_deref())?;
            let old = conversion::decode_for_read(&entry, resource)?;
            // Few patches touch the managed fields.
            let mut value = if patch.touches_managed_fields() {
                old.clone().into_value()
            } else {
                old.clone().into_tree()
            };
            value["apiVersion"] = resource.api_version().into();
            patch.apply(schema, &mut value)?;
            let refused = |why: String| {
                let mut whole = old.clone().into_value();
                whole["apiVersion"] = resource.api_version().into();
                // It was applied above without an error.
                let _ = patch.apply(schema, &mut whole);
                let problem = Problem::Invalid(patch.quote_in_error(&whole).into(), why);
                Status::invalid("", "", "", &[FieldError::new("patch", problem)])
            };
            if !value.is_object() {
                return Err(match value {
                    Value::Array(_) => refused(format!(
                        "couldn't get version/kind; json parse error: {}",
                        not_a_struct(&value)
                    )),
                    _ => Status::patch_rejected(),
                });
            }
            let text = |key: &str| value[key].as_str().unwrap_or_default();
            if resource.is_custom && !text("kind").is_empty() && *text("kind") != *resource.kind {
                return Err(wrong_custom_kind(text("kind"), &target.name, resource));
            }
            check_kind(text("kind"), text("apiVersion"), resource).map_err(refused)?;
            value["kind"] = resource.kind.to_string().into();
            value["apiVersion"] = resource.api_version().into();
            let (mut object, unknown) = to_object(value, resource, kind.source()).map_err(refused)?;
            let problems = all_problems(duplicates.clone(), unknown);
            let warnings = apply_field_validation(problems, options.field_validation).map_err(refused)?;
            let with_warnings = |status: Status| status.with_warnings(&warnings);
            require_name(&object, target).map_err(with_warnings)?;
            match_request(&mut object, target).map_err(with_warnings)?;
            let version = object.meta("resourceVersion").to_owned();
            check_resource_version(&version).map_err(with_warnings)?;
            // A patch needs no version.
            let version = if version.is_empty() {
                entry.revision.to_string()
            } else {
                version
            };
            set_managed_fields_on_update(
                &self.store,
                resource,
                &target.subresource,
                options,
                &mut object,
                &old,
            )
            .map_err(with_warnings)?;
            let written = self.replace(
                target,
                options,
                (&entry, &old),
                (object, &version),
                warnings.clone(),
            );
            if let Some(answer) = written.map_err(with_warnings)? {
                return Ok(answer);
            }
        }
        Err(Status::modified(resource, &target.name))
    }

    /// Replaces the state that was read with a new one, if it has the given version; `None` on conflict.
    pub(super) fn replace(
        &self,
        target: &Target,
        options: &WriteOptions,
        (entry, old): (&Entry, &Object),
        (mut object, required): (Object, &str),
        mut warnings: Warnings,
    ) -> Result<Option<Answer>, Status> {
        let resource = &target.resource;
        let (strategy, caller) = (resource.strategy, options.caller.as_deref());
        let admitted = Admitted::write(target, Operation::Update, options);
        let has_version = !object.meta("resourceVersion").is_empty();
        let was_changed = self
            .admission
            .mutate(&admitted, &mut object, Some(old), &mut warnings, |_| Ok(()))?;
        // A real server compares the version only when it stores the object: mutating webhooks have been asked by then, and
        // may have removed it.
        let version = Some(object.meta("resourceVersion"));
        let version = version.filter(|version| has_version || !version.is_empty());
        check_precondition(version.unwrap_or(required), entry, target)?;
        if was_changed {
            match_namespace(&mut object, target)?;
            check_name(resource, &object, old)?;
        }
        let write = Write {
            resource,
            object: &object,
            old: Some(old),
        };
        strategy.check_escalation(&self.access, caller, &write)?;
        let now = options.environment(&self.store.environment).now_rfc3339();
        strategy.prepare_subresource(target, &mut object, old, &now);
        let mut errors = prepare_update(&mut object, old, target, self.admission.plugins);
        let found = check(resource, &target.subresource, &object, Some(old), &mut warnings);
        // A subresource changes only its own fields; the rest was validated before.
        match &*target.subresource {
            "" => {
                let misplaced = kinds::validate_first(resource, &object);
                if misplaced.is_empty() {
                    let changed = kinds::validate_update(resource, &object, old);
                    errors.extend(validation::update_errors(&found, changed, resource));
                } else {
                    errors = misplaced;
                }
            }
            part => {
                let immutable_fields = kinds::validate_subresource(resource, part, &object, old);
                let rules = Vec::new();
                errors.extend(validation::update_errors(
                    &found,
                    UpdateErrors {
                        rules,
                        immutable_fields,
                    },
                    resource,
                ));
            }
        }
        if !errors.is_empty() {
            return Err(invalid(resource, &target.name, &errors).with_warnings(&warnings));
        }
        strategy.authorize_update(self, caller, target, &object, old)?;
        warnings.extend(kinds::warnings(resource, &object, Some(old)));
        if target.subresource.is_empty() {
            warnings.extend(self.limitations.warnings(resource, &object, Some(old)));
        }
        object.keep_meta("resourceVersion", old);
        let _allocation =
            self.allocate_and_validate(&admitted, &mut object, Some(old), options, &mut warnings)?;
        if options.dry_run {
            // A conversion that fails would fail the write.
            let conversion = WriteConversion::of(resource, &object, caller)?;
            conversion.check_storable(resource)?;
            let shown = conversion.shown(resource, object);
            return Ok(Some(dry_run_answer(200, shown, warnings)));
        }
        self.store_update((resource, caller), entry, old, object, warnings)
    }

    /// Writes an admitted update; `None` on conflict.
    fn store_update(
        &self,
        (resource, caller): (&Resource, Option<&Caller>),
        entry: &Entry,
        old: &Object,
        mut object: Object,
        warnings: Warnings,
    ) -> Result<Option<Answer>, Status> {
        // Without finalizers the object is removed. The answer shows it as the client wrote it.
        if kinds::can_be_removed(resource, &object) {
            // Watchers see its previous state.
            let mut last = old.clone();
            return Ok(
                match self
                    .store
                    .commit(resource, &mut last, Expect::At(entry.revision), Change::Remove)
                {
                    Ok(removed) => {
                        self.after_removal(resource, &removed);
                        object.set_meta("resourceVersion", entry.revision.to_string());
                        let json = object.encode(entry.revision, &[]).json().clone();
                        Some(Answer::Object {
                            code: 200,
                            json,
                            warnings,
                        })
                    }
                    Err(_) => None,
                },
            );
        }
        limits::make_storable(resource, &mut object)?;
        object.keep_meta("resourceVersion", old);
        object
            .fields_mut()
            .insert("apiVersion".into(), old.fields()["apiVersion"].clone());
        keep_unchanged_times(&mut object, old);
        let conversion = WriteConversion::of(resource, &object, caller)?;
        self.store
            .check_room((resource, caller), (&object, &conversion), Some(entry))?;
        if object == *old && is_stored_unchanged(&self.store, resource, (&object, &conversion), entry) {
            return Ok(Some(Answer::Object {
                code: 200,
                json: render_entry(entry, resource),
                warnings,
            }));
        }
        Ok(
            match self.store.commit_converted(
                resource,
                &mut object,
                conversion,
                Expect::At(entry.revision),
                Change::Put,
            ) {
                Ok(entry) => {
                    self.after_write(resource, &entry);
                    Some(Answer::Object {
                        code: 200,
                        json: render_entry(&entry, resource),
                        warnings,
                    })
                }
                Err(_) => None,
            },
        )
    }
}

/// Rejects an update in which a mutation has changed the name. A real server finds that twice.
fn check_name(resource: &Resource, object: &Object, old: &Object) -> Result<(), Status> {
    let name = object.name();
    if name == old.name() {
        return Ok(());
    }
    let error = || {
        let problem = Problem::Invalid(name.into(), "field is immutable".into());
        FieldError::new("metadata.name", problem)
    };
    Err(invalid(resource, name, &[error(), error()]))
}

/// Whether storing an object would change nothing. It would if the schema has changed since it was stored.
fn is_stored_unchanged(
    store: &ObjectStore,
    resource: &Resource,
    (object, conversion): (&Object, &WriteConversion),
    entry: &Entry,
) -> bool {
    let stored = store.storage.get(&resource.table, &entry.key);
    !resource.is_custom
        || stored.is_some_and(|stored| {
            let object = match conversion {
                WriteConversion::Stored => object.clone(),
                WriteConversion::Computed => {
                    let mut object = object.clone();
                    crd::convert_to_stored(resource, &mut object);
                    object
                }
                WriteConversion::Converted { stored, .. } => {
                    let mut stored = stored.clone();
                    stored.keep_meta("resourceVersion", object);
                    *stored
                }
            };
            stored.revision == entry.revision && stored.object.decode().is_ok_and(|stored| stored == object)
        })
}

/// Rejects a write whose resource version is not the stored one. A write without one passes where the kind allows
/// unconditional updates.
pub(super) fn check_precondition(version: &str, entry: &Entry, target: &Target) -> Result<(), Status> {
    let resource = &target.resource;
    if version.is_empty() || version == "0" {
        if resource.facts.unconditional_update {
            return Ok(());
        }
        let problem = Problem::Invalid(0.into(), "must be specified for an update".into());
        let error = FieldError::new("metadata.resourceVersion", problem);
        // Only this error names the resource instead of the kind.
        return Err(Status::invalid(
            &resource.group,
            &resource.plural,
            &target.name,
            &[error],
        ));
    }
    if version.parse::<u64>().is_err() {
        return Err(Status::without_reason(format!(
            "strconv.ParseUint: parsing {version:?}: invalid syntax"
        )));
    }
    if version != entry.revision.to_string() {
        return Err(Status::modified(resource, &target.name));
    }
    Ok(())
}

fn uid_mismatch(resource: &Resource, object: &Object, requested_uid: &str, stored_uid: &str) -> Status {
    // The real server's storage keys have the group only for custom resources.
    let group = if resource.is_custom { &*resource.group } else { "" };
    let parts = [group, &*resource.plural, object.namespace(), object.name()];
    let key: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {requested_uid}, UID in object meta: {stored_uid}",
        key.join("/"),
    );
    Status::conflict(resource, object.name(), &why)
}
