use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use windlass::k8s_openapi::api::core::v1::ConfigMap;

use super::*;

fn state(name: &str, uid: u32, version: u64) -> CachedObject<ConfigMap> {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.namespace = Some("n".to_owned());
    object.metadata.uid = Some(format!("uid-{uid}"));
    object.metadata.resource_version = Some(version.to_string());
    CachedObject::detached(Arc::new(object))
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("n", name)
}

fn applied(old: Option<(u32, u64)>, new: (u32, u64), initial: bool) -> Change<ConfigMap> {
    Change::Applied {
        old: old.map(|(uid, version)| state("a", uid, version)),
        new: state("a", new.0, new.1),
        initial,
    }
}

fn deleted(last: (u32, u64), deletion: Deletion) -> Change<ConfigMap> {
    let last = state("a", last.0, last.1);
    Change::Deleted {
        old: last.clone(),
        last,
        deletion,
    }
}

fn uid_and_version(stored: &CachedObject<ConfigMap>) -> String {
    let object = stored.object().expect("it decodes");
    let uid = object.metadata.uid.as_deref().unwrap_or_default().to_owned();
    format!(
        "{}@{}",
        uid.trim_start_matches("uid-"),
        stored.meta().resource_version()
    )
}

fn shown(step: &ObjectEvent<ConfigMap>) -> String {
    match step {
        ObjectEvent::Synced(new) => format!("synced {}", uid_and_version(new)),
        ObjectEvent::Added(new) => format!("added {}", uid_and_version(new)),
        ObjectEvent::Updated { old, new } => {
            format!("updated {} {}", uid_and_version(old), uid_and_version(new))
        }
        ObjectEvent::Deleted { last, how, .. } => format!("deleted {} {how:?}", uid_and_version(last)),
        ObjectEvent::Missing => "missing".to_owned(),
    }
}

fn report(tracker: &ChangeTracker<ConfigMap>, name: &str) -> Vec<String> {
    let changes = tracker.open(&key(name));
    let steps = changes.events().iter().map(|(event, _)| shown(event)).collect();
    changes.commit();
    steps
}

/// A tracker that has started to report.
fn started() -> ChangeTracker<ConfigMap> {
    let tracker = ChangeTracker::new([], 0);
    tracker.start();
    tracker
}

#[test]
fn each_change_is_reported_once_with_the_previously_reported_state() {
    let tracker = started();
    for (change, expected) in [
        (applied(None, (1, 1), false), vec!["added 1@1"]),
        (applied(Some((1, 1)), (1, 2), false), vec!["updated 1@1 1@2"]),
        (applied(Some((1, 2)), (1, 2), false), vec![]),
        (deleted((1, 3), Deletion::Observed), vec!["deleted 1@3 Observed"]),
        (applied(None, (2, 4), false), vec!["added 2@4"]),
        (deleted((2, 4), Deletion::Inferred), vec!["deleted 2@4 Inferred"]),
    ] {
        tracker.observe(&change, 0, true);
        assert_eq!(report(&tracker, "a"), expected);
        assert_eq!(report(&tracker, "a"), [""; 0], "not twice");
    }
}

#[test]
fn pending_changes_collapse_without_losing_deletions() {
    let cases: [(&[Change<ConfigMap>], &[&str]); 6] = [
        (
            &[applied(None, (1, 1), false), applied(Some((1, 1)), (1, 2), false)],
            &["added 1@2"],
        ),
        // Added and deleted.
        (
            &[applied(None, (1, 1), false), deleted((1, 2), Deletion::Observed)],
            &["added 1@2", "deleted 1@2 Observed"],
        ),
        // Recreated under the same name.
        (
            &[
                applied(None, (1, 1), false),
                deleted((1, 2), Deletion::Observed),
                applied(None, (2, 3), false),
            ],
            &["added 1@2", "deleted 1@2 Observed", "added 2@3"],
        ),
        // Recreated, seen in a relist.
        (
            &[applied(Some((1, 1)), (2, 3), false)],
            &["added 1@1", "deleted 1@1 Inferred", "added 2@3"],
        ),
        // Of several deleted objects, the first.
        (
            &[
                deleted((1, 2), Deletion::Observed),
                applied(None, (2, 3), false),
                deleted((2, 4), Deletion::Observed),
            ],
            &["added 1@2", "deleted 1@2 Observed"],
        ),
        (&[applied(None, (1, 1), true)], &["added 1@1"]),
    ];
    for (changes, expected) in cases {
        let tracker = started();
        for change in changes {
            tracker.observe(change, 0, true);
        }
        assert_eq!(report(&tracker, "a"), expected);
    }
}

