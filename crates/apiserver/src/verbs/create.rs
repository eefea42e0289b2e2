//! Create: what is not there yet.

use super::{
    Answer, Api, WriteOptions,
    conform::{check, decode, normalize},
    invalid,
    prepare::{dry, place},
    rendered,
};
use crate::{
    auth, limits,
    media::Encoding,
    object::Object,
    particular,
    registry::Resource,
    request::Target,
    rules,
    status::Status,
    storage::{Change, Conflict, Entry, Expect, Key},
    strategies, validation, warnings,
};

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
        self.account_for_new(resource, options, &mut object);
        self.insert(resource, options, object, warnings.clone())
            .map_err(remark)
    }

    /// Writes an object that is not there yet.
    pub(super) fn insert(
        &self,
        resource: &Resource,
        options: &WriteOptions,
        mut object: Object,
        mut warnings: Vec<String>,
    ) -> Result<Answer, Status> {
        self.check_escalation(resource, options.caller.as_deref(), &object, None)?;
        auth::note_requester(resource, options.caller.as_deref(), &mut object);
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
            let mut errors = rules::check_place(resource, &object);
            if errors.is_empty() {
                errors = validation::name(&object, resource.strategy.names);
                errors.extend(check(resource, "", &object, None));
                errors.extend(rules::check(resource, &object));
            }
            if !errors.is_empty() {
                return Err(invalid(resource, object.name(), &errors));
            }
            if attempt == 1 {
                self.authorise_creation(options.caller.as_deref())?;
                warnings.extend(warnings::about(resource, &object, None));
            }
            strategies::complete(resource, &mut object)?;
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
            // The real server's storage looks at it, which is never asked on a dry run.
            if has_revision(&object) {
                let why = "resourceVersion should not be set on objects to be created";
                return Err(Status::unexplained(why));
            }
            limits::check_stored(resource, &object)?;
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

    /// What the server decides about a new object, whatever the client said.
    fn prepare_create(&self, object: &mut Object, resource: &Resource) {
        for key in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
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

fn has_revision(object: &Object) -> bool {
    let said = object.meta("resourceVersion").parse::<u64>();
    said.is_ok_and(|revision| revision != 0)
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
