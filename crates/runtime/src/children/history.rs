//! History of what this process applied, to avoid writes without effect.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use tokio::time::Instant;
use windlass_cache::ObjectKey;

use super::{child_ref::ChildId, prune::WINDOW};

/// How often the runtime may report about an object on its own, at once and then per interval. A report triggers the next
/// reconcile, so outcomes that differ each time would be written at full speed.
const REPORT_BURST: u32 = 10;
const REPORT_INTERVAL: Duration = Duration::from_mins(1);

/// Applied state by object of the controller's kind, removed with the object. It only saves requests.
#[derive(Default)]
pub(crate) struct ApplyHistory {
    objects: HashMap<ObjectKey, ObjectHistory>,
    /// By kind.
    support: HashMap<String, KindSupport>,
}

/// Which fields a status has for the standard conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConditionSupport {
    pub(super) conditions: bool,
    pub(super) observed_generation: bool,
}

/// Which fields the statuses of a kind have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KindSupport {
    Typed(ConditionSupport),
    /// The type keeps any field, so the schema is not known.
    Untyped,
}

#[derive(Default)]
struct ObjectHistory {
    status: Option<AppliedState>,
    /// The status was not written because children were created after it was computed.
    is_status_deferred: bool,
    /// The object's resource version when it was last reconciled with success.
    event_version: Option<String>,
    /// Something was written for which no event was recorded.
    is_event_pending: bool,
    /// When the runtime's own reports began to count, and how many there were since.
    reports: Option<(Instant, u32)>,
    children: HashMap<(String, ObjectKey), AppliedState>,
    /// Deletions of children for a generation, and when they began to count.
    deletions: Option<(Option<i64>, Instant, usize)>,
    /// The approval that was asked for, while unwanted children are kept.
    requested_approval: Option<String>,
    /// The object's resource version with the report of its last failure, if nothing else changed with it.
    failure_report: Option<String>,
    /// The UID of the object whose cleanup has succeeded.
    cleaned_up: Option<String>,
}

/// Hashes of what was applied and of the object afterwards.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct AppliedState {
    pub(super) desired_hash: u64,
    pub(super) actual_hash: u64,
}

impl ApplyHistory {
    pub(crate) fn forget_object(&mut self, object: &ObjectKey) {
        self.objects.remove(object);
    }

    pub(super) fn record_applied(
        &mut self,
        object: &ObjectKey,
        kind: &str,
        child: &ObjectKey,
        state: AppliedState,
    ) {
        let history = self.objects.entry(object.clone()).or_default();
        history.children.insert((kind.to_owned(), child.clone()), state);
    }

    pub(super) fn is_applied(
        &self,
        object: &ObjectKey,
        kind: &str,
        child: &ObjectKey,
        state: AppliedState,
    ) -> bool {
        let history = self.objects.get(object);
        history
            .and_then(|history| history.children.get(&(kind.to_owned(), child.clone())))
            .is_some_and(|known| *known == state)
    }

    /// Whether this process has applied or observed the child.
    pub(super) fn has_child(&self, object: &ObjectKey, kind: &str, child: &ObjectKey) -> bool {
        let history = self.objects.get(object);
        history.is_some_and(|history| history.children.contains_key(&(kind.to_owned(), child.clone())))
    }

    /// Forgets the children that are not desired any more: others may delete them.
    pub(super) fn retain_children(&mut self, object: &ObjectKey, desired: &[ChildId]) {
        if let Some(history) = self.objects.get_mut(object)
            && history.children.len() > desired.len()
        {
            let desired: HashSet<_> = desired
                .iter()
                .map(|child| (child.kind.kind.as_str(), &child.key))
                .collect();
            history
                .children
                .retain(|(kind, key), _| desired.contains(&(kind.as_str(), key)));
        }
    }

    pub(super) fn forget_child(&mut self, object: &ObjectKey, kind: &str, child: &ObjectKey) {
        if let Some(history) = self.objects.get_mut(object) {
            history.children.remove(&(kind.to_owned(), child.clone()));
        }
    }

    /// How many children were deleted recently for this generation of the object.
    pub(super) fn recent_deletions(
        &self,
        object: &ObjectKey,
        generation: Option<i64>,
        now: Instant,
    ) -> usize {
        let deletions = self.objects.get(object).and_then(|history| history.deletions);
        deletions
            .filter(|(of, since, _)| *of == generation && now.saturating_duration_since(*since) < WINDOW)
            .map_or(0, |(_, _, count)| count)
    }

    pub(super) fn record_deletion(&mut self, object: &ObjectKey, generation: Option<i64>, now: Instant) {
        let count = self.recent_deletions(object, generation, now);
        let history = self.objects.entry(object.clone()).or_default();
        let since = history
            .deletions
            .filter(|_| count > 0)
            .map_or(now, |(_, since, _)| since);
        history.deletions = Some((generation, since, count + 1));
    }

    pub(super) fn set_requested_approval(&mut self, object: &ObjectKey, approval: Option<String>) {
        if approval.is_some() || self.objects.contains_key(object) {
            self.objects.entry(object.clone()).or_default().requested_approval = approval;
        }
    }

    pub(super) fn requested_approval(&self, object: &ObjectKey) -> Option<String> {
        self.objects.get(object)?.requested_approval.clone()
    }