/// Reports with the number of coalesced changes.
fn report_counts(tracker: &ChangeTracker<ConfigMap>, name: &str) -> Vec<(String, u64)> {
    let changes = tracker.open(&key(name));
    let steps = changes.events();
    changes.commit();
    steps
        .iter()
        .map(|(event, coalesced)| (shown(event), *coalesced))
        .collect()
}

#[test]
fn coalesced_changes_are_counted() {
    let tracker = started();
    tracker.observe(&applied(None, (1, 1), false), 0, true);
    tracker.observe(&applied(Some((1, 1)), (1, 4), false), 2, true);
    assert_eq!(report_counts(&tracker, "a"), [("added 1@4".to_owned(), 3)]);
    tracker.observe(&deleted((1, 5), Deletion::Observed), 0, true);
    tracker.observe(&applied(None, (2, 6), false), 0, true);
    let expected = [("deleted 1@5 Observed", 0), ("added 2@6", 0)].map(|(text, n)| (text.to_owned(), n));
    assert_eq!(report_counts(&tracker, "a"), expected, "both have an event");
}

#[test]
fn every_change_is_kept_up_to_the_capacity() {
    let tracker = ChangeTracker::new([], 4);
    tracker.start();
    tracker.observe(&applied(None, (1, 1), false), 0, true);
    for version in 2..4 {
        tracker.observe(&applied(Some((1, version - 1)), (1, version), false), 0, true);
    }
    tracker.observe(&deleted((1, 4), Deletion::Observed), 0, true);
    let kept = [
        "added 1@1",
        "updated 1@1 1@2",
        "updated 1@2 1@3",
        "deleted 1@4 Observed",
    ];
    // A failed report keeps them too.
    drop(tracker.open(&key("a")));
    assert_eq!(report(&tracker, "a"), kept);

    tracker.observe(&applied(None, (2, 5), false), 0, true);
    for version in 6..12 {
        tracker.observe(&applied(Some((2, version - 1)), (2, version), false), 0, true);
    }
    let expected = [
        ("added 2@5", 0),
        ("updated 2@5 2@6", 0),
        ("updated 2@6 2@7", 0),
        ("updated 2@7 2@11", 3),
    ];
    assert_eq!(
        report_counts(&tracker, "a"),
        expected.map(|(text, coalesced)| (text.to_owned(), coalesced))
    );
    let state = tracker.state.lock();
    assert_eq!((state.pending_count, state.transient, state.dropped), (0, 0, 0));
}

#[test]
fn initial_object_is_synced_in_its_newest_state() {
    let tracker = ChangeTracker::new([], 0);
    tracker.observe(&applied(None, (1, 1), true), 0, true);
    tracker.observe(&applied(Some((1, 1)), (1, 2), false), 0, true);
    assert!(!tracker.initial_just_reported());
    assert_eq!(report(&tracker, "a"), ["synced 1@2"]);
    assert!(tracker.initial_just_reported());
    assert!(!tracker.initial_just_reported(), "once");
}

#[test]
fn deletion_before_the_start_is_not_reported() {
    let tracker = ChangeTracker::new([], 0);
    tracker.observe(&applied(None, (1, 1), true), 0, true);
    tracker.observe(&deleted((1, 2), Deletion::Observed), 0, true);
    assert_eq!(report(&tracker, "a"), [""; 0]);
    assert!(tracker.initial_just_reported());
}

#[test]
fn initial_objects_complete_without_undecodable_ones() {
    let tracker = ChangeTracker::new([key("k")], 0);
    tracker.observe(&applied(None, (1, 1), true), 0, true);
    let broken = Change::Applied {
        old: None,
        new: state("broken", 2, 2),
        initial: true,
    };
    tracker.observe(&broken, 0, false);
    tracker.start();
    assert!(!tracker.initial_just_reported());
    assert_eq!(report(&tracker, "a"), ["synced 1@1"]);
    assert!(!tracker.initial_just_reported());
    assert_eq!(report(&tracker, "k"), ["missing"]);
    assert!(tracker.initial_just_reported());
}

#[test]
fn known_object_that_exists_is_not_missing() {
    let tracker = ChangeTracker::new([key("a")], 0);
    tracker.observe(&applied(None, (1, 1), true), 0, true);
    assert_eq!(report(&tracker, "a"), ["synced 1@1"]);
    tracker.observe(&deleted((1, 1), Deletion::Observed), 0, true);
    assert_eq!(report(&tracker, "a"), ["deleted 1@1 Observed"]);
    assert_eq!(report(&tracker, "a"), [""; 0]);
}

