//! Holds back the removal of many copies at once until it is confirmed.
//!
//! A mistake in a selector, or a script that changes all namespaces, would remove copies that pods depend on. So if more
//! than a share of a sync's copies would be deleted within a few minutes, the rest stays until
//! [`CONFIRM_REMOVAL_ANNOTATION`] on the SecretSync that has or shows its status allows that many, or until they are wanted
//! again. [`removal_count`](crate::removal_count) says what counts.
//!
//! ```text
//!   status: RemovalHeld, recentRemovals ──► RemovalGuard ──► status
//!                (at the first look)         (while it runs)
//! ```
//!
//! What is held, and what was removed lately, is in the status, so that a restart forgets neither. What is about to be removed
//! is written there before the first of it is removed; a process that finds such a plan compares it with the copies that
//! exist, and so knows how many its predecessor has removed. Where no SecretSync shows the status of an annotated source, only
//! the copies tell how many there were: then any ten wait, whatever their share.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass::{
    k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp},
    prelude::{Conditions, ObjectKey, ResourceExt},
    runtime::{Clock, READY_CONDITION},
};

use crate::{
    api::{CONFIRM_REMOVAL_ANNOTATION, PlannedRemovals, RecentRemovals, SecretSync},
    copy_outcome::REMOVAL_NOT_CONFIRMED,
    identity::SyncId,
};

/// The condition that a removal is held.
pub(crate) const REMOVAL_HELD: &str = "RemovalHeld";

/// Removals within this time count together: a script changes one namespace after the other.
const WINDOW: Duration = Duration::from_mins(10);

/// Fewer copies are never held back.
pub(crate) const MIN_COPIES: usize = 10;

/// How many of a sync's copies a change removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Removal {
    pub(crate) unwanted: usize,
    pub(crate) copies: usize,
}

/// What ends the wait for a confirmation, besides undoing the change.
pub(crate) enum Confirmation {
    /// An annotation on this SecretSync, which has or shows the status.
    Annotation(ObjectKey),
    /// This SecretSync does not exist: it has to be created again.
    Recreation(ObjectKey),
    /// The status of an annotated source cannot be shown: only `false` on the source.
    Source,
}

/// The copies of a sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopyCount {
    pub(crate) wanted: usize,
    pub(crate) unwanted: usize,
    /// Unwanted ones that may be forged: they hold nothing back, and stay as long as others are held.
    pub(crate) doubtful: usize,
}

/// Returns how many copies may be removed at once, from the annotation; 0 if it is absent or not a number.
pub(crate) fn confirmed_removals(object: &SecretSync) -> usize {
    let confirmed = object.annotations().get(CONFIRM_REMOVAL_ANNOTATION);
    confirmed
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or_default()
}

/// Decides whether copies may be removed.
pub(crate) struct RemovalGuard {
    /// The share, in percent, that may be removed without confirmation.
    percent: usize,
    syncs: Mutex<HashMap<SyncId, SyncRemovals>>,
}

struct SyncRemovals {
    since: Instant,
    /// The same as a time of day, in whole seconds as in a status.
    since_time: Timestamp,
    /// How many were removed since.
    removed: usize,
    /// How many of them may count: others than those that were counted do not.
    most: usize,
    /// What is being removed.
    plan: Option<Plan>,
    /// An earlier process has made the plan, and how much of it is done is not known yet.
    is_unresolved: bool,
    /// A removal is held. Stays until it is confirmed and done, or until the copies are wanted again.
    is_held: bool,
    /// The decision at this revision of the sync index.
    decided: Option<(u64, Option<Removal>)>,
}

/// The removals that have begun.
#[derive(Clone, Copy)]
struct Plan {
    /// What `removed` will be.
    removed: usize,
    /// How many copies stay.
    wanted: usize,
}

