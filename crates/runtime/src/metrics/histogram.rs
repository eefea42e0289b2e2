//! A lock-free histogram of durations.
//!
//! The histogram of `prometheus_client` takes a mutex for each observation; a controller's workers would contend for it
//! after every reconcile.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::{MetricType, TypedMetric},
};

/// A lock-free histogram of durations. Clones share the buckets.
#[derive(Clone, Debug)]
pub struct DurationHistogram(Arc<Buckets>);

#[derive(Debug)]
struct Buckets {
    /// Upper bounds in seconds, ascending.
    bounds: Box<[f64]>,
    /// The same in nanoseconds, for comparisons.
    nanos: Box<[u64]>,
    /// One more than there are bounds: the last is `+Inf`. Not cumulative.
    counts: Box<[AtomicU64]>,
    /// Overflows after five centuries.
    sum_nanos: AtomicU64,
}

impl DurationHistogram {
    /// Creates a histogram with these upper bounds in seconds, in ascending order.
    pub fn new(bounds: &[f64]) -> Self {
        debug_assert!(bounds.is_sorted(), "upper bounds must be in ascending order");
        Self(Arc::new(Buckets {
            bounds: bounds.into(),
            nanos: bounds
                .iter()
                .map(|&bound| nanos(Duration::try_from_secs_f64(bound).unwrap_or(Duration::MAX)))
                .collect(),
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum_nanos: AtomicU64::new(0),
        }))
    }

    /// Records one duration.
    pub fn observe(&self, duration: Duration) {
        let duration = nanos(duration);
        let bucket = self.0.nanos.partition_point(|&bound| bound < duration);
        self.0.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum_nanos.fetch_add(duration, Ordering::Relaxed);
    }

    /// Number of recorded durations.
    pub fn count(&self) -> u64 {
        self.0
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl TypedMetric for DurationHistogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for DurationHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let sum = Duration::from_nanos(self.0.sum_nanos.load(Ordering::Relaxed));
        let bounds = self.0.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = self.0.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<_> = bounds.zip(counts).collect();
        // Computed from the buckets just read: some scrapers reject a count that differs from the buckets.
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(sum.as_secs_f64(), count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::*;

    #[test]
    fn duration_is_counted_in_the_smallest_matching_bucket() {
        let histogram = DurationHistogram::new(&[1e-8, 0.005, 1.0]);
        for nanos in [10, 11, 5_000_000, 5_000_001, 1_000_000_000, 7_000_000_000] {
            histogram.observe(Duration::from_nanos(nanos));
        }
        let mut registry = Registry::default();
        registry.register("time_seconds", "Time", histogram.clone());
        let mut text = String::new();
        encode(&mut text, &registry).expect("writing to a String succeeds");
        for line in [
            r#"time_seconds_bucket{le="1e-8"} 1"#,
            r#"time_seconds_bucket{le="0.005"} 3"#,
            r#"time_seconds_bucket{le="1.0"} 5"#,
            r#"time_seconds_bucket{le="+Inf"} 6"#,
            "time_seconds_count 6",
            "time_seconds_sum 8.010000022",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert_eq!(histogram.count(), 6);
    }
}
