//! Counters and latencies of requests.
//!
//! ```text
//!   request ─► RequestMetrics::observe ─► the shard of this thread ┐
//!                                                                  ├─► sum ─► `/metrics`
//!   watch ───► LongRunning (guard) ─────► the shard of this thread ┘ and the same one at its end
//! ```
//!
//! Every thread has a shard of its own, so that requests do not wait for each other; a scrape adds them up. Labels are
//! those of served resources and a fixed set of other paths, never text of a request.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::{registry::Resource, request::Target};

/// The upper bounds of the latency buckets, in milliseconds, as in the real server.
pub(crate) const BUCKETS_MS: [u64; 23] = [
    5, 25, 50, 100, 200, 400, 600, 800, 1_000, 1_250, 1_500, 2_000, 3_000, 4_000, 5_000, 6_000, 8_000,
    10_000, 15_000, 20_000, 30_000, 45_000, 60_000,
];

/// How many shards there are. More threads than this share some.
const SHARDS: usize = 16;

/// The maximum number of series in a shard. Created and deleted definitions would otherwise add ever more; further ones are
/// not counted.
const MAX_SERIES: usize = 10_000;

/// The metrics of all requests to a server.
#[derive(Default)]
pub(crate) struct RequestMetrics {
    shards: [Shard; SHARDS],
    /// Requests in flight that are not long-running: those that only read, and the others.
    reads: AtomicUsize,
    writes: AtomicUsize,
}

#[derive(Default)]
struct Shard(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    /// By the hash of all labels: a client may define resources that have any of them in common.
    by_hash: HashMap<u64, SeriesList, RandomState>,
    hasher: RandomState,
    count: usize,
}

/// Series with the plural of their resource and their other labels.
type SeriesList = Vec<(Box<str>, Labels, Series)>;

/// The labels of a series, except the resource and the response code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Labels {
    pub(crate) verb: &'static str,
    pub(crate) scope: &'static str,
    pub(crate) dry_run: bool,
    pub(crate) subresource: Box<str>,
    pub(crate) version: Box<str>,
    pub(crate) group: Box<str>,
}

/// The counts of one series.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Series {
    /// By response code. There are few.
    pub(crate) codes: BTreeMap<u16, u64>,
    /// The number of requests in each bucket; the last one has those above all bounds.
    pub(crate) buckets: [u64; BUCKETS_MS.len() + 1],
    pub(crate) total_time: Duration,
    /// Open watches.
    pub(crate) open: i64,
}

/// What a request is for.
#[derive(Clone)]
pub(crate) enum RequestTarget {
    Resource {
        resource: Arc<Resource>,
        /// A known subresource, by its index.
        subresource: Option<usize>,
        scope: &'static str,
    },
    /// Another path, by its name in the metrics.
    Path(&'static str),
}

impl RequestTarget {
    pub(crate) fn of(target: &Target) -> Self {
        let resource = target.resource.clone();
        let subresource = resource
            .subresources
            .iter()
            .position(|known| known.name == target.subresource);
        let scope = match (&*target.name, &*target.namespace) {
            ("", "") => "cluster",
            ("", _) => "namespace",
            _ => "resource",
        };
        Self::Resource {
            resource,
            subresource,
            scope,
        }
    }

    /// The target of a path that is not a resource's.
    pub(crate) fn of_path(path: &str) -> Self {
        const PATHS: [&str; 5] = ["/healthz", "/livez", "/readyz", "/metrics", "/version"];
        const PREFIXES: [&str; 4] = ["openapi/v2", "openapi/v3", "apis", "api"];
        let exact = PATHS.into_iter().find(|known| path == *known);
        let below = || {
            let path = path.trim_start_matches('/');
            PREFIXES.into_iter().find(|known| {
                path.strip_prefix(known)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            })
        };
        Self::Path(exact.or_else(below).unwrap_or_default())
    }

