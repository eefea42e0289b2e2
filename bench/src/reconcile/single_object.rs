//! Reconciles a single object repeatedly.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::time::sleep;
use windlass_bench::cases::Measurements;

use super::{measurements, rounds::stamp};

/// Time before the measurement.
const WARM_UP: Duration = Duration::from_millis(500);

/// Time of the measurement.
const MEASURED: Duration = Duration::from_secs(1);

/// Number of reconciles.
#[derive(Default)]
pub(super) struct SingleObject(AtomicUsize);

impl SingleObject {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Must be called in each reconcile.
    pub(super) fn reconciled(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the patch for a reconcile that writes.
    pub(super) fn mark(&self) -> Value {
        let mark = stamp(self.0.load(Ordering::Relaxed));
        json!({ "metadata": { "annotations": { "mark": mark } } })
    }

    pub(super) async fn measure(&self) -> anyhow::Result<Measurements> {
        sleep(WARM_UP).await;
        let (cpu, began, before) = (
            measurements::cpu_micros()?,
            Instant::now(),
            self.0.load(Ordering::Relaxed),
        );
        sleep(MEASURED).await;
        let reconciles = self.0.load(Ordering::Relaxed) - before;
        anyhow::ensure!(reconciles > 0, "the object is not reconciled again");
        measurements::rate(reconciles, began.elapsed(), measurements::cpu_micros()? - cpu)
    }
}
