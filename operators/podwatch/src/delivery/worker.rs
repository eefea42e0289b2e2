//! The one who delivers: takes what is next, hands it to the sink, and says what became of it.
//!
//! ```text
//!   rest, if the sink is down ─► take ─► wait for a turn ─► deliver ─┬─► delivered ─► settle when idle ─► confirmed
//!        ▲                                                          ├─► refused: not again
//!        └──────────────────────────────────────────────────────────┴─► failed: again, or given up
//! ```

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, sleep_until},
};
use windlass::workqueue::{Outcome, Taken};

use super::{
    keeper::Keeper,
    lane::{Lane, Next, Target},
    pace::Pace,
};
use crate::sinks::{Sink, Trouble};

/// So many deliveries share one settling, at most.
const SETTLED_TOGETHER: usize = 100;

/// A trouble that lasts is told as often.
const TELL_AGAIN: Duration = Duration::from_mins(1);

/// Delivers until the lane is closed, and then what is left, until the sink fails.
pub(super) struct Worker {
    pub(super) lane: Arc<Lane>,
    pub(super) sink: Box<dyn Sink>,
    keeper: Arc<Keeper>,
    pace: Pace<Target>,
    told: Option<Instant>,
}

impl Worker {
    pub(super) fn new(lane: Arc<Lane>, sink: Box<dyn Sink>, keeper: Arc<Keeper>) -> Self {
        let pace = Pace::new(lane.limits.rate);
        Self {
            lane,
            sink,
            keeper,
            pace,
            told: None,
        }
    }

    /// Ends after the lane was closed. Dropping it loses nothing: what is not confirmed is told again after a restart.
    pub(super) async fn run(mut self, closing: Arc<Notify>) {
        let mut closed = std::pin::pin!(closing.notified());
        closed.as_mut().enable();
        loop {
            for behind in self.lane.wants_to_catch_up() {
                self.lane.catch_up(behind).await;
            }
            if let Some(until) = self.pace.rest_until()
                && !self.lane.queue.is_closed()
            {
                tokio::select! {
                    () = sleep_until(until) => {}
                    () = &mut closed => {}
                }
            }
            self.pace.rested();
            let taken = tokio::select! {
                taken = self.lane.queue.take() => taken,
                () = self.lane.nudge.notified() => continue,
            };
            let Some(taken) = taken else { break };
            if self.work_on(taken).await.is_err() && self.lane.queue.is_closed() {
                break;
            }
            if self.lane.queue.is_empty() || self.lane.unsettled() >= SETTLED_TOGETHER {
                self.settle().await;
            }
        }
        self.settle().await;
    }

    /// An error says that the sink does not work at present.
    async fn work_on(&mut self, taken: Taken<Target>) -> Result<(), ()> {
        // As much as can wait of one object: a state, its end, and what followed under the same name.
        for _ in 0..3 {
            match self.lane.next(&taken) {
                Next::Nothing => break,
                Next::Notice => {}
                Next::Offered => self.keeper.written().await,
            }
            match self.pace.turn() {
                // A sink that is always ready shall not keep others from running.
                Duration::ZERO => tokio::task::consume_budget().await,
                wait => sleep(wait).await,
            }
            // Only now, so that what came while waiting is in it. If another object did, it has to be offered first.
            if self.lane.next(&taken) == Next::Offered {
                self.keeper.written().await;
            }
            let Some(notice) = self.lane.begin(&taken) else {
                break;
            };
            match self.sink.deliver(&notice).await {
                Ok(()) => {
                    self.lane.delivered(&taken, &notice);
                    self.pace.delivered();
                }
                Err(Trouble::Refused { why }) => {
                    self.lane.counts.refused();
                    self.lane.given_up(&taken, &notice);
                    tracing::warn!(sink = %self.lane.name, object = %notice.key, "the sink refused a notice: it {why}");
                }
                Err(trouble) => {
                    self.pace.failed(&taken, &trouble);
                    self.complain(trouble.why());
                    let target = taken.key().clone();
                    match taken.fail() {
                        Outcome::Dropped { failures } => {
                            self.lane.counts.retries();
                            self.lane.given_up(&target, &notice);
                            tracing::warn!(sink = %self.lane.name, object = %notice.key, failures, "a notice was given up");
                        }
                        Outcome::Retry { .. } | Outcome::Closed => {
                            self.lane.counts.retried();
                            self.lane.failed(&target, trouble.why());
                        }
                    }
                    return Err(());
                }
            }
        }
        taken.done();
        Ok(())
    }

    async fn settle(&mut self) {
        if self.lane.unsettled() == 0 {
            return;
        }
        match self.sink.settle().await {
            Ok(()) => {
                self.lane.settled();
                if self.pace.settled() {
                    self.lane.wake_all();
                }
                if self.told.take().is_some() {
                    tracing::info!(sink = %self.lane.name, "the sink can be delivered to again");
                }
            }
            Err(trouble) => {
                self.complain(trouble.why());
                self.pace.unsettled();
                self.lane.unsettle(trouble.why());
            }
        }
    }

    /// Tells people, but not of every attempt.
    fn complain(&mut self, why: &str) {
        if self.told.is_none_or(|told| told.elapsed() >= TELL_AGAIN) {
            self.told = Some(Instant::now());
            let (waiting, _) = self.lane.backlog();
            tracing::warn!(sink = %self.lane.name, waiting, "the sink cannot be delivered to, and is tried again: {why}");
        }
    }
}
