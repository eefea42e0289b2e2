//! The objects of one kind: one writer at a time, any number of readers on immutable snapshots.
//!
//! ```text
//!   driver ──► Staged ─┐                    ┌──► Snapshot ◄── Lister (a pointer, never blocks the writer)
//!                      ├──► Store (writer) ─┤
//!   driver ──► Batch ──┘                    └──► Buffer per subscriber, after the snapshot
//! ```

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::{
    change::{Deletion, RawChange},
    entry::Entry,
    index::{IndexDefinition, IndexState, Indexer},
    key::ObjectKey,
    own_writes::OwnWrites,
    snapshot::Snapshot,
    subscription::Buffer,
};

/// The part of the store that one watch fills: a namespace, or everything for the empty name.
pub(crate) type NamespaceScope = Arc<str>;

/// Objects of an incomplete list. `None`: an object that exists but cannot be stored.
pub(crate) type StagedObjects = BTreeMap<ObjectKey, Option<Arc<Entry>>>;

/// A change reported by a watch, to be written to the store.
pub(crate) enum WatchChange {
    Applied(Arc<Entry>),
    /// With the object's last state.
    Removed(Arc<Entry>),
    /// Deleted, and its last state cannot be read.
    RemovedInvalid(ObjectKey),
}

pub(crate) struct Store {
    published: ArcSwap<Snapshot>,
    /// Locked for a whole change, so that a new subscriber gets each change either replayed or pushed, never both.
    writer: Mutex<Writer>,
    /// The definitions of the writer's indexes, for queries.
    definitions: RwLock<Arc<[Arc<IndexDefinition>]>>,
    /// Notifies tasks that wait for a resource version.
    written: watch::Sender<()>,
}

struct Writer {
    subscribers: Vec<Weak<Buffer>>,
    indexes: Vec<IndexState>,
    scopes: BTreeMap<NamespaceScope, Position>,
    own_writes: OwnWrites,
    closed: bool,
}

#[derive(Default)]
struct Position {
    /// Everything up to this version is in the store.
    resource_version: Arc<str>,
    /// The first list is stored.
    complete: bool,
}

impl Position {
    fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or_default()
    }
}

impl Store {
    pub(crate) fn new() -> Self {
        let writer = Writer {
            subscribers: Vec::new(),
            indexes: Vec::new(),
            scopes: BTreeMap::new(),
            own_writes: OwnWrites::default(),
            closed: false,
        };
        Self {
            published: ArcSwap::default(),
            writer: Mutex::new(writer),
            definitions: RwLock::default(),
            written: watch::Sender::new(()),
        }
    }

    pub(crate) fn snapshot(&self) -> arc_swap::Guard<Arc<Snapshot>> {
        self.published.load()
    }

    pub(crate) fn written(&self) -> watch::Receiver<()> {
        self.written.subscribe()
    }

    /// Adds a scope that a watch will fill.
    pub(crate) fn add_scope(&self, scope: &NamespaceScope) {
        self.writer.lock().scopes.entry(Arc::clone(scope)).or_default();
    }

    /// Removes a scope that is not watched any more, with its objects.
    pub(crate) fn remove_scope(&self, scope: &NamespaceScope) {
        self.replace(scope, StagedObjects::new(), "");
        let mut writer = self.writer.lock();
        writer.scopes.remove(scope);
        if writer.is_complete() {
            writer.for_each_subscriber(Buffer::mark_initial_complete);
        }
    }

    pub(crate) fn subscribe(&self) -> Arc<Buffer> {
        let buffer = Arc::new(Buffer::new());
        let mut writer = self.writer.lock();
        buffer.push(self.snapshot().objects.iter().map(|entry| RawChange::Applied {
            old: None,
            new: Arc::clone(entry),
            initial: true,
        }));
        if writer.is_complete() {
            buffer.mark_initial_complete();
        }
        if writer.closed {
            buffer.close();
        }
        writer.subscribers.push(Arc::downgrade(&buffer));
        buffer
    }

