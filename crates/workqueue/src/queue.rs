//! The public queue type: a lock around the state, and the wake-ups after each change.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::builder::OnDropped;
use crate::core::{Cleanup, Config, Core};
use crate::{AddOptions, Builder, Priority, Tag, WorkItem};

/// A queue of keys to process. Each key is queued at most once and processed by one worker at a time.
///
/// A clone is another handle to the same queue. `T` is the [tag](Tag) of queued keys, by default none. The [crate's page](crate) has the states of a key and an example.
pub struct WorkQueue<K, T = ()> {
    shared: Arc<Shared<K, T>>,
}

pub(crate) struct Shared<K, T> {
    core: Mutex<Core<K, T>>,
    /// Keys are hashed before the lock is taken.
    hasher: foldhash::fast::RandomState,
    /// Notified when the closed queue has become idle.
    drained: Notify,
    on_dropped: Option<OnDropped<K>>,
}

impl<K> WorkQueue<K> {
    /// Creates a queue with the default options.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder for a queue with other options.
    pub fn builder() -> Builder<K> {
        Builder::new()
    }
}

impl<K, T> WorkQueue<K, T> {
    pub(crate) fn from_config(config: Config<K>, on_dropped: Option<OnDropped<K>>) -> Self {
        Self {
            shared: Arc::new(Shared {
                core: Mutex::new(Core::new(config)),
                hasher: foldhash::fast::RandomState::default(),
                drained: Notify::new(),
                on_dropped,
            }),
        }
    }

    /// Returns how many keys are queued now. Keys that are delayed or being processed are not counted.
    pub fn len(&self) -> usize {
        self.shared.with_core(Core::queued)
    }

    /// Returns whether no key is queued now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many keys are delayed.
    pub fn delayed(&self) -> usize {
        self.shared.with_core(Core::delayed)
    }

    /// Returns how many keys are being processed.
    pub fn running(&self) -> usize {
        self.shared.core.lock().running()
    }

    /// Rejects new work: adds are ignored, and a failed key is not retried. Queued keys are still handed out, and so is
    /// a key that was added while it was being processed; then every [`next`](Self::next) returns `None`.
    /// [`Builder::delayed_on_close`] decides what happens to delayed keys.
    ///
    /// Returns immediately; [`drain`](Self::drain) waits. Closing twice is harmless.
    pub fn close(&self) {
        let (dropped, idle) = self.shared.with_core(Core::close);
        drop(dropped);
        if idle {
            self.shared.drained.notify_waiters();
        }
    }

    /// Returns whether the queue was closed.
    pub fn is_closed(&self) -> bool {
        self.shared.core.lock().is_closed()
    }

    /// Closes the queue and waits until it is idle: nothing queued, nothing delayed, nothing being processed.
    ///
    /// Workers must keep calling [`next`](Self::next), otherwise queued keys stay queued. Cancellation-safe: dropping
    /// the future stops the waiting (put a timeout around it), and the queue stays closed. Several callers may drain at
    /// once.
    pub async fn drain(&self) {
        let mut drained = pin!(self.shared.drained.notified());
        drained.as_mut().enable();
        self.close();
        if !self.shared.core.lock().is_idle() {
            drained.await;
        }
    }

    /// Reports the [metrics](crate::Metrics) that change with time alone: how long the running keys have been
    /// processed. Call it before each scrape.
    pub fn report_metrics(&self) {
        self.shared.with_core(Core::report_metrics);
    }
}

impl<K: Eq + Hash, T> WorkQueue<K, T> {
    /// Queues a key at normal priority. If it is queued already, nothing changes; if it is delayed, the delay ends; if
    /// it is being processed, it is queued again afterwards.
    pub fn add(&self, key: K) {
        let hash = self.shared.hash(&key);
        self.shared
            .with_core(|core| core.add_now(hash, key, Priority::NORMAL));
    }

    /// Queues a key with [`AddOptions`].
    pub fn add_with(&self, key: K, add: AddOptions) {
        let hash = self.shared.hash(&key);
        self.shared.with_core(|core| core.add(hash, key, add));
    }

    /// Queues a key with a [`Tag`], which is merged with the tags of its other adds and handed out with it.
    pub fn add_tagged(&self, key: K, add: AddOptions, tag: T)
    where
        T: Tag,
    {
        let hash = self.shared.hash(&key);
        self.shared.with_core(|core| core.add_tagged(hash, key, add, tag));
    }

