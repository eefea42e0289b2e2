//! Failures, and administrators who intervene.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use http::StatusCode;
use serde_json::json;
use windlass::prelude::*;
use windlass_reboot::{
    PolicyPhase,
    state::{AnnotationKeys, Phase},
};
use windlass_suite::{Context as Case, RecordedRequest};

use crate::controller::{
    fleet::{Fleet, RebootBehavior},
    roll::{at_a_time, status},
};

/// A node that is not Ready, or whose state is unknown, is down; it may be rebooted itself.
pub(crate) async fn unready_nodes_count_as_unavailable_once(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 2, at_a_time(1)).await?;
    let (broken, well) = (fleet.name(0), fleet.name(1));
    for state in ["Unknown", "False"] {
        fleet.set_ready(&broken, state).await?;
        fleet
            .wait_for_policy(|policy| status(policy).unavailable == 1)
            .await?;
        fleet.request(&well).await?;
        fleet.pass_time(Duration::from_mins(10)).await;
        assert!(
            fleet.view(&well).await?.state.is_none(),
            "{state} counts as down too"
        );
        fleet.set_ready(&broken, "True").await?;
        fleet.wait_until_idle(&well).await?;
    }
    fleet.set_ready(&broken, "Unknown").await?;
    fleet
        .wait_for_policy(|policy| status(policy).unavailable == 1)
        .await?;
    fleet.request(&broken).await?;
    fleet.wait_for_phase(&broken, Phase::Armed).await?;
    // The agents of this fleet read the boot ID from the node's status.
    fleet.set_ready(&broken, "True").await?;
    fleet.wait_until_idle(&broken).await?;
    assert_eq!((fleet.boots(&broken), fleet.boots(&well)), (1, 2));
    fleet.end().await
}

/// A node whose reboot is requested again before its slot was released waits its turn: by then another one may be
/// down.
pub(crate) async fn new_request_after_a_reboot_waits_for_a_new_slot(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 2, at_a_time(1)).await?;
    let (again, other) = (fleet.name(0), fleet.name(1));
    fleet.proxy.delay(usize::MAX, Duration::from_secs(3), |sent| {
        sent.resource() == "rebootpolicies" && sent.is_write()
    });
    fleet.request(&again).await?;
    fleet.wait_until_idle(&again).await?;
    fleet.set_ready(&other, "Unknown").await?;
    let slots = status(&fleet.policy().await?).granted.len();
    assert_eq!(slots, 1, "precondition of this test");
    fleet.request(&again).await?;
    fleet
        .wait_for_policy(|policy| status(policy).granted.is_empty())
        .await?;
    fleet.pass_time(Duration::from_mins(10)).await;
    assert!(
        fleet.view(&again).await?.state.is_none(),
        "the other node is down"
    );
    fleet.set_ready(&other, "True").await?;
    fleet
        .wait_for_node(&again, |view| view.boot_id == "boot-2")
        .await?;
    fleet.wait_until_idle(&again).await?;
    assert_eq!((fleet.boots(&again), fleet.max_down()), (2, 1));
    fleet.end().await
}

pub(crate) async fn administrator_cordon_is_preserved(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 1, at_a_time(1)).await?;
    let node = fleet.name(0);
    fleet.cordon(&node, true).await?;
    fleet.request(&node).await?;
    let view = fleet.wait_until_idle(&node).await?;
    assert!(view.unschedulable);
    assert_eq!(fleet.boots(&node), 1);
    fleet.end().await
}

