//! Metrics under controller-runtime's names, so that its dashboards and alerts work.

use std::time::Duration;

use windlass_runtime::metrics::{
    DurationHistogram, Metrics,
    prometheus_client::{
        self,
        encoding::{EncodeLabelSet, LabelSetEncoder},
        metrics::{counter::Counter, family::Family, gauge::Gauge},
    },
};

/// The buckets of controller-runtime: prometheus' defaults from 5 ms on; and below them, since most reviews take less.
const BUCKETS: [f64; 15] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
];

/// All metrics of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct WebhookMetrics {
    requests: Family<RequestLabels, Counter>,
    latency: Latencies,
    in_flight: Family<WebhookLabel, Gauge>,
    pub(crate) panics: Panics,
}

/// Panics of handlers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Panics {
    pub(crate) admission: Counter,
    pub(crate) conversion: Counter,
}

#[derive(Clone, Debug)]
struct Latencies(Family<WebhookLabel, DurationHistogram, fn() -> DurationHistogram>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Family::new_with_constructor(|| DurationHistogram::new(&BUCKETS)))
    }
}

/// The path of a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct WebhookLabel(String);

impl EncodeLabelSet for WebhookLabel {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> std::fmt::Result {
        [("webhook", self.0.as_str())].encode(encoder)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RequestLabels {
    webhook: String,
    code: u16,
}

impl EncodeLabelSet for RequestLabels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> std::fmt::Result {
        [
            ("webhook", self.webhook.as_str()),
            ("code", &self.code.to_string()),
        ]
        .encode(encoder)
    }
}

/// The metrics of one webhook.
#[derive(Debug)]
pub(crate) struct EndpointMetrics {
    path: String,
    requests: Family<RequestLabels, Counter>,
    ok: Counter,
    latency: DurationHistogram,
    in_flight: Gauge,
}

/// Counts a request as one in flight until dropped.
pub(crate) struct InFlight<'a>(&'a Gauge);

impl WebhookMetrics {
    /// Adds them to a registry.
    pub(crate) fn register(&self, metrics: &Metrics) {
        metrics.register(|registry: &mut prometheus_client::registry::Registry| {
            // The library appends `_total` to counters.
            registry.register(
                "controller_runtime_webhook_requests",
                "Total number of admission requests by HTTP status code",
                self.requests.clone(),
            );
            registry.register(
                "controller_runtime_webhook_latency_seconds",
                "Histogram of the latency of processing admission requests",
                self.latency.0.clone(),
            );
            registry.register(
                "controller_runtime_webhook_requests_in_flight",
                "Current number of admission requests being served",
                self.in_flight.clone(),
            );
            registry.register(
                "controller_runtime_webhook_panics",
                "Total number of webhook panics",
                self.panics.admission.clone(),
            );
            registry.register(
                "controller_runtime_conversion_webhook_panics",
                "Total number of conversion webhook panics",
                self.panics.conversion.clone(),
            );
        });
    }

    /// The metrics of the webhook at this path. Its series exist from then on.
    pub(crate) fn endpoint(&self, path: &str) -> EndpointMetrics {
        let labels = |code| RequestLabels {
            webhook: path.to_owned(),
            code,
        };
        drop(self.requests.get_or_create(&labels(500)));
        let label = WebhookLabel(path.to_owned());
        EndpointMetrics {
            path: path.to_owned(),
            ok: self.requests.get_or_create(&labels(200)).clone(),
            requests: self.requests.clone(),
            latency: self.latency.0.get_or_create(&label).clone(),
            in_flight: self.in_flight.get_or_create(&label).clone(),
        }
    }
}

impl EndpointMetrics {
    pub(crate) fn start(&self) -> InFlight<'_> {
        self.in_flight.inc();
        InFlight(&self.in_flight)
    }

    pub(crate) fn finish(&self, code: u16, took: Duration) {
        if code == 200 {
            self.ok.inc();
        } else {
            let labels = RequestLabels {
                webhook: self.path.clone(),
                code,
            };
            self.requests.get_or_create(&labels).inc();
        }
        self.latency.observe(took);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
