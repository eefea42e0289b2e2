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
    index::{Definition, IndexBy, Kept},
    key::ObjectKey,
    own::OwnWrites,
    snapshot::Snapshot,
    subscription::Buffer,
};

/// The part of the store that one watch fills: a namespace, or all of it for the empty name.
pub(crate) type Scope = Arc<str>;

/// Objects put aside until a list is complete. `None`: an object that exists but cannot be kept.
pub(crate) type Staged = BTreeMap<ObjectKey, Option<Arc<Entry>>>;

/// What a watch told since the store was last written.
pub(crate) enum Told {
    Applied(Arc<Entry>),
    /// With the object's last state.
    Removed(Arc<Entry>),
    /// It is gone, and its last state cannot be read.
    RemovedBroken(ObjectKey),
}

pub(crate) struct Store {
    published: ArcSwap<Snapshot>,
    /// Held for a whole change, so that a new subscriber gets each change either replayed or pushed, never both.
    writer: Mutex<Writer>,
    /// The definitions of the writer's indexes, for queries.
    definitions: RwLock<Arc<[Arc<Definition>]>>,
    /// Wakes whoever waits for a version.
    written: watch::Sender<()>,
}

struct Writer {
    subscribers: Vec<Weak<Buffer>>,
    indexes: Vec<Kept>,
    scopes: BTreeMap<Scope, Position>,
    own: OwnWrites,
    closed: bool,
}

#[derive(Default)]
struct Position {
    /// Everything up to here is in the store.
    resource_version: Arc<str>,
    /// The first list has been stored.
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
            own: OwnWrites::default(),
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

    /// A watch will fill this part.
    pub(crate) fn open(&self, scope: &Scope) {
        self.writer.lock().scopes.entry(Arc::clone(scope)).or_default();
    }

    /// No watch fills this part any more: what was in it is unknown, hence gone.
    pub(crate) fn abandon(&self, scope: &Scope) {
        self.replace(scope, Staged::new(), "");
        let mut writer = self.writer.lock();
        writer.scopes.remove(scope);
        if writer.is_complete() {
            writer.each(Buffer::initial_complete);
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
            buffer.initial_complete();
        }
        if writer.closed {
            buffer.close();
        }
        writer.subscribers.push(Arc::downgrade(&buffer));
        buffer
    }

    /// Tells a subscriber of every object again.
    pub(crate) fn resync(&self, buffer: &Buffer) {
        let _writer = self.writer.lock();
        for entry in self.snapshot().objects.iter() {
            buffer.push_again(entry);
        }
    }

    /// The index that is asked for; if it is new it is filled from what is there.
    pub(crate) fn index<T>(&self, by: IndexBy<T>) -> Arc<Definition> {
        let mut writer = self.writer.lock();
        if let Some(known) = writer.indexes.iter().find(|known| known.definition.answers(&by)) {
            return Arc::clone(&known.definition);
        }
        let definition = Arc::new(Definition::new(by));
        let mut kept = Kept::new(Arc::clone(&definition));
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

    pub(crate) fn definitions(&self) -> Arc<[Arc<Definition>]> {
        Arc::clone(&self.definitions.read())
    }

    /// The list is complete: what is staged is now the content of the scope. What is missing from it is gone; what
    /// cannot be kept stays as it was last known.
    pub(crate) fn replace(&self, scope: &Scope, staged: Staged, resource_version: &str) {
        let mut writer = self.writer.lock();
        let mut change = Writing::new(self, &mut writer);
        let listed = resource_version.parse().unwrap_or(u64::MAX);
        let initial = !change
            .writer
            .scopes
            .get(scope)
            .is_some_and(|position| position.complete);
        // Deletions first: whoever frees something by name can take it again.
        let before: Vec<_> = change.snapshot.objects.within(covered(scope)).cloned().collect();
        for old in before {
            let key = &old.meta.key;
            if !staged.contains_key(key) && !change.writer.own.is_newer_than(key, listed) {
                change.remove(&old.meta.key.clone(), Arc::clone(&old), Deletion::Inferred);
            }
        }
        for (key, entry) in staged {
            if let Some(entry) = entry
                && !change.writer.own.is_newer_than(&key, listed)
            {
                change.apply(&entry, initial, Order::Listed);
            }
        }
        if let Some(position) = change.writer.scopes.get_mut(scope) {
            position.complete = true;
        }
        change.finish(scope, resource_version);
        if writer.is_complete() {
            writer.each(Buffer::initial_complete);
        }
    }

    /// The watch told of these changes, and has come to this version.
    pub(crate) fn commit(&self, scope: &Scope, told: Vec<Told>, resource_version: &str) {
        let mut writer = self.writer.lock();
        let mut change = Writing::new(self, &mut writer);
        for told in told {
            match told {
                Told::Applied(entry) => change.apply(&entry, false, Order::Watched),
                Told::Removed(last) => {
                    change.writer.own.ended(&last.meta);
                    let known = change.snapshot.objects.get(&last.meta.key);
                    // An own write has made it again since.
                    let is_older =
                        known.is_some_and(|known| last.meta.resource_version < known.meta.resource_version);
                    if !is_older || last.meta.resource_version == 0 {
                        change.remove(&last.meta.key.clone(), last, Deletion::Seen);
                    }
                }
                Told::RemovedBroken(key) => {
                    if let Some(known) = change.snapshot.objects.get(&key).cloned() {
                        change.remove(&key, known, Deletion::Seen);
                    }
                }
            }
        }
        change.finish(scope, resource_version);
    }

    /// Somebody here wrote this state, and the server took it. `selected`: it belongs into this cache.
    pub(crate) fn wrote(&self, entry: Arc<Entry>, selected: bool) {
        let mut writer = self.writer.lock();
        if writer
            .covers(&entry.meta.key)
            .is_none_or(|told| entry.meta.resource_version <= told)
        {
            // The watch has come further, or was never asked about it.
            return;
        }
        let mut change = Writing::new(self, &mut writer);
        let key = entry.meta.key.clone();
        if change.writer.own.supersedes(&entry.meta) {
            return;
        }
        change.writer.own.wrote(key.clone(), entry.meta.resource_version);
        if selected {
            change.apply(&entry, false, Order::Listed);
        } else {
            change.remove(&key, entry, Deletion::Seen);
        }
        change.publish();
    }

    /// Somebody here deleted this object, and it is gone.
    pub(crate) fn deleted(&self, key: &ObjectKey, uid: crate::meta::Uid) {
        let mut writer = self.writer.lock();
        if writer.covers(key).is_none() {
            return;
        }
        writer.own.deleted(key.clone(), uid);
        let mut change = Writing::new(self, &mut writer);
        if let Some(known) = change.snapshot.objects.get(key).cloned()
            && known.meta.uid == uid
        {
            change.remove(key, known, Deletion::Seen);
            change.publish();
        }
    }

    /// Whether reads reflect this version of an object that somebody wrote; `outside`: it belongs elsewhere, and has
    /// only to be gone. True also where nobody can read: there is no watch that tells of it, or it is not complete.
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

    /// Whether reads reflect a later version of the object than this, or that there is none. True also where nobody can
    /// read.
    pub(crate) fn is_past(&self, key: &ObjectKey, version: u64) -> bool {
        let writer = self.writer.lock();
        let snapshot = self.snapshot();
        let known = snapshot.objects.get(key);
        known.is_none_or(|known| known.meta.resource_version > version)
            || writer.closed
            || writer.position(key).is_none_or(|position| !position.complete)
    }

    /// No change will come any more.
    pub(crate) fn close(&self) {
        let mut writer = self.writer.lock();
        writer.closed = true;
        writer.each(Buffer::close);
        drop(writer);
        self.written.send_replace(());
    }

    /// Subscribers, changes that they have not taken, own writes that are not confirmed.
    pub(crate) fn waiting(&self) -> (usize, usize, usize) {
        let mut writer = self.writer.lock();
        let (mut subscribers, mut pending) = (0, 0);
        writer.each(|buffer| {
            subscribers += 1;
            pending += buffer.pending();
        });
        (subscribers, pending, writer.own.len())
    }
}

/// Which states count as news.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Any that differs: a list is what is there now, older or not.
    Listed,
    /// Only newer ones: what was written here may be ahead of the watch.
    Watched,
}

