//! Subscriptions: a buffer of changes for each subscriber, at most one per object unless the subscriber has a queue.

use std::{
    any::Any,
    collections::{BTreeMap, HashMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
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

/// How changes wait for one [`Subscription`], and how many of them were coalesced.
///
/// With a capacity, up to that many changes wait as they are, in order, also several of one object. A change that has no room is
/// coalesced with the latest waiting change of its object, and counted; so memory is bounded, and the newest state is never lost.
/// With a capacity of 0 changes are coalesced as without a queue, and counted.
///
/// Clones share their state. Give each subscription a queue of its own.
#[derive(Clone, Debug, Default)]
pub struct ChangeQueue {
    capacity: usize,
    coalesced: Arc<AtomicU64>,
    coalesced_into_last: Arc<AtomicU64>,
}

impl ChangeQueue {
    /// Creates a queue for this many changes.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            ..Self::default()
        }
    }

    /// Returns how many changes were coalesced into another.
    pub fn coalesced(&self) -> u64 {
        self.coalesced.load(Relaxed)
    }

    /// Returns how many changes were coalesced into the one that the subscriber received last. For the subscriber itself.
    pub fn coalesced_into_last(&self) -> u64 {
        self.coalesced_into_last.load(Relaxed)
    }
}

/// A stream of changes for one subscriber, from [`Cache::subscribe`](crate::Cache::subscribe).
///
/// It starts with every current object. Changes of one object arrive in order and are coalesced while they wait, unless
/// there is a [queue](Self::queue) with room: a slow subscriber gets fewer states, never old ones, and delays no other. Of objects that were created and deleted before
/// the subscriber received them, only the newest 256 are delivered. So the buffer holds at most one change for each
/// object that the subscriber knows or the store has, and those 256.
pub struct Subscription<T> {
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) core: Arc<Core>,
    pub(crate) decode: Decode<T>,
    pub(crate) resync: Option<Resync>,
    /// Keeps the watch alive.
    pub(crate) _cache: Arc<dyn Any + Send + Sync>,
}

pub(crate) struct Resync {
    every: Duration,
    next: Instant,
}

impl<T: Send + Sync + 'static> Subscription<T> {
    /// Waits for the next change; `None` once the cache is closed and the buffer is empty.
    ///
    /// A call marks the previous change as processed, which [`SyncHandle`] relies on. Cancellation-safe: a change
    /// leaves the buffer only when it is returned.
    pub async fn next(&mut self) -> Option<Change<T>> {
        loop {
            // Register before checking; otherwise a change in between would not wake us.
            let changed = self.buffer.changed.notified();
            match self.buffer.pop() {
                NextChange::Change(change) => {
                    return Some(change.read_as(&self.core, self.decode));
                }
                NextChange::Closed => return None,
                NextChange::Empty => {}
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

    /// Delivers every object again as a change without a difference, except those with a pending change.
    pub fn resync(&self) {
        self.core.store.resync(&self.buffer);
    }

    /// Lets changes wait in this queue. Call it before the first [`next`](Self::next). Default: all changes of one object
    /// are coalesced while they wait.
    #[must_use]
    pub fn queue(self, queue: &ChangeQueue) -> Self {
        self.buffer.state.lock().queue = Some(queue.clone());
        self
    }

    /// Resyncs at this interval while `next` waits for changes. Default: never.
    #[must_use]
    pub fn resync_every(mut self, every: Duration) -> Self {
        let next = Instant::now() + every;
        self.resync = Some(Resync { every, next });
        self
    }

    /// Returns a handle that reports when this subscriber has processed every initial object.
    pub fn synced(&self) -> SyncHandle {
        SyncHandle(self.buffer.synced.subscribe())
    }

    /// Calls `callback` for each change, one after the other, in a task of its own.
    ///
    /// A panic of the callback is logged and loses that change; later changes are delivered, and other subscribers are
    /// not affected. Dropping the returned handle ends the task. Must be called within a tokio runtime.
    pub fn handle(mut self, mut callback: impl FnMut(Change<T>) + Send + 'static) -> SubscriberHandle {
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
                    tracing::error!(%kind, %key, "subscriber panicked and lost this change");
                }
                tokio::task::consume_budget().await;
            }
        });
        SubscriberHandle { synced, stop, task }
    }
}

/// A running callback, from [`Subscription::handle`]. Dropping it ends the task after the current call.
pub struct SubscriberHandle {
    synced: SyncHandle,
    stop: Arc<Notify>,
    task: JoinHandle<()>,
}

impl SubscriberHandle {
    /// Returns a handle that reports when the callback has processed every initial object.
    pub fn synced(&self) -> SyncHandle {
        self.synced.clone()
    }

    /// Ends the task and waits for the current call. Afterwards the callback is not called any more and is dropped.
    /// Must not be awaited by the callback itself.
    pub async fn remove(mut self) {
        self.stop.notify_one();
        // The task catches the callback's panics, and only `drop` aborts it.
        let _ = (&mut self.task).await;
    }
}