    /// Delivers every object to a subscriber again.
    pub(crate) fn resync(&self, buffer: &Buffer) {
        let _writer = self.writer.lock();
        for entry in self.snapshot().objects.iter() {
            buffer.push_resync(entry);
        }
    }

    /// Returns the index of this source, and builds it if it is new.
    pub(crate) fn index<T>(&self, by: Indexer<T>) -> Arc<IndexDefinition> {
        let mut writer = self.writer.lock();
        if let Some(known) = writer
            .indexes
            .iter()
            .find(|known| known.definition.has_source(&by))
        {
            return Arc::clone(&known.definition);
        }
        let definition = Arc::new(IndexDefinition::new(by));
        let mut kept = IndexState::new(Arc::clone(&definition));
        let mut snapshot = Snapshot::clone(&self.snapshot());
        let mut buckets = crate::snapshot::Buckets::new();
        for entry in snapshot.objects.iter() {
            let slot = snapshot.objects.slot(&entry.meta.key);
            kept.update(&mut buckets, &entry.meta.key, slot.map(|slot| (slot, &**entry)));
        }
        snapshot.indexes.insert(definition.id, buckets);
        writer.indexes.push(kept);
        self.published.store(Arc::new(snapshot));
        *self.definitions.write() = writer
            .indexes
            .iter()
            .map(|kept| Arc::clone(&kept.definition))
            .collect();
        definition
    }

    pub(crate) fn definitions(&self) -> Arc<[Arc<IndexDefinition>]> {
        Arc::clone(&self.definitions.read())
    }

    /// Replaces the content of a scope with a complete list. Objects that are not in the list are deleted; those that
    /// cannot be stored keep their last state.
    pub(crate) fn replace(&self, scope: &NamespaceScope, staged: StagedObjects, resource_version: &str) {
        let mut writer = self.writer.lock();
        let mut change = Transaction::new(self, &mut writer);
        let listed = resource_version.parse().unwrap_or(u64::MAX);
        let initial = !change
            .writer
            .scopes
            .get(scope)
            .is_some_and(|position| position.complete);
        // Deletions first: a subscriber can free a resource by name before another object takes it.
        let before: Vec<_> = change
            .snapshot
            .objects
            .in_namespace(namespace_filter(scope))
            .cloned()
            .collect();
        for old in before {
            let key = &old.meta.key;
            if !staged.contains_key(key) && !change.writer.own_writes.is_newer_than(key, listed) {
                change.remove(&old.meta.key.clone(), Arc::clone(&old), Deletion::Inferred);
            }
        }
        for (key, entry) in staged {
            if let Some(entry) = entry
                && !change.writer.own_writes.is_newer_than(&key, listed)
            {
                change.apply(&entry, initial, ApplyRule::IfDifferent);
            }
        }
        if let Some(position) = change.writer.scopes.get_mut(scope) {
            position.complete = true;
        }
        change.finish(scope, resource_version);
        if writer.is_complete() {
            writer.for_each_subscriber(Buffer::mark_initial_complete);
        }
    }

    /// Writes changes of a watch that has reached this version.
    pub(crate) fn commit(&self, scope: &NamespaceScope, changes: Vec<WatchChange>, resource_version: &str) {
        let mut writer = self.writer.lock();
        let mut change = Transaction::new(self, &mut writer);
        for event in changes {
            match event {
                WatchChange::Applied(entry) => change.apply(&entry, false, ApplyRule::IfNewer),
                WatchChange::Removed(last) => {
                    change.writer.own_writes.confirm_delete(&last.meta);
                    let known = change.snapshot.objects.get(&last.meta.key);
                    // An own write may have created it again since.
                    let is_older =
                        known.is_some_and(|known| last.meta.resource_version < known.meta.resource_version);
                    if !is_older || last.meta.resource_version == 0 {
                        change.remove(&last.meta.key.clone(), last, Deletion::Observed);
                    }
                }
                WatchChange::RemovedInvalid(key) => {
                    if let Some(known) = change.snapshot.objects.get(&key).cloned() {
                        change.remove(&key, known, Deletion::Observed);
                    }
                }
            }
        }
        change.finish(scope, resource_version);
    }

