//! Measures the time from a write to its reconcile, with writers at a steady rate.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use serde_json::json;
use tokio::{sync::mpsc, task::JoinSet, time::interval};
use windlass_bench::cases::Measurements;

use super::{cluster::merge, measurements, object_name};

/// Number of objects that are written in turn.
pub(super) const CHANGING: usize = 5_000;

/// Duration of the writes.
const SECONDS: usize = 2;

/// Time of the last write of each object, and the latencies measured.
#[derive(Clone)]
pub(super) struct WriteTimes {
    base: Instant,
    /// Nanoseconds since `base`; 0 if no reconcile is expected.
    written: Arc<[AtomicU64]>,
    took: mpsc::UnboundedSender<Duration>,
}

impl WriteTimes {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Duration>) {
        let (took, measured) = mpsc::unbounded_channel();
        let stamps = Self {
            base: Instant::now(),
            written: (0..CHANGING).map(|_| AtomicU64::new(0)).collect(),
            took,
        };
        (stamps, measured)
    }

    /// Must be called at the start of each reconcile.
    pub(super) fn reconciled(&self, name: &str) {
        let now = self.now();
        let number = name
            .strip_prefix("config-")
            .and_then(|number| number.parse::<usize>().ok());
        let Some(stamp) = number.and_then(|number| self.written.get(number)) else {
            return;
        };
        match stamp.swap(0, Ordering::Relaxed) {
            0 => {}
            // The measurement is over.
            written => drop(self.took.send(Duration::from_nanos(now.saturating_sub(written)))),
        }
    }

    fn write(&self, number: usize) {
        self.written[number].store(self.now(), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.base.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Writes at this rate, with one writer for each write per millisecond, and returns the latencies of the reconciles.
pub(super) async fn measure(
    client: Client,
    per_second: usize,
    stamps: WriteTimes,
    mut measured: mpsc::UnboundedReceiver<Duration>,
) -> anyhow::Result<Measurements> {
    let writers = per_second / 1_000;
    let mut writing = JoinSet::new();
    for writer in 0..writers {
        let (client, stamps) = (client.clone(), stamps.clone());
        writing.spawn(async move {
            let mut pace = interval(Duration::from_millis(1));
            for turn in 0..SECONDS * 1_000 {
                pace.tick().await;
                let number = (turn * writers + writer) % CHANGING;
                stamps.write(number);
                let patch = json!({ "data": { "turn": turn.to_string() } });
                merge::<ConfigMap>(&client, &object_name(number), patch).await?;
            }
            anyhow::Ok(())
        });
    }
    let start = Instant::now();
    while let Some(ended) = writing.join_next().await {
        ended??;
    }
    let (spent, planned) = (start.elapsed(), Duration::from_secs(SECONDS as u64));
    if spent > planned + planned / 10 {
        eprintln!(
            "the machine is too busy for {per_second} writes per second: {SECONDS} s of them took {spent:?}"
        );
    }
    // Reconciles that are still outstanding.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut took = Vec::new();
    while let Ok(one) = measured.try_recv() {
        took.push(one);
    }
    measurements::latency(took)
}
