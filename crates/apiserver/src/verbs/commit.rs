//! The last step of every write, and the writes that are the server's own doing.

use super::{
    Api, RACES, WriteOptions,
    conform::check,
    invalid,
    prepare::{desired_differs, next_generation},
};
use crate::{
    crd,
    object::Object,
    registry::Resource,
    request::Target,
    status::Status,
    storage::{Change, Conflict, Entry, Expect, Key, Revision},
    subresources, versions,
};

/// What a change of the desired state by the server itself does to `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// It counts the change, as one that the object's owner made.
    Counts,
    /// Nothing was decided anew: a pod that is bound is the same pod.
    Stays,
}

impl Api {
    /// Changes an object as the server's own doing: reads, changes and writes until nobody came in between.
    /// Returns the object as it is then.
    pub(crate) fn modify(
        &self,
        target: &Target,
        options: &WriteOptions,
        generation: Generation,
        mut change: impl FnMut(&mut Object) -> Result<(), Status>,
    ) -> Result<Object, Status> {
        let resource = &target.resource;
        for _ in 0..RACES {
            let entry = self.current(target)?;
            let old = entry.object.decode()?;
            let mut object = old.clone();
            change(&mut object)?;
            let counts = generation == Generation::Counts && resource.strategy.generation;
            if counts && desired_differs(&object, &old, resource) {
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
                self.after(resource, &entry);
                return Ok(object);
            }
        }
        Err(Status::modified(resource, &target.name))
    }

    /// Acts on a write to an object.
    pub(crate) fn after(&self, resource: &Resource, entry: &Entry) {
        self.after_role(resource);
        if crd::is_definition(resource) {
            self.refresh_definition(&entry.key.name);
        }
    }

    /// Acts on the end of an object.
    pub(crate) fn after_removal(&self, resource: &Resource, entry: &Entry) {
        self.after(resource, entry);
        if subresources::has_log(resource) && !self.printed.is_empty() {
            self.printed.forget(&entry.object.uid());
        }
        if resource.custom {
            // It may have been the last that a dying definition waited for.
            self.refresh_definition(&resource.qualified());
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
        versions::to_stored(resource, object);
        // What goes is shown as it was stored, at whatever version that was.
        let removed = resource.custom && change == Change::Remove;
        if removed
            && let Some(stored) = self.storage.get(&resource.table, &key)
            && let Ok(stored) = stored.object.decode()
        {
            *object = stored;
        }
        let form = if removed {
            None
        } else {
            crd::to_stored(resource, object)
        };
        let (selectable, shape) = form.unwrap_or((&resource.selectable, 0));
        // All writers wait for each other inside: nothing is encoded there that can be before.
        let guess = Revision(self.storage.revision().0 + 1);
        let draft = object.draft(guess, selectable);
        if draft.is_deep() {
            // Before anybody can read it.
            self.deep.add(&resource.table);
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
                    Some(draft) => draft.at(revision),
                    None => object.encode(revision, selectable),
                };
                encoded.with_shape(shape)
            },
        );
        committed.map(|entry| crd::seen(resource, entry))
    }
}
