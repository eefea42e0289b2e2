//! Statistics of a cache.

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
