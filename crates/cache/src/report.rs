//! The debug view: what is cached, for whom, and how well it goes.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use crate::{
    cache::Shared,
    kind::{KindName, Selection},
    stats::Stats,
};

/// One watch and its store, from [`Caches::reports`](crate::Caches::reports). Displays as a line for a person, and
/// [`metrics`](Self::metrics) as lines for a machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// What is cached.
    pub kind: KindName,
    /// Which part of it.
    pub selection: Selection,
    /// Clones, listers and subscriptions that keep it alive.
    pub users: usize,
    /// The version that reads reflect.
    pub resource_version: Arc<str>,
    /// The indexes that it has.
    pub indexes: Vec<String>,
    /// What keeps it from following the server.
    pub trouble: Option<String>,
    /// Its figures.
    pub stats: Stats,
}

impl Report {
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        let core = &shared.core;
        let definitions = core.store.definitions();
        Self {
            kind: core.kind.clone(),
            selection: shared.selection(),
            // Not the one that asks.
            users: Arc::strong_count(shared) - 1,
            resource_version: Arc::clone(&core.store.snapshot().resource_version),
            indexes: definitions
                .iter()
                .map(|definition| format!("{definition:?}"))
                .collect(),
            trouble: core.current_trouble(),
            stats: core.stats(),
        }
    }

    /// The figures in the text format that Prometheus reads, labelled by kind and selection.
    pub fn metrics(&self) -> String {
        let Stats {
            objects,
            bytes,
            hot_bytes,
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
            r#"kind="{}",selection="{}""#,
            self.kind,
            self.selection.to_string().replace('"', "'")
        );
        let mut lines = String::new();
        let mut line = |name: &str, value: String| {
            // Writing to a text does not fail.
            let _ = writeln!(lines, "windlass_cache_{name}{{{labels}}} {value}");
        };
        line("objects", objects.to_string());
        line("bytes", bytes.to_string());
        line("hot_bytes", hot_bytes.to_string());
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
            selection,
            users,
            resource_version,
            indexes,
            trouble,
            stats,
        } = self;
        write!(
            f,
            "{kind}, {selection}: {} objects in {} bytes at version {resource_version}, {users} users, {} subscribers with {} pending",
            stats.objects, stats.bytes, stats.subscribers, stats.pending
        )?;
        if !indexes.is_empty() {
            write!(f, ", indexed by {}", indexes.join(", "))?;
        }
        match trouble {
            Some(trouble) => write!(f, "; in trouble: {trouble}"),
            None => Ok(()),
        }
    }
}
