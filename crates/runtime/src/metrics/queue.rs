//! Work queue metrics, with client-go's names and controller-runtime's labels.

use std::{collections::HashMap, sync::Arc, sync::atomic::AtomicU64, time::Duration};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use windlass_workqueue::{Priority, metrics as names};

use super::histogram::DurationHistogram;

/// Maximum number of priorities with a series of their own; the rest share one, as in controller-runtime, to limit
/// cardinality.
const MAX_PRIORITY_SERIES: usize = 25;

/// The label of the shared series.
const OTHER_PRIORITIES_LABEL: &str = "exceeded_cardinality_limit";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    name: String,
    controller: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DepthLabels {
    name: String,
    controller: String,
    priority: String,
}

type Seconds = Gauge<f64, AtomicU64>;

/// The metric families; each queue has a series in each.
#[derive(Debug)]
pub(super) struct QueueFamilies {
    depth: Family<DepthLabels, Gauge>,
    adds: Family<Labels, Counter>,
    queued: Family<Labels, DurationHistogram, fn() -> DurationHistogram>,
    worked: Family<Labels, DurationHistogram, fn() -> DurationHistogram>,
    unfinished: Family<Labels, Seconds>,
    longest: Family<Labels, Seconds>,
    retries: Family<Labels, Counter>,
    dropped: Family<Labels, Counter>,
}

impl QueueFamilies {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let durations: fn() -> _ = || DurationHistogram::new(&duration_bounds());
        let families = Self {
            depth: Family::default(),
            adds: Family::default(),
            queued: Family::new_with_constructor(durations),
            worked: Family::new_with_constructor(durations),
            unfinished: Family::default(),
            longest: Family::default(),
            retries: Family::default(),
            dropped: Family::default(),
        };
        registry.register(names::DEPTH, "Queued keys, by priority", families.depth.clone());
        registry.register(
            counter(names::ADDS),
            "Keys added to the queue",
            families.adds.clone(),
        );
        registry.register(
            names::QUEUE_DURATION,
            "Time that keys waited in the queue",
            families.queued.clone(),
        );
        registry.register(
            names::WORK_DURATION,
            "Time that keys were processed",
            families.worked.clone(),
        );
        registry.register(
            names::UNFINISHED_WORK,
            "Total time that running keys have been processed",
            families.unfinished.clone(),
        );
        registry.register(
            names::LONGEST_RUNNING,
            "Time that the longest running key has been processed",
            families.longest.clone(),
        );
        registry.register(
            counter(names::RETRIES),
            "Keys requeued with a delay",
            families.retries.clone(),
        );
        registry.register(
            counter(names::DROPPED),
            "Keys dropped after too many retries",
            families.dropped.clone(),
        );
        families
    }

    pub(super) fn queue(&self, name: &str) -> Arc<dyn windlass_workqueue::Metrics> {
        let labels = Labels {
            name: name.to_owned(),
            controller: name.to_owned(),
        };
        let normal = self.depth.get_or_create_owned(&depth_labels(name, "0"));
        Arc::new(QueueMetrics {
            name: name.to_owned(),
            depths: self.depth.clone(),
            known: Mutex::new(Depths {
                own: HashMap::from([(Priority::NORMAL, normal)]),
                others: HashMap::new(),
            }),
            adds: self.adds.get_or_create_owned(&labels),
            queued: self.queued.get_or_create_owned(&labels),
            worked: self.worked.get_or_create_owned(&labels),
            unfinished: self.unfinished.get_or_create_owned(&labels),
            longest: self.longest.get_or_create_owned(&labels),
            retries: self.retries.get_or_create_owned(&labels),
            dropped: self.dropped.get_or_create_owned(&labels),
        })
    }
}

/// [`DURATION_BUCKETS`](names::DURATION_BUCKETS), computed by repeated multiplication like controller-runtime's, so that some
/// differ in the last digit (`9.999999999999999e-06`). A bound is a label, so sums over controllers of both toolkits need
/// equal bounds.
fn duration_bounds() -> Vec<f64> {
    let bounds = std::iter::successors(Some(names::DURATION_BUCKETS[0]), |bound| Some(bound * 10.0));
    bounds.take(names::DURATION_BUCKETS.len()).collect()
}

/// The name without `_total`, which the library appends.
fn counter(name: &str) -> &str {
    name.strip_suffix("_total").unwrap_or(name)
}

fn depth_labels(name: &str, priority: &str) -> DepthLabels {
    DepthLabels {
        name: name.to_owned(),
        controller: name.to_owned(),
        priority: priority.to_owned(),
    }
}

struct QueueMetrics {
    name: String,
    depths: Family<DepthLabels, Gauge>,
    /// Uncontended: the queue reports its metrics sequentially.
    known: Mutex<Depths>,
    adds: Counter,
    queued: DurationHistogram,
    worked: DurationHistogram,
    unfinished: Seconds,
    longest: Seconds,
    retries: Counter,
    dropped: Counter,
}

struct Depths {
    /// Priorities with a series of their own.
    own: HashMap<Priority, Gauge>,
    /// The depths above zero of the priorities that share a series.
    others: HashMap<Priority, usize>,
}

impl windlass_workqueue::Metrics for QueueMetrics {
    fn depth(&self, priority: Priority, depth: usize) {
        let mut known = self.known.lock();
        if let Some(gauge) = known.own.get(&priority) {
            gauge.set(signed(depth));
        } else if known.own.len() < MAX_PRIORITY_SERIES {
            let labels = depth_labels(&self.name, &priority.to_string());
            let gauge = self.depths.get_or_create_owned(&labels);
            gauge.set(signed(depth));
            known.own.insert(priority, gauge);
        } else {
            match depth {
                0 => known.others.remove(&priority),
                _ => known.others.insert(priority, depth),
            };
            let total = known.others.values().sum();
            let labels = depth_labels(&self.name, OTHER_PRIORITIES_LABEL);
            self.depths.get_or_create(&labels).set(signed(total));
        }
    }

    fn added(&self) {
        self.adds.inc();
    }

    fn started(&self, queued: Duration) {
        self.queued.observe(queued);
    }

    fn finished(&self, worked: Duration) {
        self.worked.observe(worked);
    }

    fn retried(&self) {
        self.retries.inc();
    }

    fn dropped(&self) {
        self.dropped.inc();
    }

    fn running(&self, unfinished: Duration, longest: Duration) {
        self.unfinished.set(unfinished.as_secs_f64());
        self.longest.set(longest.as_secs_f64());
    }
}

fn signed(depth: usize) -> i64 {
    i64::try_from(depth).unwrap_or(i64::MAX)
}
