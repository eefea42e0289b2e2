//! Reconciles all objects again, in rounds.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::bail;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use windlass_bench::cases::Measurements;

use super::{OBJECTS, TRIGGER, cluster::merge, measurements};

/// Minimum time over which the rate is measured.
const MIN_MEASURED: Duration = Duration::from_secs(1);

/// A process is idle if it uses less than this CPU time within this interval.
const IDLE_INTERVAL: Duration = Duration::from_millis(250);
const IDLE_CPU_MICROS: f64 = 10_000.0;

/// Number of intervals after which a process that is not idle counts as stuck.
const MAX_IDLE_CHECKS: usize = 120;

/// Limit for one round.
const ROUND_TIMEOUT: Duration = Duration::from_mins(1);

/// Tracks the current round, the total number of reconciles, and the time of the last round.
pub(super) struct Rounds {
    /// Number of objects per round.
    objects: usize,
    settling: Duration,
    round: AtomicUsize,
    reconciled: AtomicUsize,
    /// End of the round's first reconcile.
    first: Mutex<Instant>,
    /// Number of finished rounds, and the time from the first to the last reconcile of the last one.
    ended: watch::Sender<(usize, Duration)>,
}

impl Rounds {
    pub(super) fn new(objects: usize, settling: Duration) -> Arc<Self> {
        Arc::new(Self {
            objects,
            settling,
            round: AtomicUsize::new(0),
            reconciled: AtomicUsize::new(0),
            first: Mutex::new(Instant::now()),
            ended: watch::Sender::default(),
        })
    }

    /// Whether this state of the trigger starts the current round: mappings also get the previous state.
    pub(super) fn is_started_by(&self, trigger: &Secret) -> bool {
        let round = stamp(self.round.load(Ordering::Relaxed));
        trigger.annotations().get("round") == Some(&round)
    }

    /// For cases that write: returns the patch for this object, if this is its first reconcile in the round.
    pub(super) fn mark(&self, config: &ConfigMap) -> Option<Value> {
        let round = self.round.load(Ordering::Relaxed);
        if round == 0 {
            // Count the initial objects, so that the rounds start after them.
            self.reconciled();
            return None;
        }
        let mark = stamp(round);
        let marked = config.annotations().get("mark") == Some(&mark);
        (!marked).then(|| json!({ "metadata": { "annotations": { "mark": mark } } }))
    }

    /// Must be called at the end of each reconcile, or of each one that has written.
    pub(super) fn reconciled(&self) {
        let count = self.reconciled.fetch_add(1, Ordering::Relaxed) + 1;
        match count % self.objects {
            1 => *self.first() = Instant::now(),
            0 => {
                let took = self.first().elapsed();
                self.ended.send_replace((count / self.objects, took));
            }
            _ => {}
        }
    }

    /// Measures rounds, once every object was reconciled for the first time. The trigger's own latency is not counted.
    pub(super) async fn measure(&self, client: &Client) -> anyhow::Result<Measurements> {
        wait_until_idle(&self.reconciled, OBJECTS, self.settling).await?;
        // By now, as many objects as in a round may have been reconciled.
        self.reconciled.store(0, Ordering::Relaxed);
        self.ended.send_replace((0, Duration::ZERO));
        let mut ended = self.ended.subscribe();
        let (mut spent, mut reconciles) = (Duration::ZERO, 0);
        let started = measurements::cpu_micros()?;
        while spent < MIN_MEASURED {
            let round = self.round.fetch_add(1, Ordering::Relaxed) + 1;
            let patch = json!({ "metadata": { "annotations": { "round": stamp(round) } } });
            merge::<Secret>(client, TRIGGER, patch).await?;
            let Ok(last) = timeout(ROUND_TIMEOUT, ended.wait_for(|(rounds, _)| *rounds == round)).await
            else {
                let (done, all) = (self.reconciled.load(Ordering::Relaxed), round * self.objects);
                bail!("round {round} timed out: {done} of {all} reconciles were done");
            };
            spent += last?.1;
            reconciles += self.objects - 1;
        }
        measurements::rate(reconciles, spent, measurements::cpu_micros()? - started)
    }

    fn first(&self) -> MutexGuard<'_, Instant> {
        self.first.lock().expect("not poisoned")
    }
}

/// Returns a value that no other measurement writes.
pub(super) fn stamp(number: usize) -> String {
    format!("{}-{number}", std::process::id())
}

/// Waits until the expected number is counted and stays the same, then for the contender's settling time, and then
/// until the process is idle.
pub(super) async fn wait_until_idle(
    counted: &AtomicUsize,
    expected: usize,
    settling: Duration,
) -> anyhow::Result<()> {
    loop {
        let before = counted.load(Ordering::Relaxed);
        sleep(IDLE_INTERVAL).await;
        let now = counted.load(Ordering::Relaxed);
        if now >= expected && now == before {
            break;
        }
    }
    sleep(settling).await;
    for _ in 0..MAX_IDLE_CHECKS {
        let before = measurements::cpu_micros()?;
        sleep(IDLE_INTERVAL).await;
        if measurements::cpu_micros()? - before <= IDLE_CPU_MICROS {
            return Ok(());
        }
    }
    bail!("the controller does not become idle");
}
