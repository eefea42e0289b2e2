//! What a controller counts, by the names that controller-runtime's dashboards know.

use std::{num::NonZeroUsize, sync::Arc};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use tokio::time::Instant;

use super::histogram::DurationHistogram;
use crate::outcomes::Outcome;

/// Upper bounds in seconds of `controller_runtime_reconcile_time_seconds`: controller-runtime's.
const RECONCILE_TIME_BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

/// The figures of one controller, from [`Metrics::controller`](super::Metrics::controller). Every series is there from
/// the start with zero, so that a rate over it has a beginning. Counting takes no lock; a clone counts into the same.
#[derive(Clone, Debug)]
pub struct ControllerMetrics(Arc<Series>);

#[derive(Debug)]
struct Series {
    success: Counter,
    /// Controller-runtime's `requeue` without a time, which no reconcile here asks for: zero.
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
    /// A reconcile starts now. It counts as active, and its time runs, until the guard goes.
    pub fn start(&self) -> ActiveReconcile {
        self.0.active.inc();
        ActiveReconcile {
            series: Arc::clone(&self.0),
            started: Instant::now(),
        }
    }

    /// Counts how a reconcile ended.
    pub fn count(&self, outcome: Outcome) {
        let series = &*self.0;
        let failed = |kind: Option<&Counter>| {
            kind.map(Counter::inc);
            series.errors.inc();
            series.error.inc();
        };
        match outcome {
            Outcome::Done => drop(series.success.inc()),
            Outcome::Requeued => drop(series.requeue_after.inc()),
            Outcome::Failed => failed(None),
            Outcome::Terminal => failed(Some(&series.terminal)),
            Outcome::Panicked => failed(Some(&series.panics)),
            Outcome::TimedOut => failed(Some(&series.timeouts)),
        }
    }
}

/// A reconcile that runs, from [`ControllerMetrics::start`]. Also right when the reconcile is dropped half-way.
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

/// The families; each controller has one series or a few in each.
#[derive(Debug)]
pub(super) struct Controllers {
    total: Family<ResultLabels, Counter>,
    errors: Family<Labels, Counter>,
    terminal: Family<Labels, Counter>,
    panics: Family<Labels, Counter>,
    timeouts: Family<Labels, Counter>,
    time: Family<Labels, DurationHistogram, fn() -> DurationHistogram>,
    workers: Family<Labels, Gauge>,
    active: Family<Labels, Gauge>,
}

impl Controllers {
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
        registry.register(
            "reconcile",
            "Reconciles, by how they ended",
            families.total.clone(),
        );
        registry.register(
            "reconcile_errors",
            "Reconciles that failed",
            families.errors.clone(),
        );
        registry.register(
            "terminal_reconcile_errors",
            "Reconciles that failed for good",
            families.terminal.clone(),
        );
        registry.register(
            "reconcile_panics",
            "Reconciles that panicked",
            families.panics.clone(),
        );
        registry.register(
            "reconcile_timeouts",
            "Reconciles that ran longer than allowed",
            families.timeouts.clone(),
        );
        registry.register(
            "reconcile_time_seconds",
            "Time a reconcile took",
            families.time.clone(),
        );
        registry.register(
            "max_concurrent_reconciles",
            "Reconciles that may run at the same time",
            families.workers.clone(),
        );
        registry.register(
            "active_workers",
            "Reconciles that run now",
            families.active.clone(),
        );
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
