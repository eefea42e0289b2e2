//! Writes that the server itself makes, and the side effects of every write.

use super::{
    WriteOptions, WriteVerbs,
    decoding::check,
    invalid,
    prepare::{desired_state_differs, next_generation},
    tries,
};
use crate::{
    crd::WriteConversion,
    limits,
    object::Object,
    registry::Resource,
    request::Target,
    status::Status,
    storage::{Change, Entry, Expect},
    warnings::Warnings,
};

/// Whether a change of the desired state by the server itself increments `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// It is incremented, as for a client's change.
    Increment,
    /// It stays: binding a pod does not change what its owner asked for.
    Keep,
}

impl WriteVerbs {
    /// Changes an object on the server's behalf: reads, changes and writes, and retries on conflict. Returns the
    /// written object, and warnings about it.
    pub(crate) fn modify(
        &self,
        target: &Target,
        options: &WriteOptions,
        generation: Generation,
        change: impl FnMut(&mut Object) -> Result<(), Status>,
    ) -> Result<(Object, Warnings), Status> {
        self.modify_admitted(target, options, generation, change, |_, _| Ok(()))
    }

    /// Like [`modify`](Self::modify). `admit` may refuse the valid object, with its state before.
    pub(crate) fn modify_admitted(
        &self,
        target: &Target,
        options: &WriteOptions,
        generation: Generation,
        mut change: impl FnMut(&mut Object) -> Result<(), Status>,
        mut admit: impl FnMut(&Object, &Object) -> Result<(), Status>,
    ) -> Result<(Object, Warnings), Status> {
        let resource = &target.resource;
        let known = self.store.storage.get(&resource.table, &target.key());
        for _ in 0..tries(&[], known.as_deref()) {
            let entry = self.store.current_for(target, options.caller.as_deref())?;
            let old = entry.object.decode()?;
            let mut object = old.clone();
            change(&mut object)?;
            let counts = generation == Generation::Increment && resource.facts.has_generation;
            if counts && desired_state_differs(&object, &old, resource) {
                object.set_meta("generation", next_generation(&old));
            }
            let mut warnings = Warnings::default();
            let errors = check(resource, &target.subresource, &object, Some(&old), &mut warnings);
            if !errors.is_empty() {
                return Err(invalid(resource, &target.name, &errors).with_warnings(&warnings));
            }
            admit(&object, &old)?;
            if options.dry_run || object == old {
                return Ok((object, warnings));
            }
            limits::check_storable(resource, &object)?;
            let caller = options.caller.as_deref();
            let conversion = WriteConversion::of(resource, &object, caller)?;
            self.store
                .check_room((resource, caller), (&object, &conversion), Some(&entry))?;
            let expect = Expect::At(entry.revision);
            if let Ok(entry) =
                self.store
                    .commit_converted(resource, &mut object, conversion, expect, Change::Put)
            {
                self.after_write(resource, &entry);
                return Ok((object, warnings));
            }
        }
        Err(Status::modified(resource, &target.name))
    }

    /// Runs the side effects of a write.
    pub(crate) fn after_write(&self, resource: &Resource, entry: &Entry) {
        resource.strategy.after_write(self, entry);
    }

    /// Runs the side effects of a removal.
    pub(crate) fn after_removal(&self, resource: &Resource, entry: &Entry) {
        self.after_write(resource, entry);
        resource.strategy.after_removal(self, resource, entry);
    }
}
