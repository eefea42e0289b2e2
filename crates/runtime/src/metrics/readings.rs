//! Numbers that something else keeps.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

/// A number, and what it may do from one scrape to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reading {
    /// It only grows.
    Counter(u64),
    /// It goes up and down.
    Gauge(f64),
}

/// One number without labels, asked for when it is scraped.
pub(super) struct Read<F> {
    name: &'static str,
    help: &'static str,
    reading: F,
}

impl<F> Read<F> {
    pub(super) fn new(name: &'static str, help: &'static str, reading: F) -> Self {
        Self { name, help, reading }
    }
}

impl<F: Fn() -> Reading + Send + Sync + 'static> Collector for Read<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        show(&mut encoder, self.name, self.help, (self.reading)())
    }
}

impl<F> fmt::Debug for Read<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Read")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// A family of one number.
pub(super) fn show(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    reading: Reading,
) -> fmt::Result {
    match reading {
        Reading::Counter(value) => {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
        }
        Reading::Gauge(value) => {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        }
    }
}
