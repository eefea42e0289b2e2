//! Cache metrics: one series per cache in each family.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use windlass_cache::{Report, Stats};

pub(super) struct CacheCollector<F>(F);

impl<F> CacheCollector<F> {
    pub(super) fn new(reports: F) -> Self {
        Self(reports)
    }
}

impl<F: Fn() -> Vec<Report> + Send + Sync + 'static> Collector for CacheCollector<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let reports: Vec<_> = (self.0)()
            .into_iter()
            .map(|report| {
                let labels = [
                    ("kind", report.kind.to_string()),
                    ("scope", report.scope.to_string()),
                ];
                (labels, report.stats)
            })
            .collect();
        if reports.is_empty() {
            return Ok(());
        }
        for (name, help, figure) in CACHE_METRICS {
            let kind = match figure {
                CacheMetric::Gauge(read) if reports.iter().all(|(_, stats)| read(stats).is_none()) => {
                    continue;
                }
                CacheMetric::Gauge(_) => MetricType::Gauge,
                CacheMetric::Counter(_) | CacheMetric::Seconds(_) => MetricType::Counter,
            };
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (labels, stats) in &reports {
                let series = family.encode_family(labels)?;
                match figure {
                    CacheMetric::Gauge(read) => {
                        if let Some(value) = read(stats) {
                            ConstGauge::new(value).encode(series)?;
                        }
                    }
                    CacheMetric::Counter(read) => ConstCounter::new(read(stats)).encode(series)?,
                    CacheMetric::Seconds(read) => ConstCounter::new(read(stats)).encode(series)?,
                }
            }
        }
        Ok(())
    }
}

impl<F> fmt::Debug for CacheCollector<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collected").finish_non_exhaustive()
    }
}

enum CacheMetric {
    /// `None`: not known yet.
    Gauge(fn(&Stats) -> Option<f64>),
    Counter(fn(&Stats) -> u64),
    Seconds(fn(&Stats) -> f64),
}

/// The metrics of a cache. The names are those of [`Report::metrics`].
const CACHE_METRICS: [(&str, &str, CacheMetric); 12] = [
    (
        "windlass_cache_objects",
        "Objects in the cache",
        CacheMetric::Gauge(|stats| float(stats.objects)),
    ),
    (
        "windlass_cache_bytes",
        "Bytes of JSON in the cache",
        CacheMetric::Gauge(|stats| float(stats.bytes)),
    ),
    (
        "windlass_cache_decoded_bytes",
        "Bytes of decoded objects kept for the next reader",
        CacheMetric::Gauge(|stats| float(stats.decoded_bytes)),
    ),
    (
        "windlass_cache_events",
        "Watch events for an object",
        CacheMetric::Counter(|stats| stats.events),
    ),
    (
        "windlass_cache_lists",
        "Complete lists received",
        CacheMetric::Counter(|stats| stats.lists),
    ),
    (
        "windlass_cache_failures",
        "Lists and watches that failed",
        CacheMetric::Counter(|stats| stats.failures),
    ),
    (
        "windlass_cache_undecodable",
        "Objects that did not decode",
        CacheMetric::Counter(|stats| stats.undecodable),
    ),
    (
        "windlass_cache_decodes",
        "Objects decoded for readers",
        CacheMetric::Counter(|stats| stats.decodes),
    ),
    (
        "windlass_cache_decode_seconds",
        "Time spent decoding objects for readers",
        CacheMetric::Seconds(|stats| stats.decode_time.as_secs_f64()),
    ),
    (
        "windlass_cache_pending_changes",
        "Changes that subscribers have not taken",
        CacheMetric::Gauge(|stats| float(stats.pending)),
    ),
    (
        "windlass_cache_unconfirmed_writes",
        "Own writes that the watch has not confirmed",
        CacheMetric::Gauge(|stats| float(stats.unconfirmed)),
    ),
    (
        "windlass_cache_lag_seconds",
        "Time since the last message from the server about this kind",
        CacheMetric::Gauge(|stats| stats.lag.map(|lag| lag.as_secs_f64())),
    ),
];

#[allow(clippy::cast_precision_loss, reason = "metrics need no more than 53 bits")]
#[allow(clippy::unnecessary_wraps, reason = "every gauge returns an option")]
fn float(count: usize) -> Option<f64> {
    Some(count as f64)
}
