//! Backoff of one kind's lists and watches.

use std::time::{Duration, Instant};

const INITIAL_DELAY: Duration = Duration::from_millis(800);
const MAX_DELAY: Duration = Duration::from_secs(30);
const RESET_AFTER: Duration = Duration::from_mins(2);

/// Delays of 0.8 s doubling to 30 s, each multiplied by a random factor in [1, 2). It resets after two minutes without
/// a failure (client-go's reflector). Each kind has its own, so that a failing kind delays no other.
#[derive(Debug)]
pub(crate) struct Backoff {
    step: Duration,
    last: Option<Instant>,
    random: fastrand::Rng,
}

impl Backoff {
    pub(crate) fn new(random: fastrand::Rng) -> Self {
        Self {
            step: INITIAL_DELAY,
            last: None,
            random,
        }
    }

    /// Returns the delay after a failure at `now`: in `[d, 2d)` for a step of `d`.
    pub(crate) fn next(&mut self, now: Instant) -> Duration {
        if self
            .last
            .is_some_and(|last| now.duration_since(last) > RESET_AFTER)
        {
            self.step = INITIAL_DELAY;
        }
        self.last = Some(now);
        let delay = self.step.mul_f64(1.0 + self.random.f64());
        self.step = (self.step * 2).min(MAX_DELAY);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_to_30_s_and_reset_after_two_minutes() {
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
        now += RESET_AFTER / 2;
        let still = backoff.next(now);
        assert!(still >= MAX_DELAY, "one quiet minute is not two: {still:?}");
        let again = backoff.next(now + RESET_AFTER * 2);
        assert!(again < INITIAL_DELAY * 2, "{again:?}");
    }
}
