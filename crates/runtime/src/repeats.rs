//! When lines about a lasting problem are logged.

use std::time::Duration;

use tokio::time::Instant;

/// When a problem is logged again for the first time, and the longest time between two lines.
const FIRST_REPEAT: Duration = Duration::from_secs(10);
const LONGEST_REPEAT: Duration = Duration::from_mins(10);

/// Decides which problems are logged: the first at once, later ones at growing intervals.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// When the last line was logged, and how long it silences others.
    last: Option<(Instant, Duration)>,
}

impl Repeats {
    /// Whether a problem at this time is logged.
    pub(crate) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let silence = match self.last {
            None => FIRST_REPEAT,
            Some((logged, silence)) if now < logged + silence => return false,
            Some((_, silence)) => (2 * silence).min(LONGEST_REPEAT),
        };
        self.last = Some((now, silence));
        true
    }

    /// There is no problem now. The next one counts as the first again, unless a line was just logged.
    pub(crate) fn solved(&mut self) {
        if self
            .last
            .is_some_and(|(logged, silence)| logged.elapsed() >= silence)
        {
            self.last = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lasting_problem_is_logged_at_growing_intervals() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        let mut logged = Vec::new();
        for _ in 0..3600 {
            if repeats.is_due() {
                logged.push(start.elapsed().as_secs());
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(logged, [0, 10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030]);
        repeats.solved();
        assert!(!repeats.is_due(), "a line was just logged");
        tokio::time::advance(LONGEST_REPEAT).await;
        repeats.solved();
        assert!(repeats.is_due(), "a new problem");
        tokio::time::advance(FIRST_REPEAT).await;
        assert!(repeats.is_due(), "the intervals start again");
    }
}
