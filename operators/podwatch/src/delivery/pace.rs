//! The pacing of a sink: its rate limit, and its backoff after failures.

use std::time::Duration;

use tokio::time::Instant;
use windlass::workqueue::{Exponential, RateLimiter, TokenBucket};

use super::Rate;
use crate::sinks::DeliveryError;

/// The first backoff of an unavailable sink, or of a failed notice.
pub(super) const MIN_BACKOFF: Duration = Duration::from_millis(500);

/// The longest backoff: an unavailable sink is tried about once a minute.
pub(super) const MAX_BACKOFF: Duration = Duration::from_mins(1);

/// Exponential backoff with 20 % jitter, so that many processes do not retry at the same time.
pub(super) fn backoff() -> Exponential {
    Exponential::new(MIN_BACKOFF, MAX_BACKOFF).jitter(0.2)
}

/// The pace of one sink. Owned by its worker.
pub(super) struct Pace<Target> {
    bucket: Option<TokenBucket>,
    backoff: Exponential,
    /// Consecutive backoffs.
    backoffs: u32,
    backoff_until: Option<Instant>,
    /// The last failed target, if nothing was delivered since.
    failed: Option<Target>,
}

impl<Target: Clone + PartialEq> Pace<Target> {
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
            backoffs: 0,
            backoff_until: None,
            failed: None,
        }
    }

    /// When the current backoff ends, if there is one.
    pub(super) fn backoff_until(&self) -> Option<Instant> {
        self.backoff_until
    }

    /// Ends the backoff, also early.
    pub(super) fn end_backoff(&mut self) {
        self.backoff_until = None;
    }

    /// Reserves a delivery under the rate limit, and returns how long to wait for it.
    pub(super) fn reserve(&mut self) -> Duration {
        let now = Instant::now();
        self.bucket
            .as_mut()
            .map_or(Duration::ZERO, |bucket| bucket.delay(&(), 0, now))
    }

    /// Records a delivery.
    pub(super) fn delivered(&mut self) {
        self.failed = None;
    }

    /// Resets the backoff after a commit. Returns whether the sink had to back off before.
    pub(super) fn committed(&mut self) -> bool {
        std::mem::take(&mut self.backoffs) > 0
    }

    /// Backs off after a failed commit, or the same notices would be sent in a loop.
    pub(super) fn commit_failed(&mut self) {
        let rest = self.next_backoff();
        self.back_off(rest);
    }

    /// Records a failed delivery. A single failing notice has its own backoff; when another one fails too, the sink backs off.
    pub(super) fn failed(&mut self, target: &Target, error: &DeliveryError) {
        let rest = match error {
            DeliveryError::Rejected { .. } => return,
            DeliveryError::Unavailable {
                retry_after: Some(after),
                ..
            } => {
                // At least the exponential backoff: some servers always ask for one second.
                Some((*after).max(self.next_backoff()))
            }
            DeliveryError::Unavailable {
                retry_after: None, ..
            } => Some(self.next_backoff()),
            DeliveryError::Failed { .. } => {
                let another = self.failed.as_ref().is_some_and(|failed| failed != target);
                another.then(|| self.next_backoff())
            }
        };
        self.failed = Some(target.clone());
        if let Some(rest) = rest {
            self.back_off(rest);
        }
    }

    fn back_off(&mut self, rest: Duration) {
        self.backoffs += 1;
        self.backoff_until = Some(Instant::now() + rest);
    }

    fn next_backoff(&mut self) -> Duration {
        RateLimiter::<()>::delay(&mut self.backoff, &(), self.backoffs, Instant::now())
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

    fn rest(pace: &Pace<u8>) -> f64 {
        pace.backoff_until()
            .map_or(0.0, |until| until.duration_since(Instant::now()).as_secs_f64())
    }

    #[tokio::test(start_paused = true)]
    async fn unavailable_sink_backs_off_exponentially_up_to_a_minute() {
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
        }
        pace.delivered();
        assert!(pace.committed());
        assert!(!pace.committed());
        pace.failed(&1, &down(Some(90)));
        assert!((90.0..91.0).contains(&rest(&pace)), "the sink's own delay");
    }

    #[tokio::test(start_paused = true)]
    async fn sink_backs_off_after_two_different_notices_fail() {
        let failed = DeliveryError::Failed {
            reason: String::new(),
        };
        let mut pace = Pace::new(None);
        for _ in 0..5 {
            pace.failed(&1, &failed);
            assert_eq!(pace.backoff_until(), None);
        }
        pace.delivered();
        pace.failed(&2, &failed);
        assert_eq!(pace.backoff_until(), None);
        pace.failed(&1, &failed);
        assert!(rest(&pace) >= 0.5);
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
