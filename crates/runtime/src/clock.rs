//! The time of day, for what is written into objects.

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// Tells the time that goes into objects: when a condition changed, for example. Waits are `tokio::time` alone.
///
/// The default is the system's clock. [`starting_at`](Self::starting_at) makes one that runs with tokio's clock, so
/// that a test on a paused clock gets the same times on each run.
///
/// ```
/// use windlass_runtime::Clock;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let clock = Clock::starting_at("2026-01-02T03:04:05Z".parse().unwrap());
/// tokio::time::advance(std::time::Duration::from_secs(60)).await;
/// assert_eq!(clock.now().to_string(), "2026-01-02T03:05:05Z");
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// `None`: the system's.
    started: Option<(Timestamp, Instant)>,
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// It is this time now, and goes on with tokio's clock.
    pub fn starting_at(now: Timestamp) -> Self {
        Self {
            started: Some((now, Instant::now())),
        }
    }

    /// The time, to the second: what `metav1.Time` keeps. With more, an object would differ from what the server
    /// makes of it.
    pub fn now(&self) -> Timestamp {
        let now = match self.started {
            None => Timestamp::now(),
            Some((epoch, started)) => epoch.checked_add(started.elapsed()).unwrap_or(Timestamp::MAX),
        };
        Timestamp::from_second(now.as_second()).expect("a time without its fraction is a time")
    }
}
