//! Why a reconcile runs.

use std::{fmt, num::NonZeroU32, sync::Arc};

use windlass_cache::{Change, ObjectKey};
use windlass_workqueue::{AddOptions, Priority, Tag, WorkQueue};

use crate::key::ReconcileKey;

/// Why a reconcile runs: from [`Context::trigger`](crate::Context::trigger), in the span of its log lines, and on
/// `/debug/controllers`.
///
/// For logs and for debugging. A reconcile must not depend on it: several changes may be one run, and after a restart
/// every object is reconciled because of the start.
///
/// ```
/// use windlass_runtime::{Action, TriggerCause, Context, Error, Request};
///
/// async fn reconcile(_request: Request, ctx: Context) -> Result<Action, Error> {
///     if let TriggerCause::Retry { failures } = ctx.trigger().cause() {
///         tracing::info!(failures, "trying again");
///     }
///     Ok(Action::done())
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    cause: TriggerCause,
    /// How often the key was queued for this run.
    times: NonZeroU32,
    /// Whether one of these times is the retry of a failed run.
    includes_retry: bool,
}

/// The cause of a [`Trigger`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TriggerCause {
    /// The controller started, or this process became the leader.
    Start,
    /// An object changed: the reconciled one, or one that maps to it. All keys that it maps to share this.
    Change(Arc<ChangedObject>),
    /// The last run failed.
    Retry {
        /// Its consecutive failures; the first retry is 1.
        failures: u32,
    },
    /// The last run asked for it: [`Action::requeue_after`](crate::Action::requeue_after).
    Requeue,
    /// A stream or a custom source added the key.
    Source,
}

/// An object that changed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChangedObject {
    /// Its kind.
    pub kind: Arc<str>,
    /// Its namespace and name.
    pub object: ObjectKey,
    /// What happened to it.
    pub change: ChangeType,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeType {
    /// It was created, or came into the scope of the watch.
    Created,
    /// It was updated.
    Updated,
    /// Its deletion was requested; it waits for finalizers or its grace period.
    Deleting,
    /// It was deleted and created again.
    Recreated,
    /// It was deleted, or left the scope of the watch.
    Deleted,
    /// Nothing: the periodic resync.
    Resync,
}

impl Trigger {
    pub(crate) fn new(cause: TriggerCause) -> Self {
        Self {
            includes_retry: matches!(cause, TriggerCause::Retry { .. }),
            cause,
            times: NonZeroU32::MIN,
        }
    }

    /// The trigger of a change; `None` for an object that existed at the start.
    pub(crate) fn of_change<K>(kind: &Arc<str>, change: &Change<K>) -> Option<Self> {
        let changed = ChangedObject::of(kind, change)?;
        Some(Self::new(TriggerCause::Change(Arc::new(changed))))
    }

    /// Returns the cause. If the key was queued several times before this run, it is the last one; a resync replaces no
    /// other.
    pub fn cause(&self) -> &TriggerCause {
        &self.cause
    }

    /// Returns how often the key was queued for this run: at least 1.
    pub fn times(&self) -> u32 {
        self.times.get()
    }

    /// Returns how often something other than a failed run queued the key.
    pub(crate) fn external_times(&self) -> u32 {
        self.times.get() - u32::from(self.includes_retry)
    }

    fn is_resync(&self) -> bool {
        matches!(&self.cause, TriggerCause::Change(changed) if changed.change == ChangeType::Resync)
    }
}

impl ChangedObject {
    /// Describes a change of an object of this kind; `None` for an object that existed at the start.
    pub fn of<K>(kind: &Arc<str>, change: &Change<K>) -> Option<Self> {
        let type_ = match change {
            Change::Applied { initial: true, .. } => return None,
            Change::Applied { old: None, .. } => ChangeType::Created,
            Change::Deleted { .. } => ChangeType::Deleted,
            _ if change.is_resync() => ChangeType::Resync,
            _ if change.is_recreated() => ChangeType::Recreated,
            Change::Applied {
                old: Some(old), new, ..
            } if new.meta().is_deleting() && !old.meta().is_deleting() => ChangeType::Deleting,
            Change::Applied { .. } => ChangeType::Updated,
        };
        Some(Self {
            kind: Arc::clone(kind),
            object: change.key().clone(),
            change: type_,
        })
    }
}

