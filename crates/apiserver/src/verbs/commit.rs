//! The last step of every write, and writes that the server itself makes.

use super::{
    Api, MAX_CONFLICT_RETRIES, WriteOptions,
    decoding::check,
    invalid,
    prepare::{desired_state_differs, next_generation},
};
use crate::{
    conversion, crd,
    object::Object,
    registry::Resource,
    request::Target,
    status::Status,
    storage::{Change, Conflict, Entry, Expect, Key, Revision},
    subresources,
};

/// Whether a change of the desired state by the server itself increments `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// It is incremented, as for a client's change.
    Increment,
    /// It stays: binding a pod does not change what its owner asked for.
    Keep,
}

impl Api {
    /// Changes an object on the server's behalf: reads, changes and writes, and retries on conflict. Returns the
    /// written object.
    pub(crate) fn modify(
        &self,
        target: &Target,
        options: &WriteOptions,
        generation: Generation,
        mut change: impl FnMut(&mut Object) -> Result<(), Status>,
    ) -> Result<Object, Status> {
        let resource = &target.resource;
        for _ in 0..MAX_CONFLICT_RETRIES {
            let entry = self.current(target)?;
            let old = entry.object.decode()?;
            let mut object = old.clone();
            change(&mut object)?;
            let counts = generation == Generation::Increment && resource.strategy.has_generation;
            if counts && desired_state_differs(&object, &old, resource) {
                object.set_meta("generation", next_generation(&old));
            }
            let errors = check(resource, &target.subresource, &object, Some(&old));
            if !errors.is_empty() {
                return Err(invalid(resource, &target.name, &errors));
            }
            if options.dry_run || object == old {
                return Ok(object);
            }
            if let Ok(entry) = self.commit(resource, &mut object, Expect::At(entry.revision), Change::Put) {
                self.after_write(resource, &entry);
                return Ok(object);
            }
        }
        Err(Status::modified(resource, &target.name))
    }

    /// Runs the side effects of a write.
    pub(crate) fn after_write(&self, resource: &Resource, entry: &Entry) {
        self.aggregate_after_write(resource);
        if crd::is_definition(resource) {
            self.sync_definition(&entry.key.name);
        }
    }

    /// Runs the side effects of a removal.
    pub(crate) fn after_removal(&self, resource: &Resource, entry: &Entry) {
        self.after_write(resource, entry);
        if subresources::has_log(resource) && !self.pod_logs.is_empty() {
            self.pod_logs.remove_pod(&entry.object.uid());
        }
        if resource.is_custom {
            // It may have been the last instance that a terminating definition waits for.
            self.sync_definition(&resource.qualified_name());
        }
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
        conversion::convert_to_stored(resource, object);
        // A removed object is shown as it was stored, whatever its version.
        let removed = resource.is_custom && change == Change::Remove;
        if removed
            && let Some(stored) = self.storage.get(&resource.table, &key)
            && let Ok(stored) = stored.object.decode()
        {
            *object = stored;
        }
        let form = if removed {
            None
        } else {
            crd::convert_to_stored(resource, object)
        };
        let (selectable, shape) = form.unwrap_or((&resource.selectable_fields, 0));
        // Commits are serialized, so the object is encoded before, with a guessed revision.
        let guess = Revision(self.storage.revision().0 + 1);
        let draft = object.draft(guess, selectable);
        if draft.is_deep() {
            // Must happen before the object can be read.
            self.deep_tables.add(&resource.table);
        }
        let mut draft = Some(draft);
        let committed = self.storage.commit(
            &resource.table,
            &key,
            expect,
            change,
            &mut |revision: Revision| {
                object.set_meta("resourceVersion", revision.to_string());
                let encoded = match draft.take() {
                    Some(draft) => draft.at_revision(revision),
                    None => object.encode(revision, selectable),
                };
                encoded.with_schema_hash(shape)
            },
        );
        committed.map(|entry| crd::convert_for_read(resource, entry))
    }
}
