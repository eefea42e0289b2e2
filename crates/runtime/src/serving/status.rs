//! The data of the debug pages. Times are relative, in seconds, because the reader's clock may differ.

use serde::{Serialize, Serializer, ser::SerializeMap};
use windlass_cache::{Report, STATISTICS, StatisticValue, Stats};

use crate::outcomes::ReconcileOutcome;

/// Status of one controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerStatus {
    /// The controller's name.
    pub name: String,
    /// The controller's state.
    pub state: ControllerState,
    /// Maximum number of concurrent reconciles.
    pub workers: usize,
    /// Keys that wait for a worker.
    pub queued: usize,
    /// Keys that wait for a delay: retries and requeues.
    pub delayed: usize,
    /// Running reconciles, longest first.
    pub running: Vec<RunningReconcile>,
    /// Objects whose last reconcile failed; at most 1000 are listed.
    pub failing: Vec<FailingObject>,
    /// Finished reconciles by outcome, since the start.
    pub outcomes: OutcomeCounts,
    /// The last finished reconcile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<FinishedReconcile>,
}

/// State of a controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "phase", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ControllerState {
    /// Not started yet.
    #[default]
    Starting,
    /// Some caches have not synced.
    Syncing {
        /// The kinds that have not synced.
        waiting_for: Vec<String>,
        /// What is missing, such as a CRD or a right, if it cannot start without it.
        #[serde(skip_serializing_if = "Option::is_none")]
        blocked_by: Option<String>,
    },
    /// Ready, but another process leads.
    Standby,
    /// Reconciling.
    Running,
    /// Takes no new keys and waits for running reconciles.
    Stopping,
}

/// A running reconcile.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunningReconcile {
    /// The object's key.
    pub key: String,
    /// The reconcile's id in log lines.
    pub id: String,
    /// Why it runs; see [`Trigger`](crate::Trigger).
    pub trigger: String,
    /// How long it has been running.
    pub seconds: f64,
}

/// A finished reconcile.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FinishedReconcile {
    /// The object's key.
    pub key: String,
    /// Its outcome.
    pub outcome: ReconcileOutcome,
    /// Why it ran; see [`Trigger`](crate::Trigger).
    pub trigger: String,
    /// How long it ran.
    pub seconds: f64,
    /// How long ago it finished.
    pub seconds_ago: f64,
}

/// An object whose last reconcile failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailingObject {
    /// The object's key.
    pub key: String,
    /// Consecutive failures.
    pub failures: u32,
    /// The last error.
    pub last_error: String,
    /// Time until the next retry; `None`: not before the object changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_seconds: Option<f64>,
}

/// Finished reconciles by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutcomeCounts {
    /// Succeeded.
    pub done: u64,
    /// Succeeded and asked to run again later.
    pub requeued: u64,
    /// Failed and retried.
    pub failed: u64,
    /// Failed with a terminal error.
    pub terminal: u64,
    /// Panicked and retried.
    pub panicked: u64,
    /// Timed out and retried.
    pub timed_out: u64,
}

/// Status of one cache, from a [`Report`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheStatus {
    /// The kind, with its API version.
    pub kind: String,
    /// Namespaces and selectors of the watch.
    pub scope: String,
    /// The resource version that reads reflect; empty before the first list.
    pub resource_version: String,
    /// Listers and subscriptions that keep it alive.
    pub users: usize,
    /// Names of its indexes.
    pub indexes: Vec<String>,
    /// The last error of its lists and watches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<CacheFailure>,
    /// The statistics, by the names of [`STATISTICS`].
    #[serde(rename = "statistics", serialize_with = "serialize_stats")]
    pub stats: Stats,
}

/// The last error of a cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheFailure {
    /// What failed, with the server's message.
    pub message: String,
    /// How long ago.
    pub seconds_ago: f64,
    /// Whether the cache follows the server again.
    pub resolved: bool,
}

impl From<Report> for CacheStatus {
    fn from(report: Report) -> Self {
        Self {
            kind: report.kind.to_string(),
            scope: report.scope.to_string(),
            resource_version: report.resource_version.to_string(),
            users: report.users,
            indexes: report.indexes,
            last_error: report.last_error.map(|error| CacheFailure {
                message: error.message,
                seconds_ago: error.age.as_secs_f64(),
                resolved: error.resolved,
            }),
            stats: report.stats,
        }
    }
}

fn serialize_stats<S: Serializer>(stats: &Stats, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for statistic in STATISTICS {
        match (statistic.value)(stats) {
            Some(StatisticValue::Count(count)) => map.serialize_entry(statistic.name, &count)?,
            Some(StatisticValue::Time(time)) => map.serialize_entry(statistic.name, &time.as_secs_f64())?,
            None => {}
        }
    }
    map.end()
}