    /// Queues a key after a delay. If it is delayed already, the earlier deadline wins; if it is queued, nothing
    /// changes.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.add_with(
            key,
            AddOptions {
                after: delay,
                ..AddOptions::default()
            },
        );
    }

    /// Counts a failure of the key and queues it after the rate limiter's delay.
    pub fn add_rate_limited(&self, key: K) {
        self.add_with(
            key,
            AddOptions {
                rate_limited: true,
                ..AddOptions::default()
            },
        );
    }

    /// Resets the key's failure count, so that its next failure waits the shortest time again.
    pub fn forget(&self, key: &K) {
        let hash = self.shared.hash(key);
        self.shared.core.lock().forget(hash, key);
    }

    /// Returns how often the key has failed since it was last forgotten. An unknown key has no failures.
    pub fn failures(&self, key: &K) -> u32 {
        let hash = self.shared.hash(key);
        self.shared.core.lock().failures(hash, key)
    }

    /// Returns whether the key is queued, or was added again while being processed: then the worker may have read stale
    /// data. A delayed key is not pending.
    pub fn is_pending(&self, key: &K) -> bool {
        let hash = self.shared.hash(key);
        self.shared.with_core(|core| core.is_pending(hash, key))
    }

    /// Cancels a delayed add, or the retry of a failed key. Returns whether there was one. Also forgets the key's
    /// failures unless the key is being processed.
    pub fn cancel_delay(&self, key: &K) -> bool {
        let hash = self.shared.hash(key);
        let cancelled = self.shared.with_core(|core| core.cancel_delay(hash, key));
        cancelled.map(|ended| self.shared.clean_up(ended)).is_some()
    }
}

impl<K: Clone, T> WorkQueue<K, T> {
    /// Waits for the next key; `None` once the queue is closed and exhausted.
    ///
    /// Cancellation-safe: a dropped future has taken no key, and its wake-up goes to another waiter. Needs a tokio
    /// runtime with a timer only while a key is delayed. Returns immediately while keys are queued, so work that never
    /// awaits should yield now and then (`tokio::task::yield_now`).
    pub async fn next(&self) -> Option<WorkItem<K, T>> {
        // The usual case: a key is queued, and nothing has to be set up for waiting.
        if let Some(taken) = self.try_next() {
            return Some(taken);
        }
        crate::next::wait(&self.shared).await
    }

    /// Returns the next key if one is queued now.
    #[inline]
    pub fn try_next(&self) -> Option<WorkItem<K, T>> {
        let hand = self.shared.with_core(Core::try_next)?;
        Some(WorkItem::new(Arc::clone(&self.shared), hand))
    }
}

impl<K, T> Shared<K, T> {
    /// Runs one operation on the state, then wakes the waiters that it affects.
    #[inline]
    pub(crate) fn with_core<R>(&self, operation: impl FnOnce(&mut Core<K, T>) -> R) -> R {
        let mut core = self.core.lock();
        let result = operation(&mut core);
        if core.has_waiters() {
            let wakes = core.wakeups();
            drop(core);
            wakes.wake();
        }
        result
    }

    /// Returns the 32 bits of the hash that are stored.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the upper half is folded into the lower one"
    )]
    fn hash(&self, key: &K) -> u32
    where
        K: Hash,
    {
        let hash = self.hasher.hash_one(key);
        (hash ^ (hash >> 32)) as u32
    }

    /// Drops a removed key outside of the lock, and notifies `drain` if it was the last one.
    pub(crate) fn clean_up(&self, ended: Cleanup<K, T>) {
        drop(ended.removed);
        if ended.drained {
            self.drained.notify_waiters();
        }
    }

    pub(crate) fn report_dropped(&self, key: &K, failures: u32) {
        if let Some(report) = &self.on_dropped {
            report(key, failures);
        }
    }
}

impl<K, T> Clone for WorkQueue<K, T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<K> Default for WorkQueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, T> fmt::Debug for WorkQueue<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue")
            .field("queued", &self.len())
            .field("delayed", &self.delayed())
            .field("running", &self.running())
            .field("closed", &self.is_closed())
            .finish()
    }
}
