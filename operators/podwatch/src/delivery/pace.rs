//! When a sink may be tried: its rate, and its rest after failures.

use std::time::Duration;

use tokio::time::Instant;
use windlass::workqueue::{Exponential, RateLimiter, TokenBucket};

use super::Rate;
use crate::sinks::Trouble;

/// The first rest of a sink that is down, or pause of a notice that failed.
pub(super) const SHORTEST_REST: Duration = Duration::from_millis(500);

/// The longest one: a sink that is down is asked about once a minute.
pub(super) const LONGEST_REST: Duration = Duration::from_mins(1);

/// How failures grow into rests. Up to a fifth is added by chance, so that many processes do not come back together.
pub(super) fn backoff() -> Exponential {
    Exponential::new(SHORTEST_REST, LONGEST_REST).jitter(0.2)
}

/// The pace of one sink. Owned by its worker.
pub(super) struct Pace<Target> {
    bucket: Option<TokenBucket>,
    backoff: Exponential,
    /// Rests in a row.
    rests: u32,
    rest_until: Option<Instant>,
    /// What failed last, if nothing was delivered since.
    failed: Option<Target>,
}

impl<Target: Clone + PartialEq> Pace<Target> {
    pub(super) fn new(rate: Option<Rate>) -> Self {
        Self {
            bucket: rate.map(|rate| {
                let per_second = f64::from(rate.notices) / rate.every.as_secs_f64();
                // A second's worth at once.
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a small positive number"
                )]
                let burst = per_second.max(1.0) as u32;
                TokenBucket::new(per_second, burst)
            }),
            backoff: backoff(),
            rests: 0,
            rest_until: None,
            failed: None,
        }
    }

    /// When the sink has rested enough, if it rests.
    pub(super) fn rest_until(&self) -> Option<Instant> {
        self.rest_until
    }

    /// The rest is over, or was cut short.
    pub(super) fn rested(&mut self) {
        self.rest_until = None;
    }

    /// Takes a turn: how long to wait for it.
    pub(super) fn turn(&mut self) -> Duration {
        let now = Instant::now();
        self.bucket
            .as_mut()
            .map_or(Duration::ZERO, |bucket| bucket.delay(&(), 0, now))
    }

    /// Something was delivered.
    pub(super) fn delivered(&mut self) {
        self.failed = None;
    }

    /// What was delivered stays so. Returns whether the sink had to rest before.
    pub(super) fn settled(&mut self) -> bool {
        std::mem::take(&mut self.rests) > 0
    }

    /// What was delivered may not stay: the sink rests, or it would be told the same again and again.
    pub(super) fn unsettled(&mut self) {
        let rest = self.next_rest();
        self.rest(rest);
    }

    /// It failed. One notice that fails again and again pauses by itself; when another one fails too, it is the sink.
    pub(super) fn failed(&mut self, target: &Target, trouble: &Trouble) {
        let rest = match trouble {
            Trouble::Refused { .. } => return,
            Trouble::Down {
                after: Some(after), ..
            } => {
                // Not less than by its failures: some always say one second.
                Some((*after).max(self.next_rest()))
            }
            Trouble::Down { after: None, .. } => Some(self.next_rest()),
            Trouble::Failed { .. } => {
                let another = self.failed.as_ref().is_some_and(|failed| failed != target);
                another.then(|| self.next_rest())
            }
        };
        self.failed = Some(target.clone());
        if let Some(rest) = rest {
            self.rest(rest);
        }
    }

    fn rest(&mut self, rest: Duration) {
        self.rests += 1;
        self.rest_until = Some(Instant::now() + rest);
    }

    fn next_rest(&mut self) -> Duration {
        RateLimiter::<()>::delay(&mut self.backoff, &(), self.rests, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn down(after: Option<u64>) -> Trouble {
        Trouble::Down {
            why: String::new(),
            after: after.map(Duration::from_secs),
        }
    }

    fn rest(pace: &Pace<u8>) -> f64 {
        pace.rest_until()
            .map_or(0.0, |until| until.duration_since(Instant::now()).as_secs_f64())
    }

    #[tokio::test(start_paused = true)]
    async fn a_sink_that_is_down_rests_longer_and_longer_up_to_a_minute() {
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
        assert!(pace.settled());
        assert!(!pace.settled());
        pace.failed(&1, &down(Some(90)));
        assert!((90.0..91.0).contains(&rest(&pace)), "what the sink asked for");
    }

    #[tokio::test(start_paused = true)]
    async fn one_notice_that_fails_does_not_stop_the_others_but_two_do() {
        let failed = Trouble::Failed { why: String::new() };
        let mut pace = Pace::new(None);
        for _ in 0..5 {
            pace.failed(&1, &failed);
            assert_eq!(pace.rest_until(), None);
        }
        pace.delivered();
        pace.failed(&2, &failed);
        assert_eq!(pace.rest_until(), None);
        pace.failed(&1, &failed);
        assert!(rest(&pace) >= 0.5);
    }

    #[tokio::test(start_paused = true)]
    async fn turns_come_at_the_rate() {
        let mut pace = Pace::<u8>::new(Some(Rate {
            notices: 30,
            every: Duration::from_mins(1),
        }));
        let waits: Vec<_> = (0..3).map(|_| pace.turn().as_secs()).collect();
        assert_eq!(waits, [0, 2, 4]);
    }
}
