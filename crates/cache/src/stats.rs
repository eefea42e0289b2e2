//! Statistics of a cache: how they are counted, and the one list of them that metrics and debug pages show.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

#[derive(Default)]
pub(crate) struct Counters {
    events: AtomicU64,
    lists: AtomicU64,
    watches: AtomicU64,
    failures: AtomicU64,
    undecodable: AtomicU64,
    decodes: AtomicU64,
    decode_nanos: AtomicU64,
    last_contact: Mutex<Option<Instant>>,
}

/// Statistics of one cache, from [`Cache::stats`](crate::Cache::stats). Counters only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Objects in the store.
    pub objects: usize,
    /// Bytes of JSON in the store, packed or not yet.
    pub bytes: usize,
    /// Bytes of decoded objects in memory, by estimate.
    pub decoded_bytes: usize,
    /// Dictionaries trained.
    pub dictionaries: u32,
    /// Watch events of objects.
    pub events: u64,
    /// Complete initial states received, by list or by stream. More than one per namespace means relists.
    pub lists: u64,
    /// Watches opened.
    pub watches: u64,
    /// Lists and watches that failed.
    pub failures: u64,
    /// Objects that did not decode.
    pub undecodable: u64,
    /// Objects decoded for readers.
    pub decodes: u64,
    /// Time spent on decoding.
    pub decode_time: Duration,
    /// Time since the server last sent data for this kind: an upper bound for how far objects lag behind. `None` before
    /// the first data.
    pub lag: Option<Duration>,
    /// Subscriptions, including those with a callback.
    pub subscribers: usize,
    /// Changes in subscribers' buffers.
    pub pending: usize,
    /// Own writes that the watch has not confirmed.
    pub unconfirmed: usize,
}

impl Counters {
    pub(crate) fn event(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn list(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn watch(&self) {
        self.watches.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn undecodable(&self) {
        self.undecodable.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn decoded(&self, took: Duration) {
        self.decodes.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.decode_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn record_contact(&self) {
        *self.last_contact.lock() = Some(Instant::now());
    }

    pub(crate) fn read(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            events: get(&self.events),
            lists: get(&self.lists),
            watches: get(&self.watches),
            failures: get(&self.failures),
            undecodable: get(&self.undecodable),
            decodes: get(&self.decodes),
            decode_time: Duration::from_nanos(get(&self.decode_nanos)),
            lag: self.last_contact.lock().map(|contact| contact.elapsed()),
            ..Stats::default()
        }
    }
}

/// A statistic of a cache as metrics and debug pages show it; [`STATISTICS`] has all of them.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Statistic {
    /// The name in snake case; a time ends in `_seconds`.
    pub name: &'static str,
    /// One sentence for people, without a full stop.
    pub help: &'static str,
    /// Whether it only grows.
    pub kind: StatisticKind,
    /// The header of its column in text tables; `None`: not shown there.
    pub column: Option<&'static str>,
    /// Returns its value, `None` if it is not known yet.
    pub value: fn(&Stats) -> Option<StatisticValue>,
}

/// The kind of a [`Statistic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatisticKind {
    /// A value that rises and falls.
    Gauge,
    /// A value that only grows.
    Counter,
}

/// The value of a [`Statistic`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatisticValue {
    /// A number of things.
    Count(u64),
    /// A time.
    Time(Duration),
}

/// Every statistic of a cache. Metrics, the debug page and its text table are made from this list.
pub const STATISTICS: &[Statistic] = &[
    gauge("objects", "Objects in the cache", |stats| size(stats.objects)).column("OBJECTS"),
    gauge("bytes", "Bytes of JSON in the cache", |stats| size(stats.bytes)).column("BYTES"),
    gauge(
        "decoded_bytes",
        "Bytes of decoded objects kept for the next reader",
        |stats| size(stats.decoded_bytes),
    ),
    counter("dictionaries", "Compression dictionaries trained", |stats| {
        count(stats.dictionaries.into())
    }),
    counter("events", "Watch events for an object", |stats| {
        count(stats.events)
    }),
    counter("lists", "Complete lists received", |stats| count(stats.lists)),
    counter("watches", "Watches opened", |stats| count(stats.watches)),
    counter("failures", "Lists and watches that failed", |stats| {
        count(stats.failures)
    }),
    counter("undecodable", "Objects that did not decode", |stats| {
        count(stats.undecodable)
    }),
    counter("decodes", "Objects decoded for readers", |stats| {
        count(stats.decodes)
    }),
    counter(
        "decode_seconds",
        "Time spent decoding objects for readers",
        |stats| time(stats.decode_time),
    ),
    gauge(
        "lag_seconds",
        "Time since the last message from the server about this kind",
        |stats| stats.lag.and_then(time),
    )
    .column("LAG"),
    gauge(
        "subscribers",
        "Subscriptions, including those with a callback",
        |stats| size(stats.subscribers),
    ),
    gauge(
        "pending_changes",
        "Changes that subscribers have not taken",
        |stats| size(stats.pending),
    ),
    gauge(
        "unconfirmed_writes",
        "Own writes that the watch has not confirmed",
        |stats| size(stats.unconfirmed),
    ),
];

type Read = fn(&Stats) -> Option<StatisticValue>;

const fn gauge(name: &'static str, help: &'static str, value: Read) -> Statistic {
    Statistic {
        name,
        help,
        kind: StatisticKind::Gauge,
        column: None,
        value,
    }
}

const fn counter(name: &'static str, help: &'static str, value: Read) -> Statistic {
    Statistic {
        kind: StatisticKind::Counter,
        ..gauge(name, help, value)
    }
}

impl Statistic {
    const fn column(self, header: &'static str) -> Self {
        Self {
            column: Some(header),
            ..self
        }
    }
}

#[allow(clippy::unnecessary_wraps, reason = "every statistic returns an option")]
fn count(count: u64) -> Option<StatisticValue> {
    Some(StatisticValue::Count(count))
}

fn size(size: usize) -> Option<StatisticValue> {
    count(u64::try_from(size).unwrap_or(u64::MAX))
}

#[allow(clippy::unnecessary_wraps, reason = "every statistic returns an option")]
fn time(time: Duration) -> Option<StatisticValue> {
    Some(StatisticValue::Time(time))
}
