//! Exports spans and metrics over OTLP, with the feature `opentelemetry`.
//!
//! ```text
//!   tracing spans ─► layer ─► SpanQueue (bounded) ─► SpanExporter ──┐
//!                                                                   ├─► Collector (HTTP, protobuf)
//!   Metrics (the registry of /metrics) ──────────► MetricExporter ──┘
//! ```
//!
//! The exporters run beside the manager and end with it. Nothing in a reconcile waits for them.

mod config;
mod export;
mod http;
mod metrics;
mod report;
mod spans;

use std::{fmt, sync::Arc};

use opentelemetry::trace::{Status, TracerProvider as _};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{Layer, registry::LookupSpan};

pub use self::config::TelemetryError;
use self::{
    config::Config,
    export::{MetricExporter, SpanExporter},
    http::Collector,
    report::Losses,
};
use crate::{metrics::Metrics, outcomes::ReconcileOutcome, stop::StopSignal};

/// Exports spans and metrics to an OpenTelemetry collector over OTLP/HTTP, configured by the [standard environment
/// variables](https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/). Without an endpoint
/// nothing is exported.
///
/// [`launch`](crate::launch) does all of this. Without it, or with a subscriber of your own:
///
/// ```no_run
/// use windlass_runtime::{Options, Telemetry};
///
/// # #[cfg(feature = "logging")]
/// async fn run(options: Options) -> Result<(), Box<dyn std::error::Error>> {
///     let telemetry = Telemetry::from_env("settings")?;
///     telemetry.init(&options.logging)?; // or `telemetry.layer()` in your own subscriber
///     options.manager("settings").await?.telemetry(telemetry).run().await?;
///     Ok(())
/// }
/// ```
///
/// | variable | meaning |
/// |---|---|
/// | `OTEL_EXPORTER_OTLP_ENDPOINT` | the collector, as in `http://collector:4318`; `https` trusts the system's CA certificates, or those in `SSL_CERT_FILE` |
/// | `OTEL_EXPORTER_OTLP_HEADERS` | headers of each request, such as `authorization=Bearer%20…` |
/// | `OTEL_EXPORTER_OTLP_TIMEOUT` | of a request, in milliseconds; default 10000 |
/// | `OTEL_EXPORTER_OTLP_PROTOCOL` | `http/protobuf`, the only one |
/// | `OTEL_EXPORTER_OTLP_TRACES_…`, `OTEL_EXPORTER_OTLP_METRICS_…` | the same for one signal; an endpoint is then the whole URL |
/// | `OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER` | `otlp`, the default, or `none` |
/// | `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES` | the service's name, default the program's, and attributes of all data |
/// | `OTEL_METRIC_EXPORT_INTERVAL` | between two pushes of metrics, in milliseconds; default 60000 |
/// | `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG` | which traces are exported; default `parentbased_always_on` |
/// | `OTEL_SDK_DISABLED` | `true` exports nothing |
///
/// Exported are:
///
/// - each reconcile as a span `reconcile`, with `controller`, `object`, `id`, `trigger` and `result`, and the error as its
///   status; in it the spans and log events at level `info` and above of your code and of others, and the requests of
///   `kube`'s client. The logs' level has no effect;
/// - the metrics that `/metrics` serves, under the same names.
///
/// A span waits in a queue of 2,048. While the collector cannot be reached or asks to wait, a batch is sent again, and what
/// does not fit into the queue is dropped: `windlass_telemetry_dropped_spans_total` counts it, the log says it. At the
/// stop, the rest is sent within 5 seconds. A reconcile never waits for any of it.
#[must_use = "exports nothing until a manager runs with it"]
pub struct Telemetry {
    /// `None`: nothing is exported.
    exporters: Option<Exporters>,
}

struct Exporters {
    provider: Option<SdkTracerProvider>,
    spans: Option<SpanExporter>,
    metrics: Option<MetricExporter>,
    losses: Arc<Losses>,
}

impl Telemetry {
    /// Reads the environment variables. `program` is the default name of the service. Sends nothing yet.
    pub fn from_env(program: &str) -> Result<Self, TelemetryError> {
        Self::from_variables(program, |variable| {
            // Bytes that are not text are replaced, and then rejected or visible.
            std::env::var_os(variable).map(|value| value.to_string_lossy().into_owned())
        })
    }