#[test]
fn uncommitted_events_are_pending_again_with_newer_ones() {
    let tracker = started();
    tracker.observe(&applied(None, (1, 1), false), 0, true);
    assert_eq!(report(&tracker, "a"), ["added 1@1"]);
    tracker.observe(&deleted((1, 1), Deletion::Observed), 0, true);
    let changes = tracker.open(&key("a"));
    tracker.observe(&applied(None, (2, 5), false), 0, true);
    drop(changes);
    assert_eq!(report(&tracker, "a"), ["deleted 1@1 Observed", "added 2@5"]);
}

#[test]
fn change_while_open_is_reported_next() {
    let tracker = started();
    tracker.observe(&applied(None, (1, 1), false), 0, true);
    let changes = tracker.open(&key("a"));
    tracker.observe(&applied(Some((1, 1)), (1, 2), false), 0, true);
    changes.commit();
    assert_eq!(report(&tracker, "a"), ["updated 1@1 1@2"]);
}

#[test]
fn transient_objects_are_bounded() {
    let tracker = started();
    for place in 0..2 * MAX_TRANSIENT {
        let last = state(&format!("p{place}"), 1, 1);
        let change = Change::Deleted {
            old: last.clone(),
            last,
            deletion: Deletion::Observed,
        };
        tracker.observe(&change, 0, true);
    }
    assert_eq!(tracker.state.lock().pending.len(), MAX_TRANSIENT);
    assert_eq!(tracker.take_dropped(), MAX_TRANSIENT as u64);
    for place in 0..2 * MAX_TRANSIENT {
        drop(report(&tracker, &format!("p{place}")));
    }
    let state = tracker.state.lock();
    assert_eq!(
        (state.pending.len(), state.transient, state.reported.len()),
        (0, 0, 0)
    );
}

/// A step of the model of one object.
#[derive(Clone, Debug)]
enum Action {
    Write,
    Delete,
    Report,
    /// Opens the events and drops them.
    Fail,
}

proptest! {
    /// Each object is added once and deleted at most once, and the last reported state is the current one.
    #[test]
    fn reported_events_lead_to_the_current_state(acts in prop::collection::vec(
        prop_oneof![3 => Just(Action::Write), 2 => Just(Action::Delete), 3 => Just(Action::Report), 1 => Just(Action::Fail)], 0..40,
    ), capacity in prop_oneof![Just(0_usize), 1..6_usize]) {
        let tracker = ChangeTracker::new([], capacity);
        tracker.start();
        let (mut current, mut uid, mut version) = (None, 0, 0);
        let mut reported: BTreeMap<u32, &str> = BTreeMap::new();
        let mut last_reported = None;
        for act in acts.into_iter().chain([Action::Report]) {
            version += 1;
            match act {
                Action::Write => {
                    if current.is_none() {
                        uid += 1;
                    }
                    tracker.observe(&applied(current, (uid, version), false), 0, true);
                    current = Some((uid, version));
                }
                Action::Delete => if current.take().is_some() {
                    tracker.observe(&deleted((uid, version), Deletion::Observed), 0, true);
                },
                Action::Fail => drop(tracker.open(&key("a"))),
                Action::Report => for step in report(&tracker, "a") {
                    let (what, rest) = step.split_once(' ').expect("words");
                    let (of, at) = rest.split(' ').next_back().filter(|_| what == "updated")
                        .or(rest.split(' ').next()).and_then(|text| text.split_once('@')).expect("a version");
                    let of: u32 = of.parse().expect("a number");
                    match what {
                        "added" => prop_assert!(reported.insert(of, "there").is_none()),
                        "updated" => prop_assert_eq!(reported.get(&of), Some(&"there")),
                        "deleted" => prop_assert_eq!(reported.insert(of, "gone"), Some("there")),
                        other => prop_assert!(false, "{other}"),
                    }
                    last_reported = (what != "deleted").then(|| (of, at.parse::<u64>().expect("a number")));
                },
            }
        }
        prop_assert_eq!(last_reported, current);
        prop_assert!(reported.iter().all(|(of, state)| *state == "gone" || Some(*of) == current.map(|(uid, _)| uid)));
        let state = tracker.state.lock();
        prop_assert_eq!((state.transient, state.pending_count), (0, 0));
    }
}
