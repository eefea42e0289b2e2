//! A histogram of durations that many workers fill at once without a lock.
//!
//! The library's own histogram takes a mutex for each observation; a controller's workers would meet at it after every
//! reconcile.

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

/// How long things took, counted in buckets. A clone fills the same buckets.
#[derive(Clone, Debug)]
pub struct DurationHistogram(Arc<Buckets>);

#[derive(Debug)]
struct Buckets {
    /// Upper bounds, ascending, in seconds as they are shown.
    bounds: Box<[f64]>,
    /// The same in nanoseconds, as they are compared.
    nanos: Box<[u64]>,
    /// One more than there are bounds: the last takes what is above them all. Not cumulative.
    counts: Box<[AtomicU64]>,
    /// Enough for five centuries.
    sum_nanos: AtomicU64,
}

impl DurationHistogram {
    /// A histogram with these upper bounds in seconds; they must ascend.
    pub fn new(bounds: &[f64]) -> Self {
        debug_assert!(bounds.is_sorted(), "upper bounds ascend");
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

    /// Counts one that took this long.
    pub fn observe(&self, took: Duration) {
        let took = nanos(took);
        let bucket = self.0.nanos.partition_point(|&bound| bound < took);
        self.0.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.0.sum_nanos.fetch_add(took, Ordering::Relaxed);
    }

    /// How many were counted.
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
        // From the same reading as the buckets: a scrape in which they differ is refused by some.
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
    fn a_duration_counts_in_the_first_bucket_that_holds_it() {
        let histogram = DurationHistogram::new(&[1e-8, 0.005, 1.0]);
        for nanos in [10, 11, 5_000_000, 5_000_001, 1_000_000_000, 7_000_000_000] {
            histogram.observe(Duration::from_nanos(nanos));
        }
        let mut registry = Registry::default();
        registry.register("time_seconds", "Time", histogram.clone());
        let mut text = String::new();
        encode(&mut text, &registry).expect("a text takes everything");
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
