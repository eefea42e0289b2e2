//! How long a failed daemon stays before another takes its place.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The first wait; each is twice as long as the one before.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(15);

/// Waits by what failed: a DaemonSet's generation on a node. What was quiet for long is forgotten.
#[derive(Default)]
pub(super) struct Backoff(Mutex<HashMap<String, Wait>>);

struct Wait {
    long: Duration,
    since: Instant,
}

impl Backoff {
    /// Notes a failure. Gives how long to wait with it, nothing if it may be seen to now.
    pub(super) fn failed(&self, what: &str) -> Option<Duration> {
        let now = Instant::now();
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|_, wait| now - wait.since < LONGEST * 2);
        match waits.get_mut(what) {
            Some(wait) => {
                let left = wait.long.saturating_sub(now - wait.since);
                if !left.is_zero() {
                    return Some(left);
                }
                let long = (wait.long * 2).min(LONGEST);
                *wait = Wait { long, since: now };
                None
            }
            None => {
                let wait = Wait {
                    long: FIRST,
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
    async fn what_fails_again_waits_twice_as_long_each_time() {
        let backoff = Backoff::default();
        assert_eq!(backoff.failed("a"), None);
        for wait in [1, 2, 4, 8] {
            let wait = Duration::from_secs(wait);
            assert_eq!(backoff.failed("a"), Some(wait));
            assert_eq!(backoff.failed(&format!("{wait:?}")), None, "another is another");
            tokio::time::advance(wait).await;
            assert_eq!(backoff.failed("a"), None);
        }
        tokio::time::advance(LONGEST * 2).await;
        assert_eq!(backoff.failed("b"), None);
        assert_eq!(backoff.0.lock().expect("nobody panics with it").len(), 1);
    }
}
