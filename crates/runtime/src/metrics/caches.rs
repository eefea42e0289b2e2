//! Cache metrics: a family for each statistic, with one series per cache.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use windlass_cache::{Report, STATISTICS, StatisticKind, StatisticValue};

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
        for statistic in STATISTICS {
            let values: Vec<_> = reports
                .iter()
                .filter_map(|(labels, stats)| Some((labels, (statistic.value)(stats)?)))
                .collect();
            if values.is_empty() {
                continue;
            }
            let name = format!("windlass_cache_{}", statistic.name);
            let kind = match statistic.kind {
                StatisticKind::Gauge => MetricType::Gauge,
                StatisticKind::Counter => MetricType::Counter,
            };
            let mut family = encoder.encode_descriptor(&name, statistic.help, None, kind)?;
            for (labels, value) in values {
                let series = family.encode_family(labels)?;
                match (statistic.kind, value) {
                    (StatisticKind::Counter, StatisticValue::Count(count)) => {
                        ConstCounter::new(count).encode(series)?;
                    }
                    (StatisticKind::Counter, StatisticValue::Time(time)) => {
                        ConstCounter::new(time.as_secs_f64()).encode(series)?;
                    }
                    (StatisticKind::Gauge, StatisticValue::Count(count)) => {
                        ConstGauge::new(count).encode(series)?;
                    }
                    (StatisticKind::Gauge, StatisticValue::Time(time)) => {
                        ConstGauge::new(time.as_secs_f64()).encode(series)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl<F> fmt::Debug for CacheCollector<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheCollector").finish_non_exhaustive()
    }
}
