//! Prometheus metrics of a manager.
//!
//! ```text
//!   controllers ─► ControllerMetrics ─┐
//!   work queues ─► QueueMetrics ──────┤ atomics        ┌─► Prometheus text (default)
//!   client ──────► RequestMetrics ────┼──────► Registry ─► scrape
//!   user metrics ─────────────────────┘     ▲          └─► OpenMetrics (negotiated)
//!                                           └── collected on scrape: caches, elections, events, the process
//! ```
//!
//! [`Metrics`] owns the registry. Each source of metrics gets a handle once; its counters are atomics, so counting takes no
//! lock and does not touch the registry. Names, labels and buckets are those of controller-runtime and client-go where these
//! exist, so existing dashboards and alerts work; other names start with `windlass_`.

mod caches;
mod controller;
mod histogram;
mod leader;
mod process;
mod queue;
mod readings;
mod requests;
pub(crate) mod text;

use std::{fmt, num::NonZeroUsize, sync::Arc};

use parking_lot::Mutex;
/// The library for user metrics; see [`Metrics::register`].
pub use prometheus_client;
use prometheus_client::{
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use windlass_cache::Report;

use self::readings::{ReadingCollector, ToCounter, ToGauge};
pub use self::{
    controller::{ActiveReconcile, ControllerMetrics},
    histogram::DurationHistogram,
    readings::Reading,
    requests::RequestMetrics,
    text::Format,
};

/// All metrics of a process. Clones share them.
///
/// To add metrics of your own:
///
/// ```
/// use windlass_runtime::metrics::{Format, Metrics, prometheus_client::metrics::counter::Counter};
///
/// let metrics = Metrics::new();
/// let melted = Counter::<u64>::default();
/// // The name without `_total`: the library appends it to counters.
/// metrics.register(|registry| registry.register("icecream_melted", "Cones that melted", melted.clone()));
/// melted.inc();
/// assert!(metrics.scrape(Format::Prometheus).contains("\nicecream_melted_total 1\n"));
/// ```
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Mutex<Registry>,
    before_scrape: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
    controllers: controller::ControllerFamilies,
    queues: queue::QueueFamilies,
    requests: requests::RequestFamilies,
    leaders: leader::LeaderElections,
}

impl Metrics {
    /// Creates all metric families, and the metrics of the process. Series are added as controllers, queues and clients ask
    /// for them.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let controllers = controller::ControllerFamilies::register(&mut registry);
        let queues = queue::QueueFamilies::register(&mut registry);
        let requests = requests::RequestFamilies::register(&mut registry);
        let leaders = leader::LeaderElections::register(&mut registry);
        registry.register_collector(Box::new(process::Process));
        Self(Arc::new(Inner {
            registry: Mutex::new(registry),
            before_scrape: Mutex::default(),
            controllers,
            queues,
            requests,
            leaders,
        }))
    }

    /// Registers user metrics. A duplicate name makes the whole scrape invalid for Prometheus.
    pub fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.0.registry.lock())
    }

    /// Calls `refresh` before each scrape, for values that change with time alone. It must be quick and must not use these
    /// metrics.
    ///
    /// ```
    /// # use windlass_runtime::metrics::Metrics;
    /// use windlass_workqueue::WorkQueue;
    ///
    /// let metrics = Metrics::new();
    /// let queue = WorkQueue::<String>::builder().metrics(metrics.queue("settings")).build();
    /// metrics.before_scrape(move || queue.report_metrics());
    /// ```
    pub fn before_scrape(&self, refresh: impl Fn() + Send + Sync + 'static) {
        self.0.before_scrape.lock().push(Box::new(refresh));
    }

    /// Returns the metrics of a controller and creates all its series. The same name returns the same series.
    pub fn controller(&self, name: &str, workers: NonZeroUsize) -> ControllerMetrics {
        self.0.controllers.controller(name, workers)
    }

    /// Returns the metrics of a controller's queue.
    pub fn queue(&self, name: &str) -> Arc<dyn windlass_workqueue::Metrics> {
        self.0.queues.queue(name)
    }

    /// Returns the request counter of the server at `host`.
    pub fn requests(&self, host: &str) -> RequestMetrics {
        self.0.requests.host(host)
    }

    /// Registers a leader election on the Lease of this name: whether this process leads, and how many renewals had to read
    /// the Lease first. Both are read at each scrape.
    pub fn leader(
        &self,
        lease: &str,
        leads: impl Fn() -> bool + Send + Sync + 'static,
        slow_paths: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        self.0.leaders.add(lease, leads, slow_paths);
    }

    /// Registers a set of caches; `reports` is called at each scrape. Call it once for each set.
    pub fn caches(&self, reports: impl Fn() -> Vec<Report> + Send + Sync + 'static) {
        self.register(|registry| registry.register_collector(Box::new(caches::CacheCollector::new(reports))));
    }

    /// Registers counters that are read at each scrape. `name` is without `_total`. Call it once for each name.
    ///
    /// ```
    /// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
    /// use windlass_runtime::metrics::{Format, Metrics, Reading};
    ///
    /// let metrics = Metrics::new();
    /// let dropped = Arc::new(AtomicU64::new(3));
    /// metrics.read_counter("windlass_events_dropped", "Events that were not written", move || {
    ///     [Reading::new(dropped.load(Ordering::Relaxed)).label("reason", "queue_full")]
    /// });
    /// let text = metrics.scrape(Format::Prometheus);
    /// assert!(text.contains("\nwindlass_events_dropped_total{reason=\"queue_full\"} 3\n"));
    /// ```
    pub fn read_counter<Readings>(
        &self,
        name: &'static str,
        help: &'static str,
        readings: impl Fn() -> Readings + Send + Sync + 'static,
    ) where
        Readings: IntoIterator<Item = Reading<u64>> + 'static,
    {
        let collector = ReadingCollector::new(name, help, readings, ConstCounter::new as ToCounter);
        self.register(|registry| registry.register_collector(Box::new(collector)));
    }

    /// Registers gauges that are read at each scrape. Call it once for each name.
    pub fn read_gauge<Readings>(
        &self,
        name: &'static str,
        help: &'static str,
        readings: impl Fn() -> Readings + Send + Sync + 'static,
    ) where
        Readings: IntoIterator<Item = Reading<f64>> + 'static,
    {
        let collector = ReadingCollector::new(name, help, readings, ConstGauge::new as ToGauge);
        self.register(|registry| registry.register_collector(Box::new(collector)));
    }

    /// Returns the current values of all metrics as text.
    pub fn scrape(&self, format: Format) -> String {
        for refresh in &*self.0.before_scrape.lock() {
            refresh();
        }
        text::encode(&self.0.registry.lock(), format)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
