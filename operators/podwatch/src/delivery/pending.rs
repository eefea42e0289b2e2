//! The notices of one name that wait for one sink: the latest state, and before it at most the deletion of a predecessor.
//!
//! ```text
//!   Updated + Updated (same uid)  ──► one Updated, with the changes of both
//!   Added   + Updated             ──► Added, with the latest state
//!   any     + Deleted             ──► Deleted
//!   Deleted + Added (another uid) ──► both, in this order
//! ```

use std::sync::Arc;

use crate::notice::{EventType, FieldChange, Notice};

/// One or two notices for one name. A newer notice of the same object replaces the waiting one.
#[derive(Debug, Default)]
pub(super) struct PendingNotices {
    /// The deletion of an earlier object of this name; delivered first.
    deletion: Option<Arc<Notice>>,
    latest: Option<Arc<Notice>>,
}

impl PendingNotices {
    /// Adds the next notice. Returns whether it was coalesced with a waiting one.
    pub(super) fn push(&mut self, next: Arc<Notice>) -> bool {
        let Some(waits) = self.latest.take() else {
            self.latest = Some(next);
            return false;
        };
        let is_same_object = waits.uid == next.uid || waits.uid.is_none() || next.uid.is_none();
        if is_same_object {
            self.latest = Some(coalesce(&waits, next));
            return true;
        }
        self.latest = Some(next);
        // Of several deleted objects, the sink knows only the first.
        let is_kept = waits.event == EventType::Deleted && self.deletion.is_none();
        if is_kept {
            self.deletion = Some(waits);
        }
        !is_kept
    }

    /// The next notice to deliver.
    pub(super) fn next(&self) -> Option<&Arc<Notice>> {
        self.deletion.as_ref().or(self.latest.as_ref())
    }

    /// Removes the next notice to deliver.
    pub(super) fn pop(&mut self) -> Option<Arc<Notice>> {
        self.deletion.take().or_else(|| self.latest.take())
    }

    /// Puts back a notice whose delivery failed. Returns whether it was coalesced with a newer one.
    pub(super) fn put_back(&mut self, notice: Arc<Notice>) -> bool {
        let mut steps = Self {
            deletion: None,
            latest: Some(notice),
        };
        let mut coalesced = false;
        while let Some(next) = self.pop() {
            coalesced |= steps.push(next);
        }
        *self = steps;
        coalesced
    }

    pub(super) fn is_empty(&self) -> bool {
        self.deletion.is_none() && self.latest.is_none()
    }
}

/// Merges two successive notices of one object for a receiver that has seen neither.
fn coalesce(first: &Notice, second: Arc<Notice>) -> Arc<Notice> {
    match (first.event, second.event) {
        (EventType::Synced | EventType::Added, EventType::Synced | EventType::Added | EventType::Updated) => {
            Arc::new(Notice {
                event: first.event,
                inferred: first.inferred,
                changes: Vec::new(),
                ..Notice::clone(&second)
            })
        }
        (EventType::Updated, EventType::Updated | EventType::Synced) => Arc::new(Notice {
            event: EventType::Updated,
            inferred: first.inferred || second.inferred,
            changes: merge_changes(&first.changes, &second.changes),
            ..Notice::clone(&second)
        }),
        _ => second,
    }
}

