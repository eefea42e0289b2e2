//! A histogram of request latencies with a fixed size.

use std::time::Duration;

use serde::Serialize;

/// Buckets grow by 2 %: a quantile is at most that much too high.
const GROWTH: f64 = 1.02;

/// From a microsecond to an hour.
const BUCKETS: usize = 1_200;

#[derive(Clone)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    longest: Duration,
}

/// Summary of a histogram.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct LatencySummary {
    pub(crate) requests: u64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) p999_ms: f64,
    pub(crate) max_ms: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            total: 0,
            longest: Duration::ZERO,
        }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, took: Duration) {
        let micros = (took.as_secs_f64() * 1e6).max(1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small number that is not negative"
        )]
        let bucket = (micros.ln() / GROWTH.ln()).ceil() as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.total += 1;
        self.longest = self.longest.max(took);
    }

    pub(crate) fn summary(&self) -> LatencySummary {
        LatencySummary {
            requests: self.total,
            p50_ms: self.quantile(0.5),
            p99_ms: self.quantile(0.99),
            p999_ms: self.quantile(0.999),
            max_ms: self.longest.as_secs_f64() * 1e3,
        }
    }

    /// Returns a quantile in milliseconds; 0 if the histogram is empty.
    fn quantile(&self, part: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 requests")]
        let wanted = self.total as f64 * part;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 requests")]
            let reached = *count > 0 && seen as f64 >= wanted;
            if reached {
                let power = i32::try_from(bucket).unwrap_or(i32::MAX);
                return GROWTH.powi(power) / 1e3;
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_at_most_two_percent_too_high() {
        let mut histogram = Histogram::default();
        for millis in 1..=1_000 {
            histogram.add(Duration::from_millis(millis));
        }
        let summary = histogram.summary();
        for (figure, exact) in [
            (summary.p50_ms, 500.0),
            (summary.p99_ms, 990.0),
            (summary.p999_ms, 999.0),
        ] {
            assert!(
                (exact..=exact * 1.021).contains(&figure),
                "{figure} is not {exact}"
            );
        }
        assert!((summary.max_ms - 1_000.0).abs() < 1e-9);
    }
}