/// Whatever ends a drain early, the node is restored, its slot is released, and the request stays.
pub(crate) async fn aborted_drain_restores_the_node(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    spec["backoff"] = "2s".into();
    let fleet = Fleet::new(&case, 1, spec).await?;
    let node = fleet.name(0);
    fleet.create_protected_pod(&node).await?;
    let never = json!([{ "from": "2001-01-01", "to": "2999-01-01" }]);
    let policies = [
        ("paused", json!({ "paused": true }), json!({ "paused": false })),
        (
            "no maintenance window",
            json!({ "exclusions": never }),
            json!({ "exclusions": [] }),
        ),
        ("dry run", json!({ "dryRun": true }), json!({ "dryRun": false })),
    ];
    fleet.request(&node).await?;
    for (why, off, on) in policies {
        fleet.wait_for_phase(&node, Phase::Draining).await?;
        fleet.change_policy(off).await?;
        let view = fleet.wait_for_phase(&node, Phase::Aborted).await?;
        let reason = view
            .state()
            .and_then(|state| state.reason.clone())
            .unwrap_or_default();
        assert!(reason.contains(why), "{reason}");
        assert!(!view.unschedulable && !view.cordoned && view.request.is_some());
        fleet
            .wait_for_policy(|policy| status(policy).granted.is_empty())
            .await?;
        fleet.change_policy(on).await?;
    }
    // By removing the cordon.
    fleet.wait_for_phase(&node, Phase::Draining).await?;
    fleet.cordon(&node, false).await?;
    let view = fleet.wait_for_phase(&node, Phase::Aborted).await?;
    assert!(!view.unschedulable, "an administrator's decision is kept");
    // By removing the request.
    fleet.wait_for_phase(&node, Phase::Draining).await?;
    fleet
        .annotate(&node, json!({ AnnotationKeys::default().reboot_needed: null }))
        .await?;
    let view = fleet.wait_until_idle(&node).await?;
    assert!(!view.unschedulable);
    fleet
        .wait_for_policy(|policy| status(policy).granted.is_empty())
        .await?;
    assert_eq!(fleet.boots(&node), 0);
    assert!(fleet.has_protected_pod(&node).await?);
    fleet.end().await
}

/// Pods that do not leave in time: the drain is aborted, or they are deleted, as the policy asks for.
pub(crate) async fn drain_timeout_aborts_or_forces(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    spec["backoff"] = "1s".into();
    spec["drain"] = json!({ "timeout": "3s" });
    let fleet = Fleet::new(&case, 1, spec).await?;
    let node = fleet.name(0);
    fleet.create_protected_pod(&node).await?;
    fleet.request(&node).await?;
    let view = fleet.wait_for_phase(&node, Phase::Aborted).await?;
    let reason = view
        .state()
        .and_then(|state| state.reason.clone())
        .unwrap_or_default();
    assert!(reason.contains("did not finish within 3s"), "{reason}");
    assert!(!view.unschedulable);
    assert!(fleet.has_protected_pod(&node).await?);
    // It is retried.
    let again = |view: &windlass_reboot::state_machine::NodeView| {
        view.state().is_some_and(|state| state.attempt >= 2)
    };
    fleet.wait_for_node(&node, again).await?;
    assert_eq!(fleet.boots(&node), 0);
    fleet
        .change_policy(json!({ "drain": { "onTimeout": "Force" } }))
        .await?;
    fleet.wait_until_idle(&node).await?;
    assert_eq!(fleet.boots(&node), 1);
    assert!(!fleet.has_protected_pod(&node).await?);
    fleet.end().await
}

/// A node that does not come back keeps its slot, and the others wait until an administrator has looked at it.
pub(crate) async fn node_that_does_not_return_fails_and_stops_the_rollout(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 3, at_a_time(2)).await?;
    fleet.shorten_reboot_timeout().await?;
    let lost = fleet.name(0);
    fleet.set_behavior(&lost, RebootBehavior::Dies);
    fleet.request(&lost).await?;
    let view = fleet.wait_for_phase(&lost, Phase::Failed).await?;
    assert!(view.command.is_none(), "it is disarmed");
    assert!(view.unschedulable && view.request.is_some());
    let policy = fleet.wait_for_policy(|policy| status(policy).failed == 1).await?;
    let now = status(&policy);
    assert!(now.conditions.is_true("Degraded") && now.conditions.is_true("Paused"));
    assert_eq!(now.phase, Some(PolicyPhase::Paused));
    assert_eq!(now.granted.len(), 1, "it keeps its slot");
    fleet.request(&fleet.name(1)).await?;
    fleet.pass_time(Duration::from_hours(2)).await;
    assert!(fleet.view(&fleet.name(1)).await?.state.is_none());
    assert_eq!(fleet.view(&lost).await?.phase(), Some(Phase::Failed));
    // An administrator repairs it and removes the state: it starts over.
    fleet.set_behavior(&lost, RebootBehavior::Well);
    fleet.set_ready(&lost, "True").await?;
    fleet
        .annotate(&lost, json!({ AnnotationKeys::default().state: null }))
        .await?;
    let view = fleet.wait_until_idle(&lost).await?;
    assert!(!view.unschedulable, "the controller had cordoned it");
    fleet.wait_until_idle(&fleet.name(1)).await?;
    assert_eq!((fleet.boots(&lost), fleet.boots(&fleet.name(1))), (1, 1));
    fleet
        .wait_for_policy(|policy| {
            status(policy).granted.is_empty() && !status(policy).conditions.is_true("Degraded")
        })
        .await?;
    fleet.end().await
}

