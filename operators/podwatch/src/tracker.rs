//! Tracks what happened to each object since it was last reported.
//!
//! ```text
//!   tap: Change ──► pending (per key: deleted, current; …) ───┐
//!                                                             ├── open(key) ──► ChangeSet: events ── commit ──► reported
//!                   reported (per key: last reported state) ──┘                      └── dropped: pending again
//! ```
//!
//! Events come from the tap alone: the cache may already be ahead of it, and reading it would turn one deletion into two.
//! Changes before a key is processed collapse, but a deletion is never lost, nor that an object was recreated under its name. With
//! a capacity, they collapse only when that many changes are pending.
//!
//! Bounds: `reported` and `pending` have one entry per object that exists or was reported, packed and shared with the cache;
//! of objects created and deleted before they were reported, at most [`MAX_TRANSIENT`]; and as many more as the capacity.

use std::collections::{HashMap, HashSet, VecDeque};

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
    /// At least one for each key; more only if there is a capacity.
    pending: HashMap<ObjectKey, VecDeque<Pending<K>>>,
    /// How many there are of all keys.
    pending_count: usize,
    /// How many may be pending before they are merged by key.
    capacity: usize,
    /// How many changes of transient objects were dropped since this was last asked for.
    dropped: u64,
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

/// One or several successive changes of a key. `deleted` or `current` is set.
struct Pending<K> {
    /// The first deleted object: the reported one, if one was.
    deleted: Option<(CachedObject<K>, Deletion)>,
    current: Option<CachedObject<K>>,
    /// How many observed changes it stands for.
    changes: u64,
}

impl<K> Pending<K> {
    fn from_change(change: &Change<K>, changes: u64) -> Self {
        let (deleted, current) = match change {
            Change::Applied { new, .. } => {
                let replaced = change.old().filter(|_| change.is_recreated());
                let replaced = replaced.map(|old| (old.clone(), Deletion::Inferred));
                (replaced, Some(new.clone()))
            }
            Change::Deleted { last, deletion, .. } => (Some((last.clone(), *deletion)), None),
        };
        Self {
            deleted,
            current,
            changes,
        }
    }

    fn merge_later(&mut self, later: Self) {
        self.deleted = self.deleted.take().or(later.deleted);
        self.current = later.current;
        self.changes += later.changes;
    }
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
    pending: Option<VecDeque<Pending<K>>>,
    was_initial: bool,
    was_known: bool,
    committed: bool,
}

impl<K> ChangeTracker<K> {
    /// Creates a tracker in which this many changes may be pending before they are merged by object.
    pub(crate) fn new(known: impl IntoIterator<Item = ObjectKey>, capacity: usize) -> Self {
        Self {
            state: Mutex::new(State {
                reported: HashMap::new(),
                pending: HashMap::new(),
                pending_count: 0,
                capacity,
                dropped: 0,
                transient: 0,
                started: false,
                initial: HashSet::new(),
                known: known.into_iter().collect(),
                initial_reported: false,
            }),
        }
    }

    /// Records a change from the watch, into which `coalesced` others were merged. `readable` is whether the object
    /// decodes: one that does not is never reconciled.
    pub(crate) fn observe(&self, change: &Change<K>, coalesced: u64, readable: bool) {
        self.state.lock().observe(change, coalesced, readable);
    }