/// The combined changes of two successive updates.
fn merge_changes(first: &[FieldChange], second: &[FieldChange]) -> Vec<FieldChange> {
    let mut changes = first.to_vec();
    for later in second {
        match changes.iter_mut().find(|change| change.path == later.path) {
            Some(change) => change.new.clone_from(&later.new),
            None => changes.push(later.clone()),
        }
    }
    changes.retain(|change| change.old != change.new);
    changes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::delivery::testing::pod;

    /// Pushes notices and returns those to deliver, each as `(event, uid, version)`.
    fn delivered(pushed: &[(EventType, &str, u64)]) -> Vec<(EventType, String, String)> {
        let mut steps = PendingNotices::default();
        for (what, uid, version) in pushed {
            steps.push(Arc::new(pod("web", uid, *version).what(*what).build()));
        }
        drain(steps)
    }

    fn drain(mut steps: PendingNotices) -> Vec<(EventType, String, String)> {
        let delivered = std::iter::from_fn(|| steps.pop());
        delivered
            .map(|notice| {
                let uid = notice.uid.clone().expect("a uid");
                (
                    notice.event,
                    uid[uid.len() - 1..].to_owned(),
                    notice.resource_version.clone().expect("one"),
                )
            })
            .collect()
    }

    #[test]
    fn latest_state_and_predecessors_deletion_wait() {
        use EventType::{Added, Deleted, Synced, Updated};
        type Step<'a> = (EventType, &'a str, u64);
        let cases: [(&[Step<'_>], &[Step<'_>]); 8] = [
            (&[(Updated, "1", 1), (Updated, "1", 2)], &[(Updated, "1", 2)]),
            (&[(Added, "1", 1), (Updated, "1", 2)], &[(Added, "1", 2)]),
            (&[(Synced, "1", 1), (Updated, "1", 2)], &[(Synced, "1", 2)]),
            (&[(Added, "1", 1), (Deleted, "1", 2)], &[(Deleted, "1", 2)]),
            (
                &[(Deleted, "1", 2), (Added, "2", 3)],
                &[(Deleted, "1", 2), (Added, "2", 3)],
            ),
            (
                &[(Deleted, "1", 2), (Added, "2", 3), (Updated, "2", 4)],
                &[(Deleted, "1", 2), (Added, "2", 4)],
            ),
            (
                &[
                    (Deleted, "1", 2),
                    (Added, "2", 3),
                    (Deleted, "2", 4),
                    (Added, "3", 5),
                ],
                &[(Deleted, "1", 2), (Added, "3", 5)],
            ),
            (&[(Updated, "1", 2), (Added, "2", 3)], &[(Added, "2", 3)]),
        ];
        for (pushed, expected) in cases {
            let expected: Vec<_> = expected
                .iter()
                .map(|(what, uid, version)| (*what, (*uid).to_owned(), version.to_string()))
                .collect();
            assert_eq!(delivered(pushed), expected, "{pushed:?}");
        }
    }

    #[test]
    fn put_back_keeps_order_with_newer_notices() {
        let notice = |what, uid, version| Arc::new(pod("web", uid, version).what(what).build());
        let mut steps = PendingNotices::default();
        steps.push(notice(EventType::Deleted, "1", 1));
        let flying = steps.pop().expect("one");
        steps.push(notice(EventType::Added, "2", 2));
        assert!(!steps.put_back(flying));
        let delivered = drain(steps);
        assert_eq!(
            delivered.iter().map(|(what, ..)| *what).collect::<Vec<_>>(),
            [EventType::Deleted, EventType::Added]
        );

        let mut steps = PendingNotices::default();
        steps.push(notice(EventType::Added, "1", 1));
        let flying = steps.pop().expect("one");
        steps.push(notice(EventType::Updated, "1", 2));
        assert!(steps.put_back(flying));
        assert_eq!(drain(steps), [(EventType::Added, "1".to_owned(), "2".to_owned())]);
    }

    #[test]
    fn coalesced_updates_merge_changes_and_drop_reverted_ones() {
        let change = |path: &str, old, new| FieldChange {
            path: path.to_owned(),
            old: Some(json!(old)),
            new: Some(json!(new)),
        };
        let mut first = pod("web", "1", 1).what(EventType::Updated).build();
        first.changes = vec![change("a", 1, 2), change("b", 1, 2)];
        let mut second = pod("web", "1", 2).what(EventType::Updated).build();
        second.changes = vec![change("a", 2, 3), change("b", 2, 1), change("c", 1, 2)];
        let mut steps = PendingNotices::default();
        steps.push(Arc::new(first));
        assert!(steps.push(Arc::new(second)));
        let delivered = steps.pop().expect("one");
        assert_eq!(delivered.changes, [change("a", 1, 3), change("c", 1, 2)]);
        assert!(steps.is_empty());
    }
}