    fn parts(&self) -> (&str, &str, &str, &str, &'static str) {
        match self {
            Self::Resource {
                resource,
                subresource,
                scope,
            } => {
                let subresource = subresource.map_or("", |index| &*resource.subresources[index].name);
                (
                    &resource.plural,
                    subresource,
                    &resource.version,
                    &resource.group,
                    scope,
                )
            }
            Self::Path(path) => ("", path, "", "", ""),
        }
    }
}

impl RequestMetrics {
    /// Counts a request that was answered.
    pub(crate) fn observe(
        &self,
        target: &RequestTarget,
        verb: &'static str,
        dry_run: bool,
        code: u16,
        took: Duration,
    ) {
        self.update(shard_of_thread(), target, verb, dry_run, |series| {
            *series.codes.entry(code).or_default() += 1;
            // A watch is answered when it begins; its length says nothing about the server.
            if verb != "WATCH" {
                let bucket = BUCKETS_MS.partition_point(|bound| Duration::from_millis(*bound) < took);
                series.buckets[bucket] += 1;
                series.total_time += took;
            }
        });
    }

    /// Counts a watch as open until the guard is dropped.
    pub(crate) fn open_watch(self: &Arc<Self>, target: &Target) -> LongRunning {
        let target = RequestTarget::of(target);
        let shard = shard_of_thread();
        self.update(shard, &target, "WATCH", false, |series| series.open += 1);
        LongRunning {
            metrics: self.clone(),
            shard,
            target,
        }
    }

    /// Counts a request as in flight until the guard is dropped.
    pub(crate) fn in_flight(&self, only_reads: bool) -> InFlightRequest<'_> {
        let gauge = if only_reads { &self.reads } else { &self.writes };
        gauge.fetch_add(1, Ordering::Relaxed);
        InFlightRequest(gauge)
    }

    /// How many requests that read, and how many others, are in flight.
    pub(crate) fn current(&self) -> (usize, usize) {
        (
            self.reads.load(Ordering::Relaxed),
            self.writes.load(Ordering::Relaxed),
        )
    }

    /// The sum of all shards, by the plural of the resource and the other labels.
    pub(crate) fn total(&self) -> BTreeMap<(Box<str>, Labels), Series> {
        let mut all = BTreeMap::<_, Series>::new();
        for Shard(shard) in &self.shards {
            for (plural, labels, series) in shard.lock().by_hash.values().flatten() {
                all.entry((plural.clone(), labels.clone()))
                    .or_default()
                    .add(series);
            }
        }
        all
    }

    fn update(
        &self,
        shard: usize,
        target: &RequestTarget,
        verb: &'static str,
        dry_run: bool,
        update: impl FnOnce(&mut Series),
    ) {
        let (plural, subresource, version, group, scope) = target.parts();
        let mut tables = self.shards[shard].0.lock();
        let Tables {
            by_hash,
            hasher,
            count,
        } = &mut *tables;
        let hash = hasher.hash_one((plural, subresource, version, group, scope, verb, dry_run));
        if let Some((.., series)) = by_hash.get_mut(&hash).and_then(|list| {
            list.iter_mut().find(|(known, labels, _)| {
                (labels.verb, labels.scope, labels.dry_run) == (verb, scope, dry_run)
                    && (&**known, &*labels.subresource, &*labels.version, &*labels.group)
                        == (plural, subresource, version, group)
            })
        }) {
            return update(series);
        }
        if *count >= MAX_SERIES {
            return;
        }
        *count += 1;
        let labels = Labels {
            verb,
            scope,
            dry_run,
            subresource: subresource.into(),
            version: version.into(),
            group: group.into(),
        };
        let mut series = Series::default();
        update(&mut series);
        by_hash
            .entry(hash)
            .or_default()
            .push((plural.into(), labels, series));
    }
}

impl Series {
    fn add(&mut self, other: &Self) {
        for (code, count) in &other.codes {
            *self.codes.entry(*code).or_default() += count;
        }
        for (own, more) in self.buckets.iter_mut().zip(other.buckets) {
            *own += more;
        }
        self.total_time += other.total_time;
        self.open += other.open;
    }
}

