//! What waits to be told of one object to one sink: its latest state, and before it at most the end of a predecessor.
//!
//! ```text
//!   Updated + Updated (same uid)  ──► one Updated, with the changes of both
//!   Added   + Updated             ──► Added, as it is now
//!   any     + Deleted             ──► Deleted
//!   Deleted + Added (another uid) ──► both, in this order
//! ```

use std::sync::Arc;

use crate::notice::{FieldChange, Notice, What};

/// One or two notices of objects of one name. A newer one of the same object replaces one that waits.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// The end of an earlier object of this name; told first.
    gone: Option<Arc<Notice>>,
    last: Option<Arc<Notice>>,
}

impl Steps {
    /// Adds what happened next. Returns whether something that waited is not told by itself any more.
    pub(super) fn push(&mut self, next: Arc<Notice>) -> bool {
        let Some(waits) = self.last.take() else {
            self.last = Some(next);
            return false;
        };
        let is_same_object = waits.uid == next.uid || waits.uid.is_none() || next.uid.is_none();
        if is_same_object {
            self.last = Some(combine(&waits, next));
            return true;
        }
        self.last = Some(next);
        // Of several that came and went only the first was known to the sink.
        let is_kept = waits.what == What::Deleted && self.gone.is_none();
        if is_kept {
            self.gone = Some(waits);
        }
        !is_kept
    }

    /// The next one to tell.
    pub(super) fn next(&self) -> Option<&Arc<Notice>> {
        self.gone.as_ref().or(self.last.as_ref())
    }

    /// The next one to tell, which then does not wait any more.
    pub(super) fn pop(&mut self) -> Option<Arc<Notice>> {
        self.gone.take().or_else(|| self.last.take())
    }

    /// Puts back what could not be told. Returns whether it was replaced by something newer.
    pub(super) fn put_back(&mut self, notice: Arc<Notice>) -> bool {
        let mut steps = Self {
            gone: None,
            last: Some(notice),
        };
        let mut coalesced = false;
        while let Some(next) = self.pop() {
            coalesced |= steps.push(next);
        }
        *self = steps;
        coalesced
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gone.is_none() && self.last.is_none()
    }
}

/// Two steps of one object as one, for somebody who knows neither.
fn combine(first: &Notice, second: Arc<Notice>) -> Arc<Notice> {
    match (first.what, second.what) {
        (What::Synced | What::Added, What::Synced | What::Added | What::Updated) => Arc::new(Notice {
            what: first.what,
            inferred: first.inferred,
            changes: Vec::new(),
            ..Notice::clone(&second)
        }),
        (What::Updated, What::Updated | What::Synced) => Arc::new(Notice {
            what: What::Updated,
            inferred: first.inferred || second.inferred,
            changes: both(&first.changes, &second.changes),
            ..Notice::clone(&second)
        }),
        _ => second,
    }
}

/// The changes from before the first to after the second.
fn both(first: &[FieldChange], second: &[FieldChange]) -> Vec<FieldChange> {
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

    /// Pushes `(what, uid, version)`s and says what is told then.
    fn told(pushed: &[(What, &str, u64)]) -> Vec<(What, String, String)> {
        let mut steps = Steps::default();
        for (what, uid, version) in pushed {
            steps.push(Arc::new(pod("web", uid, *version).what(*what).build()));
        }
        drain(steps)
    }

    fn drain(mut steps: Steps) -> Vec<(What, String, String)> {
        let told = std::iter::from_fn(|| steps.pop());
        told.map(|notice| {
            let uid = notice.uid.clone().expect("a uid");
            (
                notice.what,
                uid[uid.len() - 1..].to_owned(),
                notice.resource_version.clone().expect("one"),
            )
        })
        .collect()
    }

    #[test]
    fn one_state_of_an_object_waits_and_the_end_of_its_predecessor() {
        use What::{Added, Deleted, Synced, Updated};
        type Step<'a> = (What, &'a str, u64);
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
            assert_eq!(told(pushed), expected, "{pushed:?}");
        }
    }

    #[test]
    fn what_failed_goes_before_what_came_meanwhile() {
        let notice = |what, uid, version| Arc::new(pod("web", uid, version).what(what).build());
        let mut steps = Steps::default();
        steps.push(notice(What::Deleted, "1", 1));
        let flying = steps.pop().expect("one");
        steps.push(notice(What::Added, "2", 2));
        assert!(!steps.put_back(flying));
        let told = drain(steps);
        assert_eq!(
            told.iter().map(|(what, ..)| *what).collect::<Vec<_>>(),
            [What::Deleted, What::Added]
        );

        let mut steps = Steps::default();
        steps.push(notice(What::Added, "1", 1));
        let flying = steps.pop().expect("one");
        steps.push(notice(What::Updated, "1", 2));
        assert!(steps.put_back(flying));
        assert_eq!(drain(steps), [(What::Added, "1".to_owned(), "2".to_owned())]);
    }

    #[test]
    fn changes_add_up_and_one_that_was_undone_is_none() {
        let change = |path: &str, old, new| FieldChange {
            path: path.to_owned(),
            old: Some(json!(old)),
            new: Some(json!(new)),
        };
        let mut first = pod("web", "1", 1).what(What::Updated).build();
        first.changes = vec![change("a", 1, 2), change("b", 1, 2)];
        let mut second = pod("web", "1", 2).what(What::Updated).build();
        second.changes = vec![change("a", 2, 3), change("b", 2, 1), change("c", 1, 2)];
        let mut steps = Steps::default();
        steps.push(Arc::new(first));
        assert!(steps.push(Arc::new(second)));
        let told = steps.pop().expect("one");
        assert_eq!(told.changes, [change("a", 1, 3), change("c", 1, 2)]);
        assert!(steps.is_empty());
    }
}
