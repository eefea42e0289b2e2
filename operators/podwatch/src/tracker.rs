//! Tracks what happened to each object since it was last reported.
//!
//! ```text
//!   tap: Change ──► pending (per key: deleted, current) ──────┐
//!                                                             ├── open(key) ──► ChangeSet: events ── commit ──► reported
//!                   reported (per key: last reported state) ──┘                      └── dropped: pending again
//! ```
//!
//! Events come from the tap alone: the cache may already be ahead of it, and reading it would turn one deletion into two.
//! Changes before a key is processed collapse, but a deletion is never lost, nor that an object was recreated under its name.
//!
//! Bounds: `reported` and `pending` have one entry per object that exists or was reported, packed and shared with the cache;
//! of objects created and deleted before they were reported, at most [`MAX_TRANSIENT`].

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use windlass::cache::{CachedObject, Change, Deletion, ObjectKey};

/// How many objects that were deleted before they were reported are remembered.
const MAX_TRANSIENT: usize = 1024;

/// The observed and the reported states of one kind's objects.
pub(crate) struct ChangeTracker<K> {
    state: Mutex<State<K>>,
}

struct State<K> {
    reported: HashMap<ObjectKey, CachedObject<K>>,
    /// In each entry at least one field is set.
    pending: HashMap<ObjectKey, Pending<K>>,
    /// How many of `pending` were created and deleted without being reported.
    transient: usize,
    /// Whether reporting has started. Until then, every object is an initial one.
    started: bool,
    /// Initial objects that are not reported yet.
    initial: HashSet<ObjectKey>,
    /// Objects from `--known` that are not processed yet.
    known: HashSet<ObjectKey>,
    /// Whether the completion of the initial objects was reported.
    initial_reported: bool,
}

struct Pending<K> {
    /// The first deleted object: the reported one, if one was.
    deleted: Option<(CachedObject<K>, Deletion)>,
    current: Option<CachedObject<K>>,
}

#[derive(Clone)]
pub(crate) enum ObjectEvent<K> {
    /// The object existed at the start.
    Synced(CachedObject<K>),
    Added(CachedObject<K>),
    Updated {
        old: CachedObject<K>,
        new: CachedObject<K>,
    },
    Deleted {
        /// The last reported state.
        old: CachedObject<K>,
        last: CachedObject<K>,
        how: Deletion,
    },
    /// The object was in `--known`, and does not exist.
    Missing,
}

/// The unreported events of one object. Dropped before [`commit`](Self::commit), they are pending again.
#[must_use]
pub(crate) struct ChangeSet<'a, K> {
    tracker: &'a ChangeTracker<K>,
    key: ObjectKey,
    reported: Option<CachedObject<K>>,
    pending: Option<Pending<K>>,
    was_initial: bool,
    was_known: bool,
    committed: bool,
}

impl<K> ChangeTracker<K> {
    pub(crate) fn new(known: impl IntoIterator<Item = ObjectKey>) -> Self {
        Self {
            state: Mutex::new(State {
                reported: HashMap::new(),
                pending: HashMap::new(),
                transient: 0,
                started: false,
                initial: HashSet::new(),
                known: known.into_iter().collect(),
                initial_reported: false,
            }),
        }
    }

    /// Records a change from the watch. `readable` is whether the object decodes: one that does not is never reconciled.
    pub(crate) fn observe(&self, change: &Change<K>, readable: bool) {
        self.state.lock().observe(change, readable);
    }

    /// Starts reporting: objects that are observed from now on are not initial.
    pub(crate) fn start(&self) {
        self.state.lock().started = true;
    }

    /// Opens the unreported events of an object, and starts reporting. At most one may be open per object.
    pub(crate) fn open(&self, key: &ObjectKey) -> ChangeSet<'_, K> {
        let mut state = self.state.lock();
        state.started = true;
        let pending = state.take_pending(key);
        ChangeSet {
            tracker: self,
            key: key.clone(),
            reported: state.reported.get(key).cloned(),
            pending,
            was_initial: state.initial.contains(key),
            was_known: state.known.contains(key),
            committed: false,
        }
    }

    /// Returns true once, when all initial objects have been reported.
    pub(crate) fn initial_just_reported(&self) -> bool {
        let mut state = self.state.lock();
        let newly =
            state.started && state.initial.is_empty() && state.known.is_empty() && !state.initial_reported;
        state.initial_reported |= newly;
        newly
    }
}

