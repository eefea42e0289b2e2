//! Rate limiters: how long a key waits after a failure. They compose.
//!
//! The queue counts the failures of each key; a limiter turns the count into a delay. A limiter keeps only state that
//! all keys share (the bucket's tokens, the jitter's random state), so none of them holds memory per key.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// Decides how long a key waits before it is retried.
///
/// Called under the queue's lock: it must be fast, and must not use the queue or panic.
///
/// ```
/// use std::time::Duration;
/// use tokio::time::Instant;
/// use windlass_workqueue::{RateLimiter, WorkQueue};
///
/// /// One more second for each failure.
/// struct Linear;
///
/// impl<K> RateLimiter<K> for Linear {
///     fn delay(&mut self, _key: &K, failures: u32, _now: Instant) -> Duration {
///         Duration::from_secs(1) * (failures + 1)
///     }
/// }
///
/// let queue = WorkQueue::<String>::builder().rate_limiter(Linear).build();
/// # drop(queue);
/// ```
pub trait RateLimiter<K>: Send {
    /// Returns how long `key` waits from `now` on. `failures` is the count before this one: 0 at the first failure.
    fn delay(&mut self, key: &K, failures: u32, now: Instant) -> Duration;
}

impl<K, L: RateLimiter<K> + ?Sized> RateLimiter<K> for Box<L> {
    fn delay(&mut self, key: &K, failures: u32, now: Instant) -> Duration {
        (**self).delay(key, failures, now)
    }
}

/// The default limiter of a queue: per key 5 ms doubling to 1000 s, and 10 retries per second over all keys after a
/// burst of 100, whichever is longer (client-go's default for controllers).
pub type DefaultRateLimiter = MaxOf<Exponential, TokenBucket>;

/// Doubles a key's delay with every failure, up to a limit.
///
/// Default: 5 ms to 1000 s, without jitter.
#[derive(Clone, Debug)]
pub struct Exponential {
    base: Duration,
    max: Duration,
    jitter: f64,
    random_state: u64,
}

impl Exponential {
    /// Creates a limiter whose *n*-th failure waits `base` · 2ⁿ⁻¹, at most `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self {
            base,
            max,
            jitter: 0.0,
            random_state: RandomState::new().hash_one(()),
        }
    }

    /// Adds a random part of up to this fraction of the delay (0.1: up to 10 %), so that keys that failed together are
    /// not retried together. It is added to the maximum as well, so that keys that have reached it spread out too.
    /// Anything but a positive number means none. Default: none.
    #[must_use]
    pub fn jitter(self, fraction: f64) -> Self {
        let jitter = if fraction.is_finite() && fraction > 0.0 {
            fraction
        } else {
            0.0
        };
        Self { jitter, ..self }
    }

    /// Makes the jitter reproducible, for simulations. Default: random.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self {
            random_state: seed,
            ..self
        }
    }

    fn without_jitter(&self, failures: u32) -> Duration {
        1u128
            .checked_shl(failures)
            .and_then(|factor| self.base.as_nanos().checked_mul(factor))
            .and_then(|nanos| u64::try_from(nanos).ok())
            .map_or(self.max, |nanos| Duration::from_nanos(nanos).min(self.max))
    }

    /// Returns a number in 0..1 (splitmix64).
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    fn random_fraction(&mut self) -> f64 {
        self.random_state = self.random_state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random_state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Default for Exponential {
    fn default() -> Self {
        Self::new(Duration::from_millis(5), Duration::from_secs(1000))
    }
}

impl<K> RateLimiter<K> for Exponential {
    fn delay(&mut self, _key: &K, failures: u32, _now: Instant) -> Duration {
        let delay = self.without_jitter(failures);
        if self.jitter == 0.0 {
            return delay;
        }
        let extra = delay.as_secs_f64() * self.jitter * self.random_fraction();
        delay.saturating_add(Duration::try_from_secs_f64(extra).unwrap_or(Duration::ZERO))
    }
}

/// Allows a burst and then a steady rate, over all keys together. A key above the rate waits for its turn: turns are
/// assigned in order, and each is used once.
///
/// Default: 10 per second after a burst of 100.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    /// The time to refill one token.
    interval: Duration,
    /// How far ahead `full_at` may be before a key waits: the time to refill `burst` tokens.
    tolerance: Duration,
    /// When the bucket will be full again. It encodes both the tokens available and those owed.
    full_at: Option<Instant>,
}

impl TokenBucket {
    /// Creates a bucket that allows `per_second` retries per second, and up to `burst` at once after a quiet time.
    ///
    /// A rate that is not a positive number never refills the bucket: after the burst, every key waits 136 years.
    pub fn new(per_second: f64, burst: u32) -> Self {
        let interval = Some(1.0 / per_second)
            .filter(|seconds| *seconds >= 0.0)
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .map_or(FOREVER, |interval| interval.min(FOREVER));
        Self {
            interval,
            tolerance: interval.saturating_mul(burst),
            full_at: None,
        }
    }
}

/// Practically forever, and still small enough to be added to an `Instant`.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

impl Default for TokenBucket {
    fn default() -> Self {
        Self::new(10.0, 100)
    }
}

impl<K> RateLimiter<K> for TokenBucket {
    fn delay(&mut self, _key: &K, _failures: u32, now: Instant) -> Duration {
        let debt = self
            .full_at
            .map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        // A debt beyond the clock's range no longer grows: the wait is practically forever already.
        let debt = debt.saturating_add(self.interval);
        self.full_at = now.checked_add(debt).or(self.full_at);
        debt.saturating_sub(self.tolerance)
    }
}

/// A short delay for the first failures of a key, a long one for the rest.
#[derive(Clone, Debug)]
pub struct FastSlow {
    fast: Duration,
    slow: Duration,
    fast_failures: u32,
}

impl FastSlow {
    /// Creates a limiter that waits `fast` for the first `fast_failures` failures and `slow` for the rest.
    pub fn new(fast: Duration, slow: Duration, fast_failures: u32) -> Self {
        Self {
            fast,
            slow,
            fast_failures,
        }
    }
}

impl<K> RateLimiter<K> for FastSlow {
    fn delay(&mut self, _key: &K, failures: u32, _now: Instant) -> Duration {
        if failures < self.fast_failures {
            self.fast
        } else {
            self.slow
        }
    }
}

/// The longer of two limiters' delays. Both count every failure. Nest it for more than two.
#[derive(Clone, Debug, Default)]
pub struct MaxOf<A, B>(pub A, pub B);

impl<K, A: RateLimiter<K>, B: RateLimiter<K>> RateLimiter<K> for MaxOf<A, B> {
    fn delay(&mut self, key: &K, failures: u32, now: Instant) -> Duration {
        self.0
            .delay(key, failures, now)
            .max(self.1.delay(key, failures, now))
    }
}

/// Limits another limiter's delay to a maximum.
#[derive(Clone, Debug)]
pub struct MaxDelay<L>(pub L, pub Duration);

impl<K, L: RateLimiter<K>> RateLimiter<K> for MaxDelay<L> {
    fn delay(&mut self, key: &K, failures: u32, now: Instant) -> Duration {
        self.0.delay(key, failures, now).min(self.1)
    }
}