    /// Like [`from_env`](Self::from_env), with variables from elsewhere: for tests, and for programs with a configuration of
    /// their own.
    ///
    /// ```
    /// use windlass_runtime::Telemetry;
    ///
    /// let telemetry = Telemetry::from_variables("settings", |_| None)?;
    /// assert!(!telemetry.is_enabled());
    /// # Ok::<_, windlass_runtime::TelemetryError>(())
    /// ```
    pub fn from_variables(
        program: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, TelemetryError> {
        let Some(config) = Config::read(program, &variable)? else {
            return Ok(Self { exporters: None });
        };
        let losses = Arc::<Losses>::default();
        let (mut provider, mut spans) = (None, None);
        if let Some(target) = config.traces {
            let (queue, receiver) = spans::queue(&losses);
            let builder = SdkTracerProvider::builder().with_sampler(config.sampler);
            provider = Some(builder.with_span_processor(queue).build());
            spans = Some(SpanExporter {
                collector: Collector::new(target)?,
                spans: receiver,
                resource: config.resource.clone(),
                losses: Arc::clone(&losses),
            });
        }
        let metrics = match config.metrics {
            None => None,
            Some(target) => Some(MetricExporter {
                collector: Collector::new(target)?,
                interval: config.metric_interval,
                resource: config.resource,
                start: metrics::now(),
                losses: Arc::clone(&losses),
            }),
        };
        Ok(Self {
            exporters: Some(Exporters {
                provider,
                spans,
                metrics,
                losses,
            }),
        })
    }

    /// Whether anything is exported.
    pub fn is_enabled(&self) -> bool {
        self.exporters.is_some()
    }

    /// Returns the layer that exports spans, for a subscriber of your own; `None`, which is a layer without effect, if they
    /// are not exported. It has a filter of its own: level `info`, and nothing that may contain a Secret.
    ///
    /// ```no_run
    /// use tracing_subscriber::layer::SubscriberExt as _;
    /// # fn example(options: windlass_runtime::Options) -> Result<(), Box<dyn std::error::Error>> {
    /// let telemetry = windlass_runtime::Telemetry::from_env("settings")?;
    /// # #[cfg(feature = "logging")] {
    /// let subscriber = tracing_subscriber::registry().with(options.logging.layer()?).with(telemetry.layer());
    /// tracing::subscriber::set_global_default(subscriber)?;
    /// # }
    /// # Ok(()) }
    /// ```
    pub fn layer<S>(&self) -> Option<Box<dyn Layer<S> + Send + Sync>>
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let provider = self.exporters.as_ref()?.provider.as_ref()?;
        let layer = tracing_opentelemetry::layer()
            .with_location(false)
            .with_threads(false)
            .with_tracer(provider.tracer("windlass"));
        Some(Box::new(layer.with_filter(spans::filter())))
    }

    /// Like [`Logging::init`](crate::Logging::init), and exports spans.
    #[cfg(feature = "logging")]
    pub fn init(&self, logging: &crate::Logging) -> Result<(), crate::LoggingError> {
        use tracing_subscriber::layer::SubscriberExt as _;

        let subscriber = tracing_subscriber::registry()
            .with(logging.layer()?)
            .with(self.layer());
        tracing::subscriber::set_global_default(subscriber).map_err(|_| crate::LoggingError::AlreadySet)
    }

    /// Adds the counters of what is lost to `/metrics`.
    pub(crate) fn register(&self, metrics: &Metrics) {
        if let Some(exporters) = &self.exporters {
            report::register(metrics, &exporters.losses);
        }
    }

    /// Exports until stopped.
    pub(crate) async fn run(self, registry: Metrics, stop: StopSignal) {
        let Some(exporters) = self.exporters else { return };
        let spans = async {
            if let Some(spans) = exporters.spans {
                spans.run(stop.clone()).await;
            }
        };
        let metrics = async {
            if let Some(metrics) = exporters.metrics {
                metrics.run(registry, stop.clone()).await;
            }
        };
        futures::join!(spans, metrics);
    }
}

impl fmt::Debug for Telemetry {
    /// Without the headers, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry")
            .field("enabled", &self.is_enabled())
            .finish_non_exhaustive()
    }
}

/// Adds the result to the span of a reconcile.
pub(crate) fn record_result(reconcile: &Span, outcome: ReconcileOutcome) {
    reconcile.record("result", tracing::field::display(outcome));
}

/// Sets the status of the current span, that of the reconcile.
pub(crate) fn record_failure(error: &str) {
    Span::current().set_status(Status::error(error.to_owned()));
}
