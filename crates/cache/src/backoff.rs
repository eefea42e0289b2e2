//! How long one kind waits after a failure.

use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(800);
const LONGEST: Duration = Duration::from_secs(30);
const QUIET: Duration = Duration::from_mins(2);

/// Delays of 0.8 s doubling to 30 s, each stretched at random up to twofold; after two minutes without a failure
/// it starts again (client-go's reflector). Each kind has its own, so that a kind in trouble delays no other.
#[derive(Debug)]
pub(crate) struct Backoff {
    step: Duration,
    last: Option<Instant>,
    random: fastrand::Rng,
}

impl Backoff {
    pub(crate) fn new(random: fastrand::Rng) -> Self {
        Self {
            step: FIRST,
            last: None,
            random,
        }
    }

    /// The delay after a failure at `now`: in `[d, 2d)` for a step of `d`.
    pub(crate) fn next(&mut self, now: Instant) -> Duration {
        if self.last.is_some_and(|last| now.duration_since(last) > QUIET) {
            self.step = FIRST;
        }
        self.last = Some(now);
        let delay = self.step.mul_f64(1.0 + self.random.f64());
        self.step = (self.step * 2).min(LONGEST);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// go-anchors 50, 51: bounds of the sequence, and the reset.
    #[test]
    fn delays_double_to_half_a_minute_and_start_again_after_two_quiet_minutes() {
        let mut backoff = Backoff::new(fastrand::Rng::with_seed(7));
        let mut now = Instant::now();
        for expected in [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0] {
            let delay = backoff.next(now).as_secs_f64();
            assert!(
                (expected..expected * 2.0).contains(&delay),
                "{delay} is not in [{expected}, 2×)"
            );
            now += Duration::from_secs_f64(delay);
        }
        now += QUIET / 2;
        let still = backoff.next(now);
        assert!(still >= LONGEST, "one quiet minute is not two: {still:?}");
        let again = backoff.next(now + QUIET * 2);
        assert!(again < FIRST * 2, "{again:?}");
    }
}
