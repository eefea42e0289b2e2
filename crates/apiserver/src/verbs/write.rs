//! Create, update and patch.

use bytes::Bytes;
use serde_json::Value;

use super::{
    Answer, Api, WriteOptions,
    conform::{check, check_kind, conform, decode, judge, no_struct, normalize, wrong_custom_kind},
    invalid, rendered,
};
use crate::{
    admission, crd, limits,
    media::Encoding,
    object::Object,
    particular,
    patch::PatchKind,
    registry::Resource,
    request::Target,
    rules,
    schema::{FieldError, Problem, Schema},
    status::Status,
    storage::{Change, Conflict, Entry, Expect, Key, Revision},
    strategies, validation, versions, warnings,
};

/// How often a write that names no revision is tried again after losing a race.
const RACES: usize = 100;

impl Api {
    pub(crate) fn create(
        &self,
        target: &Target,
        options: &WriteOptions,
        body: &[u8],
        encoding: Encoding,
    ) -> Result<Answer, Status> {
        let resource = &target.resource;
        let (mut object, warnings) = decode(resource, body, encoding, options.field_validation)?;
        let remark = |status: Status| status.with_warnings(&warnings);
        place(&mut object, target).map_err(remark)?;
        if !object.meta("resourceVersion").is_empty() {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(remark(Status::unexplained(why)));
        }
        self.insert(resource, options, object, warnings.clone())
            .map_err(remark)
    }

    /// Writes an object that is not there yet.
    fn insert(
        &self,
        resource: &Resource,
        options: &WriteOptions,
        mut object: Object,
        mut warnings: Vec<String>,
    ) -> Result<Answer, Status> {
        self.admit(resource, &mut object)?;
        self.prepare_create(&mut object, resource);
        // A generated name may be taken: the real server tries eight times.
        let generated = object.name().is_empty() && !object.meta("generateName").is_empty();
        for attempt in 1.. {
            if generated {
                let base = object.meta("generateName");
                let name = format!(
                    "{}{}",
                    &base[..base.floor_char_boundary(58)],
                    self.world.name_suffix()
                );
                object.set_meta("name", name);
            }
            strategies::named(resource, &mut object);
            let mut errors = validation::name(&object, resource.strategy.names);
            errors.extend(check(resource, "", &object, None));
            errors.extend(rules::check(resource, &object, None));
            if !errors.is_empty() {
                return Err(invalid(resource, object.name(), &errors));
            }
            if attempt == 1 {
                validation::size(&object)?;
                warnings.extend(warnings::about(resource, &object, None));
            }
            strategies::complete(resource, &mut object);
            let _allotting = self.allot(resource, &mut object, None, options)?;
            if options.dry_run {
                let taken = self
                    .storage
                    .get(&resource.table, &Key::new(object.namespace(), object.name()));
                return match taken {
                    Some(entry) => Err(exists(resource, &object, &entry).with_warnings(&warnings)),
                    None => Ok(dry(201, object, warnings)),
                };
            }
            limits::check_size(&object)?;
            match self.commit(resource, &mut object, Expect::Absent, Change::Put) {
                Ok(entry) => {
                    self.after(resource, &entry);
                    return Ok(Answer::Object {
                        code: 201,
                        json: rendered(&entry, resource),
                        warnings,
                    });
                }
                Err(Conflict(Some(_))) if generated && attempt < 8 => object.set_meta("name", ""),
                Err(Conflict(Some(entry))) => {
                    return Err(exists(resource, &object, &entry).with_warnings(&warnings));
                }
                Err(Conflict(None)) => unreachable!("a creation conflicts with an object"),
            }
        }
        unreachable!("the loop ends by returning")
    }

    pub(crate) fn update(
        &self,
        target: &Target,
        options: &WriteOptions,
        body: &[u8],
        encoding: Encoding,
    ) -> Result<Answer, Status> {
        let resource = &target.resource;
        let (object, warnings) = decode(resource, body, encoding, options.field_validation)?;
        self.update_with(target, options, object, warnings.clone())
            .map_err(|status| status.with_warnings(&warnings))
    }

