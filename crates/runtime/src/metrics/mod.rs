//! What a manager counts, and the text that shows it.
//!
//! ```text
//!   controllers ─► ControllerMetrics ─┐
//!   work queues ─► a sink ────────────┤ atomics        ┌─► Prometheus text (default)
//!   client ──────► RequestMetrics ────┼──────► Registry ─► scrape
//!   an author's own ──────────────────┘     ▲          └─► OpenMetrics (if asked)
//!                                           └── asked when scraped: caches, elections, events, the process
//! ```
//!
//! [`Metrics`] owns the registry. Who counts asks it once for a handle, whose counters are atomics: counting takes no
//! lock and does not know the registry. Names, labels and buckets are controller-runtime's and client-go's where those
//! have them, so that existing dashboards and alerts work; the rest starts with `windlass_`.

mod caches;
mod controller;
mod histogram;
mod leader;
mod process;
mod queue;
mod readings;
mod requests;
mod text;

use std::{fmt, num::NonZeroUsize, sync::Arc};

use parking_lot::Mutex;
/// The library that an author's own metrics are made with; see [`Metrics::register`].
pub use prometheus_client;
use prometheus_client::{
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use windlass_cache::Report;

use self::readings::{Read, ToCounter, ToGauge};
pub use self::{
    controller::{ActiveReconcile, ControllerMetrics},
    histogram::DurationHistogram,
    readings::Reading,
    requests::RequestMetrics,
    text::Format,
};

/// All metrics of a process. A clone is the same set.
///
/// An author's own metrics go next to the others:
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
    controllers: controller::Controllers,
    queues: queue::Queues,
    requests: requests::Requests,
    leaders: leader::Leaders,
}

impl Metrics {
    /// All families, and the process's own figures. Series come as controllers, queues and clients ask for them.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let controllers = controller::Controllers::register(&mut registry);
        let queues = queue::Queues::register(&mut registry);
        let requests = requests::Requests::register(&mut registry);
        let leaders = leader::Leaders::register(&mut registry);
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

    /// Registers metrics of the author's own. Names are theirs to choose; one that is there already makes the whole
    /// scrape unreadable to Prometheus.
    pub fn register<T>(&self, add: impl FnOnce(&mut Registry) -> T) -> T {
        add(&mut self.0.registry.lock())
    }

    /// Calls this before each scrape, for figures that change with time alone. Be quick; do not use these metrics.
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

    /// The figures of a controller with so many workers; all its series are there from now on. Asked again for the same
    /// name, it is the same series.
    pub fn controller(&self, name: &str, workers: NonZeroUsize) -> ControllerMetrics {
        self.0.controllers.controller(name, workers)
    }

    /// What takes the figures of a controller's queue.
    pub fn queue(&self, name: &str) -> Arc<dyn windlass_workqueue::Metrics> {
        self.0.queues.queue(name)
    }

    /// What counts the requests to the server at `host`.
    pub fn requests(&self, host: &str) -> RequestMetrics {
        self.0.requests.host(host)
    }

    /// Shows an election for the lease of this name: whether this process leads, and how many renewals had to read the
    /// lease first. Both are asked at each scrape.
    pub fn leader(
        &self,
        lease: &str,
        leads: impl Fn() -> bool + Send + Sync + 'static,
        slow_paths: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        self.0.leaders.add(lease, leads, slow_paths);
    }

    /// Shows the figures of caches; `reports` is asked at each scrape. Once for each set of caches.
    pub fn caches(&self, reports: impl Fn() -> Vec<Report> + Send + Sync + 'static) {
        self.register(|registry| registry.register_collector(Box::new(caches::Collected::new(reports))));
    }

    /// Shows counters that something else keeps, asked for at each scrape. `name` is without `_total`; once for each name.
    ///
    /// ```
    /// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
    /// use windlass_runtime::metrics::{Format, Metrics, Reading};
    ///
    /// let metrics = Metrics::new();
    /// let lost = Arc::new(AtomicU64::new(3));
    /// metrics.read_counter("windlass_events_dropped", "Events that were not written", move || {
    ///     [Reading::new(lost.load(Ordering::Relaxed)).label("reason", "queue_full")]
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
        let collector = Read::new(name, help, readings, ConstCounter::new as ToCounter);
        self.register(|registry| registry.register_collector(Box::new(collector)));
    }

    /// Shows gauges that something else keeps, asked for at each scrape; once for each name.
    pub fn read_gauge<Readings>(
        &self,
        name: &'static str,
        help: &'static str,
        readings: impl Fn() -> Readings + Send + Sync + 'static,
    ) where
        Readings: IntoIterator<Item = Reading<f64>> + 'static,
    {
        let collector = Read::new(name, help, readings, ConstGauge::new as ToGauge);
        self.register(|registry| registry.register_collector(Box::new(collector)));
    }

    /// All of it as text, at this moment.
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