/// The new boot ID is proof, also after the deadline.
pub(crate) async fn node_that_returns_late_counts_as_rebooted(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 2, at_a_time(1)).await?;
    fleet.shorten_reboot_timeout().await?;
    let (late, next) = (fleet.name(0), fleet.name(1));
    fleet.set_behavior(&late, RebootBehavior::Dies);
    fleet.request(&late).await?;
    fleet.request(&next).await?;
    fleet.wait_for_phase(&late, Phase::Failed).await?;
    let policy = fleet
        .wait_for_policy(|policy| status(policy).conditions.is_true("Degraded"))
        .await?;
    let message = status(&policy).message.unwrap_or_default();
    let failed = format!("too many nodes have failed; failed: {late} (its agent requested the reboot");
    assert!(message.starts_with(&failed), "{message}");
    // Its machine has taken longer than the timeout.
    fleet.set_behavior(&late, RebootBehavior::Well);
    fleet.boot(&late).await?;
    let view = fleet.wait_until_idle(&late).await?;
    assert!(!view.unschedulable);
    fleet.wait_until_idle(&next).await?;
    assert_eq!(fleet.rebooted(), [late.clone(), next], "each node once");
    let policy = fleet
        .wait_for_policy(|policy| status(policy).granted.is_empty())
        .await?;
    assert!(!status(&policy).conditions.is_true("Degraded"));
    let events = fleet.event_reasons(&late).await?;
    assert!(
        events.ends_with(&["RebootFailed", "Rebooted", "RebootCompleted"].map(ToOwned::to_owned)),
        "{events:?}"
    );
    fleet.end().await
}

/// Only the kubelet was restarted: that is not a reboot.
pub(crate) async fn kubelet_restart_is_not_a_reboot(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 1, at_a_time(1)).await?;
    fleet.shorten_reboot_timeout().await?;
    let node = fleet.name(0);
    fleet.set_behavior(&node, RebootBehavior::Pretends);
    fleet.request(&node).await?;
    let view = fleet.wait_for_phase(&node, Phase::Failed).await?;
    assert!(view.request.is_some(), "the request stays");
    assert_eq!(fleet.boots(&node), 0);
    // An administrator removes all annotations: a node that the controller cordoned is uncordoned.
    let names = AnnotationKeys::default();
    fleet
        .annotate(&node, json!({ &*names.state: null, &*names.reboot_needed: null }))
        .await?;
    let view = fleet.wait_until_idle(&node).await?;
    assert!(!view.unschedulable);
    fleet
        .wait_for_policy(|policy| status(policy).granted.is_empty())
        .await?;
    fleet.end().await
}

/// No agent runs on the node.
pub(crate) async fn node_without_agent_fails_and_is_disarmed(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    spec["reboot"] = json!({ "timeout": "2s" });
    let mut fleet = Fleet::new(&case, 1, spec).await?;
    fleet.stop_agents().await?;
    let node = fleet.name(0);
    fleet.request(&node).await?;
    let view = fleet.wait_for_phase(&node, Phase::Failed).await?;
    let reason = view
        .state()
        .and_then(|state| state.reason.clone())
        .unwrap_or_default();
    assert!(reason.contains("check that it runs on the node"), "{reason}");
    fleet.start_agents().await?;
    fleet.pass_time(Duration::from_mins(10)).await;
    assert_eq!(fleet.boots(&node), 0);
    fleet.end().await
}

