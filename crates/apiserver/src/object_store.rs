//! The stored objects of a server, with what is needed to read and write them: the served resources, and the clock.
//!
//! ```text
//!   server ─► subresources ─► verbs: WriteVerbs ─► Admission, AccessControl, Definitions, ServiceAllocator ─► ObjectStore
//! ```
//!
//! Everything that serves objects is built on it. It knows nothing about users, admission or the side effects of a write.

use std::{sync::Arc, time::Duration};

use crate::{
    auth::{Caller, User},
    conversion,
    crd::{self, WriteConversion},
    depth,
    environment::Environment,
    limits,
    object::Object,
    registry::{Registry, Resource},
    request::Target,
    status::Status,
    storage::{Change, Conflict, Entry, Expect, Key, Revision, Snapshot, Storage},
};

/// How long a read waits for a revision that the server has not reached yet, like the real server's watch cache.
const FUTURE_REVISION_WAIT: Duration = Duration::from_secs(3);

/// The stored objects of a server. Reads see all kinds and versions; a write is one commit, without side effects.
pub(crate) struct ObjectStore {
    pub(crate) storage: Box<dyn Storage>,
    pub(crate) registry: Registry,
    pub(crate) environment: Environment,
    /// See [`Limits::stored_bytes`](crate::Limits::stored_bytes).
    pub(crate) max_stored_bytes: usize,
}

impl ObjectStore {
    /// Returns the target's object of a built-in kind, or the `NotFound` status.
    pub(crate) fn current(&self, target: &Target) -> Result<Arc<Entry>, Status> {
        self.current_for(target, None)
    }

    /// Returns the target's object, or the `NotFound` status. It may end with a status that makes the server ask the webhook
    /// that converts the object, each time: the webhook may have changed. Without a caller, it is as the storage has it then.
    pub(crate) fn current_for(&self, target: &Target, caller: Option<&Caller>) -> Result<Arc<Entry>, Status> {
        let resource = &target.resource;
        let entry = self.storage.get(&resource.table, &target.key());
        let entry = entry.ok_or_else(|| Status::not_found(resource, &target.name))?;
        crd::convert_for_request(resource, entry, caller.map(|caller| &caller.answers))
    }

    /// The objects of the target's kind at a revision, or now.
    pub(crate) fn snapshot(&self, target: &Target, at: Option<Revision>) -> Result<Snapshot, Status> {
        let namespace = Some(&*target.namespace).filter(|namespace| !namespace.is_empty());
        self.storage
            .snapshot(&target.resource.table, namespace, at)
            .map_err(|_| Status::expired("The resourceVersion for the provided list is too old."))
    }

    /// Waits for a revision that the client has seen.
    pub(crate) async fn wait_for_revision(&self, revision: Revision) -> Result<(), Status> {
        // All revisions come from this server: a newer one is invented or another server's.
        if revision > self.storage.revision() {
            tokio::time::sleep(FUTURE_REVISION_WAIT).await;
        }
        let current = self.storage.revision();
        if revision > current {
            return Err(Status::resource_version_too_large(revision.0, current.0));
        }
        Ok(())
    }

    /// An object of a built-in resource.
    pub(crate) fn builtin_entry(&self, (group, plural): (&str, &str), key: &Key) -> Option<Arc<Entry>> {
        let catalogue = self.registry.catalogue();
        let resource = catalogue.find(group, "v1", plural)?;
        self.storage.get(&resource.table, key)
    }

    /// All objects of a built-in resource.
    pub(crate) fn builtin_objects(
        &self,
        (group, plural): (&str, &str),
    ) -> impl Iterator<Item = Object> + use<> {
        let catalogue = self.registry.catalogue();
        let table = catalogue
            .find(group, "v1", plural)
            .map(|resource| &resource.table);
        let snapshot = table.and_then(|table| self.storage.snapshot(table, None, None).ok());
        let entries: Vec<_> = snapshot
            .iter()
            .flat_map(|snapshot| snapshot.range(None, None))
            .cloned()
            .collect();
        entries.into_iter().filter_map(|entry| entry.object.decode().ok())
    }

    /// Rejects an object for which there is no room, or whose stored form, which a webhook has made, is too large; `old` is
    /// what it replaces. Takes the caller of a request.
    pub(crate) fn check_room(
        &self,
        (resource, caller): (&Resource, Option<&Caller>),
        (object, conversion): (&Object, &WriteConversion),
        old: Option<&Entry>,
    ) -> Result<(), Status> {
        conversion.check_storable(resource)?;
        let object = conversion.stored(object);
        let before = old.map_or(0, |entry| entry.object.json().len());
        let growth = limits::size_of(object).saturating_sub(before);
        let stored = self.storage.stored_bytes(object.namespace());
        let user = caller.map(|caller| &*caller.user);
        // What a controller creates for a tenant counts like what the tenant creates, whatever the controller may do.
        let is_tenants = old.is_none() && object.has_controller();
        let is_administrators = !is_tenants && user.is_none_or(User::is_master);
        limits::check_room(self.max_stored_bytes, is_administrators, stored, growth)
    }

    /// Writes an object at the resource's storage version.
    pub(crate) fn commit(
        &self,
        resource: &Resource,
        object: &mut Object,
        expect: Expect,
        change: Change,
    ) -> Result<Arc<Entry>, Conflict> {
        self.commit_converted(resource, object, WriteConversion::Computed, expect, change)
    }

    /// Like [`commit`](Self::commit), for an object that a webhook may have converted.
    pub(crate) fn commit_converted(
        &self,
        resource: &Resource,
        object: &mut Object,
        conversion: WriteConversion,
        expect: Expect,
        change: Change,
    ) -> Result<Arc<Entry>, Conflict> {
        debug_assert!(
            !depth::must_restart(),
            "a request that starts again must not have changed anything"
        );
        // Writing something twice would be worse than an error.
        depth::settle();
        let key = Key::new(object.namespace(), object.name());
        let stays = matches!(conversion, WriteConversion::Stored) && change != Change::Remove;
        if let WriteConversion::Converted {
            mut stored,
            shown,
            share,
        } = conversion
            && change != Change::Remove
        {
            let entry =
                self.commit_converted(resource, &mut stored, WriteConversion::Stored, expect, change)?;
            object.set_meta("resourceVersion", entry.revision.to_string());
            return Ok(crd::written_entry(resource, (*shown, share), &entry));
        }
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
        } else if stays {
            Some(crd::stored_form(resource, object))
        } else {
            // Changes nothing but the version if a webhook has converted it.
            crd::convert_to_stored(resource, object)
        };
        let (selectable, shape) = form.unwrap_or((&resource.selectable_fields, 0));
        // Commits are serialized, so the object is encoded before, with a guessed revision.
        let guess = Revision(self.storage.revision().0 + 1);
        let mut draft = Some(object.draft(guess, selectable));
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
        // A webhook does not convert what was removed or stored here: its writer has the other form.
        committed.map(|entry| crd::convert_for_read(resource, entry.clone()).unwrap_or(entry))
    }
}
