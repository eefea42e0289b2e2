//! The queue as its users hold it: the lock around the state, and the wake-ups after each change.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::builder::OnDropped;
use crate::core::{Config, Core, Ended};
use crate::{Add, Builder, Priority, Taken};

/// A queue of keys to work on, each at most once in it and in one worker's hand at a time.
///
/// A clone is another handle to the same queue. See the [crate's page](crate) for what a key goes through, and an example.
pub struct WorkQueue<K> {
    shared: Arc<Shared<K>>,
}

pub(crate) struct Shared<K> {
    core: Mutex<Core<K>>,
    /// Keys are hashed before the lock is taken.
    hasher: foldhash::fast::RandomState,
    /// Told when the closed queue has become idle.
    drained: Notify,
    on_dropped: Option<OnDropped<K>>,
}

impl<K> WorkQueue<K> {
    /// A queue with the default options.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A queue with other options.
    pub fn builder() -> Builder<K> {
        Builder::new()
    }

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

    /// How many keys can be taken now. Those that are delayed or in a worker's hand are not counted.
    pub fn len(&self) -> usize {
        self.shared.change(Core::queued)
    }

    /// No key can be taken now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys wait for a time.
    pub fn delayed(&self) -> usize {
        self.shared.change(Core::delayed)
    }

    /// How many keys are in workers' hands.
    pub fn running(&self) -> usize {
        self.shared.core.lock().running()
    }

    /// No new work from here on: adds are ignored, and a failed key is not retried. What is queued is still handed out,
    /// also a key that was added while in a worker's hand; then every [`take`](Self::take) returns `None`. What becomes of
    /// delayed keys is [an option](Builder::delayed_on_close).
    ///
    /// Returns at once; [`drain`](Self::drain) waits. Closing twice is harmless.
    pub fn close(&self) {
        let (dropped, idle) = self.shared.change(Core::close);
        drop(dropped);
        if idle {
            self.shared.drained.notify_waiters();
        }
    }

    /// The queue was closed.
    pub fn is_closed(&self) -> bool {
        self.shared.core.lock().is_closed()
    }

    /// Closes the queue and waits until it is idle: nothing queued, nothing delayed, nothing in a worker's hand.
    ///
    /// Somebody must go on to take, else what is queued stays there. Cancellation-safe: dropping the future gives up
    /// waiting (put a timeout around it), and the queue stays closed. Several may drain at once.
    pub async fn drain(&self) {
        let mut drained = pin!(self.shared.drained.notified());
        drained.as_mut().enable();
        self.close();
        if !self.shared.core.lock().is_idle() {
            drained.await;
        }
    }

    /// Tells the [metrics](crate::Metrics) what changes with time alone: how long the keys in workers' hands have been
    /// there. To be called before each scrape.
    pub fn report_metrics(&self) {
        self.shared.change(Core::report_metrics);
    }
}

impl<K: Eq + Hash> WorkQueue<K> {
    /// Queues a key, at normal priority. If it is queued already, nothing changes; if it is delayed, the delay is over; if
    /// a worker has it, it is queued again when that ends.
    pub fn add(&self, key: K) {
        let hash = self.shared.hash(&key);
        self.shared
            .change(|core| core.add_now(hash, key, Priority::NORMAL));
    }

    /// Queues a key as [`Add`] says.
    pub fn add_with(&self, key: K, add: Add) {
        let hash = self.shared.hash(&key);
        self.shared.change(|core| core.add(hash, key, add));
    }

    /// Queues a key after this time. If it is delayed already, the earlier time stays; if it is queued, nothing changes.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.add_with(
            key,
            Add {
                after: delay,
                ..Add::default()
            },
        );
    }

    /// Counts a failure of the key and queues it after the time that the rate limiter says.
    pub fn add_rate_limited(&self, key: K) {
        self.add_with(
            key,
            Add {
                rate_limited: true,
                ..Add::default()
            },
        );
    }

    /// Forgets the key's failures. Its next one waits the shortest time again.
    pub fn forget(&self, key: &K) {
        let hash = self.shared.hash(key);
        self.shared.core.lock().forget(hash, key);
    }

    /// How often the key has failed since it was last forgotten. A key that the queue does not hold has no failures.
    pub fn failures(&self, key: &K) -> u32 {
        let hash = self.shared.hash(key);
        self.shared.core.lock().failures(hash, key)
    }

    /// Whether the key can be taken now, or was added again while in a worker's hand: what that worker has read may be
    /// stale. A key that is delayed is not.
    pub fn is_wanted(&self, key: &K) -> bool {
        let hash = self.shared.hash(key);
        self.shared.change(|core| core.is_wanted(hash, key))
    }

    /// Takes back a delayed add, or the retry of a failed key. Returns whether there was one. The key's failures go with it
    /// unless a worker has the key.
    pub fn cancel_delay(&self, key: &K) -> bool {
        let hash = self.shared.hash(key);
        let cancelled = self.shared.change(|core| core.cancel_delay(hash, key));
        cancelled.map(|ended| self.shared.ended(ended)).is_some()
    }
}

impl<K: Clone> WorkQueue<K> {
    /// Waits for a key and takes it; `None` once the queue is closed and nothing is left that could come.
    ///
    /// Cancellation-safe: a future that is dropped has taken nothing, and a wake-up that was meant for it goes to another.
    /// Needs a tokio runtime with a timer if a key is delayed, and only then. Returns at once while there are keys, so work
    /// that never awaits anything should give way now and then (`tokio::task::yield_now`).
    pub async fn take(&self) -> Option<Taken<K>> {
        // Nearly always there is something, and then the machinery for waiting is not touched.
        if let Some(taken) = self.try_take() {
            return Some(taken);
        }
        crate::take::wait(&self.shared).await
    }

    /// Takes a key if there is one now.
    #[inline]
    pub fn try_take(&self) -> Option<Taken<K>> {
        let hand = self.shared.change(Core::try_take)?;
        Some(Taken::new(Arc::clone(&self.shared), hand))
    }
}

impl<K> Shared<K> {
    /// Runs one operation on the state and then wakes whom it concerns.
    #[inline]
    pub(crate) fn change<R>(&self, operation: impl FnOnce(&mut Core<K>) -> R) -> R {
        let mut core = self.core.lock();
        let result = operation(&mut core);
        if core.has_waiters() {
            let wakes = core.wakes();
            drop(core);
            wakes.wake();
        }
        result
    }

    /// The half of the hash that is kept.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the half that is dropped is folded in"
    )]
    fn hash(&self, key: &K) -> u32
    where
        K: Hash,
    {
        let hash = self.hasher.hash_one(key);
        (hash ^ (hash >> 32)) as u32
    }

    /// Outside of the lock: drops a removed key, and tells whoever drains if it was the last.
    pub(crate) fn ended(&self, ended: Ended<K>) {
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

impl<K> Clone for WorkQueue<K> {
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

impl<K> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkQueue")
            .field("queued", &self.len())
            .field("delayed", &self.delayed())
            .field("running", &self.running())
            .field("closed", &self.is_closed())
            .finish()
    }
}
