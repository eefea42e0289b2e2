use std::{collections::BTreeMap, sync::Arc};

use proptest::prelude::*;
use windlass::k8s_openapi::api::core::v1::ConfigMap;

use super::*;

fn state(name: &str, uid: u32, version: u64) -> Stored<ConfigMap> {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.metadata.namespace = Some("n".to_owned());
    object.metadata.uid = Some(format!("uid-{uid}"));
    object.metadata.resource_version = Some(version.to_string());
    Stored::of(Arc::new(object))
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

fn deleted(last: (u32, u64), how: Deletion) -> Change<ConfigMap> {
    let last = state("a", last.0, last.1);
    Change::Deleted {
        old: last.clone(),
        last,
        how,
    }
}

fn uid_and_version(stored: &Stored<ConfigMap>) -> String {
    let object = stored.object().expect("it decodes");
    let uid = object.metadata.uid.as_deref().unwrap_or_default().to_owned();
    format!(
        "{}@{}",
        uid.trim_start_matches("uid-"),
        stored.meta().resource_version()
    )
}

fn shown(step: &Step<ConfigMap>) -> String {
    match step {
        Step::Synced(new) => format!("synced {}", uid_and_version(new)),
        Step::Added(new) => format!("added {}", uid_and_version(new)),
        Step::Updated { old, new } => format!("updated {} {}", uid_and_version(old), uid_and_version(new)),
        Step::Deleted { last, how, .. } => format!("deleted {} {how:?}", uid_and_version(last)),
        Step::Missing => "missing".to_owned(),
    }
}

fn tell(memory: &Memory<ConfigMap>, name: &str) -> Vec<String> {
    let story = memory.open(&key(name));
    let steps = story.steps().iter().map(shown).collect();
    story.close();
    steps
}

/// One that has begun to tell.
fn started() -> Memory<ConfigMap> {
    let memory = Memory::new([]);
    assert_eq!(tell(&memory, ""), [""; 0]);
    memory
}

#[test]
fn each_change_is_told_once_with_the_state_that_was_told_before() {
    let memory = started();
    for (change, expected) in [
        (applied(None, (1, 1), false), vec!["added 1@1"]),
        (applied(Some((1, 1)), (1, 2), false), vec!["updated 1@1 1@2"]),
        (applied(Some((1, 2)), (1, 2), false), vec![]),
        (deleted((1, 3), Deletion::Seen), vec!["deleted 1@3 Seen"]),
        (applied(None, (2, 4), false), vec!["added 2@4"]),
        (deleted((2, 4), Deletion::Inferred), vec!["deleted 2@4 Inferred"]),
    ] {
        memory.see(&change, true);
        assert_eq!(tell(&memory, "a"), expected);
        assert_eq!(tell(&memory, "a"), [""; 0], "not twice");
    }
}

#[test]
fn changes_before_its_turn_collapse_and_no_end_is_lost() {
    let cases: [(&[Change<ConfigMap>], &[&str]); 6] = [
        (
            &[applied(None, (1, 1), false), applied(Some((1, 1)), (1, 2), false)],
            &["added 1@2"],
        ),
        // It came and went.
        (
            &[applied(None, (1, 1), false), deleted((1, 2), Deletion::Seen)],
            &["added 1@2", "deleted 1@2 Seen"],
        ),
        // Another one of its name.
        (
            &[
                applied(None, (1, 1), false),
                deleted((1, 2), Deletion::Seen),
                applied(None, (2, 3), false),
            ],
            &["added 1@2", "deleted 1@2 Seen", "added 2@3"],
        ),
        // The same, in a list.
        (
            &[applied(Some((1, 1)), (2, 3), false)],
            &["added 1@1", "deleted 1@1 Inferred", "added 2@3"],
        ),
        // Of several that came and went, the first.
        (
            &[
                deleted((1, 2), Deletion::Seen),
                applied(None, (2, 3), false),
                deleted((2, 4), Deletion::Seen),
            ],
            &["added 1@2", "deleted 1@2 Seen"],
        ),
        (&[applied(None, (1, 1), true)], &["added 1@1"]),
    ];
    for (changes, expected) in cases {
        let memory = started();
        for change in changes {
            memory.see(change, true);
        }
        assert_eq!(tell(&memory, "a"), expected);
    }
}

#[test]
fn what_was_there_at_the_start_is_synced_in_its_newest_state() {
    let memory = Memory::new([]);
    memory.see(&applied(None, (1, 1), true), true);
    memory.see(&applied(Some((1, 1)), (1, 2), false), true);
    assert!(!memory.is_newly_listed());
    assert_eq!(tell(&memory, "a"), ["synced 1@2"]);
    assert!(memory.is_newly_listed());
    assert!(!memory.is_newly_listed(), "once");
}

#[test]
fn what_went_before_the_start_is_not_told() {
    let memory = Memory::new([]);
    memory.see(&applied(None, (1, 1), true), true);
    memory.see(&deleted((1, 2), Deletion::Seen), true);
    assert_eq!(tell(&memory, "a"), [""; 0]);
    assert!(memory.is_newly_listed());
}

#[test]
fn all_are_listed_when_each_was_told_and_what_cannot_be_read_holds_nobody_up() {
    let memory = Memory::new([key("k")]);
    memory.see(&applied(None, (1, 1), true), true);
    let broken = Change::Applied {
        old: None,
        new: state("broken", 2, 2),
        initial: true,
    };
    memory.see(&broken, false);
    assert_eq!(tell(&memory, ""), [""; 0]);
    assert!(!memory.is_newly_listed());
    assert_eq!(tell(&memory, "a"), ["synced 1@1"]);
    assert!(!memory.is_newly_listed());
    assert_eq!(tell(&memory, "k"), ["missing"]);
    assert!(memory.is_newly_listed());
}

#[test]
fn what_was_known_and_is_there_is_not_missing() {
    let memory = Memory::new([key("a")]);
    memory.see(&applied(None, (1, 1), true), true);
    assert_eq!(tell(&memory, "a"), ["synced 1@1"]);
    memory.see(&deleted((1, 1), Deletion::Seen), true);
    assert_eq!(tell(&memory, "a"), ["deleted 1@1 Seen"]);
    assert_eq!(tell(&memory, "a"), [""; 0]);
}

#[test]
fn a_story_that_was_not_closed_is_told_again_with_what_came_since() {
    let memory = started();
    memory.see(&applied(None, (1, 1), false), true);
    assert_eq!(tell(&memory, "a"), ["added 1@1"]);
    memory.see(&deleted((1, 1), Deletion::Seen), true);
    let story = memory.open(&key("a"));
    memory.see(&applied(None, (2, 5), false), true);
    drop(story);
    assert_eq!(tell(&memory, "a"), ["deleted 1@1 Seen", "added 2@5"]);
}

#[test]
fn what_comes_while_it_is_told_is_told_next() {
    let memory = started();
    memory.see(&applied(None, (1, 1), false), true);
    let story = memory.open(&key("a"));
    memory.see(&applied(Some((1, 1)), (1, 2), false), true);
    story.close();
    assert_eq!(tell(&memory, "a"), ["updated 1@1 1@2"]);
}

#[test]
fn of_those_that_came_and_went_no_more_than_so_many_are_kept() {
    let memory = started();
    for place in 0..2 * FLEETING {
        let last = state(&format!("p{place}"), 1, 1);
        let change = Change::Deleted {
            old: last.clone(),
            last,
            how: Deletion::Seen,
        };
        memory.see(&change, true);
    }
    assert_eq!(memory.state.lock().pending.len(), FLEETING);
    for place in 0..2 * FLEETING {
        drop(tell(&memory, &format!("p{place}")));
    }
    let state = memory.state.lock();
    assert_eq!((state.pending.len(), state.fleeting, state.told.len()), (0, 0, 0));
}

/// A model of one object: what a server would do to it.
#[derive(Clone, Debug)]
enum Act {
    Write,
    Delete,
    Tell,
    /// Begins to tell, and dies.
    Fail,
}

proptest! {
    /// Whatever happens and whenever it is told: the story of each object begins once, ends once, and what was told last is
    /// what is there.
    #[test]
    fn what_is_told_leads_to_what_is_there(acts in prop::collection::vec(
        prop_oneof![3 => Just(Act::Write), 2 => Just(Act::Delete), 3 => Just(Act::Tell), 1 => Just(Act::Fail)], 0..40,
    )) {
        let memory = started();
        let (mut there, mut uid, mut version) = (None, 0, 0);
        let mut told: BTreeMap<u32, &str> = BTreeMap::new();
        let mut last_told = None;
        for act in acts.into_iter().chain([Act::Tell]) {
            version += 1;
            match act {
                Act::Write => {
                    if there.is_none() {
                        uid += 1;
                    }
                    memory.see(&applied(there, (uid, version), false), true);
                    there = Some((uid, version));
                }
                Act::Delete => if there.take().is_some() {
                    memory.see(&deleted((uid, version), Deletion::Seen), true);
                },
                Act::Fail => drop(memory.open(&key("a"))),
                Act::Tell => for step in tell(&memory, "a") {
                    let (what, rest) = step.split_once(' ').expect("words");
                    let (of, at) = rest.split(' ').next_back().filter(|_| what == "updated")
                        .or(rest.split(' ').next()).and_then(|text| text.split_once('@')).expect("a version");
                    let of: u32 = of.parse().expect("a number");
                    match what {
                        "added" => prop_assert!(told.insert(of, "there").is_none()),
                        "updated" => prop_assert_eq!(told.get(&of), Some(&"there")),
                        "deleted" => prop_assert_eq!(told.insert(of, "gone"), Some("there")),
                        other => prop_assert!(false, "{other}"),
                    }
                    last_told = (what != "deleted").then(|| (of, at.parse::<u64>().expect("a number")));
                },
            }
        }
        prop_assert_eq!(last_told, there);
        prop_assert!(told.iter().all(|(of, state)| *state == "gone" || Some(*of) == there.map(|(uid, _)| uid)));
        prop_assert_eq!(memory.state.lock().fleeting, 0);
    }
}
