//! The caches' figures: one family each, one series per cache.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use windlass_cache::{Report, Stats};

pub(super) struct Collected<F>(F);

impl<F> Collected<F> {
    pub(super) fn new(reports: F) -> Self {
        Self(reports)
    }
}

impl<F: Fn() -> Vec<Report> + Send + Sync + 'static> Collector for Collected<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let reports: Vec<_> = (self.0)()
            .into_iter()
            .map(|report| {
                let labels = [
                    ("kind", report.kind.to_string()),
                    ("selection", report.selection.to_string()),
                ];
                (labels, report.stats)
            })
            .collect();
        if reports.is_empty() {
            return Ok(());
        }
        for (name, help, figure) in FIGURES {
            let kind = match figure {
                Figure::Gauge(read) if reports.iter().all(|(_, stats)| read(stats).is_none()) => continue,
                Figure::Gauge(_) => MetricType::Gauge,
                Figure::Counter(_) | Figure::Seconds(_) => MetricType::Counter,
            };
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (labels, stats) in &reports {
                let series = family.encode_family(labels)?;
                match figure {
                    Figure::Gauge(read) => {
                        if let Some(value) = read(stats) {
                            ConstGauge::new(value).encode(series)?;
                        }
                    }
                    Figure::Counter(read) => ConstCounter::new(read(stats)).encode(series)?,
                    Figure::Seconds(read) => ConstCounter::new(read(stats)).encode(series)?,
                }
            }
        }
        Ok(())
    }
}

impl<F> fmt::Debug for Collected<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collected").finish_non_exhaustive()
    }
}

enum Figure {
    /// `None`: not known yet.
    Gauge(fn(&Stats) -> Option<f64>),
    Counter(fn(&Stats) -> u64),
    Seconds(fn(&Stats) -> f64),
}

/// The names are those of [`Report::metrics`].
const FIGURES: [(&str, &str, Figure); 12] = [
    (
        "windlass_cache_objects",
        "Objects in the cache",
        Figure::Gauge(|stats| float(stats.objects)),
    ),
    (
        "windlass_cache_bytes",
        "Bytes of JSON in the cache",
        Figure::Gauge(|stats| float(stats.bytes)),
    ),
    (
        "windlass_cache_hot_bytes",
        "Bytes of decoded objects kept for the next reader",
        Figure::Gauge(|stats| float(stats.hot_bytes)),
    ),
    (
        "windlass_cache_events",
        "Watch events that told of an object",
        Figure::Counter(|stats| stats.events),
    ),
    (
        "windlass_cache_lists",
        "Complete initial states received",
        Figure::Counter(|stats| stats.lists),
    ),
    (
        "windlass_cache_failures",
        "Lists and watches that failed",
        Figure::Counter(|stats| stats.failures),
    ),
    (
        "windlass_cache_undecodable",
        "Objects that did not decode",
        Figure::Counter(|stats| stats.undecodable),
    ),
    (
        "windlass_cache_decodes",
        "Objects decoded for readers",
        Figure::Counter(|stats| stats.decodes),
    ),
    (
        "windlass_cache_decode_seconds",
        "Time spent decoding objects for readers",
        Figure::Seconds(|stats| stats.decode_time.as_secs_f64()),
    ),
    (
        "windlass_cache_pending_changes",
        "Changes that subscribers have not taken",
        Figure::Gauge(|stats| float(stats.pending)),
    ),
    (
        "windlass_cache_unconfirmed_writes",
        "Own writes that the watch has not confirmed",
        Figure::Gauge(|stats| float(stats.unconfirmed)),
    ),
    (
        "windlass_cache_lag_seconds",
        "Time since the server last said anything about this kind",
        Figure::Gauge(|stats| stats.lag.map(|lag| lag.as_secs_f64())),
    ),
];

#[allow(clippy::cast_precision_loss, reason = "a chart does not show the 53rd bit")]
#[allow(clippy::unnecessary_wraps, reason = "the shape of every gauge")]
fn float(count: usize) -> Option<f64> {
    Some(count as f64)
}
