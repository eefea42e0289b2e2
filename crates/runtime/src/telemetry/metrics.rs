//! The metrics of `/metrics` as OTLP.
//!
//! Names, labels and values are those of the Prometheus text, so that dashboards work with either. The SDK's metrics are not
//! used: it has no bridge from a Prometheus registry.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
        ResourceMetrics, ScopeMetrics, Sum, metric::Data, number_data_point,
    },
    resource::v1::Resource,
};

use crate::metrics::{
    Format, Metrics,
    text::{Family, Sample, families},
};

/// Nanoseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Converts the current values of all metrics. Counters have counted since `start`.
pub(super) fn request(metrics: &Metrics, resource: Vec<KeyValue>, start: u64) -> ExportMetricsServiceRequest {
    let text = metrics.scrape(Format::OpenMetrics);
    let times = Times { start, now: now() };
    let metrics = families(&text)
        .iter()
        .map(|family| times.metric(family))
        .collect();
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: resource,
                ..Resource::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: "windlass".to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    ..InstrumentationScope::default()
                }),
                metrics,
                schema_url: String::new(),
            }],
            schema_url: String::new(),
        }],
    }
}

#[derive(Clone, Copy)]
struct Times {
    start: u64,
    now: u64,
}

impl Times {
    fn metric(self, family: &Family<'_>) -> Metric {
        let cumulative = AggregationTemporality::Cumulative as i32;
        let data = match family.kind {
            "counter" => Data::Sum(Sum {
                data_points: self.numbers(family),
                aggregation_temporality: cumulative,
                is_monotonic: true,
            }),
            "histogram" => Data::Histogram(Histogram {
                data_points: self.histograms(family),
                aggregation_temporality: cumulative,
            }),
            _ => Data::Gauge(Gauge {
                data_points: self.numbers(family),
            }),
        };
        let suffix = match family.kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        Metric {
            name: format!("{}{suffix}", family.name),
            description: unescape(family.help),
            data: Some(data),
            ..Metric::default()
        }
    }

    fn numbers(self, family: &Family<'_>) -> Vec<NumberDataPoint> {
        let samples = family.series.iter();
        samples
            .filter_map(|sample| {
                Some(NumberDataPoint {
                    attributes: attributes(sample),
                    start_time_unix_nano: if family.kind == "counter" { self.start } else { 0 },
                    time_unix_nano: self.now,
                    value: Some(number(sample.value)?),
                    ..NumberDataPoint::default()
                })
            })
            .collect()
    }

    /// The samples of a series follow each other. Counts of buckets are cumulative in the text, and not in OTLP.
    fn histograms(self, family: &Family<'_>) -> Vec<HistogramDataPoint> {
        let mut points = Vec::new();
        for series in family.series.chunk_by(|one, next| one.labels == next.labels) {
            let Some(first) = series.first() else { continue };
            let mut point = HistogramDataPoint {
                attributes: attributes(first),
                start_time_unix_nano: self.start,
                time_unix_nano: self.now,
                ..HistogramDataPoint::default()
            };
            let mut below = 0_u64;
            for sample in series {
                let value = sample.value;
                if let Some(le) = sample.le {
                    let total: u64 = value.parse().unwrap_or(below);
                    point.bucket_counts.push(total.saturating_sub(below));
                    below = total;
                    point
                        .explicit_bounds
                        .extend(le.parse().ok().filter(|bound: &f64| bound.is_finite()));
                } else if sample.name.ends_with("_sum") {
                    point.sum = value.parse().ok();
                } else if sample.name.ends_with("_count") {
                    point.count = value.parse().unwrap_or_default();
                }
            }
            points.push(point);
        }
        points
    }
}

fn attributes(sample: &Sample<'_>) -> Vec<KeyValue> {
    let labels = sample.labels.iter();
    labels
        .map(|(label, value)| KeyValue {
            key: (*label).to_owned(),
            value: Some(AnyValue {
                value: Some(any_value::Value::StringValue(unescape(value))),
            }),
            ..KeyValue::default()
        })
        .collect()
}

fn number(text: &str) -> Option<number_data_point::Value> {
    if let Ok(whole) = text.parse() {
        return Some(number_data_point::Value::AsInt(whole));
    }
    text.parse().ok().map(number_data_point::Value::AsDouble)
}

/// Undoes the escapes of the text format.
fn unescape(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, character == '\\') {
            (_, true) => match characters.next() {
                Some('n') => plain.push('\n'),
                Some(escaped) => plain.push(escaped),
                None => plain.push('\\'),
            },
            (character, false) => plain.push(character),
        }
    }
    plain
}