/// A change of the store that nobody sees yet.
struct Writing<'a> {
    store: &'a Store,
    writer: &'a mut Writer,
    snapshot: Snapshot,
    changes: Vec<RawChange>,
}

impl<'a> Writing<'a> {
    fn new(store: &'a Store, writer: &'a mut Writer) -> Self {
        Self {
            store,
            writer,
            snapshot: Snapshot::clone(&store.snapshot()),
            changes: Vec::new(),
        }
    }

    fn apply(&mut self, new: &Arc<Entry>, initial: bool, order: Order) {
        if self.writer.own.supersedes(&new.meta) {
            return;
        }
        let key = &new.meta.key;
        let old = self.snapshot.objects.get(key);
        if let Some(old) = old {
            let (known, told) = (old.meta.resource_version, new.meta.resource_version);
            if old.meta.is_same_version(&new.meta) || (order == Order::Watched && told != 0 && told < known) {
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

    /// An object that was never in the store is known to no subscriber.
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

    fn finish(mut self, scope: &Scope, resource_version: &str) {
        if let Some(position) = self.writer.scopes.get_mut(scope)
            && *position.resource_version != *resource_version
        {
            position.resource_version = resource_version.into();
            self.snapshot.resource_version = self.writer.oldest_version();
            if !self.writer.own.is_empty()
                && let Ok(version) = resource_version.parse()
            {
                self.writer
                    .own
                    .told_up_to(version, |key| scope.is_empty() || key.namespace == *scope);
            }
        }
        self.publish();
    }

    fn publish(self) {
        // Freeing a large snapshot takes time; readers do not wait for it.
        drop(self.store.published.swap(Arc::new(self.snapshot)));
        if self.store.written.receiver_count() > 0 {
            self.store.written.send_replace(());
        }
        let changes = self.changes;
        if !changes.is_empty() {
            self.writer.each(|buffer| buffer.push(changes.iter().cloned()));
        }
    }
}

impl Writer {
    fn is_complete(&self) -> bool {
        self.scopes.values().all(|position| position.complete)
    }

    /// How far the watch has come that tells of this key; `None` if there is none.
    fn covers(&self, key: &ObjectKey) -> Option<u64> {
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

    fn each(&mut self, mut act: impl FnMut(&Buffer)) {
        self.subscribers
            .retain(|subscriber| subscriber.upgrade().inspect(|buffer| act(buffer)).is_some());
    }
}

fn covered(scope: &Scope) -> Option<&str> {
    (!scope.is_empty()).then_some(scope)
}

#[cfg(test)]
mod tests;
