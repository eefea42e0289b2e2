//! The pace of a sink: its rate limit, and its pauses after failures.

use std::{collections::HashSet, hash::Hash, time::Duration};

use tokio::time::Instant;
use windlass::workqueue::{Exponential, RateLimiter, TokenBucket};

use super::Rate;
use crate::sinks::DeliveryError;

/// The first pause of a failing sink, and the first backoff of a failed notice.
pub(super) const MIN_BACKOFF: Duration = Duration::from_millis(500);

/// The longest of both: an unavailable sink is tried about once a minute.
pub(super) const MAX_BACKOFF: Duration = Duration::from_mins(1);

/// Exponential backoff with 20 % jitter, so that many processes do not retry at the same time.
pub(super) fn backoff() -> Exponential {
    Exponential::new(MIN_BACKOFF, MAX_BACKOFF).jitter(0.2)
}

/// How many notices of different objects must fail in a row, with none delivered in between, before the sink counts as
/// down. With fewer, a receiver that fails every seventh request would be paused most of the time.
const DOWN_AFTER: usize = 5;

/// The pace of one sink. Owned by its worker.
///
/// ```text
///   failed: the notice has its own backoff ── DOWN_AFTER in a row, or the sink asks for a pause ──► paused
///      ▲                                                                                              │ time passes
///      └──────────────────────────── delivered ◄── probing: one delivery at a time ◄──────────────────┘
///                                                        └── failed: paused for longer
/// ```
pub(super) struct Pace<Target> {
    bucket: Option<TokenBucket>,
    backoff: Exponential,
    /// Consecutive pauses without a delivery in between.
    pauses: u32,
    /// Consecutive pauses because of commits. Counted apart: a full disk may accept deliveries that it cannot commit.
    commit_pauses: u32,
    paused_until: Option<Instant>,
    /// Whether a pause has ended, and nothing was delivered since.
    probing: bool,
    /// The targets that failed since the last delivery; at most [`DOWN_AFTER`].
    failed: HashSet<Target>,
}

