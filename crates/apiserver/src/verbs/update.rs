//! Update and patch: a new state of what is there.

use bytes::Bytes;
use serde_json::Value;

use super::{
    Answer, Api, RACES, WriteOptions,
    accounts::keep_times,
    conform::{check, check_kind, conform, decode_over, judge, no_struct, wrong_custom_kind},
    invalid,
    prepare::{check_revision, dry, named, place, prepare_update},
    rendered,
};
use crate::{
    crd, limits,
    media::Encoding,
    object::Object,
    particular,
    patch::PatchKind,
    registry::Resource,
    request::Target,
    rules::{self, Changed},
    schema::{FieldError, Problem, Schema},
    status::Status,
    storage::{Change, Entry, Expect},
    strategies, validation, versions, warnings,
};

impl Api {
    pub(crate) fn update(
        &self,
        target: &Target,
        options: &WriteOptions,
        body: &[u8],
        encoding: Encoding,
    ) -> Result<Answer, Status> {
        let resource = &target.resource;
        let known = self.storage.get(&resource.table, &target.key());
        let account = known.as_ref().map_or("", |entry| entry.object.account());
        let (object, warnings) = decode_over(account, resource, body, encoding, options.field_validation)?;
        self.update_with(target, options, object, &warnings)
            .map_err(|status| status.with_warnings(&warnings))
    }

