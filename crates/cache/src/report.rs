//! Reports of caches, for debug pages and metrics.

use std::{sync::Arc, time::Duration};

use crate::{
    cache::Shared,
    kind::{GroupVersionKind, WatchScope},
    stats::Stats,
};

/// State of one watch and its store, from [`CacheSet::reports`](crate::CacheSet::reports).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The cached kind.
    pub kind: GroupVersionKind,
    /// The cached objects of it.
    pub scope: WatchScope,
    /// Clones, listers and subscriptions that keep the watch alive.
    pub users: usize,
    /// The resource version that reads reflect.
    pub resource_version: Arc<str>,
    /// The indexes.
    pub indexes: Vec<String>,
    /// The last error of its lists and watches, also if the cache has recovered from it.
    pub last_error: Option<ReportedError>,
    /// The statistics; [`STATISTICS`](crate::STATISTICS) has their names and descriptions.
    pub stats: Stats,
}

/// The last error of a cache, in a [`Report`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportedError {
    /// What failed, with the server's message.
    pub message: String,
    /// How long ago.
    pub age: Duration,
    /// The cache follows the server again.
    pub resolved: bool,
}

/// A synced cache that does not follow the server, from [`CacheSet::stale`](crate::CacheSet::stale). Its readers get the
/// last known state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StaleCache {
    /// The cached kind.
    pub kind: GroupVersionKind,
    /// How long its list or watch has been failing.
    pub since: Duration,
    /// What fails, with the server's message.
    pub error: String,
}

impl Report {
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        let core = &shared.core;
        let definitions = core.store.definitions();
        Self {
            kind: core.kind.clone(),
            scope: shared.watch_scope(),
            // Without the caller.
            users: Arc::strong_count(shared) - 1,
            resource_version: Arc::clone(&core.store.snapshot().resource_version),
            indexes: definitions
                .iter()
                .map(|definition| format!("{definition:?}"))
                .collect(),
            last_error: core.reported_error(),
            stats: core.stats(),
        }
    }
}