    /// Stores the result of an own write. `selected`: the object belongs to this cache.
    pub(crate) fn apply_own_write(&self, entry: Arc<Entry>, selected: bool) {
        let mut writer = self.writer.lock();
        if writer
            .watched_version(&entry.meta.key)
            .is_none_or(|watched| entry.meta.resource_version <= watched)
        {
            // The watch is ahead of the write, or does not cover the object.
            return;
        }
        let mut change = Transaction::new(self, &mut writer);
        let key = entry.meta.key.clone();
        if change.writer.own_writes.supersedes(&entry.meta) {
            return;
        }
        change
            .writer
            .own_writes
            .record_write(key.clone(), entry.meta.resource_version);
        if selected {
            change.apply(&entry, false, ApplyRule::IfDifferent);
        } else {
            change.remove(&key, entry, Deletion::Observed);
        }
        change.publish();
    }

    /// Removes an object after an own write that deleted it. `version` is that of its last state; 0 if unknown.
    pub(crate) fn apply_own_delete(&self, key: &ObjectKey, uid: crate::meta::Uid, version: u64) {
        let mut writer = self.writer.lock();
        let Some(watched) = writer.watched_version(key) else {
            return;
        };
        let mut change = Transaction::new(self, &mut writer);
        let known = change.snapshot.objects.get(key).cloned();
        let is_confirmed = match &known {
            Some(known) if known.meta.uid == uid => false,
            // Created again since.
            Some(known) => known.meta.resource_version > version,
            // The watch has reported the deletion already, and will not do so again.
            None => version != 0 && version <= watched,
        };
        if is_confirmed {
            return;
        }
        change.writer.own_writes.record_delete(key.clone(), uid);
        if let Some(known) = known.filter(|known| known.meta.uid == uid) {
            change.remove(key, known, Deletion::Observed);
            change.publish();
        }
    }

    /// Returns whether reads reflect this version of a written object; `outside`: the scope excludes it, so it must be
    /// absent. Also true if it cannot be read anyway: no watch covers it, or its watch is not synced.
    pub(crate) fn reflects(&self, key: &ObjectKey, version: u64, outside: bool) -> bool {
        let writer = self.writer.lock();
        let snapshot = self.snapshot();
        let shown = match snapshot.objects.get(key) {
            Some(known) => known.meta.resource_version >= version,
            None => outside,
        };
        shown
            || writer.closed
            || writer
                .position(key)
                .is_none_or(|position| !position.complete || position.version() >= version)
    }

    /// Returns whether reads reflect a later version of the object, or its absence. Also true if it cannot be read
    /// anyway.
    pub(crate) fn reflects_later(&self, key: &ObjectKey, version: u64) -> bool {
        let writer = self.writer.lock();
        let snapshot = self.snapshot();
        let known = snapshot.objects.get(key);
        known.is_none_or(|known| known.meta.resource_version > version)
            || writer.closed
            || writer.position(key).is_none_or(|position| !position.complete)
    }

    /// Closes all subscriptions.
    pub(crate) fn close(&self) {
        let mut writer = self.writer.lock();
        writer.closed = true;
        writer.for_each_subscriber(Buffer::close);
        drop(writer);
        self.written.send_replace(());
    }

    /// Returns the numbers of subscribers, of changes in their buffers, and of unconfirmed own writes.
    pub(crate) fn backlog(&self) -> (usize, usize, usize) {
        let mut writer = self.writer.lock();
        let (mut subscribers, mut pending) = (0, 0);
        writer.for_each_subscriber(|buffer| {
            subscribers += 1;
            pending += buffer.pending();
        });
        (subscribers, pending, writer.own_writes.len())
    }
}

/// Which states replace the stored one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ApplyRule {
    /// Any other version: a list is the current state, even if a version is older.
    IfDifferent,
    /// Only newer versions: an own write may be ahead of the watch.
    IfNewer,
}

/// A change of the store that is not published yet.
struct Transaction<'a> {
    store: &'a Store,
    writer: &'a mut Writer,
    snapshot: Snapshot,
    changes: Vec<RawChange>,
}