impl<Target: Clone + Eq + Hash> Pace<Target> {
    pub(super) fn new(rate: Option<Rate>) -> Self {
        Self {
            bucket: rate.map(|rate| {
                let per_second = f64::from(rate.notices) / rate.period.as_secs_f64();
                // One second's worth.
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a small positive number"
                )]
                let burst = per_second.max(1.0) as u32;
                TokenBucket::new(per_second, burst)
            }),
            backoff: backoff(),
            pauses: 0,
            commit_pauses: 0,
            paused_until: None,
            probing: false,
            failed: HashSet::new(),
        }
    }

    /// When the current pause ends, if there is one.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Ends the pause, also early. Until a delivery succeeds, the sink is only probed.
    pub(super) fn end_pause(&mut self) {
        self.probing |= self.paused_until.take().is_some();
    }

    /// Whether the sink should get one delivery at a time, because it was paused and has not accepted anything since, or has
    /// not committed what it accepted.
    pub(super) fn is_probing(&self) -> bool {
        self.probing || self.is_probing_commits()
    }

    /// Whether every delivery should be committed at once, because the last commit failed.
    pub(super) fn is_probing_commits(&self) -> bool {
        self.commit_pauses > 0
    }

    /// Reserves a delivery under the rate limit, and returns how long to wait for it.
    pub(super) fn reserve(&mut self) -> Duration {
        let now = Instant::now();
        self.bucket
            .as_mut()
            .map_or(Duration::ZERO, |bucket| bucket.delay(&(), 0, now))
    }

    /// Records a delivery. Returns whether the sink had been paused before.
    pub(super) fn delivered(&mut self) -> bool {
        self.failed.clear();
        self.probing = false;
        std::mem::take(&mut self.pauses) > 0
    }

    /// Records a commit. Returns whether commits had failed before.
    pub(super) fn committed(&mut self) -> bool {
        std::mem::take(&mut self.commit_pauses) > 0
    }

    /// Pauses after a failed commit, or the same notices would be sent in a loop. Until a commit succeeds, the sink is only
    /// probed.
    pub(super) fn commit_failed(&mut self) {
        let rest = self.next_delay(self.commit_pauses);
        self.commit_pauses += 1;
        self.paused_until = Some(Instant::now() + rest);
    }

    /// Records a failed delivery. A failed notice has its own backoff; the sink is paused if it asks for that, if it is
    /// probed, or if notices of several objects fail in a row.
    pub(super) fn failed(&mut self, target: &Target, error: &DeliveryError) {
        let (is_unavailable, retry_after) = match error {
            DeliveryError::Rejected { .. } => return,
            DeliveryError::Unavailable { retry_after, .. } => (true, retry_after.unwrap_or_default()),
            DeliveryError::Failed { .. } => (false, Duration::ZERO),
        };
        let now = Instant::now();
        if let Some(until) = &mut self.paused_until {
            // It was sent before the pause, so it does not make the next one longer.
            *until = (*until).max(now + retry_after);
            return;
        }
        if self.failed.len() < DOWN_AFTER {
            self.failed.insert(target.clone());
        }
        if is_unavailable || self.probing || self.failed.len() >= DOWN_AFTER {
            // At least the exponential backoff: some servers always ask for one second.
            let rest = retry_after.max(self.next_delay(self.pauses));
            self.pauses += 1;
            self.paused_until = Some(now + rest);
        }
    }

    fn next_delay(&mut self, pauses: u32) -> Duration {
        RateLimiter::<()>::delay(&mut self.backoff, &(), pauses, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn down(after: Option<u64>) -> DeliveryError {
        DeliveryError::Unavailable {
            reason: String::new(),
            retry_after: after.map(Duration::from_secs),
        }
    }

    fn failed() -> DeliveryError {
        DeliveryError::Failed {
            reason: String::new(),
        }
    }

    fn rest(pace: &Pace<u8>) -> f64 {
        pace.paused_until()
            .map_or(0.0, |until| until.duration_since(Instant::now()).as_secs_f64())
    }

    #[tokio::test(start_paused = true)]
    async fn unavailable_sink_is_paused_exponentially_up_to_a_minute() {
        let mut pace = Pace::new(None);
        let mut at_least = 0.5;
        for _ in 0..12 {
            pace.failed(&1, &down(None));
            let rest = rest(&pace);
            assert!(
                (at_least..=at_least * 1.2).contains(&rest),
                "{rest} after {at_least}"
            );
            at_least = f64::min(at_least * 2.0, 60.0);
            pace.end_pause();
        }
        assert!(pace.delivered());
        assert!(!pace.delivered());
        pace.failed(&1, &down(Some(90)));
        assert!((90.0..91.0).contains(&rest(&pace)), "the sink's own delay");
    }

    #[tokio::test(start_paused = true)]
    async fn sink_is_paused_after_notices_of_five_objects_fail_in_a_row() {
        let mut pace = Pace::new(None);
        for _ in 0..20 {
            pace.failed(&1, &failed());
            assert_eq!(pace.paused_until(), None, "one object");
        }
        for target in 2..5 {
            pace.failed(&target, &failed());
        }
        assert_eq!(pace.paused_until(), None, "four objects");
        pace.delivered();
        for target in 2..6 {
            pace.failed(&target, &failed());
        }
        assert_eq!(pace.paused_until(), None, "four objects since a delivery");
        pace.failed(&6, &failed());
        assert!((0.5..=0.6).contains(&rest(&pace)));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_that_were_sent_before_a_pause_do_not_lengthen_it() {
        let mut pace = Pace::new(None);
        for target in 0..16 {
            pace.failed(&target, &failed());
        }
        assert!((0.5..=0.6).contains(&rest(&pace)));
        pace.failed(&16, &down(Some(30)));
        assert!(
            (29.9..=30.0).contains(&rest(&pace)),
            "but the sink may ask for it"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn paused_sink_is_probed_until_a_delivery_succeeds() {
        let mut pace = Pace::new(None);
        pace.end_pause();
        assert!(!pace.is_probing());
        pace.failed(&1, &down(None));
        pace.end_pause();
        assert!(pace.is_probing());
        pace.failed(&1, &failed());
        assert!((1.0..=1.2).contains(&rest(&pace)), "a failed probe is enough");
        pace.end_pause();
        pace.delivered();
        assert!(!pace.is_probing());
    }

    #[tokio::test(start_paused = true)]
    async fn deliveries_do_not_shorten_the_pause_of_failing_commits() {
        let mut pace = Pace::<u8>::new(None);
        for at_least in [0.5, 1.0, 2.0] {
            pace.commit_failed();
            assert!((at_least..=at_least * 1.2).contains(&rest(&pace)));
            pace.end_pause();
            pace.delivered();
        }
        assert!(pace.is_probing() && pace.is_probing_commits());
        assert!(pace.committed());
        assert!(!pace.is_probing());
        assert!(!pace.committed());
    }

    #[tokio::test(start_paused = true)]
    async fn rate_limit_spaces_deliveries() {
        let mut pace = Pace::<u8>::new(Some(Rate {
            notices: 30,
            period: Duration::from_mins(1),
        }));
        let waits: Vec<_> = (0..3).map(|_| pace.reserve().as_secs()).collect();
        assert_eq!(waits, [0, 2, 4]);
    }
}