impl<K> State<K> {
    fn observe(&mut self, change: &Change<K>, readable: bool) {
        if change.is_resync() {
            return;
        }
        let key = change.key().clone();
        let Pending { deleted, .. } = self.take_pending(&key).unwrap_or(Pending {
            deleted: None,
            current: None,
        });
        let pending = match change {
            Change::Applied { new, .. } => {
                let replaced = change.old().filter(|_| change.is_recreated());
                let replaced = replaced.map(|old| (old.clone(), Deletion::Inferred));
                Pending {
                    deleted: deleted.or(replaced),
                    current: Some(new.clone()),
                }
            }
            Change::Deleted {
                last, deletion: how, ..
            } => Pending {
                deleted: deleted.or_else(|| Some((last.clone(), *how))),
                current: None,
            },
        };
        if !self.started {
            // A deletion before the start is not reported.
            let now = pending.current.map(|now| Pending {
                deleted: None,
                current: Some(now),
            });
            match now {
                Some(now) => {
                    if readable {
                        self.initial.insert(key.clone());
                    }
                    self.pending.insert(key, now);
                }
                None => drop(self.initial.remove(&key)),
            }
            return;
        }
        self.put_pending(key, pending);
    }

    fn is_transient(&self, key: &ObjectKey, pending: &Pending<K>) -> bool {
        pending.current.is_none() && !self.reported.contains_key(key)
    }

    fn take_pending(&mut self, key: &ObjectKey) -> Option<Pending<K>> {
        let pending = self.pending.remove(key)?;
        self.transient -= usize::from(self.is_transient(key, &pending));
        Some(pending)
    }

    fn put_pending(&mut self, key: ObjectKey, pending: Pending<K>) {
        let is_fleeting = self.is_transient(&key, &pending);
        if is_fleeting && self.transient >= MAX_TRANSIENT {
            return;
        }
        self.transient += usize::from(is_fleeting);
        self.pending.insert(key, pending);
    }
}

impl<K> ChangeSet<'_, K> {
    /// The events to report, in order. Each object starts with `Synced` or `Added` and ends with `Deleted`.
    pub(crate) fn events(&self) -> Vec<ObjectEvent<K>> {
        let mut steps = Vec::new();
        let Some(pending) = &self.pending else {
            if self.reported.is_none() && self.was_known {
                steps.push(ObjectEvent::Missing);
            }
            return steps;
        };
        let mut was = self.reported.as_ref();
        if let Some((last, how)) = &pending.deleted {
            if was.is_none() {
                steps.push(ObjectEvent::Added(last.clone()));
            }
            steps.push(ObjectEvent::Deleted {
                old: was.unwrap_or(last).clone(),
                last: last.clone(),
                how: *how,
            });
            was = None;
        }
        match (was, &pending.current) {
            (None, Some(now)) if self.was_initial && steps.is_empty() => {
                steps.push(ObjectEvent::Synced(now.clone()));
            }
            (None, Some(now)) => steps.push(ObjectEvent::Added(now.clone())),
            (Some(was), Some(now)) if was.meta().resource_version() != now.meta().resource_version() => {
                steps.push(ObjectEvent::Updated {
                    old: was.clone(),
                    new: now.clone(),
                });
            }
            _ => {}
        }
        steps
    }

    /// Marks the events as reported.
    pub(crate) fn commit(mut self) {
        self.committed = true;
        let mut state = self.tracker.state.lock();
        state.initial.remove(&self.key);
        state.known.remove(&self.key);
        let Some(pending) = self.pending.take() else {
            return;
        };
        // Taken out and put back, since the update of `reported` changes whether it counts as transient.
        let newer = state.take_pending(&self.key);
        match pending.current {
            Some(now) => drop(state.reported.insert(self.key.clone(), now)),
            None => drop(state.reported.remove(&self.key)),
        }
        if let Some(newer) = newer {
            state.put_pending(self.key.clone(), newer);
        }
    }
}

impl<K> Drop for ChangeSet<'_, K> {
    fn drop(&mut self) {
        let Some(Pending { deleted, current }) = self.pending.take().filter(|_| !self.committed) else {
            return;
        };
        let mut state = self.tracker.state.lock();
        let pending = match state.take_pending(&self.key) {
            None => Pending { deleted, current },
            Some(newer) => Pending {
                deleted: deleted.or(newer.deleted),
                current: newer.current,
            },
        };
        state.put_pending(self.key.clone(), pending);
    }
}

#[cfg(test)]
mod tests;