/// The shard of the current thread.
fn shard_of_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: Cell<usize> = Cell::new(THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS);
    }
    SHARD.get()
}

/// An open watch.
pub(crate) struct LongRunning {
    metrics: Arc<RequestMetrics>,
    /// Where it was counted, or not if there were too many series: it ends in the same shard, to be counted to zero.
    shard: usize,
    target: RequestTarget,
}

impl Drop for LongRunning {
    fn drop(&mut self) {
        self.metrics
            .update(self.shard, &self.target, "WATCH", false, |series| {
                series.open -= 1;
            });
    }
}

/// A request in flight.
pub(crate) struct InFlightRequest<'a>(&'a AtomicUsize);

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn shards_add_up() {
        let metrics = RequestMetrics::default();
        let ready = RequestTarget::of_path("/readyz");
        std::thread::scope(|threads| {
            for _ in 0..2 * SHARDS {
                threads.spawn(|| metrics.observe(&ready, "GET", false, 200, Duration::from_millis(5)));
            }
        });
        metrics.observe(&ready, "GET", false, 500, Duration::from_mins(2));
        let total = metrics.total();
        let [((plural, labels), series)] = &total.iter().collect::<Vec<_>>()[..] else {
            panic!("one series: {total:?}");
        };
        assert_eq!(
            (&**plural, &*labels.subresource, labels.verb),
            ("", "/readyz", "GET")
        );
        assert_eq!(series.codes, BTreeMap::from([(200, 2 * SHARDS as u64), (500, 1)]));
        assert_eq!(series.buckets[0], 2 * SHARDS as u64);
        assert_eq!(series.buckets[BUCKETS_MS.len()], 1);
    }

    #[test]
    fn labels_of_paths_are_a_fixed_set() {
        for (path, label) in [
            ("/readyz", "/readyz"),
            ("/readyz/ping", ""),
            ("/api", "api"),
            ("/api/v1", "api"),
            ("/apis/apps/v1", "apis"),
            ("/apiserver", ""),
            ("/openapi/v3/apis/apps/v1", "openapi/v3"),
            ("/some/text/of/a/client", ""),
        ] {
            let RequestTarget::Path(found) = RequestTarget::of_path(path) else {
                panic!("a path");
            };
            assert_eq!(found, label, "{path}");
        }
    }

    #[test]
    fn watch_that_ends_on_another_thread_is_not_counted_any_more() {
        let metrics = Arc::<RequestMetrics>::default();
        let catalogue = Registry::new().catalogue();
        let target = Target {
            resource: catalogue.find("", "v1", "pods").expect("served").clone(),
            namespace: "".into(),
            name: "".into(),
            subresource: "".into(),
        };
        // The shard of this thread is full.
        let verbs = (0..MAX_SERIES).map(|number| &*Box::leak(number.to_string().into_boxed_str()));
        for verb in verbs {
            metrics.observe(&RequestTarget::Path(""), verb, false, 200, Duration::ZERO);
        }
        let here = shard_of_thread();
        let open_elsewhere = || (shard_of_thread(), metrics.open_watch(&target));
        let watch = std::thread::scope(|threads| {
            loop {
                let opened = threads.spawn(open_elsewhere).join();
                let (shard, watch) = opened.expect("no panic");
                if shard != here {
                    break watch;
                }
            }
        });
        let open = || metrics.total().values().map(|series| series.open).sum::<i64>();
        assert_eq!(open(), 1);
        drop(watch);
        assert_eq!(open(), 0);
    }

    #[test]
    fn number_of_series_is_bounded() {
        let metrics = RequestMetrics::default();
        let verbs: Vec<&'static str> = (0..MAX_SERIES + 10)
            .map(|number| &*Box::leak(number.to_string().into_boxed_str()))
            .collect();
        let path = RequestTarget::Path("");
        for verb in verbs {
            metrics.observe(&path, verb, false, 200, Duration::ZERO);
        }
        assert_eq!(metrics.total().len(), MAX_SERIES);
    }
}
