//! Each arrow of the diagram, and each that must not be there.

use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::state::{Order, Phase, Progress, State, Unreadable};

const MINUTE: Duration = Duration::from_mins(1);
const EPOCH: u64 = 7;

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().expect("a time")
}

fn rules() -> Rules {
    Rules {
        drain: Some(DrainRule {
            timeout: 10 * MINUTE,
            force: false,
        }),
        reboot: 15 * MINUTE,
        after: 10 * MINUTE,
        soak: Duration::ZERO,
        backoff: 5 * MINUTE,
    }
}

/// A node in this phase, as we would have left it, with time to spare.
fn node(phase: Phase) -> NodeView {
    let cordoned = phase != Phase::Granted && phase != Phase::Aborted;
    NodeView {
        name: "n".to_owned(),
        uid: "u".to_owned(),
        version: "1".to_owned(),
        boot_id: "before".to_owned(),
        ready: true,
        unschedulable: cordoned,
        cordoned,
        needed: Some(String::new()),
        state: Some(Ok(State {
            phase,
            policy: "default".to_owned(),
            epoch: EPOCH,
            attempt: 1,
            since: now(),
            deadline: now().checked_add(MINUTE).ok(),
            boot_id_before: (phase >= Phase::Armed).then(|| "before".to_owned()),
            good_by: None,
            cordoned,
            reason: None,
            more: [].into(),
        })),
        order: (phase == Phase::Armed).then(|| {
            Ok(Order {
                boot_id: "before".to_owned(),
                epoch: EPOCH,
                not_before: None,
                not_after: None,
            })
        }),
        ..NodeView::default()
    }
}

fn progress(edit: impl FnOnce(&mut Progress)) -> Progress {
    let mut progress = Progress {
        boot_id: "before".to_owned(),
        epoch: EPOCH,
        attempt: 1,
        at: now(),
        proved: None,
        checked: None,
        failed: None,
        more: [].into(),
    };
    edit(&mut progress);
    progress
}

