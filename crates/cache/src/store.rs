//! The objects of one kind: one writer, any number of readers on immutable snapshots.
//!
//! ```text
//!   driver ──► Staged ─┐                    ┌──► Snapshot ◄── Lister (a cheap clone, never blocks the writer)
//!                      ├──► Store (writer) ─┤
//!   driver ──► frame ──┘                    └──► Buffer per subscriber, after the snapshot
//! ```

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use imbl::OrdMap;
use kube::Resource;
use parking_lot::{Mutex, RwLock};

use crate::{
    change::{Change, Deletion},
    key::ObjectKey,
    subscription::Buffer,
    wire::Arrival,
};

/// A consistent state of the store. Cloning it shares everything.
pub(crate) struct Snapshot<K> {
    pub(crate) objects: OrdMap<ObjectKey, Entry<K>>,
    pub(crate) resource_version: Arc<str>,
}

/// What is kept of one object. The only policy is to keep it decoded; others keep less and decode in `object`.
pub(crate) struct Entry<K>(Arc<K>);

impl<K> Entry<K> {
    pub(crate) fn object(&self) -> Arc<K> {
        Arc::clone(&self.0)
    }
}

/// Objects put aside until a list is complete. `None`: an object that exists but does not decode.
pub(crate) type Staged<K> = BTreeMap<ObjectKey, Option<Arc<K>>>;

pub(crate) struct Store<K> {
    /// What readers see. Locked only for as long as it takes to clone or swap it.
    published: RwLock<Snapshot<K>>,
    /// Held for a whole change, so that a new subscriber gets each change either replayed or pushed, never both.
    writer: Mutex<Writer<K>>,
}

struct Writer<K> {
    subscribers: Vec<Weak<Buffer<K>>>,
    /// The first list has been stored.
    complete: bool,
    closed: bool,
}

impl<K: Resource> Store<K> {
    pub(crate) fn new() -> Self {
        let snapshot = Snapshot {
            objects: OrdMap::new(),
            resource_version: "".into(),
        };
        let writer = Writer {
            subscribers: Vec::new(),
            complete: false,
            closed: false,
        };
        Self {
            published: RwLock::new(snapshot),
            writer: Mutex::new(writer),
        }
    }

    pub(crate) fn snapshot(&self) -> Snapshot<K> {
        self.published.read().clone()
    }

    pub(crate) fn subscribe(&self) -> Arc<Buffer<K>> {
        let buffer = Arc::new(Buffer::new());
        let mut writer = self.writer.lock();
        for (key, entry) in &self.snapshot().objects {
            buffer.push(
                key.clone(),
                Change::Applied {
                    old: None,
                    new: entry.object(),
                    initial: true,
                },
            );
        }
        if writer.complete {
            buffer.initial_complete();
        }
        if writer.closed {
            buffer.close();
        }
        writer.subscribers.push(Arc::downgrade(&buffer));
        buffer
    }

    /// The list is complete: what is staged is now the content. What is missing from it is gone; what did not
    /// decode stays as it was last known.
    pub(crate) fn replace(&self, staged: Staged<K>, resource_version: &str) {
        let mut writer = self.writer.lock();
        let before = self.snapshot().objects;
        let initial = !writer.complete;
        let mut after = OrdMap::new();
        let mut applied = Vec::new();
        for (key, object) in staged {
            let old = before.get(&key).map(Entry::object);
            let new = match (object, &old) {
                (Some(new), Some(old)) if same_version(&**old, &*new) => Arc::clone(old),
                (Some(new), _) => {
                    applied.push((
                        key.clone(),
                        Change::Applied {
                            old,
                            new: Arc::clone(&new),
                            initial,
                        },
                    ));
                    new
                }
                (None, Some(old)) => Arc::clone(old),
                (None, None) => continue,
            };
            after.insert(key, Entry(new));
        }
        let gone = before
            .iter()
            .filter(|(key, _)| !after.contains_key(*key))
            .map(|(key, entry)| {
                (
                    key.clone(),
                    Change::Deleted {
                        old: entry.object(),
                        last: entry.object(),
                        how: Deletion::Inferred,
                    },
                )
            });
        // Deletions first: whoever frees something by name can take it again.
        let changes: Vec<_> = gone.chain(applied).collect();
        self.publish(after, resource_version);
        writer.complete = true;
        writer.notify(changes);
        writer.each(Buffer::initial_complete);
    }