/// A pause withdraws a command that the agent has not claimed, and so does removing the request; after the claim
/// nothing does.
pub(crate) async fn command_is_withdrawn_until_the_agent_has_started(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    spec["backoff"] = "1s".into();
    let mut fleet = Fleet::new(&case, 1, spec).await?;
    let node = fleet.name(0);
    fleet.stop_agents().await?;
    fleet.request(&node).await?;
    fleet.wait_for_phase(&node, Phase::Armed).await?;
    fleet.change_policy(json!({ "paused": true })).await?;
    let view = fleet.wait_for_phase(&node, Phase::Aborted).await?;
    assert!(view.command.is_none() && !view.unschedulable);
    fleet.start_agents().await?;
    fleet.pass_time(Duration::from_mins(10)).await;
    assert_eq!(fleet.boots(&node), 0);
    // So does removing the request.
    fleet.stop_agents().await?;
    fleet.change_policy(json!({ "paused": false })).await?;
    fleet.wait_for_phase(&node, Phase::Armed).await?;
    let names = AnnotationKeys::default();
    fleet
        .annotate(&node, json!({ &*names.reboot_needed: null }))
        .await?;
    let view = fleet.wait_until_idle(&node).await?;
    assert!(!view.unschedulable, "it is restored");
    fleet.start_agents().await?;
    fleet.pass_time(Duration::from_mins(10)).await;
    assert_eq!(fleet.boots(&node), 0);
    // A claimed command is carried out.
    fleet.set_behavior(&node, RebootBehavior::Deaf);
    fleet.request(&node).await?;
    fleet.wait_for_node(&node, |view| view.progress.is_some()).await?;
    fleet.change_policy(json!({ "paused": true })).await?;
    fleet.settle().await;
    assert_eq!(fleet.view(&node).await?.phase(), Some(Phase::Armed));
    fleet.end().await
}

/// A deleted node loses its slot, and one with its name is another node.
pub(crate) async fn deleted_node_releases_its_slot(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 2, at_a_time(1)).await?;
    let (gone, next) = (fleet.name(0), fleet.name(1));
    fleet.create_protected_pod(&gone).await?;
    fleet.request(&gone).await?;
    fleet.request(&next).await?;
    fleet.wait_for_phase(&gone, Phase::Draining).await?;
    fleet.delete(&gone).await?;
    fleet.wait_until_idle(&next).await?;
    assert_eq!(fleet.boots(&next), 1);
    // While it is drained, it is replaced by a node with its name.
    fleet.create_protected_pod(&next).await?;
    fleet.request(&next).await?;
    fleet.wait_for_phase(&next, Phase::Draining).await?;
    fleet.delete(&next).await?;
    fleet.add(&next, json!({})).await?;
    fleet
        .wait_for_policy(|policy| status(policy).granted.is_empty())
        .await?;
    fleet.pass_time(Duration::from_mins(10)).await;
    let view = fleet.view(&next).await?;
    assert!(view.is_idle() && !view.unschedulable);
    assert_eq!(fleet.boots(&next), 0, "no reboot was requested for this one");
    fleet.end().await
}

/// A state written by another version of this program is left unchanged, and occupies a slot.
pub(crate) async fn invalid_state_is_left_unchanged_and_occupies_a_slot(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 2, at_a_time(1)).await?;
    let (odd, other) = (fleet.name(0), fleet.name(1));
    let names = AnnotationKeys::default();
    let state = r#"{"phase":"Levitating","policy":"x"}"#;
    fleet
        .annotate(&odd, json!({ &*names.state: state, &*names.reboot_needed: "" }))
        .await?;
    fleet
        .wait_for_policy(|policy| status(policy).unavailable == 1)
        .await?;
    fleet.request(&other).await?;
    fleet.pass_time(Duration::from_mins(10)).await;
    assert!(fleet.view(&other).await?.state.is_none());
    let node = fleet.nodes().get(&odd).await?;
    assert_eq!(node.annotations()[&names.state], state);
    assert!(
        fleet
            .event_reasons(&odd)
            .await?
            .contains(&"InvalidState".to_owned())
    );
    fleet.annotate(&odd, json!({ &*names.state: null })).await?;
    fleet.wait_until_idle(&odd).await?;
    fleet.wait_until_idle(&other).await?;
    fleet.end().await
}

/// How the API server is unavailable.
const THERE: u8 = 0;
const UNAVAILABLE: u8 = 1;
const TOO_BUSY: u8 = 2;
const SILENT: u8 = 3;

