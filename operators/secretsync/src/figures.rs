//! What it shows of itself: metrics, and whether it still gets on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use windlass::runtime::metrics::{DurationHistogram, Metrics, Reading};

use crate::engine::Engine;

/// From a tenth of a second to an hour.
const LAG: [f64; 12] = [
    0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
];

/// What is counted.
pub(crate) struct Figures {
    /// From a source's change to the last of its copies.
    pub(crate) lag: DurationHistogram,
    conflicts: AtomicU64,
    writes: [AtomicU64; 3],
}

/// What is done to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Update,
    Delete,
}

impl Verb {
    const ALL: [(Self, &'static str); 3] = [
        (Self::Create, "create"),
        (Self::Update, "update"),
        (Self::Delete, "delete"),
    ];
}

impl Figures {
    pub(crate) fn new() -> Self {
        Self {
            lag: DurationHistogram::new(&LAG),
            conflicts: AtomicU64::new(0),
            writes: Default::default(),
        }
    }

    pub(crate) fn wrote(&self, verb: Verb) {
        self.writes[verb as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn conflicted(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }
}

/// Adds the engine's figures to those of the process.
pub(crate) fn show(metrics: &Metrics, engine: &Arc<Engine>) {
    let lag = engine.figures.lag.clone();
    metrics.register(|registry| {
        registry.register(
            "secretsync_lag_seconds",
            "From a change of a source until all of its copies are as they should be",
            lag,
        );
    });
    let shown = Arc::clone(engine);
    metrics.read_gauge("secretsync_targets", "Copies by state", move || {
        let totals = shown.ledger.lock().totals();
        let states = [
            ("synced", totals.synced),
            ("failed", totals.failed),
            ("conflict", totals.conflicts),
            ("pending", totals.waiting),
        ];
        #[allow(clippy::cast_precision_loss, reason = "there are fewer than 2^52 objects")]
        states.map(|(state, count)| Reading::new(count as f64).label("state", state))
    });
    let shown = Arc::clone(engine);
    metrics.read_counter(
        "secretsync_conflicts",
        "Objects found in the way of a copy",
        move || [Reading::new(shown.figures.conflicts.load(Ordering::Relaxed))],
    );
    let shown = Arc::clone(engine);
    metrics.read_counter("secretsync_writes", "Writes of copies", move || {
        Verb::ALL.map(|(verb, name)| {
            let count = shown.figures.writes[verb as usize].load(Ordering::Relaxed);
            Reading::new(count).label("verb", name)
        })
    });
}

/// Whether something has waited for longer than `limit` while nothing was done.
pub(crate) fn check_progress(engine: &Engine, limit: Duration) -> Result<(), String> {
    let ledger = engine.ledger.lock();
    let stalled = ledger.stalled_for();
    // Whoever does not lead does nothing, and should not.
    if stalled <= limit || !engine.leads.load(Ordering::Relaxed) {
        return Ok(());
    }
    Err(format!(
        "{} pieces of work wait, and nothing was done for {stalled:?}",
        ledger.totals().waiting
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        api::SourceKind,
        identity::SyncId,
        roster::{Limits, Scope},
    };

    #[tokio::test(start_paused = true)]
    async fn only_a_leader_can_stall() {
        let scope = Scope {
            source_namespace: "home".into(),
            annotation: "sync".into(),
            allowed: BTreeSet::new(),
            within: BTreeSet::new(),
            limits: Limits {
                sources: 1,
                copies: 1,
                content: 1,
            },
        };
        let engine = Engine::new(scope, Figures::new());
        let sync = SyncId::Annotated {
            kind: SourceKind::Secret,
            name: "a".into(),
        };
        engine.ledger.lock().ask(&sync, &"n".into(), false);
        let limit = Duration::from_mins(1);
        tokio::time::advance(2 * limit).await;
        assert_eq!(check_progress(&engine, limit), Ok(()));
        engine.leads.store(true, Ordering::Relaxed);
        let stalled = check_progress(&engine, limit).expect_err("nothing was done");
        assert!(stalled.starts_with("1 pieces of work wait"), "{stalled}");
        assert_eq!(check_progress(&engine, 3 * limit), Ok(()));
    }
}
