//! Reports of caches, for debug pages and metrics.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use crate::{
    cache::Shared,
    kind::{GroupVersionKind, WatchScope},
    stats::Stats,
};

/// State of one watch and its store, from [`CacheSet::reports`](crate::CacheSet::reports). `Display` writes one
/// readable line, [`metrics`](Self::metrics) the Prometheus format.
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
    /// The statistics.
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

    /// Returns the statistics in the Prometheus text format, labelled by kind and scope.
    pub fn metrics(&self) -> String {
        let Stats {
            objects,
            bytes,
            decoded_bytes: hot_bytes,
            events,
            lists,
            failures,
            undecodable,
            decodes,
            decode_time,
            lag,
            pending,
            unconfirmed,
            ..
        } = &self.stats;
        let labels = format!(
            r#"kind="{}",scope="{}""#,
            self.kind,
            self.scope.to_string().replace('"', "'")
        );
        let mut lines = String::new();
        let mut line = |name: &str, value: String| {
            // Writing to a string does not fail.
            let _ = writeln!(lines, "windlass_cache_{name}{{{labels}}} {value}");
        };
        line("objects", objects.to_string());
        line("bytes", bytes.to_string());
        line("decoded_bytes", hot_bytes.to_string());
        line("events_total", events.to_string());
        line("lists_total", lists.to_string());
        line("failures_total", failures.to_string());
        line("undecodable_total", undecodable.to_string());
        line("decodes_total", decodes.to_string());
        line("decode_seconds_total", decode_time.as_secs_f64().to_string());
        line("pending_changes", pending.to_string());
        line("unconfirmed_writes", unconfirmed.to_string());
        if let Some(lag) = lag {
            line("lag_seconds", lag.as_secs_f64().to_string());
        }
        lines
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            scope,
            users,
            resource_version,
            indexes,
            last_error,
            stats,
        } = self;
        write!(
            f,
            "{kind}, {scope}: {} objects in {} bytes at version {resource_version}, {users} users, {} subscribers with {} pending",
            stats.objects, stats.bytes, stats.subscribers, stats.pending
        )?;
        if !indexes.is_empty() {
            write!(f, ", indexed by {}", indexes.join(", "))?;
        }
        match last_error {
            Some(trouble) => write!(f, "; error: {trouble}"),
            None => Ok(()),
        }
    }
}
