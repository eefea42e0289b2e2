//! What happened to each object since it was last told of.
//!
//! ```text
//!   tap: Change ──► pending (per key: what went, what is there now) ──┐
//!                                                                     ├── open(key) ──► Story: Steps ── closed ──► told
//!                   told (per key: the state that was told last) ─────┘                     └── dropped: pending again
//! ```
//!
//! Only what the tap has seen is told: the cache may already be ahead of it, and would make two deletions of one. Changes that
//! come before a key's turn collapse; a deletion is never lost in that, nor that an object is another one of the same name.
//!
//! Bounds: `told` and `pending` have an entry for each object that is there or was told, which are packed and shared
//! with the cache; of objects that came and went unseen, no more than [`FLEETING`].

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use windlass::cache::{Change, Deletion, ObjectKey, Stored};

/// How many objects that came and went before their turn are remembered.
const FLEETING: usize = 1024;

/// What the watch of one kind has seen and what was told of it.
pub(crate) struct Memory<K> {
    state: Mutex<State<K>>,
}

struct State<K> {
    told: HashMap<ObjectKey, Stored<K>>,
    /// Each has at least one of its parts.
    pending: HashMap<ObjectKey, Pending<K>>,
    /// How many of `pending` came and went.
    fleeting: usize,
    /// Whether objects are told of yet. Until then, everything was there at the start.
    started: bool,
    /// Those that were there at the start and are not told of yet.
    initial: HashSet<ObjectKey>,
    /// Objects that were there in an earlier life, as somebody says.
    known: HashSet<ObjectKey>,
    /// Whether somebody was told that all initial objects are told.
    listed: bool,
}

struct Pending<K> {
    /// The first object that went: the one that was told, if one was.
    gone: Option<(Stored<K>, Deletion)>,
    now: Option<Stored<K>>,
}

/// One thing to tell.
#[derive(Clone)]
pub(crate) enum Step<K> {
    /// It was there at the start.
    Synced(Stored<K>),
    Added(Stored<K>),
    Updated {
        old: Stored<K>,
        new: Stored<K>,
    },
    Deleted {
        /// What was told last.
        old: Stored<K>,
        last: Stored<K>,
        how: Deletion,
    },
    /// It was there in an earlier life, and is not now.
    Missing,
}

/// What is to be told of one object. Dropped before it is [closed](Self::close), it is to be told again.
#[must_use]
pub(crate) struct Story<'a, K> {
    memory: &'a Memory<K>,
    key: ObjectKey,
    was: Option<Stored<K>>,
    pending: Option<Pending<K>>,
    was_initial: bool,
    was_known: bool,
    closed: bool,
}

impl<K> Memory<K> {
    pub(crate) fn new(known: impl IntoIterator<Item = ObjectKey>) -> Self {
        Self {
            state: Mutex::new(State {
                told: HashMap::new(),
                pending: HashMap::new(),
                fleeting: 0,
                started: false,
                initial: HashSet::new(),
                known: known.into_iter().collect(),
                listed: false,
            }),
        }
    }

    /// Takes what the watch saw. `readable` says whether the object decodes: one that does not gets no turn.
    pub(crate) fn see(&self, change: &Change<K>, readable: bool) {
        self.state.lock().see(change, readable);
    }

    /// Opens what there is to tell of this object. Not twice at the same time.
    pub(crate) fn open(&self, key: &ObjectKey) -> Story<'_, K> {
        let mut state = self.state.lock();
        state.started = true;
        let pending = state.take_pending(key);
        Story {
            memory: self,
            key: key.clone(),
            was: state.told.get(key).cloned(),
            pending,
            was_initial: state.initial.contains(key),
            was_known: state.known.contains(key),
            closed: false,
        }
    }

    /// Whether all that was there at the start is told; says so once.
    pub(crate) fn is_newly_listed(&self) -> bool {
        let mut state = self.state.lock();
        let newly = state.started && state.initial.is_empty() && state.known.is_empty() && !state.listed;
        state.listed |= newly;
        newly
    }
}

