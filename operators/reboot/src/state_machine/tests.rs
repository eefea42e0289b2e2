//! Tests every arrow of the diagram, and that there are no others.

use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::state::{InvalidAnnotation, Phase, Progress, RebootCommand, State};

const MINUTE: Duration = Duration::from_mins(1);
const EPOCH: u64 = 7;

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().expect("a valid time")
}

fn rules() -> RebootRules {
    RebootRules {
        before_hook: None,
        drain: Some(DrainRule {
            timeout: 10 * MINUTE,
            force: false,
        }),
        reboot_timeout: 15 * MINUTE,
        health_check_timeout: 10 * MINUTE,
        soak: Duration::ZERO,
        backoff: 5 * MINUTE,
    }
}

/// A node in this phase, as the controller leaves it, before its deadline.
fn node(phase: Phase) -> NodeView {
    let cordoned = phase != Phase::Granted && phase != Phase::Aborted;
    NodeView {
        name: "n".to_owned(),
        uid: "u".to_owned(),
        resource_version: "1".to_owned(),
        boot_id: "before".to_owned(),
        is_ready: true,
        unschedulable: cordoned,
        cordoned,
        request: Some(String::new()),
        state: Some(Ok(State {
            phase,
            policy: "default".to_owned(),
            epoch: EPOCH,
            attempt: 1,
            aborts: 0,
            since: now(),
            deadline: now().checked_add(MINUTE).ok(),
            boot_id_before: (phase >= Phase::Armed).then(|| "before".to_owned()),
            healthy_deadline: None,
            cordoned,
            reason: None,
            unknown_fields: [].into(),
        })),
        command: (phase == Phase::Armed).then(|| {
            Ok(RebootCommand {
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
        attempted_at: now(),
        new_boot_id: None,
        checked_boot_id: None,
        failure_reason: None,
        more: [].into(),
    };
    edit(&mut progress);
    progress
}

/// Summarizes the step: the phase that is written, or the action.
fn next_with(node: &NodeView, edit: impl FnOnce(&mut StepInput<'_>)) -> String {
    let rules = rules();
    let mut input = StepInput {
        now: now(),
        policy: "default",
        rules: &rules,
        slot: Some(EPOCH),
        halt: None,
    };
    edit(&mut input);
    match step(node, &input) {
        Step::Wait => "rest".to_owned(),
        Step::WaitUntil(_) => "until".to_owned(),
        Step::Drain { force } => format!("drain {force}"),
        Step::Verify => "verify".to_owned(),
        Step::Expire => "expire".to_owned(),
        Step::Prepare => "prepare".to_owned(),
        Step::Write(change) | Step::WriteIfSlotHeld(change) => {
            let phase = change.state.map_or("nothing", |state| state.phase.name());
            let cordon = change
                .cordon
                .map_or(String::new(), |cordon| format!(" {cordon:?}"));
            let done = if change.remove_request { " done" } else { "" };
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

fn past_deadline(input: &mut StepInput<'_>) {
    input.now = now().checked_add(2 * MINUTE).expect("a valid time");
}

#[test]
fn healthy_node_passes_through_all_phases() {
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
    assert_eq!(
        next_with(&back(Phase::Soaking), past_deadline),
        "nothing Lift done"
    );
    assert_eq!(next(&node(Phase::Failed)), "rest");
}

/// Only the two irreversible steps read the live policy.
#[test]
fn cordoning_and_arming_confirm_the_slot() {
    let rules = rules();
    let input = StepInput {
        now: now(),
        policy: "default",
        rules: &rules,
        slot: Some(EPOCH),
        halt: None,
    };
    for phase in Phase::ALL {
        let confirms = matches!(step(&node(phase), &input), Step::WriteIfSlotHeld(_));
        assert_eq!(
            confirms,
            matches!(phase, Phase::Granted | Phase::Drained),
            "{phase}"
        );
    }
}

#[test]
fn node_that_is_not_armed_aborts_on_halt_or_lost_slot() {
    type Edit = fn(&mut StepInput<'_>);
    let reasons: [Edit; 3] = [
        |input| input.halt = Some(HaltReason::Paused),
        |input| input.slot = None,
        |input| input.slot = Some(EPOCH + 1),
    ];
    for reason in reasons {
        assert_eq!(next_with(&node(Phase::Granted), reason), "Aborted");
        for phase in [Phase::Cordoned, Phase::Draining, Phase::Drained, Phase::Armed] {
            assert_eq!(next_with(&node(phase), reason), "Aborted Lift", "{phase}");
            let theirs = with(phase, |node| node.cordoned = false);
            assert_eq!(
                next_with(&theirs, reason),
                "Aborted",
                "{phase}: an administrator's cordon stays"
            );
        }
        let begun = with(Phase::Armed, |node| node.progress = Some(Ok(progress(|_| {}))));
        assert_eq!(next_with(&begun, reason), "until", "the agent may have acted");
        let odd = with(Phase::Armed, |node| {
            node.progress = Some(Err(InvalidAnnotation {
                key: String::new(),
                error: String::new(),
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
fn removing_the_request_cancels_until_the_agent_has_started() {
    let cancelled = |phase| with(phase, |node| node.request = None);
    assert_eq!(next(&cancelled(Phase::Granted)), "nothing");
    for phase in [Phase::Cordoned, Phase::Draining, Phase::Drained, Phase::Armed] {
        assert_eq!(next(&cancelled(phase)), "nothing Lift", "{phase}");
    }
    assert_eq!(next(&cancelled(Phase::Aborted)), "nothing");
    let begun = with(Phase::Armed, |node| {
        (node.request, node.progress) = (None, Some(Ok(progress(|_| {}))));
    });
    assert_eq!(next(&begun), "until", "the agent may have acted");
    assert_eq!(next(&cancelled(Phase::Failed)), "rest");
    // State and request were removed from a failed node.
    let cleared = with(Phase::Failed, |node| (node.state, node.request) = (None, None));
    assert_eq!(next(&cleared), "nothing Lift");
}

#[test]
fn only_a_new_boot_id_of_this_grant_is_proof() {
    let armed = |edit: fn(&mut Progress)| with(Phase::Armed, |node| node.progress = Some(Ok(progress(edit))));
    assert_eq!(
        next(&armed(|one| one.new_boot_id = Some("after".to_owned()))),
        "Rebooted"
    );
    assert_eq!(
        next(&armed(|one| one.new_boot_id = Some("before".to_owned()))),
        "until"
    );
    let other = armed(|one| (one.new_boot_id, one.epoch) = (Some("after".to_owned()), EPOCH - 1));
    assert_eq!(next(&other), "until");
    let silent = with(Phase::Armed, |node| node.boot_id.clear());
    assert_eq!(next(&silent), "until", "an empty boot ID proves nothing");
    // The agent knows about the reboot before the kubelet does: the node's conditions are still those of the old
    // boot.
    assert_eq!(next(&node(Phase::Rebooted)), "until");
}

#[test]
fn timeouts_fail_the_node_and_keep_its_cordon() {
    assert_eq!(next_with(&node(Phase::Armed), past_deadline), "Failed");
    let begun = with(Phase::Armed, |node| node.progress = Some(Ok(progress(|_| {}))));
    assert_eq!(next_with(&begun, past_deadline), "Failed");
    let gave_up = with(Phase::Armed, |node| {
        node.progress = Some(Ok(progress(|one| one.failure_reason = Some("no".to_owned()))));
    });
    assert_eq!(next(&gave_up), "Failed");
    let back = with(Phase::Rebooted, |node| node.boot_id = "after".to_owned());
    assert_eq!(next_with(&back, past_deadline), "expire");
    let rules = rules();
    let input = StepInput {
        now: now(),
        policy: "default",
        rules: &rules,
        slot: Some(EPOCH),
        halt: None,
    };
    let failed = expired(&back, &input, "is not Ready").expect("a change");
    assert_eq!(failed.cordon, None);
    let state = failed.state.expect("a state");
    assert_eq!(
        (state.phase, state.reason.as_deref()),
        (Phase::Failed, Some("it rebooted, but is not Ready"))
    );
    assert_eq!(expired(&node(Phase::Soaking), &input, ""), None, "it was healthy");
    assert_eq!(next_with(&node(Phase::Draining), past_deadline), "Aborted Lift");
    let unproved = with(Phase::Drained, |node| node.boot_id.clear());
    assert_eq!(next(&unproved), "Aborted Lift", "a reboot could not be verified");
}

#[test]
fn late_new_boot_id_ends_the_failure() {
    let late = with(Phase::Failed, |node| node.boot_id = "after".to_owned());
    assert_eq!(next(&late), "Rebooted", "reported by the kubelet");
    let late = with(Phase::Failed, |node| {
        node.progress = Some(Ok(progress(|one| one.new_boot_id = Some("after".to_owned()))));
    });
    assert_eq!(next(&late), "Rebooted", "reported by the agent");
    let same = with(Phase::Failed, |node| node.is_ready = true);
    assert_eq!(next(&same), "rest", "the same boot proves nothing");
    let other = with(Phase::Failed, |node| {
        let proof = progress(|one| (one.new_boot_id, one.epoch) = (Some("after".to_owned()), EPOCH - 1));
        node.progress = Some(Ok(proof));
    });
    assert_eq!(next(&other), "rest", "the proof of another grant");
    let unhealthy = with(Phase::Failed, |node| {
        node.boot_id = "after".to_owned();
        if let Some(Ok(state)) = &mut node.state {
            state.healthy_deadline = Some(now());
        }
    });
    assert_eq!(next(&unhealthy), "rest", "it failed after the reboot");
}

/// Aborts a node again and again, and returns how long it rests each time, in minutes.
fn rests(edit: impl Fn(&mut StepInput<'_>), attempts: u32) -> Vec<i64> {
    let rules = rules();
    let mut node = node(Phase::Draining);
    let mut rests = Vec::new();
    for attempt in 1..=attempts {
        let mut input = StepInput {
            now: now(),
            policy: "default",
            rules: &rules,
            slot: Some(EPOCH + u64::from(attempt) - 1),
            halt: None,
        };
        edit(&mut input);
        let Step::Write(change) = step(&node, &input) else {
            panic!("expected an abort: {node:?}");
        };
        change.apply(&mut node);
        let state = node.state().expect("it is aborted");
        assert_eq!((state.phase, state.attempt), (Phase::Aborted, attempt));
        let deadline = state.deadline.expect("it rests");
        rests.push(deadline.duration_since(input.now).as_secs() / 60);
        // The next grant, and a drain that is past its deadline.
        input.slot = Some(EPOCH + u64::from(attempt));
        let Step::Write(granted) = step(&node, &input) else {
            panic!("expected a grant: {node:?}");
        };
        granted.apply(&mut node);
        if let Some(Ok(state)) = &mut node.state {
            (state.phase, state.deadline) = (Phase::Draining, now().checked_add(MINUTE).ok());
        }
        (node.cordoned, node.unschedulable) = (true, true);
    }
    rests
}

#[test]
fn backoff_doubles_with_each_drain_that_times_out() {
    assert_eq!(rests(past_deadline, 7), [5, 10, 20, 40, 60, 60, 60]);
}

#[test]
fn backoff_does_not_grow_while_the_policy_is_halted() {
    let paused = |input: &mut StepInput<'_>| input.halt = Some(HaltReason::Paused);
    assert_eq!(rests(paused, 3), [5, 5, 5]);
}

/// A drain or a hook that takes longer than the window would otherwise be repeated in each window, without a word.
#[test]
fn backoff_grows_with_each_drain_or_hook_that_a_closing_window_ends() {
    let closed = |input: &mut StepInput<'_>| input.halt = Some(HaltReason::WindowClosed);
    assert_eq!(rests(closed, 4), [5, 10, 20, 40]);
    for (phase, before_hook, aborts) in [
        (Phase::Granted, None, 0),
        (Phase::Cordoned, None, 0),
        (Phase::Cordoned, Some(10 * MINUTE), 1),
        (Phase::Draining, None, 1),
        (Phase::Drained, None, 0),
        (Phase::Armed, None, 0),
    ] {
        let mut rules = rules();
        rules.before_hook = before_hook;
        let mut input = StepInput {
            now: now(),
            policy: "default",
            rules: &rules,
            slot: Some(EPOCH),
            halt: None,
        };
        closed(&mut input);
        let Step::Write(change) = step(&node(phase), &input) else {
            panic!("expected an abort: {phase}");
        };
        let state = change.state.expect("it is aborted");
        assert_eq!((state.phase, state.aborts), (Phase::Aborted, aborts), "{phase}");
    }
}

#[test]
fn backoff_longer_than_an_hour_stays() {
    let mut rules = rules();
    rules.backoff = 90 * MINUTE;
    for aborts in [0, 1, 2, u32::MAX] {
        assert_eq!(rules.backoff_after(aborts), 90 * MINUTE, "{aborts}");
    }
}

#[test]
fn hook_before_the_drain_ends_the_attempt_if_it_fails() {
    let mut rules = rules();
    rules.before_hook = Some(10 * MINUTE);
    let input = |minutes: u32| StepInput {
        now: now().checked_add(minutes * MINUTE).expect("a valid time"),
        policy: "default",
        rules: &rules,
        slot: Some(EPOCH),
        halt: None,
    };
    let cordoned = with(Phase::Cordoned, |node| {
        if let Some(Ok(state)) = &mut node.state {
            state.deadline = None;
        }
    });
    assert_eq!(step(&cordoned, &input(0)), Step::Prepare);
    let phase = |change: Option<NodeChange>| {
        let state = change.and_then(|change| change.state);
        state.map(|state| (state.phase, state.aborts))
    };
    assert_eq!(phase(prepared(&cordoned, &input(0))), Some((Phase::Draining, 0)));
    let failed = hook_failed(&cordoned, &input(0), "no quorum");
    assert_eq!(phase(failed), Some((Phase::Aborted, 1)));
    let Step::Write(late) = step(&cordoned, &input(10)) else {
        panic!("expected an abort");
    };
    assert_eq!(phase(Some(late)), Some((Phase::Aborted, 1)));
    // After the reboot the node has failed.
    let rebooted = node(Phase::Rebooted);
    assert_eq!(
        phase(hook_failed(&rebooted, &input(0), "no quorum")),
        Some((Phase::Failed, 0))
    );
    for phase in [Phase::Granted, Phase::Armed, Phase::Soaking, Phase::Failed] {
        assert_eq!(hook_failed(&node(phase), &input(0), "late"), None, "{phase}");
        assert_eq!(prepared(&node(phase), &input(0)), None, "{phase}");
    }
}

#[test]
fn forced_drain_deletes_pods_and_then_continues() {
    let forced = |minutes: u32| {
        let mut rules = rules();
        rules.drain = Some(DrainRule {
            timeout: 10 * MINUTE,
            force: true,
        });
        let input = StepInput {
            now: now().checked_add(minutes * MINUTE).expect("a valid time"),
            policy: "default",
            rules: &rules,
            slot: Some(EPOCH),
            halt: None,
        };
        match step(&node(Phase::Draining), &input) {
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
fn uncordoning_by_an_administrator_is_respected() {
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
fn aborted_node_waits_for_a_new_slot() {
    assert_eq!(
        next(&node(Phase::Aborted)),
        "until",
        "its old slot is about to be taken back"
    );
    let slot = |input: &mut StepInput<'_>| input.slot = Some(EPOCH + 1);
    assert_eq!(next_with(&node(Phase::Aborted), slot), "Granted");
    let none = |input: &mut StepInput<'_>| {
        past_deadline(input);
        input.slot = None;
    };
    assert_eq!(next_with(&node(Phase::Aborted), none), "rest");
}

#[test]
fn soaking_node_that_is_not_ready_starts_over() {
    let lost = with(Phase::Soaking, |node| {
        (node.is_ready, node.boot_id) = (false, "after".to_owned());
    });
    assert_eq!(next_with(&lost, past_deadline), "Rebooted");
}

#[test]
fn flapping_node_fails_after_the_health_deadline() {
    let mut rules = rules();
    rules.soak = 5 * MINUTE;
    let at = |minutes: u32| StepInput {
        now: now().checked_add(minutes * MINUTE).expect("a valid time"),
        policy: "default",
        rules: &rules,
        slot: Some(EPOCH),
        halt: None,
    };
    let mut node = with(Phase::Armed, |node| node.boot_id = "after".to_owned());
    let mut phases = Vec::new();
    // Every four minutes the node becomes unready, and a minute later healthy again.
    for minute in 0..60 {
        node.is_ready = minute % 4 != 3;
        let input = at(minute);
        let change = match step(&node, &input) {
            Step::Write(change) => Some(change),
            Step::Verify if node.is_ready => verified(&node, &input),
            _ => None,
        };
        if let Some(change) = change {
            change.apply(&mut node);
            phases.push((minute, node.phase().expect("it has a phase")));
        }
    }
    let ends = phases
        .iter()
        .filter(|(_, phase)| *phase == Phase::Rebooted)
        .count();
    assert_eq!(phases.last(), Some(&(15, Phase::Failed)), "{phases:?}");
    assert_eq!(ends, 4, "{phases:?}");
}
