//! What is measured of a controller.

use std::time::Duration;

use windlass_bench::cases::{Figures, figures};

/// How many reconciles there were in a second.
#[expect(clippy::cast_precision_loss, reason = "a figure for a table")]
pub(super) fn rate(reconciles: usize, spent: Duration) -> Figures {
    figures([("per_second", reconciles as f64 / spent.as_secs_f64())])
}

/// How long it took from a change to the start of its reconcile.
pub(super) fn latency(mut took: Vec<Duration>) -> anyhow::Result<Figures> {
    anyhow::ensure!(!took.is_empty(), "nothing was reconciled");
    took.sort_unstable();
    let micros = |at: usize| took[at].as_secs_f64() * 1e6;
    Ok(figures([
        ("p50", micros(took.len() / 2)),
        ("p99", micros(took.len() * 99 / 100)),
    ]))
}
