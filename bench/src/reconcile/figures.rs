//! What is measured of a controller.

use std::time::Duration;

use windlass_bench::{
    cases::{Figures, figures},
    processes,
};

/// How long this process has been computing.
pub(super) fn cpu_micros() -> anyhow::Result<f64> {
    processes::cpu_micros(std::process::id())
}

/// How many reconciles there were in a second, and what each took of the processors; and the most memory the process had.
#[expect(clippy::cast_precision_loss, reason = "figures for a table")]
pub(super) fn rate(reconciles: usize, spent: Duration, cpu_micros: f64) -> anyhow::Result<Figures> {
    let count = reconciles as f64;
    Ok(figures([
        ("per_second", count / spent.as_secs_f64()),
        ("cpu", cpu_micros / count),
        ("peak", processes::peak_megabytes(std::process::id())?),
    ]))
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