    fn update_with(
        &self,
        target: &Target,
        options: &WriteOptions,
        mut object: Object,
        warnings: Vec<String>,
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
            return self.insert(resource, options, object, warnings);
        }
        let said = object.meta("resourceVersion").to_owned();
        check_revision(&said)?;
        for _ in 0..RACES {
            let entry = self.current(target)?;
            if said.is_empty() || said == "0" {
                if !resource.strategy.unconditional_update {
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
            } else if said.parse::<u64>().is_err() {
                return Err(Status::unexplained(format!(
                    "strconv.ParseUint: parsing {said:?}: invalid syntax"
                )));
            } else if said != entry.revision.to_string() {
                return Err(Status::modified(resource, &target.name));
            }
            let uid = object.meta("uid");
            let old = versions::shown(&entry, resource);
            if !uid.is_empty() && uid != old.meta("uid") {
                return Err(uid_mismatch(resource, &old, uid, old.meta("uid")));
            }
            match self.replace(target, options, &entry, &old, object.clone(), warnings.clone())? {
                Some(answer) => return Ok(answer),
                None if said.is_empty() => {}
                None => return Err(Status::modified(resource, &target.name)),
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
        let resource = &target.resource;
        let (patch, remarks) = kind.decode(body)?;
        let schema = resource.schema.as_ref().map(Schema::view);
        for _ in 0..RACES {
            let entry = self.current(target)?;
            let old = versions::shown(&entry, resource);
            let mut value = old.clone().into_value();
            value["apiVersion"] = resource.api_version().into();
            patch.apply(schema, &mut value)?;
            let quoted = patch.quoted(&value);
            let refused = |why: String| {
                let problem = Problem::Invalid(quoted.as_str().into(), why);
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
            let written = self.replace(target, options, &entry, &old, object, warnings.clone());
            if let Some(answer) = written.map_err(remark)? {
                return Ok(answer);
            }
        }
        Err(Status::modified(resource, &target.name))
    }

    /// Changes an object as the server's own doing: reads, changes and writes until nobody came in between.
    /// Returns the object as it is then.
    pub(crate) fn modify(
        &self,
        target: &Target,
        options: &WriteOptions,
        mut change: impl FnMut(&mut Object) -> Result<(), Status>,
    ) -> Result<Object, Status> {
        let resource = &target.resource;
        for _ in 0..RACES {
            let entry = self.current(target)?;
            let old = entry.object.decode();
            let mut object = old.clone();
            change(&mut object)?;
            if resource.strategy.generation && desired_differs(&object, &old, resource) {
                let generation = old
                    .metadata()
                    .get("generation")
                    .and_then(Value::as_i64)
                    .unwrap_or(0);
                // Binding a pod decides nothing anew about it.
                if target.subresource == "scale".into() {
                    object.set_meta("generation", generation + 1);
                }
            }
            let errors = check(resource, &target.subresource, &object, Some(&old));
            if !errors.is_empty() {
                return Err(invalid(resource, &target.name, &errors));
            }
            if options.dry_run || object == old {
                return Ok(object);
            }
            if let Ok(entry) = self.commit(resource, &mut object, Expect::At(entry.revision), Change::Put) {
                self.after(resource, &entry);
                return Ok(object);
            }
        }
        Err(Status::modified(resource, &target.name))
    }

    /// Writes a new state over the one that was read; `None` if somebody else was faster.
    fn replace(
        &self,
        target: &Target,
        options: &WriteOptions,
        entry: &Entry,
        old: &Object,
        mut object: Object,
        mut warnings: Vec<String>,
    ) -> Result<Option<Answer>, Status> {
        let resource = &target.resource;
        let mut errors = prepare_update(&mut object, old, target);
        let found = check(resource, &target.subresource, &object, Some(old));
        errors.extend(validation::repeated(found, resource));
        // A subresource touches what is its own, and leaves the rest as it passed before.
        match &*target.subresource {
            "" => errors.extend(rules::check(resource, &object, Some(old))),
            "status" => errors.extend(rules::check_status(resource, &object)),
            _ => {}
        }
        if !errors.is_empty() {
            return Err(invalid(resource, &target.name, &errors));
        }
        validation::size(&object)?;
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
        limits::check_size(&object)?;
        object.keep_meta("resourceVersion", old);
        object
            .fields_mut()
            .insert("apiVersion".into(), old.fields()["apiVersion"].clone());
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
                stored.revision == seen.revision && object == stored.object.decode()
            })
    }

    /// Writes an object at the resource's storage version.
    pub(crate) fn commit(
        &self,
        resource: &Resource,
        object: &mut Object,
        expect: Expect,
        change: Change,
    ) -> Result<std::sync::Arc<Entry>, Conflict> {
        let key = Key::new(object.namespace(), object.name());
        versions::to_stored(resource, object);
        // What goes is shown as it was stored, at whatever version that was.
        let stored = self
            .storage
            .get(&resource.table, &key)
            .filter(|_| resource.custom && change == Change::Remove);
        if let Some(stored) = stored {
            *object = stored.object.decode();
        }
        let removed = resource.custom && change == Change::Remove;
        let form = if removed {
            None
        } else {
            crd::to_stored(resource, object)
        };
        let (selectable, shape) = form.unwrap_or((&resource.selectable, 0));
        // All writers wait for each other inside: nothing is encoded there that can be before.
        let mut draft = Some(object.draft(selectable));
        let committed = self.storage.commit(
            &resource.table,
            &key,
            expect,
            change,
            &mut |revision: Revision| {
                object.set_meta("resourceVersion", revision.to_string());
                let encoded = match draft.take() {
                    Some(draft) => draft.at(revision),
                    None => object.encode(revision, selectable),
                };
                encoded.with_shape(shape)
            },
        );
        committed.map(|entry| crd::seen(resource, entry))
    }

    /// What the server decides about a new object, whatever the client said.
    fn prepare_create(&self, object: &mut Object, resource: &Resource) {
        for key in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "managedFields",
        ] {
            object.metadata_mut().remove(key);
        }
        object.set_meta("uid", self.world.uid());
        object.set_meta("creationTimestamp", self.world.now_text());
        // Other kinds keep what they were given, and never count it.
        if resource.strategy.generation {
            object.set_meta("generation", 1);
        }
        particular::prepare_create(resource, object, &self.world.now_text());
        normalize(object, resource);
    }
}