impl<K> State<K> {
    fn see(&mut self, change: &Change<K>, readable: bool) {
        if change.is_resync() {
            return;
        }
        let key = change.key().clone();
        let Pending { gone, .. } = self.take_pending(&key).unwrap_or(Pending {
            gone: None,
            now: None,
        });
        let pending = match change {
            Change::Applied { new, .. } => {
                let replaced = change.old().filter(|_| change.recreated());
                let replaced = replaced.map(|old| (old.clone(), Deletion::Inferred));
                Pending {
                    gone: gone.or(replaced),
                    now: Some(new.clone()),
                }
            }
            Change::Deleted { last, how, .. } => Pending {
                gone: gone.or_else(|| Some((last.clone(), *how))),
                now: None,
            },
        };
        if !self.started {
            // What came and went before anybody looked is nobody's business.
            let now = pending.now.map(|now| Pending {
                gone: None,
                now: Some(now),
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

    fn is_fleeting(&self, key: &ObjectKey, pending: &Pending<K>) -> bool {
        pending.now.is_none() && !self.told.contains_key(key)
    }

    fn take_pending(&mut self, key: &ObjectKey) -> Option<Pending<K>> {
        let pending = self.pending.remove(key)?;
        self.fleeting -= usize::from(self.is_fleeting(key, &pending));
        Some(pending)
    }

    fn put_pending(&mut self, key: ObjectKey, pending: Pending<K>) {
        let is_fleeting = self.is_fleeting(&key, &pending);
        if is_fleeting && self.fleeting >= FLEETING {
            return;
        }
        self.fleeting += usize::from(is_fleeting);
        self.pending.insert(key, pending);
    }
}

impl<K> Story<'_, K> {
    /// What there is to tell, in order. An object's first step is that it is there, its last that it is gone.
    pub(crate) fn steps(&self) -> Vec<Step<K>> {
        let mut steps = Vec::new();
        let Some(pending) = &self.pending else {
            if self.was.is_none() && self.was_known {
                steps.push(Step::Missing);
            }
            return steps;
        };
        let mut was = self.was.as_ref();
        if let Some((last, how)) = &pending.gone {
            if was.is_none() {
                steps.push(Step::Added(last.clone()));
            }
            steps.push(Step::Deleted {
                old: was.unwrap_or(last).clone(),
                last: last.clone(),
                how: *how,
            });
            was = None;
        }
        match (was, &pending.now) {
            (None, Some(now)) if self.was_initial && steps.is_empty() => {
                steps.push(Step::Synced(now.clone()));
            }
            (None, Some(now)) => steps.push(Step::Added(now.clone())),
            (Some(was), Some(now)) if was.meta().resource_version() != now.meta().resource_version() => {
                steps.push(Step::Updated {
                    old: was.clone(),
                    new: now.clone(),
                });
            }
            _ => {}
        }
        steps
    }

    /// All of it was told.
    pub(crate) fn close(mut self) {
        self.closed = true;
        let mut state = self.memory.state.lock();
        state.initial.remove(&self.key);
        state.known.remove(&self.key);
        let Some(pending) = self.pending.take() else {
            return;
        };
        // What came in the meantime stays counted as what it is.
        let newer = state.take_pending(&self.key);
        match pending.now {
            Some(now) => drop(state.told.insert(self.key.clone(), now)),
            None => drop(state.told.remove(&self.key)),
        }
        if let Some(newer) = newer {
            state.put_pending(self.key.clone(), newer);
        }
    }
}

impl<K> Drop for Story<'_, K> {
    fn drop(&mut self) {
        let Some(Pending { gone, now }) = self.pending.take().filter(|_| !self.closed) else {
            return;
        };
        let mut state = self.memory.state.lock();
        let pending = match state.take_pending(&self.key) {
            None => Pending { gone, now },
            Some(newer) => Pending {
                gone: gone.or(newer.gone),
                now: newer.now,
            },
        };
        state.put_pending(self.key.clone(), pending);
    }
}

#[cfg(test)]
mod tests;