/// What happens, in a word: the phase that is written, or what else is done.
fn next_with(node: &NodeView, edit: impl FnOnce(&mut Facts<'_>)) -> String {
    let rules = rules();
    let mut facts = Facts {
        now: now(),
        policy: "default",
        rules: &rules,
        slot: Some(EPOCH),
        halt: None,
    };
    edit(&mut facts);
    match step(node, &facts) {
        Step::Rest => "rest".to_owned(),
        Step::Until(_) => "until".to_owned(),
        Step::Drain { force } => format!("drain {force}"),
        Step::Verify => "verify".to_owned(),
        Step::Write(change) | Step::Confirm(change) => {
            let phase = change.state.map_or("nothing", |state| state.phase.name());
            let cordon = change
                .cordon
                .map_or(String::new(), |cordon| format!(" {cordon:?}"));
            let done = if change.done { " done" } else { "" };
            format!("{phase}{cordon}{done}")
        }
    }
}

fn next(node: &NodeView) -> String {
    next_with(node, |_| {})
}

fn with(phase: Phase, edit: impl FnOnce(&mut NodeView)) -> NodeView {
    let mut node = node(phase);
    edit(&mut node);
    node
}

fn late(facts: &mut Facts<'_>) {
    facts.now = now().checked_add(2 * MINUTE).expect("a time");
}

#[test]
fn the_way_of_a_node_that_does_well() {
    let fresh = with(Phase::Aborted, |node| node.state = None);
    assert_eq!(next(&fresh), "Granted");
    assert_eq!(next(&node(Phase::Granted)), "Cordoned Set");
    assert_eq!(next(&node(Phase::Cordoned)), "Draining");
    assert_eq!(next(&node(Phase::Draining)), "drain false");
    assert_eq!(next(&node(Phase::Drained)), "Armed");
    assert_eq!(next(&node(Phase::Armed)), "until");
    let back = |phase| with(phase, |node| node.boot_id = "after".to_owned());
    assert_eq!(next(&back(Phase::Armed)), "Rebooted");
    assert_eq!(next(&back(Phase::Rebooted)), "verify");
    assert_eq!(next(&back(Phase::Soaking)), "until");
    assert_eq!(next_with(&back(Phase::Soaking), late), "nothing Lift done");
    assert_eq!(next(&node(Phase::Failed)), "rest");
}

/// Only the two that cannot be taken back read the ledger anew.
#[test]
fn the_ledger_is_read_anew_before_a_node_is_cordoned_and_before_it_is_armed() {
    let rules = rules();
    let facts = Facts {
        now: now(),
        policy: "default",
        rules: &rules,
        slot: Some(EPOCH),
        halt: None,
    };
    for phase in Phase::ALL {
        let confirms = matches!(step(&node(phase), &facts), Step::Confirm(_));
        assert_eq!(
            confirms,
            matches!(phase, Phase::Granted | Phase::Drained),
            "{phase}"
        );
    }
}

#[test]
fn what_is_not_armed_is_given_back_when_nothing_may_begin_or_the_slot_is_gone() {
    type Edit = fn(&mut Facts<'_>);
    let reasons: [Edit; 3] = [
        |facts| facts.halt = Some(Halt::Paused),
        |facts| facts.slot = None,
        |facts| facts.slot = Some(EPOCH + 1),
    ];
    for reason in reasons {
        assert_eq!(next_with(&node(Phase::Granted), reason), "Aborted");
        for phase in [Phase::Cordoned, Phase::Draining, Phase::Drained, Phase::Armed] {
            assert_eq!(next_with(&node(phase), reason), "Aborted Lift", "{phase}");
            let theirs = with(phase, |node| node.cordoned = false);
            assert_eq!(
                next_with(&theirs, reason),
                "Aborted",
                "{phase}: somebody else's stays"
            );
        }
        let begun = with(Phase::Armed, |node| node.progress = Some(Ok(progress(|_| {}))));
        assert_eq!(next_with(&begun, reason), "until", "the agent may have acted");
        let odd = with(Phase::Armed, |node| {
            node.progress = Some(Err(Unreadable {
                name: String::new(),
                why: String::new(),
            }));
        });
        assert_eq!(
            next_with(&odd, reason),
            "until",
            "an agent of another version too"
        );
        for phase in [Phase::Rebooted, Phase::Failed] {
            let back = with(phase, |node| node.boot_id = "after".to_owned());
            assert_ne!(next_with(&back, reason), "Aborted Lift", "{phase}");
        }
    }
}

#[test]
fn a_request_that_is_taken_back_in_time_is_forgotten_and_later_is_not() {
    let cancelled = |phase| with(phase, |node| node.needed = None);
    assert_eq!(next(&cancelled(Phase::Granted)), "nothing");
    for phase in [Phase::Cordoned, Phase::Draining, Phase::Drained, Phase::Armed] {
        assert_eq!(next(&cancelled(phase)), "nothing Lift", "{phase}");
    }
    assert_eq!(next(&cancelled(Phase::Aborted)), "nothing");
    let begun = with(Phase::Armed, |node| {
        (node.needed, node.progress) = (None, Some(Ok(progress(|_| {}))));
    });
    assert_eq!(next(&begun), "until", "the agent may have acted");
    assert_eq!(next(&cancelled(Phase::Failed)), "rest");
    // Somebody took state and request off a node that had failed.
    let cleared = with(Phase::Failed, |node| (node.state, node.needed) = (None, None));
    assert_eq!(next(&cleared), "nothing Lift");
}

#[test]
fn only_another_boot_of_this_grant_is_a_proof() {
    let armed = |edit: fn(&mut Progress)| with(Phase::Armed, |node| node.progress = Some(Ok(progress(edit))));
    assert_eq!(
        next(&armed(|one| one.proved = Some("after".to_owned()))),
        "Rebooted"
    );
    assert_eq!(
        next(&armed(|one| one.proved = Some("before".to_owned()))),
        "until"
    );
    let other = armed(|one| (one.proved, one.epoch) = (Some("after".to_owned()), EPOCH - 1));
    assert_eq!(next(&other), "until");
    let silent = with(Phase::Armed, |node| node.boot_id.clear());
    assert_eq!(
        next(&silent),
        "until",
        "a kubelet that says nothing proves nothing"
    );
    // The agent knows it before the kubelet says so: what the node's conditions say is from before.
    assert_eq!(next(&node(Phase::Rebooted)), "until");
}

#[test]
fn what_does_not_come_in_time_fails_and_keeps_its_cordon() {
    assert_eq!(next_with(&node(Phase::Armed), late), "Failed");
    let begun = with(Phase::Armed, |node| node.progress = Some(Ok(progress(|_| {}))));
    assert_eq!(next_with(&begun, late), "Failed");
    let gave_up = with(Phase::Armed, |node| {
        node.progress = Some(Ok(progress(|one| one.failed = Some("no".to_owned()))));
    });
    assert_eq!(next(&gave_up), "Failed");
    let back = with(Phase::Rebooted, |node| node.boot_id = "after".to_owned());
    assert_eq!(next_with(&back, late), "Failed");
    assert_eq!(next_with(&node(Phase::Draining), late), "Aborted Lift");
    let unproved = with(Phase::Drained, |node| node.boot_id.clear());
    assert_eq!(next(&unproved), "Aborted Lift", "it could not be proved");
}

#[test]
fn a_forced_drain_deletes_first_and_goes_on_in_the_end() {
    let forced = |minutes: u32| {
        let mut rules = rules();
        rules.drain = Some(DrainRule {
            timeout: 10 * MINUTE,
            force: true,
        });
        let facts = Facts {
            now: now().checked_add(minutes * MINUTE).expect("a time"),
            policy: "default",
            rules: &rules,
            slot: Some(EPOCH),
            halt: None,
        };
        match step(&node(Phase::Draining), &facts) {
            Step::Write(change) => change.state.map(|state| state.phase),
            Step::Drain { force } => force.then_some(Phase::Draining),
            _ => None,
        }
    };
    assert_eq!(forced(0), None);
    assert_eq!(forced(1), Some(Phase::Draining));
    assert_eq!(forced(11), Some(Phase::Drained));
}

#[test]
fn who_uncordons_a_node_has_their_way() {
    let open = |phase| with(phase, |node| node.unschedulable = false);
    for phase in [Phase::Cordoned, Phase::Draining, Phase::Drained, Phase::Armed] {
        assert_eq!(next(&open(phase)), "Aborted Leave", "{phase}");
    }
    for phase in [Phase::Rebooted, Phase::Soaking] {
        let back = with(phase, |node| {
            (node.unschedulable, node.boot_id) = (false, "after".to_owned());
        });
        assert_eq!(next(&back), format!("{phase} Leave"));
    }
    let theirs = with(Phase::Granted, |node| node.unschedulable = true);
    assert_eq!(next(&theirs), "Cordoned Leave");
}

#[test]
fn a_node_that_was_let_go_waits_for_another_slot() {
    assert_eq!(next(&node(Phase::Aborted)), "until", "its own is on its way out");
    let slot = |facts: &mut Facts<'_>| facts.slot = Some(EPOCH + 1);
    assert_eq!(next_with(&node(Phase::Aborted), slot), "Granted");
    let none = |facts: &mut Facts<'_>| {
        late(facts);
        facts.slot = None;
    };
    assert_eq!(next_with(&node(Phase::Aborted), none), "rest");
}

#[test]
fn a_node_that_is_not_ready_does_not_soak() {
    let lost = with(Phase::Soaking, |node| {
        (node.ready, node.boot_id) = (false, "after".to_owned());
    });
    assert_eq!(next_with(&lost, late), "Rebooted");
}

#[test]
fn a_node_that_comes_and_goes_does_not_soak_for_ever() {
    let mut rules = rules();
    rules.soak = 5 * MINUTE;
    let at = |minutes: u32| Facts {
        now: now().checked_add(minutes * MINUTE).expect("a time"),
        policy: "default",
        rules: &rules,
        slot: Some(EPOCH),
        halt: None,
    };
    let mut node = with(Phase::Armed, |node| node.boot_id = "after".to_owned());
    let mut phases = Vec::new();
    // Every four minutes it is lost, and good again a minute later.
    for minute in 0..60 {
        node.ready = minute % 4 != 3;
        let facts = at(minute);
        let change = match step(&node, &facts) {
            Step::Write(change) => Some(change),
            Step::Verify if node.ready => verified(&node, &facts),
            _ => None,
        };
        if let Some(change) = change {
            change.apply(&mut node);
            phases.push((minute, node.phase().expect("it is not over")));
        }
    }
    let ends = phases
        .iter()
        .filter(|(_, phase)| *phase == Phase::Rebooted)
        .count();
    assert_eq!(phases.last(), Some(&(15, Phase::Failed)), "{phases:?}");
    assert_eq!(ends, 4, "{phases:?}");
}
