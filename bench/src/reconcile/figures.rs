//! What is measured of a controller.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The figures of one contender in one case; what the case does not measure is 0.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Figures {
    /// Reconciles per second.
    pub(super) per_second: f64,
    /// Microseconds from a change to the start of its reconcile, for the half that is quicker.
    pub(super) p50: f64,
    /// The same for 99 of 100.
    pub(super) p99: f64,
}

impl Figures {
    #[expect(clippy::cast_precision_loss, reason = "a figure for a table")]
    pub(super) fn rate(reconciles: usize, spent: Duration) -> Self {
        Self {
            per_second: reconciles as f64 / spent.as_secs_f64(),
            ..Self::default()
        }
    }

    pub(super) fn latency(mut took: Vec<Duration>) -> anyhow::Result<Self> {
        anyhow::ensure!(!took.is_empty(), "nothing was reconciled");
        took.sort_unstable();
        let micros = |at: usize| took[at].as_secs_f64() * 1e6;
        Ok(Self {
            p50: micros(took.len() / 2),
            p99: micros(took.len() * 99 / 100),
            ..Self::default()
        })
    }
}
