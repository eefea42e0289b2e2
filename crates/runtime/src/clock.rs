//! Wall-clock time for timestamps in objects.

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// Source of the timestamps written into objects, such as a condition's transition time. Waits use `tokio::time` only.
///
/// The default is the system clock. [`starting_at`](Self::starting_at) returns a clock that advances with tokio's, so a
/// test on paused time gets the same timestamps on each run.
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
    /// `None`: the system clock.
    started: Option<(Timestamp, Instant)>,
}

impl Clock {
    /// The system clock.
    pub fn system() -> Self {
        Self::default()
    }

    /// A clock that starts at `now` and advances with tokio's clock.
    pub fn starting_at(now: Timestamp) -> Self {
        Self {
            started: Some((now, Instant::now())),
        }
    }

    /// The current time in whole seconds, the precision of `metav1.Time`. With more, an object would differ from what the
    /// server stores.
    pub fn now(&self) -> Timestamp {
        let now = match self.started {
            None => Timestamp::now(),
            Some((epoch, started)) => epoch.checked_add(started.elapsed()).unwrap_or(Timestamp::MAX),
        };
        Timestamp::from_second(now.as_second()).expect("a timestamp rounded to seconds is valid")
    }
}