/// A revision that is none is something that the real server did not expect.
fn check_revision(said: &str) -> Result<(), Status> {
    if said.is_empty() || said.parse::<u64>().is_ok() {
        return Ok(());
    }
    Err(Status::unexplained(format!(
        "strconv.ParseUint: parsing {said:?}: invalid syntax"
    )))
}

/// An object that takes the place of another must say its name.
fn named(object: &Object, target: &Target) -> Result<(), Status> {
    if object.name().is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        )));
    }
    Ok(())
}

/// Puts an object where the request says, or refuses if it says another place itself.
fn place(object: &mut Object, target: &Target) -> Result<(), Status> {
    if target.resource.namespaced {
        if object.namespace().is_empty() {
            object.set_meta("namespace", target.namespace.to_string());
        } else if *object.namespace() != *target.namespace {
            return Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
    } else {
        object.metadata_mut().remove("namespace");
    }
    if !target.name.is_empty() && *object.name() != *target.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            object.name(),
            target.name
        )));
    }
    Ok(())
}

/// What the server decides about a changed object, whatever the client said. Returns what may not be changed.
fn prepare_update(object: &mut Object, old: &Object, target: &Target) -> Vec<FieldError> {
    let resource = &target.resource;
    let mut errors = immutable_metadata(object, old);
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "selfLink",
        "managedFields",
    ] {
        object.keep_meta(key, old);
    }
    if *target.subresource == *"status" {
        keep_all_but_status(object, old, resource);
    } else if resource.has_status() {
        keep_status(object, old);
    }
    if *target.subresource == *"finalize" {
        strategies::named(resource, object);
        return errors;
    }
    particular::prepare_update(resource, object, old);
    if target.subresource.is_empty() {
        admission::admit_update(resource, object);
    }
    errors.extend(added_finalizers(object, old, resource));
    normalize(object, resource);
    let counts = desired_differs(object, old, resource)
        || (target.subresource.is_empty() && strategies::metadata_counts(resource, object, old));
    if resource.strategy.generation && counts {
        let generation = old
            .metadata()
            .get("generation")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        object.set_meta("generation", generation + 1);
    }
    errors
}