impl Drop for SubscriberHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reports when a [`Subscription`] has processed its initial objects (client-go's `HasSynced`).
#[derive(Clone)]
pub struct SyncHandle(watch::Receiver<bool>);

impl SyncHandle {
    /// Returns whether it has.
    pub fn is_synced(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it has; `false` if the subscription was dropped before. Cancellation-safe.
    pub async fn wait(&mut self) -> bool {
        self.0.wait_for(|synced| *synced).await.is_ok()
    }
}

/// How many deletions of objects that it never received a slow subscriber gets.
const MAX_UNSEEN_DELETIONS: usize = 256;

pub(crate) struct Buffer {
    state: Mutex<State>,
    changed: Notify,
    synced: watch::Sender<bool>,
}

struct State {
    /// Ordered by the arrival of the oldest change that is merged into each.
    pending: BTreeMap<u64, PendingChange>,
    /// The index of the latest change of each key in `pending`; the two always hold the same keys.
    position: HashMap<ObjectKey, u64, foldhash::fast::RandomState>,
    next: u64,
    /// The positions of deletions of objects that the subscriber never received; some may be gone since. Bounded, so
    /// that churn cannot grow an unread buffer.
    unseen_deletions: VecDeque<u64>,
    /// Pending changes below this position belong to the initial objects. `None` before the store is complete.
    initial_below: Option<u64>,
    queue: Option<ChangeQueue>,
    closed: bool,
}

struct PendingChange {
    change: RawChange,
    /// How many changes were merged into it.
    merged: u64,
}

enum NextChange {
    Change(RawChange),
    Empty,
    Closed,
}

impl Buffer {
    pub(crate) fn new() -> Self {
        let state = State {
            pending: BTreeMap::new(),
            position: HashMap::default(),
            next: 0,
            unseen_deletions: VecDeque::new(),
            initial_below: None,
            queue: None,
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            synced: watch::Sender::new(false),
        }
    }

    /// Adds changes in order, and wakes the subscriber once for all of them.
    pub(crate) fn push(&self, changes: impl IntoIterator<Item = RawChange>) {
        let mut state = self.state.lock();
        for change in changes {
            state.push(change);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Adds a resync of an object, unless the object has a pending change.
    pub(crate) fn push_resync(&self, entry: &Arc<Entry>) {
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

    /// Marks the initial objects as complete.
    pub(crate) fn mark_initial_complete(&self) {
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

    fn pop(&self) -> NextChange {
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
            Some((at, PendingChange { change, merged })) => {
                state.remove_position(change.key(), at);
                if let Some(queue) = &state.queue {
                    queue.coalesced_into_last.store(merged, Relaxed);
                }
                NextChange::Change(change)
            }
            None if state.closed => NextChange::Closed,
            None => NextChange::Empty,
        }
    }
}

impl State {
    fn push(&mut self, change: RawChange) {
        let Some(at) = self.position.get(change.key()).copied() else {
            return self.add(change);
        };
        if self
            .queue
            .as_ref()
            .is_some_and(|queue| self.pending.len() < queue.capacity)
        {
            return self.add(change);
        }
        let PendingChange {
            change: earlier,
            merged,
        } = self
            .pending
            .remove(&at)
            .expect("every position has a pending change");
        if let Some(queue) = &self.queue {
            queue.coalesced.fetch_add(1, Relaxed);
        }
        let change = earlier.merge_later(change);
        let is_fleeting = change.is_unseen_deletion();
        let merged = merged + 1;
        self.pending.insert(at, PendingChange { change, merged });
        if is_fleeting {
            self.push_unseen_deletion(at);
        }
    }

    /// Forgets the position of a key whose pending change was removed, unless a later one is pending.
    fn remove_position(&mut self, key: &ObjectKey, at: u64) {
        if self.position.get(key) == Some(&at) {
            self.position.remove(key);
        }
    }

    /// Keeps only the newest deletions of objects that the subscriber never received.
    fn push_unseen_deletion(&mut self, at: u64) {
        self.unseen_deletions.push_back(at);
        if self.unseen_deletions.len() <= MAX_UNSEEN_DELETIONS {
            return;
        }
        let oldest = self.unseen_deletions.pop_front();
        // It may have been delivered since, or the object may exist again.
        if let Some(at) = oldest
            && self
                .pending
                .get(&at)
                .is_some_and(|pending| pending.change.is_unseen_deletion())
            && let Some(forgotten) = self.pending.remove(&at)
        {
            self.remove_position(forgotten.change.key(), at);
        }
    }

    fn add(&mut self, change: RawChange) {
        self.position.insert(change.key().clone(), self.next);
        self.pending
            .insert(self.next, PendingChange { change, merged: 0 });
        self.next += 1;
    }
}
