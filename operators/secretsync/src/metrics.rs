//! Metrics, and the health check that detects a stall.

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
const PROPAGATION_BUCKETS: [f64; 12] = [
    0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0,
];

/// The operator's own metrics.
pub(crate) struct SyncMetrics {
    /// Time from a source's change until its last copy is written.
    pub(crate) propagation: DurationHistogram,
    conflicts: AtomicU64,
    writes: [AtomicU64; 3],
}

/// A write to a copy.
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

impl SyncMetrics {
    pub(crate) fn new() -> Self {
        Self {
            propagation: DurationHistogram::new(&PROPAGATION_BUCKETS),
            conflicts: AtomicU64::new(0),
            writes: Default::default(),
        }
    }

    pub(crate) fn record_write(&self, verb: Verb) {
        self.writes[verb as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_conflict(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn register(metrics: &Metrics, engine: &Arc<Engine>) {
    let lag = engine.metrics.propagation.clone();
    metrics.register(|registry| {
        registry.register(
            "windlass_secretsync_propagation_seconds",
            "Time from a change of a source until all of its copies are up to date",
            lag,
        );
    });
    let shown = Arc::clone(engine);
    metrics.read_gauge("windlass_secretsync_copies", "Copies by state", move || {
        let totals = shown.tracker.lock().totals();
        let states = [
            ("synced", totals.synced),
            ("failed", totals.failed),
            ("conflict", totals.conflicts),
            ("pending", totals.pending),
        ];
        #[allow(clippy::cast_precision_loss, reason = "there are fewer than 2^52 objects")]
        states.map(|(state, count)| Reading::new(count as f64).label("state", state))
    });
    let shown = Arc::clone(engine);
    metrics.read_counter(
        "windlass_secretsync_conflicts",
        "Conflicts with existing objects",
        move || [Reading::new(shown.metrics.conflicts.load(Ordering::Relaxed))],
    );
    let shown = Arc::clone(engine);
    metrics.read_counter(
        "windlass_secretsync_events_dropped",
        "Events in target namespaces that were not recorded, because too many waited",
        move || {
            [Reading::new(
                shown.action_events.dropped() + shown.failure_events.dropped(),
            )]
        },
    );
    let shown = Arc::clone(engine);
    metrics.read_counter("windlass_secretsync_writes", "Writes of copies", move || {
        Verb::ALL.map(|(verb, name)| {
            let count = shown.metrics.writes[verb as usize].load(Ordering::Relaxed);
            Reading::new(count).label("verb", name)
        })
    });
}

/// Fails if work has been pending for longer than `limit` without any progress.
pub(crate) fn check_progress(engine: &Engine, limit: Duration) -> Result<(), String> {
    let tracker = engine.tracker.lock();
    let stalled = tracker.stalled_for();
    // Only the leader does any work.
    if stalled <= limit || !engine.is_leader.load(Ordering::Relaxed) {
        return Ok(());
    }
    Err(format!(
        "{} queue items are pending, without progress for {stalled:?}",
        tracker.totals().pending
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        api::SourceKind,
        identity::SyncId,
        sync_index::{Limits, OperatorConfig},
    };

    #[tokio::test(start_paused = true)]
    async fn stall_is_reported_only_by_the_leader() {
        let scope = OperatorConfig {
            source_namespace: "home".into(),
            annotation: "sync".into(),
            allowed_system_namespaces: BTreeSet::new(),
            restricted_to: BTreeSet::new(),
            limits: Limits {
                sources: 1,
                copies: 1,
                content: 1,
                removal_percent: 50,
            },
        };
        let engine = Engine::new(scope, SyncMetrics::new());
        let sync = SyncId::Annotated {
            kind: SourceKind::Secret,
            name: "a".into(),
        };
        engine.tracker.lock().mark_pending(&sync, &"n".into(), false);
        let limit = Duration::from_mins(1);
        tokio::time::advance(2 * limit).await;
        assert_eq!(check_progress(&engine, limit), Ok(()));
        engine.is_leader.store(true, Ordering::Relaxed);
        let stalled = check_progress(&engine, limit).expect_err("nothing was done");
        assert!(stalled.starts_with("1 queue items are pending"), "{stalled}");
        assert_eq!(check_progress(&engine, 3 * limit), Ok(()));
    }
}