    /// The kind does not exist any more, so neither do its objects.
    pub(crate) fn clear(&self) {
        self.replace(Staged::new(), "");
    }

    pub(crate) fn apply(&self, arrival: Arrival<K>, resource_version: &str) {
        let mut writer = self.writer.lock();
        let mut objects = self.snapshot().objects;
        let Arrival::Object(object) = arrival else {
            return self.publish(objects, resource_version);
        };
        let new = Arc::<K>::from(object);
        let key = ObjectKey::of(&*new);
        let old = objects
            .insert(key.clone(), Entry(Arc::clone(&new)))
            .map(|entry| entry.object());
        self.publish(objects, resource_version);
        if !old.as_deref().is_some_and(|old| same_version(old, &*new)) {
            writer.notify(vec![(
                key,
                Change::Applied {
                    old,
                    new,
                    initial: false,
                },
            )]);
        }
    }

    pub(crate) fn remove(&self, arrival: Arrival<K>, resource_version: &str) {
        let mut writer = self.writer.lock();
        let mut objects = self.snapshot().objects;
        let (key, last) = match arrival {
            Arrival::Object(object) => (Some(ObjectKey::of(&*object)), Some(Arc::<K>::from(object))),
            Arrival::Broken(broken) => (broken.key, None),
        };
        let removed = key
            .as_ref()
            .and_then(|key| objects.remove(key))
            .map(|entry| entry.object());
        self.publish(objects, resource_version);
        // An object that was never in the store is known to no subscriber.
        if let (Some(key), Some(old)) = (key, removed) {
            let last = last.unwrap_or_else(|| Arc::clone(&old));
            writer.notify(vec![(
                key,
                Change::Deleted {
                    old,
                    last,
                    how: Deletion::Seen,
                },
            )]);
        }
    }

    /// Nothing changed up to this version.
    pub(crate) fn advance(&self, resource_version: &str) {
        self.published.write().resource_version = resource_version.into();
    }

    /// No change will come any more.
    pub(crate) fn close(&self) {
        let mut writer = self.writer.lock();
        writer.closed = true;
        writer.each(Buffer::close);
    }

    fn publish(&self, objects: OrdMap<ObjectKey, Entry<K>>, resource_version: &str) {
        let new = Snapshot {
            objects,
            resource_version: resource_version.into(),
        };
        let old = std::mem::replace(&mut *self.published.write(), new);
        // Freeing a large snapshot takes time; readers must not wait for it.
        drop(old);
    }
}

impl<K: Resource> Writer<K> {
    fn notify(&mut self, changes: Vec<(ObjectKey, Change<K>)>) {
        for (key, change) in changes {
            self.each(|buffer| buffer.push(key.clone(), change.clone()));
        }
    }

    fn each(&mut self, mut act: impl FnMut(&Buffer<K>)) {
        self.subscribers
            .retain(|subscriber| subscriber.upgrade().inspect(|buffer| act(buffer)).is_some());
    }
}

impl<K> Clone for Snapshot<K> {
    fn clone(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            resource_version: Arc::clone(&self.resource_version),
        }
    }
}

impl<K> Clone for Entry<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

fn same_version<K: Resource>(a: &K, b: &K) -> bool {
    let (a, b) = (a.meta(), b.meta());
    a.resource_version.is_some() && a.resource_version == b.resource_version && a.uid == b.uid
}

#[cfg(test)]
mod tests;