    /// How many changes of objects that were deleted before they were reported were dropped since the last call, because
    /// there were too many.
    pub(crate) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.state.lock().dropped)
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
    fn observe(&mut self, change: &Change<K>, coalesced: u64, readable: bool) {
        if change.is_resync() {
            return;
        }
        let key = change.key().clone();
        let mut pending = self.take_pending(&key).unwrap_or_default();
        let next = Pending::from_change(change, coalesced + 1);
        if self.started {
            self.push(&mut pending, next);
            self.put_pending(key, pending);
            return;
        }
        // A deletion before the start is not reported.
        match next.current {
            Some(now) => {
                if readable {
                    self.initial.insert(key.clone());
                }
                let before: u64 = pending.iter().map(|pending| pending.changes).sum();
                let now = Pending {
                    deleted: None,
                    current: Some(now),
                    changes: before + next.changes,
                };
                self.put_pending(key, VecDeque::from([now]));
            }
            None => drop(self.initial.remove(&key)),
        }
    }

    /// Adds a change to those of its key, which were taken out; merges it with the last one if there is no room.
    fn push(&self, pending: &mut VecDeque<Pending<K>>, next: Pending<K>) {
        let is_full = self.pending_count + pending.len() >= self.capacity;
        match pending.back_mut() {
            Some(last) if is_full => last.merge_later(next),
            _ => pending.push_back(next),
        }
    }

    fn is_transient(&self, key: &ObjectKey, pending: &VecDeque<Pending<K>>) -> bool {
        pending.back().is_some_and(|last| last.current.is_none()) && !self.reported.contains_key(key)
    }

    fn take_pending(&mut self, key: &ObjectKey) -> Option<VecDeque<Pending<K>>> {
        let pending = self.pending.remove(key)?;
        self.pending_count -= pending.len();
        self.transient -= usize::from(self.is_transient(key, &pending));
        Some(pending)
    }

    fn put_pending(&mut self, key: ObjectKey, pending: VecDeque<Pending<K>>) {
        let is_fleeting = self.is_transient(&key, &pending);
        if is_fleeting && self.transient >= MAX_TRANSIENT.max(self.capacity) {
            self.dropped += pending.iter().map(|pending| pending.changes).sum::<u64>();
            return;
        }
        self.pending_count += pending.len();
        self.transient += usize::from(is_fleeting);
        self.pending.insert(key, pending);
    }
}

impl<K> ChangeSet<'_, K> {
    /// The events to report, in order, each with the number of observed changes that it includes and that have no event of their
    /// own. Each object starts with `Synced` or `Added` and ends with `Deleted`.
    pub(crate) fn events(&self) -> Vec<(ObjectEvent<K>, u64)> {
        let mut steps = Vec::new();
        let Some(pending) = &self.pending else {
            if self.reported.is_none() && self.was_known {
                steps.push((ObjectEvent::Missing, 0));
            }
            return steps;
        };
        let mut was = self.reported.as_ref();
        for pending in pending {
            let before = steps.len();
            self.push_events(&mut steps, was, pending);
            let events = (steps.len() - before) as u64;
            if let Some((_, coalesced)) = steps.last_mut().filter(|_| events > 0) {
                *coalesced = pending.changes.saturating_sub(events);
            }
            was = pending.current.as_ref();
        }
        steps
    }

    fn push_events(
        &self,
        steps: &mut Vec<(ObjectEvent<K>, u64)>,
        mut was: Option<&CachedObject<K>>,
        pending: &Pending<K>,
    ) {
        let is_first = steps.is_empty();
        let mut push = |event| steps.push((event, 0));
        let mut is_initial = self.was_initial && is_first;
        if let Some((last, how)) = &pending.deleted {
            if was.is_none() {
                push(ObjectEvent::Added(last.clone()));
            }
            push(ObjectEvent::Deleted {
                old: was.unwrap_or(last).clone(),
                last: last.clone(),
                how: *how,
            });
            (was, is_initial) = (None, false);
        }
        match (was, &pending.current) {
            (None, Some(now)) if is_initial => push(ObjectEvent::Synced(now.clone())),
            (None, Some(now)) => push(ObjectEvent::Added(now.clone())),
            (Some(was), Some(now)) if was.meta().resource_version() != now.meta().resource_version() => {
                push(ObjectEvent::Updated {
                    old: was.clone(),
                    new: now.clone(),
                });
            }
            _ => {}
        }
    }

    /// Marks the events as reported.
    pub(crate) fn commit(mut self) {
        self.committed = true;
        let mut state = self.tracker.state.lock();
        state.initial.remove(&self.key);
        state.known.remove(&self.key);
        let Some(current) = self.pending.take().and_then(|mut pending| pending.pop_back()) else {
            return;
        };
        // Taken out and put back, since the update of `reported` changes whether it counts as transient.
        let newer = state.take_pending(&self.key);
        match current.current {
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
        let Some(mut pending) = self.pending.take().filter(|_| !self.committed) else {
            return;
        };
        let mut state = self.tracker.state.lock();
        for newer in state.take_pending(&self.key).unwrap_or_default() {
            state.push(&mut pending, newer);
        }
        state.put_pending(self.key.clone(), pending);
    }
}

#[cfg(test)]
mod tests;
