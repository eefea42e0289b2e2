//! A queue's options.

use std::sync::Arc;

use crate::core::Config;
use crate::{Ageing, DefaultRateLimiter, Metrics, RateLimiter, WorkQueue};

/// The options of a [`WorkQueue`]. Each has a default.
#[must_use]
pub struct Builder<K> {
    config: Config<K>,
    on_dropped: Option<OnDropped<K>>,
}

pub(crate) type OnDropped<K> = Box<dyn Fn(&K, u32) + Send + Sync>;

/// What becomes of delayed keys when the queue is closed.
///
/// It is about the delays that are pending then: afterwards nothing is delayed any more, so a key that fails on a closed
/// queue is not retried, and a drain ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DelayedOnClose {
    /// They are dropped; the default. A controller that starts again sees every object anyway.
    #[default]
    Drop,
    /// They are due at once.
    RunNow,
    /// They are waited for.
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

    /// How long a key waits after a failure. Default: [`DefaultRateLimiter`].
    pub fn rate_limiter(mut self, limiter: impl RateLimiter<K> + 'static) -> Self {
        self.config.limiter = Box::new(limiter);
        self
    }

    /// How often a key is retried: the failure after that [drops](crate::Outcome::Dropped) and forgets it. With 5, a key that
    /// always fails runs six times. Default: for ever.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.config.max_retries = Some(retries);
        self
    }

    /// Is told the key and its number of failures in a row whenever `max_retries` drops one; also if nobody is there to
    /// see the [`Outcome`](crate::Outcome), because the worker panicked or was cancelled. Default: nobody is told.
    pub fn on_dropped(mut self, report: impl Fn(&K, u32) + Send + Sync + 'static) -> Self {
        self.on_dropped = Some(Box::new(report));
        self
    }

    /// How long a low priority may wait behind higher ones. Default: [`Ageing::default`].
    pub fn ageing(mut self, ageing: Ageing) -> Self {
        self.config.ageing = ageing;
        self
    }

    /// Where the queue's figures go. Default: nowhere, and then no clock is read for them.
    pub fn metrics(mut self, metrics: Arc<dyn Metrics>) -> Self {
        self.config.metrics = Some(metrics);
        self
    }

    /// What becomes of delayed keys when the queue is closed. Default: [`DelayedOnClose::Drop`].
    pub fn delayed_on_close(mut self, fate: DelayedOnClose) -> Self {
        self.config.delayed_on_close = fate;
        self
    }

    /// The queue.
    pub fn build(self) -> WorkQueue<K> {
        WorkQueue::from_config(self.config, self.on_dropped)
    }
}
