//! The values measured of a controller.

use std::time::Duration;

use windlass_bench::{
    cases::{Measurements, measurements},
    processes,
};

/// Returns the CPU time of this process.
pub(super) fn cpu_micros() -> anyhow::Result<f64> {
    processes::cpu_micros(std::process::id())
}

/// Returns reconciles per second, CPU time per reconcile, and the peak memory of the process.
#[expect(clippy::cast_precision_loss, reason = "figures for a table")]
pub(super) fn rate(reconciles: usize, spent: Duration, cpu_micros: f64) -> anyhow::Result<Measurements> {
    let count = reconciles as f64;
    Ok(measurements([
        ("per_second", count / spent.as_secs_f64()),
        ("cpu", cpu_micros / count),
        ("peak", processes::peak_megabytes(std::process::id())?),
    ]))
}

/// Returns quantiles of the time from a change to the start of its reconcile.
pub(super) fn latency(mut took: Vec<Duration>) -> anyhow::Result<Measurements> {
    anyhow::ensure!(!took.is_empty(), "nothing was reconciled");
    took.sort_unstable();
    let micros = |at: usize| took[at].as_secs_f64() * 1e6;
    Ok(measurements([
        ("p50", micros(took.len() / 2)),
        ("p99", micros(took.len() * 99 / 100)),
    ]))
}