    /// Records that this version of the object differs from the reconciled one only in the report of a failure.
    pub(super) fn record_failure_report(&mut self, object: &ObjectKey, version: String) {
        self.objects.entry(object.clone()).or_default().failure_report = Some(version);
    }

    pub(crate) fn failure_report(&self, object: &ObjectKey) -> Option<&str> {
        self.objects.get(object)?.failure_report.as_deref()
    }

    /// Records that the cleanup of the object with this UID has succeeded: only its finalizer is left to remove.
    pub(super) fn record_cleanup(&mut self, object: &ObjectKey, uid: Option<&str>) {
        self.objects.entry(object.clone()).or_default().cleaned_up = uid.map(str::to_owned);
    }

    pub(super) fn is_cleaned_up(&self, object: &ObjectKey, uid: Option<&str>) -> bool {
        let history = self.objects.get(object);
        uid.is_some() && history.is_some_and(|history| history.cleaned_up.as_deref() == uid)
    }

    pub(super) fn record_status(&mut self, object: &ObjectKey, state: AppliedState) {
        self.objects.entry(object.clone()).or_default().status = Some(state);
    }

    pub(super) fn status(&self, object: &ObjectKey) -> Option<AppliedState> {
        self.objects.get(object)?.status
    }

    /// Defers the status. Returns `false` if it is already deferred: children that keep vanishing must not prevent the
    /// status from being written.
    pub(super) fn defer_status(&mut self, object: &ObjectKey) -> bool {
        let history = self.objects.entry(object.clone()).or_default();
        history.is_event_pending = true;
        !std::mem::replace(&mut history.is_status_deferred, true)
    }

    /// Ends the deferral: the status is up to date.
    pub(super) fn clear_deferred_status(&mut self, object: &ObjectKey) {
        if let Some(history) = self.objects.get_mut(object) {
            history.is_status_deferred = false;
        }
    }

    /// Notes a write for which an event is due later.
    pub(super) fn set_event_pending(&mut self, object: &ObjectKey) {
        self.objects.entry(object.clone()).or_default().is_event_pending = true;
    }

    /// Whether an event is due for this version of the object, which is then noted. What was there when the process started
    /// is not new.
    pub(super) fn is_event_due(&mut self, object: &ObjectKey, version: Option<&str>) -> bool {
        let history = self.objects.entry(object.clone()).or_default();
        let known = history.event_version.as_deref();
        let is_new = known.is_some() && known != version;
        history.event_version = version.map(str::to_owned);
        std::mem::take(&mut history.is_event_pending) || is_new
    }

    /// Counts a report of the runtime alone. Returns how long it must wait if there were too many.
    pub(super) fn try_report(&mut self, object: &ObjectKey, now: Instant) -> Result<(), Duration> {
        let history = self.objects.entry(object.clone()).or_default();
        let (since, count) = history.reports.get_or_insert((now, 0));
        while *count > 0 && now.duration_since(*since) >= REPORT_INTERVAL {
            *count -= 1;
            *since += REPORT_INTERVAL;
        }
        match *count {
            0 => *since = now,
            REPORT_BURST.. => return Err(REPORT_INTERVAL.saturating_sub(now.duration_since(*since))),
            _ => {}
        }
        *count += 1;
        Ok(())
    }

    pub(super) fn support(&self, kind: &str) -> Option<KindSupport> {
        self.support.get(kind).copied()
    }

    pub(super) fn set_support(&mut self, kind: String, support: KindSupport) {
        self.support.insert(kind, support);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_deferred_only_once() {
        let (mut history, web) = (ApplyHistory::default(), ObjectKey::cluster_scoped("web"));
        assert!(history.defer_status(&web));
        assert!(
            !history.defer_status(&web),
            "vanishing children do not block the status"
        );
        history.clear_deferred_status(&web);
        assert!(history.defer_status(&web));
    }

    #[test]
    fn event_is_due_once_per_new_version_and_after_a_write() {
        let (mut history, web) = (ApplyHistory::default(), ObjectKey::cluster_scoped("web"));
        let mut is_due = |version| history.is_event_due(&web, Some(version));
        let due = ["1", "1", "2", "2", "1"].map(&mut is_due);
        assert_eq!(due, [false, false, true, false, true]);
        history.defer_status(&web);
        assert!(history.is_event_due(&web, Some("1")), "a child was created");
        assert!(!history.is_event_due(&web, Some("1")));
        history.set_event_pending(&web);
        assert!(
            history.is_event_due(&web, Some("1")),
            "a child was written before another failed"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn reports_are_limited_per_object() {
        let (mut history, web) = (ApplyHistory::default(), ObjectKey::cluster_scoped("web"));
        let now = Instant::now();
        let mut report = |seconds| history.try_report(&web, now + Duration::from_secs(seconds));
        assert!((0..10).all(|_| report(0).is_ok()));
        assert_eq!(report(20), Err(Duration::from_secs(40)));
        assert_eq!(report(60), Ok(()));
        assert_eq!(report(61), Err(Duration::from_secs(59)));
        assert!(
            (0..10).all(|_| report(3600).is_ok()),
            "the burst is available again"
        );
        assert!(report(3600).is_err());
        let other = ObjectKey::cluster_scoped("other");
        assert_eq!(history.try_report(&other, now), Ok(()));
    }
}
