//! Everything is reconciled again, round after round.

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
use windlass_bench::cases::Figures;

use super::{OBJECTS, TRIGGER, cluster::merge, figures};

/// How long reconciles are let run again before their rate is told.
const LONG_ENOUGH: Duration = Duration::from_secs(1);

/// How long nothing is done by who is at rest, but for this.
const MOMENT: Duration = Duration::from_millis(250);
const RESTING_MICROS: f64 = 10_000.0;

/// Who is at rest in none of so many moments never will be.
const MOMENTS: usize = 120;

/// A round that takes longer never ends.
const TOO_LONG: Duration = Duration::from_mins(1);

/// Which round it is, how many reconciles there were in all of them, and how long the last one took.
pub(super) struct Rounds {
    /// How many objects are reconciled in a round.
    objects: usize,
    settling: Duration,
    round: AtomicUsize,
    reconciled: AtomicUsize,
    /// When the first reconcile of the round ended.
    first: Mutex<Instant>,
    /// How many rounds have ended, and how long it was from the first reconcile of the last one to its last.
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

    /// Whether this is the state of the trigger that begins the round: a mapping is also asked about the one before.
    pub(super) fn is_begun_by(&self, trigger: &Secret) -> bool {
        let round = stamp(self.round.load(Ordering::Relaxed));
        trigger.annotations().get("round") == Some(&round)
    }

    /// Where reconciles write: what this one has to, if it is the first of the object in its round.
    pub(super) fn mark(&self, config: &ConfigMap) -> Option<Value> {
        let round = self.round.load(Ordering::Relaxed);
        if round == 0 {
            // What is there at the start is counted, so that the rounds begin after it.
            self.reconciled();
            return None;
        }
        let mark = stamp(round);
        let marked = config.annotations().get("mark") == Some(&mark);
        (!marked).then(|| json!({ "metadata": { "annotations": { "mark": mark } } }))
    }

    /// To be called at the end of a reconcile, or of one that has written.
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

    /// Measures, once every object has been reconciled for the first time. The trigger's way is not counted.
    pub(super) async fn measure(&self, client: &Client) -> anyhow::Result<Figures> {
        quiet(&self.reconciled, OBJECTS, self.settling).await?;
        // As many as in a round may have been reconciled by now.
        self.reconciled.store(0, Ordering::Relaxed);
        self.ended.send_replace((0, Duration::ZERO));
        let mut ended = self.ended.subscribe();
        let (mut spent, mut reconciles) = (Duration::ZERO, 0);
        let started = figures::cpu_micros()?;
        while spent < LONG_ENOUGH {
            let round = self.round.fetch_add(1, Ordering::Relaxed) + 1;
            let patch = json!({ "metadata": { "annotations": { "round": stamp(round) } } });
            merge::<Secret>(client, TRIGGER, patch).await?;
            let Ok(last) = timeout(TOO_LONG, ended.wait_for(|(rounds, _)| *rounds == round)).await else {
                let (done, all) = (self.reconciled.load(Ordering::Relaxed), round * self.objects);
                bail!("round {round} does not end: {done} of {all} reconciles were done");
            };
            spent += last?.1;
            reconciles += self.objects - 1;
        }
        figures::rate(reconciles, spent, figures::cpu_micros()? - started)
    }

    fn first(&self) -> MutexGuard<'_, Instant> {
        self.first.lock().expect("nobody panics with it")
    }
}

/// A text that no other measurement writes.
pub(super) fn stamp(number: usize) -> String {
    format!("{}-{number}", std::process::id())
}

/// Returns when so many have been counted and no more are, and then, after the time that the contender needs to settle, the
/// process is at rest.
pub(super) async fn quiet(counted: &AtomicUsize, expected: usize, settling: Duration) -> anyhow::Result<()> {
    loop {
        let before = counted.load(Ordering::Relaxed);
        sleep(MOMENT).await;
        let now = counted.load(Ordering::Relaxed);
        if now >= expected && now == before {
            break;
        }
    }
    sleep(settling).await;
    for _ in 0..MOMENTS {
        let before = figures::cpu_micros()?;
        sleep(MOMENT).await;
        if figures::cpu_micros()? - before <= RESTING_MICROS {
            return Ok(());
        }
    }
    bail!("the controller is never at rest");
}
