//! Create, and apply or update of objects that do not exist yet.

use super::{
    Answer, WriteOptions, WriteVerbs,
    decoding::{check, decode, normalize},
    invalid,
    managed_fields::set_managed_fields_on_create,
    prepare::{dry_run_answer, match_namespace, match_request},
    render_entry,
};
use crate::{
    admission::{Admitted, Operation},
    crd::WriteConversion,
    kinds::{self, InitialStatus, Write},
    limits,
    media::Encoding,
    object::Object,
    registry::Resource,
    request::Target,
    status::Status,
    storage::{Change, Conflict, Entry, Expect, Key},
    validation,
    warnings::Warnings,
    webhook::{Purpose, RequestEnvironment},
};

impl WriteVerbs {
    pub(crate) fn create(
        &self,
        target: &Target,
        options: &WriteOptions,
        body: &[u8],
        encoding: Encoding,
    ) -> Result<Answer, Status> {
        let resource = &target.resource;
        let (mut object, warnings) = decode(resource, body, encoding, options.field_validation)?;
        let with_warnings = |status: Status| status.with_warnings(&warnings);
        match_request(&mut object, target).map_err(with_warnings)?;
        set_managed_fields_on_create(&self.store, resource, options, &mut object).map_err(with_warnings)?;
        self.insert(target, options, object, warnings.clone())
            .map_err(with_warnings)
    }

    /// Writes a new object.
    pub(super) fn insert(
        &self,
        target: &Target,
        options: &WriteOptions,
        mut object: Object,
        mut warnings: Warnings,
    ) -> Result<Answer, Status> {
        let resource = &target.resource;
        let (strategy, caller) = (resource.strategy, options.caller.as_deref());
        // Before admission: it sees only what the client may set.
        for key in [
            "creationTimestamp",
            "deletionGracePeriodSeconds",
            "deletionTimestamp",
            "selfLink",
            "uid",
        ] {
            object.metadata_mut().remove(key);
        }
        let admitted = Admitted::write(target, Operation::Create, options);
        let plugins = |object: &mut Object| self.admission.admit(resource, caller, object);
        if self
            .admission
            .mutate(&admitted, &mut object, None, &mut warnings, plugins)?
        {
            match_namespace(&mut object, target)?;
        }
        let write = Write {
            resource,
            object: &object,
            old: None,
        };
        strategy.check_escalation(&self.access, caller, &write)?;
        let environment = options.environment(&self.store.environment);
        prepare_create(environment, &mut object, resource);
        // A generated name may exist already: the real server tries eight times.
        let generated = object.name().is_empty() && !object.meta("generateName").is_empty();
        for attempt in 1.. {
            if generated {
                let base = object.meta("generateName");
                let name = format!(
                    "{}{}",
                    &base[..base.floor_char_boundary(58)],
                    environment.name_suffix(Purpose::Name(attempt))
                );
                object.set_meta("name", name);
            }
            strategy.after_naming(&mut object);
            let mut errors = kinds::validate_first(resource, &object);
            if errors.is_empty() {
                errors = validation::check_name(&object, resource.facts.name_rule);
                errors.extend(check(resource, "", &object, None, &mut warnings));
                errors.extend(kinds::validate(resource, &object));
            }
            if !errors.is_empty() {
                return Err(invalid(resource, object.name(), &errors));
            }
            if attempt == 1 {
                self.access.authorize_creation(caller)?;
                warnings.extend(kinds::warnings(resource, &object, None));
                warnings.extend(self.limitations.warnings(resource, &object, None));
            }
            strategy.after_validation(resource, &mut object)?;
            let _allocation =
                self.allocate_and_validate(&admitted, &mut object, None, options, &mut warnings)?;
            if options.dry_run {
                let existing = self
                    .store
                    .storage
                    .get(&resource.table, &Key::new(object.namespace(), object.name()));
                return match existing {
                    Some(entry) => Err(already_exists(resource, &object, &entry).with_warnings(&warnings)),
                    None => {
                        // A conversion that fails would fail the write.
                        let conversion = WriteConversion::of(resource, &object, caller)?;
                        conversion.check_storable(resource)?;
                        Ok(dry_run_answer(201, conversion.shown(resource, object), warnings))
                    }
                };
            }
            // The real server checks this in its storage, which a dry run does not reach.
            if has_resource_version(&object) {
                let why = "resourceVersion should not be set on objects to be created";
                return Err(Status::without_reason(why));
            }
            limits::make_storable(resource, &mut object)?;
            let conversion = WriteConversion::of(resource, &object, caller)?;
            self.store
                .check_room((resource, caller), (&object, &conversion), None)?;
            match self
                .store
                .commit_converted(resource, &mut object, conversion, Expect::Absent, Change::Put)
            {
                Ok(entry) => {
                    self.after_write(resource, &entry);
                    return Ok(Answer::Object {
                        code: 201,
                        json: render_entry(&entry, resource),
                        warnings,
                    });
                }
                Err(Conflict(Some(_))) if generated && attempt < 8 => object.set_meta("name", ""),
                Err(Conflict(Some(entry))) => {
                    return Err(already_exists(resource, &object, &entry).with_warnings(&warnings));
                }
                Err(Conflict(None)) => unreachable!("a creation conflicts with an object"),
            }
        }
        unreachable!("the loop ends by returning")
    }
}

/// Sets the fields of a new object that the server decides, whatever the client sent.
fn prepare_create(environment: RequestEnvironment<'_>, object: &mut Object, resource: &Resource) {
    // A real server keeps what a webhook has made of the other metadata, even a deletion.
    object.metadata_mut().remove("selfLink");
    object.set_meta("uid", environment.uid());
    object.set_meta("creationTimestamp", environment.now_rfc3339());
    // Other kinds keep the client's value, which is never incremented.
    if resource.facts.has_generation {
        object.set_meta("generation", 1);
    }
    resource.strategy.prepare_create(object);
    let now = environment.now_rfc3339();
    match resource.strategy.initial_status(resource, object, &now) {
        InitialStatus::Keep => {}
        InitialStatus::Remove => drop(object.fields_mut().remove("status")),
        InitialStatus::Set(status) => drop(object.fields_mut().insert("status".into(), status)),
    }
    normalize(object, resource);
}

fn has_resource_version(object: &Object) -> bool {
    let version = object.meta("resourceVersion").parse::<u64>();
    version.is_ok_and(|revision| revision != 0)
}

fn already_exists(resource: &Resource, object: &Object, entry: &Entry) -> Status {
    if !object.meta("generateName").is_empty() {
        // The real server blames name generation for every conflict of an object with a `generateName`.
        Status::no_unique_name(resource, &entry.key.name)
    } else if entry.object.is_deleting() {
        Status::being_deleted(resource, &entry.key.name)
    } else {
        Status::already_exists(resource, &entry.key.name)
    }
}
