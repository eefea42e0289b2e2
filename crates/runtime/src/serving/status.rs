//! What the debug pages say, as data. Times are given as seconds from now: the reader's clock is not this one's.

use std::collections::BTreeMap;

use serde::Serialize;
use windlass_cache::Report;

use crate::outcomes::Outcome;

/// One controller: what it has to do and how it goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerStatus {
    /// Its name.
    pub name: String,
    /// How far it is.
    pub state: ControllerState,
    /// Reconciles that may run at the same time.
    pub workers: usize,
    /// Keys that wait for a worker.
    pub queued: usize,
    /// Keys that wait for their time: retries and what asked to run again later.
    pub delayed: usize,
    /// What runs now, the longest first.
    pub running: Vec<Running>,
    /// Objects whose last reconcile failed. A controller may list only some of many.
    pub failing: Vec<Failing>,
    /// How reconciles ended since the start.
    pub outcomes: OutcomeCounts,
    /// The reconcile that ended last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Ended>,
}

/// How far a controller is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ControllerState {
    /// Not told to run yet.
    #[default]
    Starting,
    /// Some caches are not complete.
    Syncing {
        /// The kinds that it waits for, as far as it knows.
        waiting_for: Vec<String>,
    },
    /// Ready, but another process leads.
    Standby,
    /// It reconciles.
    Running,
    /// It takes no new work, and waits for what runs.
    Stopping,
}

/// A reconcile that runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    /// What is reconciled.
    pub key: String,
    /// The id in its log lines.
    pub id: String,
    /// For how long it has run.
    pub seconds: f64,
}

/// A reconcile that has ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    /// What was reconciled.
    pub key: String,
    /// How it ended.
    pub outcome: Outcome,
    /// For how long it ran.
    pub seconds: f64,
    /// How long ago it ended.
    pub seconds_ago: f64,
}

/// An object whose last reconcile failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failing {
    /// What was reconciled.
    pub key: String,
    /// How often in a row.
    pub failures: u32,
    /// Why, the last time.
    pub last_error: String,
    /// When it is tried again; `None`: not before it changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_seconds: Option<f64>,
}

/// How reconciles ended, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutcomeCounts {
    /// With nothing more to do.
    pub done: u64,
    /// Asked to run again.
    pub requeued: u64,
    /// Failed, retried.
    pub failed: u64,
    /// Failed for good.
    pub terminal: u64,
    /// Panicked, retried.
    pub panicked: u64,
    /// Ran longer than allowed, retried.
    pub timed_out: u64,
}

/// One cache; made from a [`Report`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheStatus {
    /// The kind, with its API version.
    pub kind: String,
    /// Which objects of it.
    pub selection: String,
    /// The version that reads reflect; empty before the first list.
    pub resource_version: String,
    /// Objects in it.
    pub objects: usize,
    /// Bytes of JSON in it.
    pub bytes: usize,
    /// Listers and subscriptions that keep it alive.
    pub users: usize,
    /// Its indexes.
    pub indexes: Vec<String>,
    /// Seconds since the server last said anything about this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag_seconds: Option<f64>,
    /// What keeps it from following the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Its counters, by name.
    pub counts: BTreeMap<&'static str, u64>,
}

impl From<Report> for CacheStatus {
    fn from(report: Report) -> Self {
        let stats = &report.stats;
        let size = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Self {
            kind: report.kind.to_string(),
            selection: report.selection.to_string(),
            resource_version: report.resource_version.to_string(),
            objects: stats.objects,
            bytes: stats.bytes,
            users: report.users,
            lag_seconds: stats.lag.map(|lag| lag.as_secs_f64()),
            counts: BTreeMap::from([
                ("events", stats.events),
                ("lists", stats.lists),
                ("watches", stats.watches),
                ("failures", stats.failures),
                ("undecodable", stats.undecodable),
                ("decodes", stats.decodes),
                ("pendingChanges", size(stats.pending)),
                ("unconfirmedWrites", size(stats.unconfirmed)),
            ]),
            indexes: report.indexes,
            trouble: report.trouble,
        }
    }
}
