//! A subscriber's own buffer of changes, one per object.

use std::{
    any::Any,
    collections::{BTreeMap, HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use crate::{
    change::{Change, RawChange},
    core::Core,
    entry::{Decode, Entry},
    key::ObjectKey,
};

/// A stream of changes for one subscriber, from [`Cache::subscribe`](crate::Cache::subscribe).
///
/// It starts with every object that is already there. Changes of one object arrive in order; several that were
/// not taken yet arrive as one, so a slow subscriber sees fewer states, never old ones, and delays nobody. An object
/// that came and went before the subscriber asked is not told at all: it never knew it. So the buffer never holds
/// more than one change for each object that the subscriber knows or the store has.
pub struct Subscription<T> {
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) core: Arc<Core>,
    pub(crate) decode: Decode<T>,
    pub(crate) resync: Option<Resync>,
    /// Keeps the watch alive while somebody listens.
    pub(crate) _cache: Arc<dyn Any + Send + Sync>,
}

pub(crate) struct Resync {
    every: Duration,
    next: Instant,
}

impl<T: Send + Sync + 'static> Subscription<T> {
    /// The next change; `None` once the cache has stopped and everything was taken.
    ///
    /// Asking for the next change says that the one before was dealt with: [`Synced`] counts on that.
    /// Cancellation-safe: a change is taken only when it is returned.
    pub async fn next(&mut self) -> Option<Change<T>> {
        loop {
            // Registered before looking, or a change that comes in between would not wake us.
            let changed = self.buffer.changed.notified();
            match self.buffer.take() {
                Taken::Change(change) => return Some(change.read_as(&self.core, self.decode)),
                Taken::Closed => return None,
                Taken::Nothing => {}
            }
            let Some(resync) = &mut self.resync else {
                changed.await;
                continue;
            };
            tokio::select! {
                () = changed => {}
                () = sleep_until(resync.next) => {
                    resync.next = Instant::now() + resync.every;
                    self.core.store.resync(&self.buffer);
                }
            }
        }
    }

    /// Every object is told again, as a change from itself to itself; one that has a change pending is not.
    pub fn resync(&self) {
        self.core.store.resync(&self.buffer);
    }

    /// The same, again and again while somebody waits for changes. Default: never.
    #[must_use]
    pub fn resync_every(mut self, every: Duration) -> Self {
        let next = Instant::now() + every;
        self.resync = Some(Resync { every, next });
        self
    }

    /// A handle that tells when this subscriber has dealt with every object that was there at the start.
    pub fn synced(&self) -> Synced {
        Synced(self.buffer.synced.subscribe())
    }

    /// Calls `callback` for each change, one after the other, in a task of its own.
    ///
    /// A callback that panics is reported and misses that change; the next ones come, and nobody else notices. The
    /// returned handle ends it. Must be called within a tokio runtime.
    pub fn handle(mut self, mut callback: impl FnMut(Change<T>) + Send + 'static) -> Handler {
        let synced = self.synced();
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            loop {
                let change = tokio::select! {
                    biased;
                    () = stopped.notified() => return,
                    change = self.next() => change,
                };
                let Some(change) = change else { return };
                let (kind, key) = (self.core.kind.clone(), change.key().clone());
                if catch_unwind(AssertUnwindSafe(|| callback(change))).is_err() {
                    tracing::error!(%kind, %key, "a subscriber panicked; it misses this change");
                }
                tokio::task::consume_budget().await;
            }
        });
        Handler { synced, stop, task }
    }
}

/// A callback that is told of changes, from [`Subscription::handle`]. Dropping it ends it after the running call.
pub struct Handler {
    synced: Synced,
    stop: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Handler {
    /// A handle that tells when the callback has dealt with every object that was there at the start.
    pub fn synced(&self) -> Synced {
        self.synced.clone()
    }

    /// Ends it, and waits for a call that is running. After this the callback is not called any more and is dropped.
    /// Must not be awaited by the callback's own task.
    pub async fn remove(mut self) {
        self.stop.notify_one();
        // The task catches the callback's panics, and only its own drop aborts it.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.task.abort();
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

/// How many objects that came and went unseen a slow subscriber is told of.
const FLEETING: usize = 256;

pub(crate) struct Buffer {
    state: Mutex<State>,
    changed: Notify,
    synced: watch::Sender<bool>,
}

struct State {
    /// In order of arrival of the oldest change that each one stands for.
    pending: BTreeMap<u64, RawChange>,
    /// Where each key is in `pending`; the two always hold the same keys.
    position: HashMap<ObjectKey, u64, foldhash::fast::RandomState>,
    next: u64,
    /// Where changes are of objects that came and went unseen, or were; bounded, or churn would make a buffer grow that
    /// nobody reads.
    fleeting: VecDeque<u64>,
    /// Everything pending below this belongs to the initial objects. `None` before the store is complete.
    initial_below: Option<u64>,
    closed: bool,
}

enum Taken {
    Change(RawChange),
    Nothing,
    Closed,
}

impl Buffer {
    pub(crate) fn new() -> Self {
        let state = State {
            pending: BTreeMap::new(),
            position: HashMap::default(),
            next: 0,
            fleeting: VecDeque::new(),
            initial_below: None,
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            synced: watch::Sender::new(false),
        }
    }

    /// Takes changes in their order. Whoever waits for one is woken once for all of them.
    pub(crate) fn push(&self, changes: impl IntoIterator<Item = RawChange>) {
        let mut state = self.state.lock();
        for change in changes {
            state.push(change);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Tells of an object that did not change, unless there is something to tell about it.
    pub(crate) fn push_again(&self, entry: &Arc<Entry>) {
        let mut state = self.state.lock();
        if !state.position.contains_key(&entry.meta.key) {
            state.add(RawChange::Applied {
                old: Some(Arc::clone(entry)),
                new: Arc::clone(entry),
                initial: false,
            });
            self.changed.notify_one();
        }
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

    pub(crate) fn pending(&self) -> usize {
        self.state.lock().pending.len()
    }

    fn take(&self) -> Taken {
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
                state.position.remove(change.key());
                Taken::Change(change)
            }
            None if state.closed => Taken::Closed,
            None => Taken::Nothing,
        }
    }
}

impl State {
    fn push(&mut self, change: RawChange) {
        let Some(at) = self.position.get(change.key()).copied() else {
            return self.add(change);
        };
        let earlier = self
            .pending
            .remove(&at)
            .expect("a position points at a pending change");
        let change = earlier.followed_by(change);
        let is_fleeting = change.is_fleeting();
        self.pending.insert(at, change);
        if is_fleeting {
            self.remember_fleeting(at);
        }
    }

    /// Of objects that came and went, the newest are told of.
    fn remember_fleeting(&mut self, at: u64) {
        self.fleeting.push_back(at);
        if self.fleeting.len() <= FLEETING {
            return;
        }
        let oldest = self.fleeting.pop_front();
        // It may have been taken since, or have come back.
        if let Some(at) = oldest
            && self.pending.get(&at).is_some_and(RawChange::is_fleeting)
            && let Some(forgotten) = self.pending.remove(&at)
        {
            self.position.remove(forgotten.key());
        }
    }

    fn add(&mut self, change: RawChange) {
        self.position.insert(change.key().clone(), self.next);
        self.pending.insert(self.next, change);
        self.next += 1;
    }
}