impl SyncRemovals {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            since_time: Clock::system().now(),
            removed: 0,
            most: 0,
            plan: None,
            is_unresolved: false,
            is_held: false,
            decided: None,
        }
    }

    /// Continues what an earlier process has written to the status.
    fn from_status(object: Option<&SecretSync>) -> Self {
        let mut entry = Self::new();
        let Some(status) = object.and_then(|object| object.status.as_ref()) else {
            return entry;
        };
        let ready = status.conditions.of_type(READY_CONDITION);
        entry.is_held = status.conditions.is_true(REMOVAL_HELD)
            || ready.is_some_and(|ready| ready.reason == REMOVAL_NOT_CONFIRMED);
        if let Some(RecentRemovals {
            count,
            since,
            planned,
        }) = &status.recent_removals
        {
            let age = entry.since_time.as_second().saturating_sub(since.0.as_second());
            let age = Duration::from_secs(u64::try_from(age).unwrap_or_default());
            if age < WINDOW
                && let Some(began) = entry.since.checked_sub(age)
            {
                entry.since = began;
                entry.since_time = since.0;
                entry.removed = *count as usize;
                entry.most = entry.removed;
                entry.plan = planned.map(|PlannedRemovals { count, wanted }| Plan {
                    removed: count as usize,
                    wanted: wanted as usize,
                });
                entry.is_unresolved = entry.plan.is_some();
            }
        }
        entry
    }

    /// Determines how many copies an earlier process has removed, from its plan and from the copies that exist.
    fn resolve(&mut self, found: CopyCount) {
        if let Some(plan) = self.plan.filter(|_| self.is_unresolved) {
            // What was wanted then, and is not any more, was not part of the plan.
            let since = plan.wanted.saturating_sub(found.wanted);
            let removed = (plan.removed + since).saturating_sub(found.unwanted);
            self.removed = removed.clamp(self.removed.min(plan.removed), plan.removed);
        }
        self.is_unresolved = false;
    }

    fn is_recent(&self) -> bool {
        self.since.elapsed() < WINDOW
    }

    /// Forgets removals that were too long ago.
    fn expire(&mut self) {
        if !self.is_recent() {
            *self = Self {
                is_held: self.is_held,
                ..Self::new()
            };
        }
    }
}

impl RemovalGuard {
    pub(crate) fn new(percent: usize) -> Self {
        Self {
            percent,
            syncs: Mutex::default(),
        }
    }

    /// Returns the removal that waits for a confirmation, if so. `object` has the status of the sync, and the confirmation.
    /// `count` counts the sync's copies; `unwanted_in_total` the unwanted ones of all annotated sources, if it is one. Both are called
    /// at most once per `revision` of what decides about them.
    pub(crate) fn held(
        &self,
        sync: &SyncId,
        revision: u64,
        object: Option<&SecretSync>,
        count: impl FnOnce() -> CopyCount,
        unwanted_in_total: impl FnOnce() -> Option<usize>,
    ) -> Option<Removal> {
        let known = self.with_entry(sync, object, |entry| match entry.decided {
            Some((at, decision)) if at == revision => Err(decision),
            _ => Ok(entry.is_held),
        });
        let was_held = match known {
            Ok(was_held) => was_held,
            Err(decision) => return decision,
        };
        let mut found = count();
        // Doubt must not end what is held: the status that tells them apart may be old.
        if was_held {
            found.unwanted += found.doubtful;
        }
        let recently = self.with_entry(sync, object, |entry| {
            entry.resolve(found);
            entry.removed
        });
        let all = Removal {
            unwanted: found.unwanted + recently,
            copies: found.wanted + found.unwanted + recently,
        };
        let exceeds = |percent: usize| {
            found.unwanted > 0 && all.unwanted.saturating_mul(100) > all.copies.saturating_mul(percent)
        };
        let is_most = exceeds(self.percent);
        // Without a status, a restart forgets what was removed before: then their share says nothing.
        let is_share_known = object.is_some();
        let is_many = (is_most || !is_share_known && exceeds(0)) && all.unwanted >= MIN_COPIES
            || is_most
                && unwanted_in_total().is_some_and(|total| total + self.recently_removed() >= MIN_COPIES);
        let confirmed = object.map_or(0, confirmed_removals);
        self.with_entry(sync, object, |entry| {
            entry.is_held = found.unwanted > 0 && self.percent < 100 && (entry.is_held || is_many);
            entry.most = entry.removed + found.unwanted;
            let decision = (entry.is_held && all.unwanted > confirmed).then_some(all);
            entry.plan = (decision.is_none() && found.unwanted > 0).then_some(Plan {
                removed: entry.most,
                wanted: found.wanted,
            });
            entry.decided = Some((revision, decision));
            decision
        })
    }