/// What the client says of metadata that is the server's alone, and says differently.
fn immutable_metadata(object: &Object, old: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for key in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let said = object
            .metadata()
            .get(key)
            .filter(|said| old.metadata().get(key) != Some(*said));
        if let Some(said) = said {
            // Two of the real server's checks look at it.
            let problem = Problem::Invalid(said.clone(), "field is immutable".into());
            errors.extend(vec![FieldError::new(format!("metadata.{key}"), problem); 2]);
        }
    }
    errors
}

/// A write to the object leaves its status alone.
fn keep_status(object: &mut Object, old: &Object) {
    match old.fields().get("status") {
        Some(status) => object.fields_mut().insert("status".into(), status.clone()),
        None => object.fields_mut().remove("status"),
    };
}

/// A write to the status leaves the rest alone. Built-in kinds let it touch most of the metadata too.
fn keep_all_but_status(object: &mut Object, old: &Object, resource: &Resource) {
    let status = object.fields_mut().remove("status");
    let metadata = object.fields()["metadata"].clone();
    object.fields_mut().clone_from(old.fields());
    match status {
        Some(status) => object.fields_mut().insert("status".into(), status),
        None => object.fields_mut().remove("status"),
    };
    if resource.custom {
        return;
    }
    object.fields_mut().insert("metadata".into(), metadata);
    particular::keep_on_status(resource, object, old);
}

/// An object that is being deleted gets no new finalizers.
fn added_finalizers(object: &Object, old: &Object, resource: &Resource) -> Vec<FieldError> {
    let added = object
        .finalizers()
        .filter(|f| !old.finalizers().any(|known| known == *f));
    let listed: Vec<_> = added.map(|f| format!("{f:?}")).collect();
    if listed.is_empty() || !old.is_deleting() {
        return Vec::new();
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        listed.join(", ")
    );
    let error = FieldError::new("metadata.finalizers", Problem::Forbidden(why));
    // The real server checks this for all kinds, and once more for each built-in one.
    vec![error; if resource.custom { 1 } else { 2 }]
}

/// Whether the state that the object asks for differs: everything but metadata and, where it is a part of its own, status.
fn desired_differs(object: &Object, old: &Object, resource: &Resource) -> bool {
    let counts = |key: &str| {
        !matches!(key, "metadata" | "apiVersion" | "kind") && (key != "status" || !resource.has_status())
    };
    let one_sided = |a: &Object, b: &Object| {
        a.fields()
            .iter()
            .any(|(key, value)| counts(key) && b.fields().get(key) != Some(value))
    };
    one_sided(object, old) || one_sided(old, object)
}

/// What would have been written. A new object has no revision yet, a changed one keeps its old one.
fn dry(code: u16, object: Object, warnings: Vec<String>) -> Answer {
    Answer::Object {
        code,
        json: object.into_value().to_string().into(),
        warnings,
    }
}

fn exists(resource: &Resource, object: &Object, entry: &Entry) -> Status {
    if !object.meta("generateName").is_empty() {
        // The real server takes any clash of an object that could be generated a name for bad luck.
        Status::no_unique_name(resource, &entry.key.name)
    } else if entry.object.is_deleting() {
        Status::being_deleted(resource, &entry.key.name)
    } else {
        Status::already_exists(resource, &entry.key.name)
    }
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
