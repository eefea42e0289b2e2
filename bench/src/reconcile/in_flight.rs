//! Changes one object while many others are being reconciled.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use serde_json::json;
use tokio::{sync::mpsc, time::sleep};
use windlass_bench::cases::Measurements;

use super::{
    OBJECTS, PROBES,
    cluster::merge,
    measurements, object_name,
    rounds::{stamp, wait_until_idle},
};

/// Reconciles that never end, and the one that is measured.
pub(super) struct InFlight {
    /// Reconciles of objects with names before this one never end.
    endless: String,
    probe: String,
    settling: Duration,
    seen: AtomicUsize,
    measuring: AtomicBool,
    started: mpsc::Sender<Instant>,
}

impl InFlight {
    pub(super) fn new(in_flight: usize, settling: Duration) -> (Arc<Self>, mpsc::Receiver<Instant>) {
        let (started, starts) = mpsc::channel(16);
        let tracker = Self {
            endless: object_name(in_flight),
            probe: object_name(OBJECTS - 1),
            settling,
            seen: AtomicUsize::new(0),
            measuring: AtomicBool::new(false),
            started,
        };
        (Arc::new(tracker), starts)
    }

    /// Must be awaited at the start of each reconcile.
    pub(super) async fn reconcile(&self, name: &str) {
        let now = Instant::now();
        self.seen.fetch_add(1, Ordering::Relaxed);
        if name == self.probe {
            if self.measuring.load(Ordering::Relaxed) {
                self.started.send(now).await.ok();
            }
        } else if name < self.endless.as_str() {
            pending::<()>().await;
        }
    }

    /// Measures once all other reconciles are in flight or done.
    pub(super) async fn measure(
        &self,
        client: &Client,
        mut starts: mpsc::Receiver<Instant>,
    ) -> anyhow::Result<Measurements> {
        wait_until_idle(&self.seen, OBJECTS, self.settling).await?;
        self.measuring.store(true, Ordering::Relaxed);
        let mut took = Vec::new();
        for probe in 0..PROBES {
            let begun = Instant::now();
            let patch = json!({ "data": { "probe": stamp(probe) } });
            merge::<ConfigMap>(client, &self.probe, patch).await?;
            let started = starts.recv().await.context("the controller has stopped")?;
            took.push(started - begun);
            sleep(Duration::from_millis(2)).await;
        }
        measurements::latency(took)
    }
}