    /// Returns whether a removal is held, or was at the last look.
    pub(crate) fn is_held(&self, sync: &SyncId, object: Option<&SecretSync>) -> bool {
        self.look(sync, object, |entry| entry.is_held)
    }

    /// Returns whether the status has the plan to remove the next copy, or there is no place for it.
    pub(crate) fn is_planned(&self, sync: &SyncId, object: Option<&SecretSync>) -> bool {
        let Some(object) = object else {
            return true;
        };
        let status = object.status.as_ref();
        self.look(sync, Some(object), |entry| {
            let Some(plan) = entry.plan else {
                return true;
            };
            let needed = (entry.removed + 1).min(plan.removed);
            let recent = status.and_then(|status| status.recent_removals.as_ref());
            recent.is_some_and(|recent| {
                let planned = recent.planned.map_or(recent.count, |planned| planned.count);
                recent.since.0 == entry.since_time && planned as usize >= needed
            })
        })
    }

    /// Records that a copy was removed.
    pub(crate) fn record(&self, sync: &SyncId, object: Option<&SecretSync>) {
        self.with_entry(sync, object, |entry| {
            entry.removed = (entry.removed + 1).min(entry.most);
        });
    }

    /// Forgets everything; the statuses have it.
    pub(crate) fn clear(&self) {
        self.syncs.lock().clear();
    }

    /// Returns what was removed lately, as it is in a status.
    pub(crate) fn recent(&self, sync: &SyncId, object: Option<&SecretSync>) -> Option<RecentRemovals> {
        self.look(sync, object, |entry| {
            let plan = entry.plan.filter(|plan| plan.removed > entry.removed);
            (entry.is_recent() && (entry.removed > 0 || plan.is_some())).then(|| RecentRemovals {
                count: saturated(entry.removed),
                since: Time(entry.since_time),
                planned: plan.map(|Plan { removed, wanted }| PlannedRemovals {
                    count: saturated(removed),
                    wanted: saturated(wanted),
                }),
            })
        })
    }

    /// Reads what is known of a sync. Most have no entry, and get none by this.
    fn look<T>(
        &self,
        sync: &SyncId,
        object: Option<&SecretSync>,
        read: impl FnOnce(&SyncRemovals) -> T,
    ) -> T {
        match self.syncs.lock().get(sync) {
            Some(entry) => read(entry),
            None => read(&SyncRemovals::from_status(object)),
        }
    }

    /// Returns how many copies of annotated sources were removed lately.
    fn recently_removed(&self) -> usize {
        let syncs = self.syncs.lock();
        let annotated = syncs
            .iter()
            .filter(|(id, entry)| matches!(id, SyncId::Annotated { .. }) && entry.is_recent());
        annotated.map(|(_, entry)| entry.removed).sum()
    }

    fn with_entry<T>(
        &self,
        sync: &SyncId,
        object: Option<&SecretSync>,
        change: impl FnOnce(&mut SyncRemovals) -> T,
    ) -> T {
        let mut syncs = self.syncs.lock();
        if syncs.len() == syncs.capacity() {
            syncs.retain(|_, entry| entry.is_held || entry.is_recent());
        }
        let entry = syncs
            .entry(sync.clone())
            .or_insert_with(|| SyncRemovals::from_status(object));
        entry.expire();
        change(entry)
    }
}