/// The API server is unavailable for ten minutes, starting when a node enters a phase; for each phase.
pub(crate) async fn api_outage_in_any_phase_only_delays(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    spec["soak"] = "1s".into();
    // Timeouts that an outage does not exceed.
    for part in ["drain", "reboot", "healthCheck"] {
        spec[part]["timeout"] = "2h".into();
    }
    let fleet = Fleet::new(&case, 1, spec).await?;
    let node = fleet.name(0);
    let (away, next) = (Arc::new(AtomicU8::new(THERE)), Arc::new(Mutex::new(None)));
    let is = |how: u8| {
        let away = Arc::clone(&away);
        move |_: &RecordedRequest| away.load(Ordering::Relaxed) == how
    };
    let (unavailable, busy) = (StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS);
    let silence = Duration::from_secs(if fleet.is_embedded() { 600 } else { 2 });
    fleet.proxy.reject(usize::MAX, unavailable, is(UNAVAILABLE));
    fleet.proxy.reject(usize::MAX, busy, is(TOO_BUSY));
    fleet.proxy.delay(usize::MAX, silence, is(SILENT));
    // Runs after the other layers: the write that starts the outage passes.
    let (begins, takes) = (Arc::clone(&next), Arc::clone(&away));
    fleet.proxy.reject(usize::MAX, unavailable, move |sent| {
        let enters = |next: &mut (Phase, u8)| {
            let mark = format!(r#"\"phase\":\"{}\""#, next.0.name());
            sent.is_write() && sent.resource() == "nodes" && sent.body.to_string().contains(&mark)
        };
        let begun = begins.lock().expect("not poisoned").take_if(enters);
        if let Some((_, how)) = begun {
            takes.store(how, Ordering::Relaxed);
        }
        false
    });
    let phases = [
        Phase::Granted,
        Phase::Cordoned,
        Phase::Draining,
        Phase::Drained,
        Phase::Armed,
        Phase::Rebooted,
        Phase::Soaking,
    ];
    let ways = [UNAVAILABLE, TOO_BUSY, SILENT];
    let all = phases.into_iter().enumerate().flat_map(|(place, phase)| {
        // Where time is real, only one kind of outage is tested per phase.
        let some = if fleet.is_embedded() {
            &ways[..]
        } else {
            &ways[place % 3..=place % 3]
        };
        some.iter().map(move |how| (phase, *how))
    });
    for (number, (phase, how)) in (1..).zip(all) {
        let begin = || *next.lock().expect("not poisoned") = Some((phase, how));
        begin();
        fleet.request(&node).await?;
        // A write that conflicts enters no phase: the outage starts with the next one.
        while tokio::time::timeout(Duration::from_secs(5), fleet.wait_for_phase(&node, phase))
            .await
            .is_err()
        {
            begin();
            away.store(THERE, Ordering::Relaxed);
        }
        assert_eq!(away.load(Ordering::Relaxed), how, "{phase}");
        fleet.pass_time(Duration::from_mins(10)).await;
        if how != SILENT {
            assert_eq!(fleet.view(&node).await?.phase(), Some(phase));
        }
        away.store(THERE, Ordering::Relaxed);
        // The retry delays have grown during the outage.
        fleet.pass_time(Duration::from_mins(20)).await;
        fleet.wait_until_idle(&node).await?;
        assert_eq!(fleet.boots(&node), number, "{phase}");
    }
    fleet.end().await
}

/// The API server is unavailable for ten minutes in the middle of a rollout.
pub(crate) async fn api_outage_during_a_rollout_only_delays(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 3, at_a_time(1)).await?;
    let away = StatusCode::SERVICE_UNAVAILABLE;
    // Retry delays double: up to minutes, where time is simulated.
    let times = if fleet.is_embedded() { 15 } else { 6 };
    for number in 0..3 {
        fleet.request(&fleet.name(number)).await?;
    }
    for phase in [Phase::Draining, Phase::Armed, Phase::Rebooted] {
        fleet.proxy.reject(times, away, move |sent| {
            sent.is_write() && sent.resource() == "nodes" && sent.body.to_string().contains(phase.name())
        });
        fleet.proxy.reject(times / 3, away, |sent| {
            sent.resource() == "rebootpolicies" && sent.is_write()
        });
    }
    for number in 0..3 {
        fleet.wait_until_idle(&fleet.name(number)).await?;
    }
    assert_eq!((fleet.rebooted().len(), fleet.max_down()), (3, 1));
    fleet.end().await
}
