//! The time of day, which follows tokio's clock when a test pauses it.
//!
//! ```text
//!   real runtime:    Clock::system() ──► the system clock
//!   paused runtime:  Clock::system() ──► (system time ─ monotonic time, measured once) + tokio's instant
//! ```
//!
//! The embedded API server, its controllers and every controller of the process read the same clock, so they agree on
//! every timestamp, and a time-to-live is tested by advancing tokio's clock. [`outside`] holds a paused clock while
//! something outside of the runtime is awaited.

mod outside;

use std::{
    sync::OnceLock,
    time::{Duration, Instant as MonotonicInstant},
};

use jiff::Timestamp;
use tokio::time::Instant;

pub use outside::outside;

/// Source of timestamps, such as an object's creation time or a condition's transition time. Waits use `tokio::time`.
///
/// The default is [`system`](Self::system): the system clock, or in a test the paused clock. It needs no parameter:
/// every `Clock::system()` of a process returns the same time.
///
/// ```
/// use windlass_clock::Clock;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let created = Clock::system().now();
/// tokio::time::sleep(std::time::Duration::from_secs(3600)).await; // takes no time
/// assert_eq!(Clock::system().now().as_second() - created.as_second(), 3600);
/// # }
/// ```
///
/// A clock that [starts at a given time](Self::starting_at) is for tests which need a certain date, the same timestamps on
/// each run, or a process whose clock is wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// `None`: the system clock.
    started: Option<(Timestamp, Instant)>,
}

impl Clock {
    /// The system clock. If tokio's clock is paused, or was paused or advanced before, the time advances with that one
    /// instead.
    ///
    /// On a real clock, this is the time of day also after the computer has slept or its clock was set.
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that starts at `now` and advances with tokio's clock, paused or not.
    ///
    /// ```
    /// use windlass_clock::Clock;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
    /// let clock = Clock::starting_at("2026-01-02T03:04:05Z".parse().unwrap());
    /// tokio::time::advance(std::time::Duration::from_secs(60)).await;
    /// assert_eq!(clock.now().to_string(), "2026-01-02T03:05:05Z");
    /// # }
    /// ```
    pub fn starting_at(now: Timestamp) -> Self {
        Self {
            started: Some((now, Instant::now())),
        }
    }

    /// The current time in whole seconds, the precision of `metav1.Time`. With more, an object would differ from what the
    /// server stores.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_second(self.precise_now().as_second())
            .expect("a timestamp rounded to seconds is valid")
    }

    /// The current time with fractions of a second, for `metav1.MicroTime`.
    pub fn precise_now(&self) -> Timestamp {
        match self.started {
            None => system_time(),
            Some((start, started)) => after(start, started.elapsed()),
        }
    }
}

/// The time of day at tokio's current instant.
fn system_time() -> Timestamp {
    /// One for the process, so that all readers of a paused clock get exactly the same time.
    static ANCHOR: OnceLock<(Timestamp, MonotonicInstant)> = OnceLock::new();
    let Some(paused) = paused_instant() else {
        return Timestamp::now();
    };
    let (time, instant) = *ANCHOR.get_or_init(|| (Timestamp::now(), MonotonicInstant::now()));
    match paused.checked_duration_since(instant) {
        Some(later) => after(time, later),
        None => time
            .checked_sub(instant.duration_since(paused))
            .unwrap_or(Timestamp::MIN),
    }
}

/// Tokio's current instant, if its clock is or was paused; `None` if it is the monotonic clock. Tokio has no function for
/// this, but its instant is then not between two readings of the monotonic clock.
fn paused_instant() -> Option<MonotonicInstant> {
    let before = MonotonicInstant::now();
    let tokio = Instant::now().into_std();
    let real = before..=MonotonicInstant::now();
    (!real.contains(&tokio)).then_some(tokio)
}

fn after(start: Timestamp, elapsed: Duration) -> Timestamp {
    start.checked_add(elapsed).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    /// Real time passes without effect.
    fn busy() {
        std::thread::sleep(Duration::from_millis(20));
    }

    #[tokio::test(start_paused = true)]
    async fn paused_clock_stands_still_and_advances_with_tokio() {
        let start = Clock::system().precise_now();
        busy();
        assert_eq!(Clock::system().precise_now(), start);
        tokio::time::advance(HOUR).await;
        assert_eq!(Clock::system().precise_now(), start + HOUR);
        tokio::time::sleep(HOUR).await;
        assert_eq!(Clock::default().precise_now(), start + 2 * HOUR);
        let now = Clock::system().now();
        assert_eq!(
            (now.as_second(), now.subsec_nanosecond()),
            ((start + 2 * HOUR).as_second(), 0)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn paused_clock_starts_at_the_system_time() {
        let ahead = Clock::system().precise_now().duration_since(Timestamp::now());
        assert!(ahead.unsigned_abs() < Duration::from_mins(1), "{ahead}");
        let clock = Clock::system();
        let same = tokio::task::spawn_blocking(move || clock.precise_now()).await;
        assert_eq!(
            same.expect("it ends"),
            clock.precise_now(),
            "also on blocking threads"
        );
    }

    #[tokio::test]
    async fn clock_of_a_real_runtime_is_the_system_clock() {
        let clock = Clock::system();
        for _ in 0..1000 {
            let (before, now) = (Timestamp::now(), clock.precise_now());
            assert!((before..=Timestamp::now()).contains(&now));
            assert_eq!(paused_instant(), None);
        }
    }

    #[test]
    fn clock_outside_of_a_runtime_is_the_system_clock() {
        let (before, now) = (Timestamp::now(), Clock::system().precise_now());
        assert!((before..=Timestamp::now()).contains(&now));
    }

    /// As in a test that pauses only for a while: time never goes back.
    #[tokio::test]
    async fn time_continues_when_the_clock_is_resumed() {
        let start = Clock::system().precise_now();
        tokio::time::pause();
        tokio::time::advance(HOUR).await;
        tokio::time::resume();
        busy();
        let lived = Clock::system().precise_now().duration_since(start);
        assert!(lived.unsigned_abs() > HOUR, "{lived}");
    }

    #[tokio::test(start_paused = true)]
    async fn given_start_time_ends_at_the_last_timestamp() {
        let clock = Clock::starting_at(Timestamp::MAX);
        tokio::time::advance(HOUR).await;
        assert_eq!(clock.precise_now(), Timestamp::MAX);
    }
}
