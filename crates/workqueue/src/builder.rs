//! Options of a queue.

use std::sync::Arc;

use crate::core::Config;
use crate::{Ageing, DefaultRateLimiter, Metrics, RateLimiter, WorkQueue};

/// Builds a [`WorkQueue`]. Every option has a default.
#[must_use]
pub struct Builder<K> {
    config: Config<K>,
    on_dropped: Option<OnDropped<K>>,
}

pub(crate) type OnDropped<K> = Box<dyn Fn(&K, u32) + Send + Sync>;

/// What happens to delayed keys when the queue is closed.
///
/// Applies to the delays that exist at that moment. A closed queue accepts no new delays: a key that fails is not
/// retried, so a drain ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DelayedOnClose {
    /// Drops them; the default. A controller lists every object again when it restarts.
    #[default]
    Drop,
    /// Queues them immediately.
    RunNow,
    /// Waits until they are due.
    Wait,
}

impl<K> Builder<K> {
    pub(crate) fn new() -> Self {
        let config = Config {
            limiter: Box::new(DefaultRateLimiter::default()),
            max_retries: None,
            ageing: Ageing::default(),
            metrics: None,
            delayed_on_close: DelayedOnClose::default(),
        };
        Self {
            config,
            on_dropped: None,
        }
    }

    /// Sets how long a key waits after a failure. Default: [`DefaultRateLimiter`].
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<K> + 'static) -> Self {
        self.config.limiter = Box::new(limiter);
        self
    }

    /// Sets how often a key is retried. The next failure [drops](crate::RetryDecision::Dropped) and forgets it: with 5,
    /// a key that always fails runs six times. Default: unlimited.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.config.max_retries = Some(retries);
        self
    }

    /// Sets a callback for each key that `max_retries` drops, with the key and its number of consecutive failures. It
    /// also runs if the worker panicked or was cancelled and so never sees the [`RetryDecision`](crate::RetryDecision).
    /// Default: none.
    pub fn on_dropped(mut self, report: impl Fn(&K, u32) + Send + Sync + 'static) -> Self {
        self.on_dropped = Some(Box::new(report));
        self
    }

    /// Sets how long a low priority may wait behind higher ones. Default: [`Ageing::default`].
    pub fn ageing(mut self, ageing: Ageing) -> Self {
        self.config.ageing = ageing;
        self
    }

    /// Sets the receiver of the queue's metrics. Default: none, and then no clock is read for them.
    pub fn metrics(mut self, metrics: Arc<dyn Metrics>) -> Self {
        self.config.metrics = Some(metrics);
        self
    }

    /// Sets what happens to delayed keys when the queue is closed. Default: [`DelayedOnClose::Drop`].
    pub fn delayed_on_close(mut self, policy: DelayedOnClose) -> Self {
        self.config.delayed_on_close = policy;
        self
    }

    /// Builds the queue.
    pub fn build(self) -> WorkQueue<K> {
        self.build_tagged()
    }

    /// Builds a queue whose keys have [tags](crate::Tag).
    pub fn build_tagged<T>(self) -> WorkQueue<K, T> {
        WorkQueue::from_config(self.config, self.on_dropped)
    }
}
