//! Controller metrics, with controller-runtime's names.

use std::{num::NonZeroUsize, sync::Arc};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use tokio::time::Instant;

use super::histogram::DurationHistogram;
use crate::outcomes::ReconcileOutcome;

/// Upper bounds in seconds of `controller_runtime_reconcile_time_seconds`, as in controller-runtime.
const RECONCILE_TIME_BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

/// Metrics of one controller, from [`Metrics::controller`](super::Metrics::controller). Every series starts with zero, so
/// that rates are right from the first event. Counting takes no lock. Clones share the series.
#[derive(Clone, Debug)]
pub struct ControllerMetrics(Arc<Series>);

#[derive(Debug)]
struct Series {
    success: Counter,
    /// controller-runtime's `requeue` without a delay, which does not exist here: always zero.
    _requeue: Counter,
    requeue_after: Counter,
    error: Counter,
    errors: Counter,
    terminal: Counter,
    panics: Counter,
    timeouts: Counter,
    time: DurationHistogram,
    active: Gauge,
}

impl ControllerMetrics {
    /// Starts a reconcile: it is active, and its time is measured, until the guard is dropped.
    pub fn start(&self) -> ActiveReconcile {
        self.0.active.inc();
        ActiveReconcile {
            series: Arc::clone(&self.0),
            started: Instant::now(),
        }
    }

    /// Counts a finished reconcile.
    pub fn count(&self, outcome: ReconcileOutcome) {
        let series = &*self.0;
        let failed = |kind: Option<&Counter>| {
            kind.map(Counter::inc);
            series.errors.inc();
            series.error.inc();
        };
        match outcome {
            ReconcileOutcome::Done => drop(series.success.inc()),
            ReconcileOutcome::Requeued => drop(series.requeue_after.inc()),
            ReconcileOutcome::Failed => failed(None),
            ReconcileOutcome::Terminal => failed(Some(&series.terminal)),
            ReconcileOutcome::Panicked => failed(Some(&series.panics)),
            ReconcileOutcome::TimedOut => failed(Some(&series.timeouts)),
        }
    }
}

/// Guard of a running reconcile, from [`ControllerMetrics::start`]. Also correct if the reconcile is cancelled.
#[must_use = "the reconcile is active as long as this is held"]
#[derive(Debug)]
pub struct ActiveReconcile {
    series: Arc<Series>,
    started: Instant,
}

impl Drop for ActiveReconcile {
    fn drop(&mut self) {
        self.series.time.observe(self.started.elapsed());
        self.series.active.dec();
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    controller: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    controller: String,
    result: &'static str,
}

/// The metric families; each controller has one or more series in each.
#[derive(Debug)]
pub(super) struct ControllerFamilies {
    total: Family<ResultLabels, Counter>,
    errors: Family<Labels, Counter>,
    terminal: Family<Labels, Counter>,
    panics: Family<Labels, Counter>,
    timeouts: Family<Labels, Counter>,
    time: Family<Labels, DurationHistogram, fn() -> DurationHistogram>,
    workers: Family<Labels, Gauge>,
    active: Family<Labels, Gauge>,
}

impl ControllerFamilies {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let families = Self {
            total: Family::default(),
            errors: Family::default(),
            terminal: Family::default(),
            panics: Family::default(),
            timeouts: Family::default(),
            time: Family::new_with_constructor(|| DurationHistogram::new(&RECONCILE_TIME_BUCKETS)),
            workers: Family::default(),
            active: Family::default(),
        };
        // The library appends `_total` to counters.
        let registry = registry.sub_registry_with_prefix("controller_runtime");
        registry.register("reconcile", "Reconciles by result", families.total.clone());
        registry.register(
            "reconcile_errors",
            "Reconciles that failed",
            families.errors.clone(),
        );
        registry.register(
            "terminal_reconcile_errors",
            "Reconciles that failed with a terminal error",
            families.terminal.clone(),
        );
        registry.register(
            "reconcile_panics",
            "Reconciles that panicked",
            families.panics.clone(),
        );
        registry.register(
            "reconcile_timeouts",
            "Reconciles that timed out",
            families.timeouts.clone(),
        );
        registry.register(
            "reconcile_time_seconds",
            "Duration of reconciles",
            families.time.clone(),
        );
        registry.register(
            "max_concurrent_reconciles",
            "Maximum number of concurrent reconciles",
            families.workers.clone(),
        );
        registry.register("active_workers", "Running reconciles", families.active.clone());
        families
    }

    pub(super) fn controller(&self, name: &str, workers: NonZeroUsize) -> ControllerMetrics {
        let labels = Labels {
            controller: name.to_owned(),
        };
        let result = |result| {
            self.total.get_or_create_owned(&ResultLabels {
                controller: name.to_owned(),
                result,
            })
        };
        let workers = i64::try_from(workers.get()).unwrap_or(i64::MAX);
        self.workers.get_or_create(&labels).set(workers);
        ControllerMetrics(Arc::new(Series {
            success: result("success"),
            _requeue: result("requeue"),
            requeue_after: result("requeue_after"),
            error: result("error"),
            errors: self.errors.get_or_create_owned(&labels),
            terminal: self.terminal.get_or_create_owned(&labels),
            panics: self.panics.get_or_create_owned(&labels),
            timeouts: self.timeouts.get_or_create_owned(&labels),
            time: self.time.get_or_create_owned(&labels),
            active: self.active.get_or_create_owned(&labels),
        }))
    }
}
