//! Metrics that are read when they are scraped.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

/// A value with its labels, for [`Metrics::read_counter`](super::Metrics::read_counter) and
/// [`Metrics::read_gauge`](super::Metrics::read_gauge).
#[derive(Clone, Debug, PartialEq)]
pub struct Reading<Value> {
    value: Value,
    labels: Vec<(&'static str, String)>,
}

impl<Value> Reading<Value> {
    /// A value without labels.
    pub fn new(value: Value) -> Self {
        Self {
            value,
            labels: Vec::new(),
        }
    }

    /// Adds a label. Readings of one metric must have the same label names and different values.
    #[must_use]
    pub fn label(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.labels.push((name, value.into()));
        self
    }
}

/// Collects a family of readings; `Metric` converts a value for the library.
pub(super) struct ReadingCollector<F, Metric> {
    name: &'static str,
    help: &'static str,
    readings: F,
    metric: Metric,
}

impl<F, Metric> ReadingCollector<F, Metric> {
    pub(super) fn new(name: &'static str, help: &'static str, readings: F, metric: Metric) -> Self {
        Self {
            name,
            help,
            readings,
            metric,
        }
    }
}

pub(super) type ToCounter = fn(u64) -> ConstCounter<u64>;
pub(super) type ToGauge = fn(f64) -> ConstGauge<f64>;

impl<F, Readings, Value, Metric> Collector for ReadingCollector<F, fn(Value) -> Metric>
where
    F: Fn() -> Readings + Send + Sync + 'static,
    Readings: IntoIterator<Item = Reading<Value>>,
    Value: 'static,
    Metric: EncodeMetric + 'static,
{
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let readings = (self.readings)().into_iter();
        let mut readings = readings
            .map(|reading| ((self.metric)(reading.value), reading.labels))
            .peekable();
        // Omits a family without series.
        let Some((first, _)) = readings.peek() else {
            return Ok(());
        };
        let mut family = encoder.encode_descriptor(self.name, self.help, None, first.metric_type())?;
        for (metric, labels) in readings {
            metric.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl<F, Metric> fmt::Debug for ReadingCollector<F, Metric> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Read")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