/// Several triggers of one run: the last cause, except that a resync replaces no other.
impl Tag for Trigger {
    fn merge(&mut self, later: Self) {
        self.includes_retry |= later.includes_retry;
        self.times = self.times.saturating_add(1);
        if !later.is_resync() || self.is_resync() {
            self.cause = later.cause;
        }
    }
}

/// The queue that sources add keys to, with the trigger of each. Initial objects, which are most of the keys at the start, have
/// none: a key without a trigger runs because of the start.
pub(crate) type KeyQueue<Key> = WorkQueue<Key, Trigger>;

/// Adds a key; `None`: because of the start.
pub(crate) fn enqueue<Key: ReconcileKey>(
    queue: &KeyQueue<Key>,
    key: Key,
    priority: Priority,
    trigger: Option<Trigger>,
) {
    let add = AddOptions {
        priority,
        ..AddOptions::default()
    };
    match trigger {
        Some(trigger) => queue.add_tagged(key, add, trigger),
        None => queue.add_with(key, add),
    }
}

/// The start of the controller.
impl Default for Trigger {
    fn default() -> Self {
        Self::new(TriggerCause::Start)
    }
}

/// A short text, such as `ConfigMap shop/settings updated (queued 3 times)`.
impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            TriggerCause::Start => f.write_str("start")?,
            TriggerCause::Change(changed) => {
                write!(f, "{} {} {}", changed.kind, changed.object, changed.change)?;
            }
            TriggerCause::Retry { failures } => write!(f, "retry {failures}")?,
            TriggerCause::Requeue => f.write_str("requeue")?,
            TriggerCause::Source => f.write_str("source")?,
        }
        match self.times.get() {
            1 => Ok(()),
            times => write!(f, " (queued {times} times)"),
        }
    }
}

impl fmt::Display for ChangeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleting => "deleting",
            Self::Recreated => "recreated",
            Self::Deleted => "deleted",
            Self::Resync => "resync",
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use windlass_cache::{CachedObject, Deletion};

    use super::*;

    fn state(uid: &str, version: u64, deleting: bool) -> CachedObject<ConfigMap> {
        let object = serde_json::json!({ "metadata": {
            "namespace": "n", "name": "a", "uid": uid, "resourceVersion": version.to_string(),
            "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z"),
        } });
        CachedObject::detached(Arc::new(serde_json::from_value(object).expect("a config map")))
    }

    #[test]
    fn trigger_says_what_happened_to_the_object() {
        let applied = |old, new| Change::Applied {
            old,
            new,
            initial: false,
        };
        let (first, second) = (state("1", 1, false), state("1", 2, false));
        let cases = [
            (applied(None, first.clone()), "ConfigMap n/a created"),
            (
                applied(Some(first.clone()), second.clone()),
                "ConfigMap n/a updated",
            ),
            (
                applied(Some(second.clone()), second.clone()),
                "ConfigMap n/a resync",
            ),
            (
                applied(Some(first.clone()), state("1", 3, true)),
                "ConfigMap n/a deleting",
            ),
            (
                applied(Some(state("1", 3, true)), state("1", 4, true)),
                "ConfigMap n/a updated",
            ),
            (
                applied(Some(first.clone()), state("2", 5, false)),
                "ConfigMap n/a recreated",
            ),
            (
                Change::Deleted {
                    old: first.clone(),
                    last: second,
                    deletion: Deletion::Observed,
                },
                "ConfigMap n/a deleted",
            ),
        ];
        let kind = Arc::<str>::from("ConfigMap");
        for (change, expected) in cases {
            let trigger = Trigger::of_change(&kind, &change).expect("a trigger");
            assert_eq!(trigger.to_string(), expected);
        }
        let initial = Change::Applied {
            old: None,
            new: first,
            initial: true,
        };
        assert_eq!(Trigger::of_change(&kind, &initial), None, "an initial object");
    }

    #[test]
    fn last_cause_wins_except_for_resyncs() {
        let change = |change| {
            let changed = ChangedObject {
                kind: "ConfigMap".into(),
                object: ObjectKey::namespaced("n", "a"),
                change,
            };
            Trigger::new(TriggerCause::Change(Arc::new(changed)))
        };
        let mut trigger = Trigger::new(TriggerCause::Retry { failures: 2 });
        assert_eq!(trigger.to_string(), "retry 2");
        trigger.merge(change(ChangeType::Updated));
        trigger.merge(change(ChangeType::Resync));
        assert_eq!(trigger.to_string(), "ConfigMap n/a updated (queued 3 times)");
    }
}
