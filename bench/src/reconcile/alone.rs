//! One object that is reconciled again and again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::time::sleep;
use windlass_bench::cases::Figures;

use super::{again::stamp, figures};

/// How long it runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// How long it is measured.
const MEASURED: Duration = Duration::from_secs(1);

/// How often it was reconciled.
#[derive(Default)]
pub(super) struct Alone(AtomicUsize);

impl Alone {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// To be called in each reconcile.
    pub(super) fn reconciled(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// What a reconcile writes that writes.
    pub(super) fn mark(&self) -> Value {
        let mark = stamp(self.0.load(Ordering::Relaxed));
        json!({ "metadata": { "annotations": { "mark": mark } } })
    }

    pub(super) async fn measure(&self) -> anyhow::Result<Figures> {
        sleep(WARM_UP).await;
        let (cpu, began, before) = (
            figures::cpu_micros()?,
            Instant::now(),
            self.0.load(Ordering::Relaxed),
        );
        sleep(MEASURED).await;
        let reconciles = self.0.load(Ordering::Relaxed) - before;
        anyhow::ensure!(reconciles > 0, "the object does not come again");
        figures::rate(reconciles, began.elapsed(), figures::cpu_micros()? - cpu)
    }
}