impl<'a> Transaction<'a> {
    fn new(store: &'a Store, writer: &'a mut Writer) -> Self {
        Self {
            store,
            writer,
            snapshot: Snapshot::clone(&store.snapshot()),
            changes: Vec::new(),
        }
    }

    fn apply(&mut self, new: &Arc<Entry>, initial: bool, order: ApplyRule) {
        if self.writer.own_writes.supersedes(&new.meta) {
            return;
        }
        let key = &new.meta.key;
        let old = self.snapshot.objects.get(key);
        if let Some(old) = old {
            let (old_version, new_version) = (old.meta.resource_version, new.meta.resource_version);
            if old.meta.is_same_version(&new.meta)
                || (order == ApplyRule::IfNewer && new_version != 0 && new_version < old_version)
            {
                return;
            }
        }
        let old = self.snapshot.objects.insert(Arc::clone(new));
        self.changes.push(RawChange::Applied {
            initial: initial && old.is_none(),
            old,
            new: Arc::clone(new),
        });
        self.reindex(&new.meta.key, Some(new));
    }

    /// Removes an object. One that was not in the store produces no change.
    fn remove(&mut self, key: &ObjectKey, last: Arc<Entry>, how: Deletion) {
        if let Some(old) = self.snapshot.objects.remove(key) {
            self.reindex(key, None);
            self.changes.push(RawChange::Deleted {
                old: Some(old),
                last,
                how,
            });
        }
    }

    fn reindex(&mut self, key: &ObjectKey, entry: Option<&Entry>) {
        if self.writer.indexes.is_empty() {
            return;
        }
        let now = self.snapshot.objects.slot(key).zip(entry);
        for kept in &mut self.writer.indexes {
            if let Some(buckets) = self.snapshot.indexes.get_mut(&kept.definition.id) {
                kept.update(buckets, key, now);
            }
        }
    }

    fn finish(mut self, scope: &NamespaceScope, resource_version: &str) {
        if let Some(position) = self.writer.scopes.get_mut(scope)
            && *position.resource_version != *resource_version
        {
            position.resource_version = resource_version.into();
            self.snapshot.resource_version = self.writer.oldest_version();
            if !self.writer.own_writes.is_empty()
                && let Ok(version) = resource_version.parse()
            {
                self.writer
                    .own_writes
                    .confirm_up_to(version, |key| scope.is_empty() || key.namespace == *scope);
            }
        }
        self.publish();
    }

    fn publish(self) {
        // Freeing a large snapshot takes time; it happens after the new one is visible.
        drop(self.store.published.swap(Arc::new(self.snapshot)));
        if self.store.written.receiver_count() > 0 {
            self.store.written.send_replace(());
        }
        let changes = self.changes;
        if !changes.is_empty() {
            self.writer
                .for_each_subscriber(|buffer| buffer.push(changes.iter().cloned()));
        }
    }
}

impl Writer {
    fn is_complete(&self) -> bool {
        self.scopes.values().all(|position| position.complete)
    }

    /// Returns the version that the watch covering this key has reached; `None` if there is no such watch.
    fn watched_version(&self, key: &ObjectKey) -> Option<u64> {
        self.position(key).map(Position::version)
    }

    fn position(&self, key: &ObjectKey) -> Option<&Position> {
        self.scopes.get("").or_else(|| self.scopes.get(&key.namespace))
    }

    fn oldest_version(&self) -> Arc<str> {
        let oldest = self.scopes.values().min_by_key(|position| position.version());
        oldest
            .map(|position| Arc::clone(&position.resource_version))
            .unwrap_or_default()
    }

    fn for_each_subscriber(&mut self, mut act: impl FnMut(&Buffer)) {
        self.subscribers
            .retain(|subscriber| subscriber.upgrade().inspect(|buffer| act(buffer)).is_some());
    }
}

fn namespace_filter(scope: &NamespaceScope) -> Option<&str> {
    (!scope.is_empty()).then_some(scope)
}

#[cfg(test)]
mod tests;
