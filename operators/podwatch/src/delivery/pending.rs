//! The notices of one name that wait for one sink: the latest state, and before it at most the deletion of a predecessor.
//!
//! ```text
//!   Updated + Updated (same uid)  ──► one Updated, with the changes of both
//!   Added   + Updated             ──► Added, with the latest state
//!   any     + Deleted             ──► Deleted
//!   Deleted + Added (another uid) ──► both, in this order
//! ```
//!
//! A sink that wants every change queues them instead, as long as it has room.

use std::{collections::VecDeque, sync::Arc};

use crate::notice::{EventType, FieldChange, Notice};

/// The notices for one name, in order. Without room, a newer notice of the same object replaces the waiting one.
#[derive(Debug, Default)]
pub(super) struct PendingNotices(VecDeque<Arc<Notice>>);

/// Whether a notice may wait beside another of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// It is queued.
    Queue,
    /// It is coalesced with the waiting one.
    Coalesce,
}

impl PendingNotices {
    /// Adds the next notice. Returns whether it was coalesced with a waiting one.
    pub(super) fn push(&mut self, next: Arc<Notice>, room: Room) -> bool {
        let Some(waits) = self.0.back().filter(|_| room == Room::Coalesce) else {
            self.0.push_back(next);
            return false;
        };
        let is_same_object = waits.uid == next.uid || waits.uid.is_none() || next.uid.is_none();
        // Of several deleted objects, the sink knows the first, and those of which it gets another notice before.
        let earlier = self.0.len() - 1;
        let is_known = earlier == 0 || self.0.iter().take(earlier).any(|before| before.uid == waits.uid);
        if !is_same_object && waits.event == EventType::Deleted && is_known {
            self.0.push_back(next);
            return false;
        }
        let waits = self.0.pop_back().expect("it was just there");
        self.0.push_back(if is_same_object {
            coalesce(&waits, &next)
        } else {
            Arc::new(Notice {
                coalesced: next.coalesced + waits.coalesced + 1,
                ..Notice::clone(&next)
            })
        });
        true
    }

    /// The next notice to deliver.
    pub(super) fn next(&self) -> Option<&Arc<Notice>> {
        self.0.front()
    }

    /// Removes the next notice to deliver.
    pub(super) fn pop(&mut self) -> Option<Arc<Notice>> {
        self.0.pop_front()
    }

    /// Puts back a notice whose delivery failed. Returns whether it was coalesced with a newer one.
    pub(super) fn put_back(&mut self, notice: Arc<Notice>, room: Room) -> bool {
        if room == Room::Queue {
            self.0.push_front(notice);
            return false;
        }
        let mut newer = std::mem::replace(&mut self.0, VecDeque::from([notice]));
        let mut coalesced = false;
        // Only the first is coalesced with it: the others had room.
        if let Some(next) = newer.pop_front() {
            coalesced = self.push(next, Room::Coalesce);
        }
        self.0.extend(newer);
        coalesced
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Merges two successive notices of one object for a receiver that has seen neither.
fn coalesce(first: &Notice, second: &Notice) -> Arc<Notice> {
    let mut merged = Notice::clone(second);
    merged.coalesced += first.coalesced + 1;
    match (first.event, second.event) {
        (EventType::Synced | EventType::Added, EventType::Synced | EventType::Added | EventType::Updated) => {
            merged.event = first.event;
            merged.inferred = first.inferred;
            merged.changes = Vec::new();
        }
        (EventType::Updated, EventType::Updated | EventType::Synced) => {
            merged.event = EventType::Updated;
            merged.inferred |= first.inferred;
            merged.changes = merge_changes(&first.changes, &second.changes);
        }
        _ => {}
    }
    Arc::new(merged)
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
            steps.push(
                Arc::new(pod("web", uid, *version).what(*what).build()),
                Room::Coalesce,
            );
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
        steps.push(notice(EventType::Deleted, "1", 1), Room::Coalesce);
        let flying = steps.pop().expect("one");
        steps.push(notice(EventType::Added, "2", 2), Room::Coalesce);
        assert!(!steps.put_back(flying, Room::Coalesce));
        let delivered = drain(steps);
        assert_eq!(
            delivered.iter().map(|(what, ..)| *what).collect::<Vec<_>>(),
            [EventType::Deleted, EventType::Added]
        );

        let mut steps = PendingNotices::default();
        steps.push(notice(EventType::Added, "1", 1), Room::Coalesce);
        let flying = steps.pop().expect("one");
        steps.push(notice(EventType::Updated, "1", 2), Room::Coalesce);
        assert!(steps.put_back(flying, Room::Coalesce));
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
        steps.push(Arc::new(first), Room::Coalesce);
        assert!(steps.push(Arc::new(second), Room::Coalesce));
        let delivered = steps.pop().expect("one");
        assert_eq!(delivered.coalesced, 1);
        assert_eq!(delivered.changes, [change("a", 1, 3), change("c", 1, 2)]);
        assert!(steps.is_empty());
    }

    #[test]
    fn queued_notices_keep_each_change_and_the_end_of_each_known_object() {
        use EventType::{Added, Deleted, Updated};
        let notice = |what, uid, version| Arc::new(pod("web", uid, version).what(what).build());
        let mut steps = PendingNotices::default();
        for (what, version) in [(Added, 1), (Updated, 2), (Updated, 3), (Deleted, 4)] {
            assert!(!steps.push(notice(what, "1", version), Room::Queue));
        }
        // Without room: the end of the first object stays, since its start is delivered.
        assert!(!steps.push(notice(Added, "2", 5), Room::Coalesce));
        assert!(steps.push(notice(Deleted, "2", 6), Room::Coalesce));
        assert!(steps.push(notice(Added, "3", 7), Room::Coalesce));
        let first = steps.pop().expect("one");
        assert!(!steps.put_back(first, Room::Queue));
        assert_eq!(steps.len(), 5);
        assert_eq!(steps.0.back().expect("one").coalesced, 2);
        let delivered: Vec<_> = drain(steps)
            .into_iter()
            .map(|(what, uid, version)| format!("{what} {uid}@{version}"))
            .collect();
        assert_eq!(
            delivered,
            [
                "added 1@1",
                "updated 1@2",
                "updated 1@3",
                "deleted 1@4",
                "added 3@7"
            ]
        );
    }
}