fn saturated(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use windlass::prelude::{from_value, json};

    use super::*;
    use crate::api::SourceKind;

    fn sync() -> SyncId {
        SyncId::Declared {
            namespace: "n".into(),
            name: "a".into(),
        }
    }

    fn annotated(name: &str) -> SyncId {
        SyncId::Annotated {
            kind: SourceKind::Secret,
            name: name.into(),
        }
    }

    /// A SecretSync with this confirmation, and this status.
    fn object(confirmed: usize, status: &serde_json::Value) -> SecretSync {
        let annotations = json!({ CONFIRM_REMOVAL_ANNOTATION: confirmed.to_string() });
        from_value(json!({
            "metadata": { "name": "a", "annotations": annotations }, "spec": {}, "status": status,
        }))
        .expect("a SecretSync")
    }

    fn removal(unwanted: usize, copies: usize) -> Removal {
        Removal { unwanted, copies }
    }

    fn count(unwanted: usize, copies: usize) -> CopyCount {
        CopyCount {
            wanted: copies - unwanted,
            unwanted,
            doubtful: 0,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn removal_of_too_many_copies_is_held_unless_confirmed() {
        for (unwanted, copies, confirmed, expected) in [
            (9, 9, 0, false),
            (10, 20, 0, false),
            (11, 20, 0, true),
            (11, 20, 10, true),
            (11, 20, 11, false),
            (20, 20, usize::MAX, false),
        ] {
            let guard = RemovalGuard::new(50);
            let found = removal(unwanted, copies);
            let object = object(confirmed, &json!({}));
            let held = guard.held(&sync(), 1, Some(&object), || count(unwanted, copies), || None);
            assert_eq!(held, expected.then_some(found), "{found:?} {confirmed}");
        }
        let never = RemovalGuard::new(100);
        assert_eq!(never.held(&sync(), 1, None, || count(20, 20), || None), None);
    }

    #[tokio::test(start_paused = true)]
    async fn removals_one_after_the_other_count_together_and_stay_held() {
        let guard = RemovalGuard::new(50);
        let object = object(0, &json!({}));
        let one_by_one = |revision: u64, unwanted, copies| {
            guard.held(
                &sync(),
                revision,
                Some(&object),
                || count(unwanted, copies),
                || None,
            )
        };
        for number in 0..10 {
            let left = 20 - usize::try_from(number).expect("small");
            assert_eq!(one_by_one(number, 1, left), None);
            guard.record(&sync(), None);
        }
        let held = Some(removal(11, 20));
        assert_eq!(one_by_one(10, 1, 10), held);
        let again = guard.held(&sync(), 10, None, || panic!("decided already"), || None);
        assert_eq!(again, held);
        // However long it takes.
        tokio::time::advance(2 * WINDOW).await;
        assert_eq!(one_by_one(11, 1, 10), Some(removal(1, 10)));
        // Until the copies are wanted again.
        assert_eq!(one_by_one(12, 0, 10), None);
        assert_eq!(one_by_one(13, 1, 10), None);
    }

    #[tokio::test(start_paused = true)]
    async fn status_continues_what_an_earlier_process_held_and_removed() {
        let held = |status, unwanted| {
            let guard = RemovalGuard::new(50);
            guard.held(
                &sync(),
                1,
                Some(&object(0, &status)),
                || count(unwanted, 15),
                || None,
            )
        };
        let condition = |kind: &str, reason: &str| {
            json!({ "conditions": [{
                "type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }] })
        };
        let recent =
            |since: Timestamp| json!({ "recentRemovals": { "count": 15, "since": since.to_string() } });
        assert_eq!(held(json!({}), 5), None);
        assert_eq!(held(condition("Ready", "Synced"), 5), None);
        let some = Some(removal(5, 15));
        assert_eq!(held(condition(REMOVAL_HELD, REMOVAL_NOT_CONFIRMED), 5), some);
        assert_eq!(held(condition("Ready", REMOVAL_NOT_CONFIRMED), 5), some);
        assert_eq!(held(condition(REMOVAL_HELD, REMOVAL_NOT_CONFIRMED), 0), None);
        let long_ago = Timestamp::from_second(1_000_000).expect("a time");
        assert_eq!(held(recent(long_ago), 5), None);
        assert_eq!(held(recent(Timestamp::now()), 5), Some(removal(20, 30)));
    }

    /// A process dies while it removes copies, before it has written how many it has removed.
    #[tokio::test(start_paused = true)]
    async fn plan_in_the_status_says_how_many_an_earlier_process_removed() {
        for (wanted, unwanted, removed) in [
            // Nothing, half and all of it was done.
            (20, 10, 0),
            (20, 5, 5),
            (20, 0, 10),
            // Half of it, and five more are unwanted since.
            (15, 10, 5),
            // All of it, and copies were created since.
            (25, 0, 10),
        ] {
            let first = RemovalGuard::new(50);
            let empty = object(0, &json!({}));
            assert_eq!(
                first.held(&sync(), 1, Some(&empty), || count(10, 30), || None),
                None
            );
            assert!(!first.is_planned(&sync(), Some(&empty)), "it is written first");
            let recent = first.recent(&sync(), Some(&empty));
            let written = object(0, &json!({ "recentRemovals": recent }));
            assert!(first.is_planned(&sync(), Some(&written)));

            let second = RemovalGuard::new(50);
            let found = count(unwanted, wanted + unwanted);
            second.held(&sync(), 1, Some(&written), || found, || None);
            let known = second
                .recent(&sync(), Some(&written))
                .map_or(0, |recent| recent.count);
            assert_eq!(known, removed, "{wanted} {unwanted}");
        }
    }

    /// The plan is for what is unwanted now: what follows needs another one.
    #[tokio::test(start_paused = true)]
    async fn plan_covers_only_what_was_counted() {
        let guard = RemovalGuard::new(50);
        let mut object = object(0, &json!({}));
        for (revision, left) in [(1, 30), (2, 28)] {
            guard.held(&sync(), revision, Some(&object), || count(2, left), || None);
            assert!(!guard.is_planned(&sync(), Some(&object)));
            let recent = guard.recent(&sync(), Some(&object));
            object = self::object(0, &json!({ "recentRemovals": recent }));
            for _ in 0..2 {
                assert!(guard.is_planned(&sync(), Some(&object)));
                guard.record(&sync(), Some(&object));
            }
        }
        let recent = guard.recent(&sync(), Some(&object)).expect("four were removed");
        assert_eq!((recent.count, recent.planned), (4, None));
    }

    #[tokio::test(start_paused = true)]
    async fn only_counted_copies_count_as_removed() {
        let guard = RemovalGuard::new(50);
        assert_eq!(guard.held(&sync(), 1, None, || count(2, 10), || None), None);
        // More are removed than were counted: others have forged them.
        for _ in 0..50 {
            guard.record(&sync(), None);
        }
        assert_eq!(guard.recent(&sync(), None).map(|recent| recent.count), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn doubtful_copies_neither_begin_nor_end_what_is_held() {
        let guard = RemovalGuard::new(50);
        let decide = |revision, unwanted, doubtful| {
            let found = CopyCount {
                wanted: 1,
                unwanted,
                doubtful,
            };
            guard.held(&sync(), revision, None, || found, || None)
        };
        assert_eq!(decide(1, 1, 50), None);
        assert_eq!(decide(2, 11, 0), Some(removal(11, 12)));
        assert_eq!(decide(3, 0, 11), Some(removal(11, 12)));
        assert_eq!(decide(4, 0, 0), None);
        assert_eq!(decide(5, 0, 11), None);
    }

    /// A restart would forget how many were removed before.
    #[tokio::test(start_paused = true)]
    async fn without_a_status_ten_copies_are_held_whatever_their_share() {
        for (unwanted, expected) in [(9, None), (10, Some(removal(10, 1000)))] {
            let guard = RemovalGuard::new(50);
            let held = guard.held(
                &annotated("a"),
                1,
                None,
                || count(unwanted, 1000),
                || Some(unwanted),
            );
            assert_eq!(held, expected);
        }
        let never = RemovalGuard::new(100);
        assert_eq!(
            never.held(&annotated("a"), 1, None, || count(10, 10), || Some(10)),
            None
        );
    }

    #[tokio::test(start_paused = true)]
    async fn annotated_sources_count_together() {
        let guard = RemovalGuard::new(50);
        let four = |name: &str, in_total: usize| {
            guard.held(&annotated(name), 1, None, || count(4, 4), || Some(in_total))
        };
        for name in ["a", "b"] {
            assert_eq!(four(name, 4), None, "eight in all");
            for _ in 0..4 {
                guard.record(&annotated(name), None);
            }
        }
        assert_eq!(four("c", 4), Some(removal(4, 4)), "eight were removed before");
    }
}