    fn update_with(
        &self,
        target: &Target,
        options: &WriteOptions,
        mut object: Object,
        warnings: &[String],
    ) -> Result<Answer, Status> {
        let resource = &target.resource;
        named(&object, target)?;
        place(&mut object, target)?;
        if resource.strategy.create_on_update
            && target.subresource.is_empty()
            && self.current(target).is_err()
        {
            let uid = object.meta("uid");
            if !uid.is_empty() {
                return Err(uid_mismatch(resource, &object, uid, ""));
            }
            object.metadata_mut().remove("resourceVersion");
            self.account_for_new(resource, options, &mut object);
            return self.insert(resource, options, object, warnings.to_vec());
        }
        let said = object.meta("resourceVersion").to_owned();
        check_revision(&said)?;
        let mut object = Some(object);
        for _ in 0..RACES {
            // Who names a revision has one try.
            let attempt = if said.is_empty() {
                object.clone()
            } else {
                object.take()
            };
            let Some(mut object) = attempt else {
                break;
            };
            let entry = self.current(target)?;
            check_current(&said, &entry, target)?;
            let uid = object.meta("uid");
            let old = versions::shown(&entry, resource)?;
            if !uid.is_empty() && uid != old.meta("uid") {
                return Err(uid_mismatch(resource, &old, uid, old.meta("uid")));
            }
            self.account_for(resource, &target.subresource, options, &mut object, &old);
            if let Some(answer) = self.replace(target, options, &entry, &old, object, warnings.to_vec())? {
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
        let (patch, remarks) = kind.decode(body)?;
        let schema = resource.schema.as_ref().map(Schema::view);
        for _ in 0..RACES {
            let entry = self.current(target)?;
            let old = versions::shown(&entry, resource)?;
            // Few patches are about who owns what.
            let mut value = if patch.sees_managed_fields() {
                old.clone().into_value()
            } else {
                old.clone().into_tree()
            };
            value["apiVersion"] = resource.api_version().into();
            patch.apply(schema, &mut value)?;
            let refused = |why: String| {
                let mut whole = old.clone().into_value();
                whole["apiVersion"] = resource.api_version().into();
                // It has been applied once.
                let _ = patch.apply(schema, &mut whole);
                let problem = Problem::Invalid(patch.quoted(&whole).into(), why);
                Status::invalid("", "", "", &[FieldError::new("patch", problem)])
            };
            if !value.is_object() {
                return Err(match value {
                    Value::Array(_) => refused(format!(
                        "couldn't get version/kind; json parse error: {}",
                        no_struct(&value)
                    )),
                    _ => Status::patch_rejected(),
                });
            }
            let said = |key: &str| value[key].as_str().unwrap_or_default();
            if resource.custom && !said("kind").is_empty() && *said("kind") != *resource.kind {
                return Err(wrong_custom_kind(said("kind"), &target.name, resource));
            }
            check_kind(said("kind"), said("apiVersion"), resource).map_err(refused)?;
            value["kind"] = resource.kind.to_string().into();
            value["apiVersion"] = resource.api_version().into();
            let (mut object, unknown) = conform(value, resource, kind.source()).map_err(refused)?;
            let problems = remarks.iter().cloned().chain(unknown).collect();
            let warnings = judge(problems, options.field_validation).map_err(refused)?;
            let remark = |status: Status| status.with_warnings(&warnings);
            named(&object, target).map_err(remark)?;
            place(&mut object, target).map_err(remark)?;
            let said = object.meta("resourceVersion");
            check_revision(said).map_err(remark)?;
            if !said.is_empty() && said != entry.revision.to_string() {
                return Err(remark(Status::modified(resource, &target.name)));
            }
            self.account_for(resource, &target.subresource, options, &mut object, &old);
            let written = self.replace(target, options, &entry, &old, object, warnings.clone());
            if let Some(answer) = written.map_err(remark)? {
                return Ok(answer);
            }
        }
        Err(Status::modified(resource, &target.name))
    }

    /// Writes a new state over the one that was read; `None` if somebody else was faster.
    pub(super) fn replace(
        &self,
        target: &Target,
        options: &WriteOptions,
        entry: &Entry,
        old: &Object,
        mut object: Object,
        mut warnings: Vec<String>,
    ) -> Result<Option<Answer>, Status> {
        let resource = &target.resource;
        self.check_escalation(resource, options.caller.as_deref(), &object, Some(old))?;
        strategies::decide(target, &mut object, old, &self.world.now_text());
        let mut errors = prepare_update(&mut object, old, target);
        let found = check(resource, &target.subresource, &object, Some(old));
        // A subresource touches what is its own, and leaves the rest as it passed before.
        match &*target.subresource {
            "" => {
                let misplaced = rules::check_place(resource, &object);
                if misplaced.is_empty() {
                    let changed = rules::check_changed(resource, &object, old);
                    errors.extend(validation::of_changed(&found, changed, resource));
                } else {
                    errors = misplaced;
                }
            }
            part => {
                let changes = match part {
                    "status" | "approval" => rules::check_status(resource, part, &object, old),
                    _ => Vec::new(),
                };
                let rules = Vec::new();
                errors.extend(validation::of_changed(
                    &found,
                    Changed { rules, changes },
                    resource,
                ));
            }
        }
        if !errors.is_empty() {
            return Err(invalid(resource, &target.name, &errors));
        }
        self.check_signer(target, options.caller.as_deref(), &object, old)?;
        warnings.extend(warnings::about(resource, &object, Some(old)));
        let _allotting = self.allot(resource, &mut object, Some(old), options)?;
        if options.dry_run {
            object.keep_meta("resourceVersion", old);
            return Ok(Some(dry(200, object, warnings)));
        }
        // The last finalizer is gone: the object goes with it, and the client sees it once more as it was.
        if particular::is_finished(resource, &object) {
            // Watchers see it as it was before.
            let mut last = old.clone();
            return Ok(
                match self.commit(resource, &mut last, Expect::At(entry.revision), Change::Remove) {
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
        limits::check_stored(resource, &object)?;
        object.keep_meta("resourceVersion", old);
        object
            .fields_mut()
            .insert("apiVersion".into(), old.fields()["apiVersion"].clone());
        keep_times(&mut object, old);
        if object == *old && self.is_stored_as(resource, &object, entry) {
            return Ok(Some(Answer::Object {
                code: 200,
                json: rendered(entry, resource),
                warnings,
            }));
        }
        Ok(
            match self.commit(resource, &mut object, Expect::At(entry.revision), Change::Put) {
                Ok(entry) => {
                    self.after(resource, &entry);
                    Some(Answer::Object {
                        code: 200,
                        json: rendered(&entry, resource),
                        warnings,
                    })
                }
                Err(_) => None,
            },
        )
    }

    /// Whether storing an object would leave what is stored as it is: not where its schema has changed since.
    fn is_stored_as(&self, resource: &Resource, object: &Object, seen: &Entry) -> bool {
        let stored = self.storage.get(&resource.table, &seen.key);
        !resource.custom
            || stored.is_some_and(|stored| {
                let mut object = object.clone();
                crd::to_stored(resource, &mut object);
                stored.revision == seen.revision
                    && stored.object.decode().is_ok_and(|stored| stored == object)
            })
    }
}

/// Refuses a write that is not based on what is stored. One that does not say what it is based on goes through, where
/// the kind allows that.
pub(super) fn check_current(said: &str, entry: &Entry, target: &Target) -> Result<(), Status> {
    let resource = &target.resource;
    if said.is_empty() || said == "0" {
        if resource.strategy.unconditional_update {
            return Ok(());
        }
        let problem = Problem::Invalid(0.into(), "must be specified for an update".into());
        let error = FieldError::new("metadata.resourceVersion", problem);
        // This one refusal names the resource where others name the kind.
        return Err(Status::invalid(
            &resource.group,
            &resource.plural,
            &target.name,
            &[error],
        ));
    }
    if said.parse::<u64>().is_err() {
        return Err(Status::unexplained(format!(
            "strconv.ParseUint: parsing {said:?}: invalid syntax"
        )));
    }
    if said != entry.revision.to_string() {
        return Err(Status::modified(resource, &target.name));
    }
    Ok(())
}

fn uid_mismatch(resource: &Resource, object: &Object, said: &str, known: &str) -> Status {
    // Only what is served from definitions is stored under its group.
    let group = if resource.custom { &*resource.group } else { "" };
    let place = [group, &*resource.plural, object.namespace(), object.name()];
    let key: Vec<_> = place.into_iter().filter(|part| !part.is_empty()).collect();
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {said}, UID in object meta: {known}",
        key.join("/"),
    );
    Status::conflict(resource, object.name(), &why)
}
