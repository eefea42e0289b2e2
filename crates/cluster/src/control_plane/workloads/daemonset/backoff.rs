//! The back-off for replacing failed daemon pods.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The first and the longest delay; it doubles each time.
const INITIAL_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_mins(15);

/// Delays by key: a DaemonSet's generation on a node. Old entries are removed.
#[derive(Default)]
pub(super) struct Backoff(Mutex<HashMap<String, Entry>>);

struct Entry {
    delay: Duration,
    since: Instant,
}

impl Backoff {
    /// Records a failure. Returns the remaining delay, or `None` if the pod may be replaced now.
    pub(super) fn record_failure(&self, what: &str) -> Option<Duration> {
        let now = Instant::now();
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|_, wait| now - wait.since < MAX_DELAY * 2);
        match waits.get_mut(what) {
            Some(wait) => {
                let left = wait.delay.saturating_sub(now - wait.since);
                if !left.is_zero() {
                    return Some(left);
                }
                let delay = (wait.delay * 2).min(MAX_DELAY);
                *wait = Entry { delay, since: now };
                None
            }
            None => {
                let wait = Entry {
                    delay: INITIAL_DELAY,
                    since: now,
                };
                waits.insert(what.to_owned(), wait);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn repeated_failures_double_the_delay() {
        let backoff = Backoff::default();
        assert_eq!(backoff.record_failure("a"), None);
        for wait in [1, 2, 4, 8] {
            let wait = Duration::from_secs(wait);
            assert_eq!(backoff.record_failure("a"), Some(wait));
            assert_eq!(
                backoff.record_failure(&format!("{wait:?}")),
                None,
                "keys are independent"
            );
            tokio::time::advance(wait).await;
            assert_eq!(backoff.record_failure("a"), None);
        }
        tokio::time::advance(MAX_DELAY * 2).await;
        assert_eq!(backoff.record_failure("b"), None);
        assert_eq!(backoff.0.lock().expect("no panic while locked").len(), 1);
    }
}
