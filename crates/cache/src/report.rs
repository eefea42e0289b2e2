//! Reports of caches, for debug pages and metrics.

use std::sync::Arc;

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
    /// The error that keeps the cache from following the server.
    pub last_error: Option<String>,
    /// The statistics; [`STATISTICS`](crate::STATISTICS) has their names and descriptions.
    pub stats: Stats,
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
            last_error: core.last_error(),
            stats: core.stats(),
        }
    }
}
