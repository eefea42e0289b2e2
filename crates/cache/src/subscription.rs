//! A subscriber's own buffer of changes, one per object.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use kube::Resource;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::{change::Change, key::ObjectKey};

/// A stream of changes for one subscriber, from [`Cache::subscribe`](crate::Cache::subscribe).
///
/// It starts with every object that is already there. Changes of one object arrive in order; several that were
/// not taken yet arrive as one, so a slow subscriber sees fewer states, never old ones, and delays nobody. An object
/// that came and went before the subscriber asked is not told at all: it never knew it. So the buffer never holds
/// more than one change for each object that the subscriber knows or the store has.
pub struct Subscription<K> {
    pub(crate) buffer: Arc<Buffer<K>>,
    /// Keeps the watch alive while somebody listens.
    pub(crate) _cache: Arc<dyn Send + Sync>,
}

impl<K: Resource> Subscription<K> {
    /// The next change; `None` once the cache has stopped and everything was taken.
    ///
    /// Asking for the next change says that the one before was dealt with: [`Synced`] counts on that.
    /// Cancellation-safe: a change is taken only when it is returned.
    pub async fn next(&mut self) -> Option<Change<K>> {
        loop {
            // Registered before looking, or a change that comes in between would not wake us.
            let changed = self.buffer.changed.notified();
            match self.buffer.take() {
                Taken::Change(change) => return Some(change),
                Taken::Closed => return None,
                Taken::Nothing => changed.await,
            }
        }
    }

    /// A handle that tells when this subscriber has dealt with every object that was there at the start.
    pub fn synced(&self) -> Synced {
        Synced(self.buffer.synced.subscribe())
    }
}

/// Tells when a [`Subscription`] has dealt with its initial objects.
#[derive(Clone)]
pub struct Synced(watch::Receiver<bool>);

impl Synced {
    /// Whether it has.
    pub fn is_synced(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it has; `false` if the subscription was dropped before. Cancellation-safe.
    pub async fn wait(&mut self) -> bool {
        self.0.wait_for(|synced| *synced).await.is_ok()
    }
}

pub(crate) struct Buffer<K> {
    state: Mutex<State<K>>,
    changed: Notify,
    synced: watch::Sender<bool>,
}

struct State<K> {
    /// In order of arrival of the oldest change that each one stands for.
    pending: BTreeMap<u64, Change<K>>,
    /// Where each key is in `pending`; the two always hold the same keys.
    position: HashMap<ObjectKey, u64>,
    next: u64,
    /// Everything pending below this belongs to the initial objects. `None` before the store is complete.
    initial_below: Option<u64>,
    closed: bool,
}

enum Taken<K> {
    Change(Change<K>),
    Nothing,
    Closed,
}

impl<K: Resource> Buffer<K> {
    pub(crate) fn new() -> Self {
        let state = State {
            pending: BTreeMap::new(),
            position: HashMap::new(),
            next: 0,
            initial_below: None,
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            synced: watch::Sender::new(false),
        }
    }

    pub(crate) fn push(&self, key: ObjectKey, change: Change<K>) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if let Some(at) = state.position.get(&key) {
            let earlier = state
                .pending
                .remove(at)
                .expect("a position points at a pending change");
            match earlier.followed_by(change) {
                Some(change) => drop(state.pending.insert(*at, change)),
                None => drop(state.position.remove(&key)),
            }
        } else {
            state.position.insert(key, state.next);
            state.pending.insert(state.next, change);
            state.next += 1;
        }
        self.changed.notify_one();
    }

    /// All initial objects have been pushed.
    pub(crate) fn initial_complete(&self) {
        let mut state = self.state.lock();
        if state.initial_below.is_none() {
            state.initial_below = Some(state.next);
            self.changed.notify_one();
        }
    }

    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_one();
    }

    fn take(&self) -> Taken<K> {
        let mut state = self.state.lock();
        let first = state.pending.first_key_value().map(|(at, _)| *at);
        if state
            .initial_below
            .is_some_and(|below| first.is_none_or(|first| first >= below))
        {
            self.synced
                .send_if_modified(|synced| !std::mem::replace(synced, true));
        }
        match state.pending.pop_first() {
            Some((_, change)) => {
                state.position.remove(&change.key());
                Taken::Change(change)
            }
            None if state.closed => Taken::Closed,
            None => Taken::Nothing,
        }
    }
}
