//! What can go wrong, and what people do on the way.

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
    state::{Names, Phase},
};
use windlass_suite::{Context as Case, Sent};

use crate::{
    fleet::{Fleet, Temper},
    roll::{at_a_time, status},
};

/// A node that is not Ready, or of which nobody knows, is down; and it may be rebooted itself.
pub(crate) async fn nodes_that_are_not_ready_count_but_not_twice(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 2, at_a_time(1)).await?;
    let (broken, well) = (fleet.name(0), fleet.name(1));
    for state in ["Unknown", "False"] {
        fleet.ready(&broken, state).await?;
        fleet.policed(|policy| status(policy).unavailable == 1).await?;
        fleet.request(&well).await?;
        fleet.pass(Duration::from_mins(10)).await;
        assert!(fleet.view(&well).await?.state.is_none(), "{state} is down too");
        fleet.ready(&broken, "True").await?;
        fleet.done(&well).await?;
    }
    fleet.ready(&broken, "Unknown").await?;
    fleet.policed(|policy| status(policy).unavailable == 1).await?;
    fleet.request(&broken).await?;
    fleet.phase(&broken, Phase::Armed).await?;
    // The agents of this fleet know a machine by what its kubelet says.
    fleet.ready(&broken, "True").await?;
    fleet.done(&broken).await?;
    assert_eq!((fleet.boots(&broken), fleet.boots(&well)), (1, 2));
    fleet.end().await
}

/// Asked for again before its slot is back, a node waits its turn like any other: by then another one may be down.
pub(crate) async fn a_request_after_the_end_waits_for_a_slot_of_its_own(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 2, at_a_time(1)).await?;
    let (again, other) = (fleet.name(0), fleet.name(1));
    fleet.wire.delay(usize::MAX, Duration::from_secs(3), |sent| {
        sent.resource() == "rebootpolicies" && sent.is_write()
    });
    fleet.request(&again).await?;
    fleet.done(&again).await?;
    fleet.ready(&other, "Unknown").await?;
    let slots = status(&fleet.policy().await?).granted.len();
    assert_eq!(slots, 1, "or this shows nothing");
    fleet.request(&again).await?;
    fleet.policed(|policy| status(policy).granted.is_empty()).await?;
    fleet.pass(Duration::from_mins(10)).await;
    assert!(fleet.view(&again).await?.state.is_none(), "the other one is down");
    fleet.ready(&other, "True").await?;
    fleet.until(&again, |view| view.boot_id == "boot-2").await?;
    fleet.done(&again).await?;
    assert_eq!((fleet.boots(&again), fleet.most_down()), (2, 1));
    fleet.end().await
}

pub(crate) async fn what_an_administrator_cordoned_stays_cordoned(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 1, at_a_time(1)).await?;
    let node = fleet.name(0);
    fleet.cordon(&node, true).await?;
    fleet.request(&node).await?;
    let view = fleet.done(&node).await?;
    assert!(view.unschedulable);
    assert_eq!(fleet.boots(&node), 1);
    fleet.end().await
}

/// Whatever ends a drain early, the node is given back as it was, its slot is free, and the request stays.
pub(crate) async fn a_drain_that_is_called_off_leaves_the_node_as_it_was(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    spec["backoff"] = "2s".into();
    let fleet = Fleet::new(&case, 1, spec).await?;
    let node = fleet.name(0);
    fleet.pinned(&node).await?;
    let never = json!([{ "from": "2001-01-01", "to": "2999-01-01" }]);
    let policies = [
        ("paused", json!({ "paused": true }), json!({ "paused": false })),
        (
            "no maintenance window",
            json!({ "exclusions": never }),
            json!({ "exclusions": [] }),
        ),
        (
            "only plans",
            json!({ "dryRun": true }),
            json!({ "dryRun": false }),
        ),
    ];
    fleet.request(&node).await?;
    for (why, off, on) in policies {
        fleet.phase(&node, Phase::Draining).await?;
        fleet.change_policy(off).await?;
        let view = fleet.phase(&node, Phase::Aborted).await?;
        let reason = view
            .state()
            .and_then(|state| state.reason.clone())
            .unwrap_or_default();
        assert!(reason.contains(why), "{reason}");
        assert!(!view.unschedulable && !view.cordoned && view.needed.is_some());
        fleet.policed(|policy| status(policy).granted.is_empty()).await?;
        fleet.change_policy(on).await?;
    }
    // By hand.
    fleet.phase(&node, Phase::Draining).await?;
    fleet.cordon(&node, false).await?;
    let view = fleet.phase(&node, Phase::Aborted).await?;
    assert!(!view.unschedulable, "what somebody decides is theirs");
    // And for good.
    fleet.phase(&node, Phase::Draining).await?;
    fleet
        .annotate(&node, json!({ Names::default().needed: null }))
        .await?;
    let view = fleet.done(&node).await?;
    assert!(!view.unschedulable);
    fleet.policed(|policy| status(policy).granted.is_empty()).await?;
    assert_eq!(fleet.boots(&node), 0);
    assert!(fleet.is_pinned(&node).await?);
    fleet.end().await
}

/// Pods that do not go in time: the node is given back, or they are deleted, as the policy says.
pub(crate) async fn a_drain_that_takes_too_long_is_called_off_or_forced(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    spec["backoff"] = "1s".into();
    spec["drain"] = json!({ "timeout": "3s" });
    let fleet = Fleet::new(&case, 1, spec).await?;
    let node = fleet.name(0);
    fleet.pinned(&node).await?;
    fleet.request(&node).await?;
    let view = fleet.phase(&node, Phase::Aborted).await?;
    let reason = view
        .state()
        .and_then(|state| state.reason.clone())
        .unwrap_or_default();
    assert!(reason.contains("did not go within 3s"), "{reason}");
    assert!(!view.unschedulable);
    assert!(fleet.is_pinned(&node).await?);
    // It is tried again.
    let again =
        |view: &windlass_reboot::machine::NodeView| view.state().is_some_and(|state| state.attempt >= 2);
    fleet.until(&node, again).await?;
    assert_eq!(fleet.boots(&node), 0);
    fleet
        .change_policy(json!({ "drain": { "onTimeout": "Force" } }))
        .await?;
    fleet.done(&node).await?;
    assert_eq!(fleet.boots(&node), 1);
    assert!(!fleet.is_pinned(&node).await?);
    fleet.end().await
}

/// A node that does not come back keeps its slot, and the others wait until somebody has looked.
pub(crate) async fn a_node_that_never_returns_stops_the_roll_until_somebody_looks(
    case: Case,
) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 3, at_a_time(2)).await?;
    fleet
        .change_policy(json!({ "reboot": { "timeout": fleet.short() } }))
        .await?;
    let lost = fleet.name(0);
    fleet.temper(&lost, Temper::Dies);
    fleet.request(&lost).await?;
    let view = fleet.phase(&lost, Phase::Failed).await?;
    assert!(view.order.is_none(), "nobody reboots it later");
    assert!(view.unschedulable && view.needed.is_some());
    let policy = fleet.policed(|policy| status(policy).failed == 1).await?;
    let now = status(&policy);
    assert!(now.conditions.is_true("Degraded") && now.conditions.is_true("Paused"));
    assert_eq!(now.phase, Some(PolicyPhase::Paused));
    assert_eq!(now.granted.len(), 1, "it keeps its slot");
    fleet.request(&fleet.name(1)).await?;
    fleet.pass(Duration::from_hours(2)).await;
    assert!(fleet.view(&fleet.name(1)).await?.state.is_none());
    assert_eq!(fleet.view(&lost).await?.phase(), Some(Phase::Failed));
    // Somebody mends it, and takes the state off: it starts over.
    fleet.temper(&lost, Temper::Well);
    fleet.ready(&lost, "True").await?;
    fleet
        .annotate(&lost, json!({ Names::default().state: null }))
        .await?;
    let view = fleet.done(&lost).await?;
    assert!(!view.unschedulable, "we had made it so");
    fleet.done(&fleet.name(1)).await?;
    assert_eq!((fleet.boots(&lost), fleet.boots(&fleet.name(1))), (1, 1));
    fleet
        .policed(|policy| status(policy).granted.is_empty() && !status(policy).conditions.is_true("Degraded"))
        .await?;
    fleet.end().await
}

/// The kubelet was started anew, and nothing else: that is no reboot.
pub(crate) async fn the_same_boot_again_is_no_reboot(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 1, at_a_time(1)).await?;
    fleet
        .change_policy(json!({ "reboot": { "timeout": fleet.short() } }))
        .await?;
    let node = fleet.name(0);
    fleet.temper(&node, Temper::Pretends);
    fleet.request(&node).await?;
    let view = fleet.phase(&node, Phase::Failed).await?;
    assert!(view.needed.is_some(), "the request is not answered");
    assert_eq!(fleet.boots(&node), 0);
    // Somebody takes everything off: what we made unschedulable becomes schedulable.
    let names = Names::default();
    fleet
        .annotate(&node, json!({ &*names.state: null, &*names.needed: null }))
        .await?;
    let view = fleet.done(&node).await?;
    assert!(!view.unschedulable);
    fleet.policed(|policy| status(policy).granted.is_empty()).await?;
    fleet.end().await
}

/// Nobody is there to reboot it.
pub(crate) async fn a_node_without_an_agent_fails_and_is_not_rebooted_later(
    case: Case,
) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    spec["reboot"] = json!({ "timeout": "2s" });
    let mut fleet = Fleet::new(&case, 1, spec).await?;
    fleet.stop_agents().await?;
    let node = fleet.name(0);
    fleet.request(&node).await?;
    let view = fleet.phase(&node, Phase::Failed).await?;
    let reason = view
        .state()
        .and_then(|state| state.reason.clone())
        .unwrap_or_default();
    assert!(reason.contains("see whether one runs there"), "{reason}");
    fleet.start_agents().await?;
    fleet.pass(Duration::from_mins(10)).await;
    assert_eq!(fleet.boots(&node), 0);
    fleet.end().await
}

/// A pause takes an order back, if the agent has not begun, and so does who cancels it; from then on nothing takes it back.
pub(crate) async fn an_order_is_taken_back_as_long_as_the_agent_has_not_begun(
    case: Case,
) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    spec["backoff"] = "1s".into();
    let mut fleet = Fleet::new(&case, 1, spec).await?;
    let node = fleet.name(0);
    fleet.stop_agents().await?;
    fleet.request(&node).await?;
    fleet.phase(&node, Phase::Armed).await?;
    fleet.change_policy(json!({ "paused": true })).await?;
    let view = fleet.phase(&node, Phase::Aborted).await?;
    assert!(view.order.is_none() && !view.unschedulable);
    fleet.start_agents().await?;
    fleet.pass(Duration::from_mins(10)).await;
    assert_eq!(fleet.boots(&node), 0);
    // So does who takes the request off.
    fleet.stop_agents().await?;
    fleet.change_policy(json!({ "paused": false })).await?;
    fleet.phase(&node, Phase::Armed).await?;
    let names = Names::default();
    fleet.annotate(&node, json!({ &*names.needed: null })).await?;
    let view = fleet.done(&node).await?;
    assert!(!view.unschedulable, "it is given back as it was");
    fleet.start_agents().await?;
    fleet.pass(Duration::from_mins(10)).await;
    assert_eq!(fleet.boots(&node), 0);
    // One that has begun goes on.
    fleet.temper(&node, Temper::Deaf);
    fleet.request(&node).await?;
    fleet.until(&node, |view| view.progress.is_some()).await?;
    fleet.change_policy(json!({ "paused": true })).await?;
    fleet.settle().await;
    assert_eq!(fleet.view(&node).await?.phase(), Some(Phase::Armed));
    fleet.end().await
}

/// Its slot goes with it, and one of its name is another node.
pub(crate) async fn a_node_that_is_deleted_leaves_no_slot_behind(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 2, at_a_time(1)).await?;
    let (gone, next) = (fleet.name(0), fleet.name(1));
    fleet.pinned(&gone).await?;
    fleet.request(&gone).await?;
    fleet.request(&next).await?;
    fleet.phase(&gone, Phase::Draining).await?;
    fleet.delete(&gone).await?;
    fleet.done(&next).await?;
    assert_eq!(fleet.boots(&next), 1);
    // While it is drained it is replaced by one of its name.
    fleet.pinned(&next).await?;
    fleet.request(&next).await?;
    fleet.phase(&next, Phase::Draining).await?;
    fleet.delete(&next).await?;
    fleet.add(&next, json!({})).await?;
    fleet.policed(|policy| status(policy).granted.is_empty()).await?;
    fleet.pass(Duration::from_mins(10)).await;
    let view = fleet.view(&next).await?;
    assert!(view.is_idle() && !view.unschedulable);
    assert_eq!(fleet.boots(&next), 0, "nobody asked this one");
    fleet.end().await
}

/// What another version of this program wrote is left alone, and takes up a slot.
pub(crate) async fn a_state_that_cannot_be_read_is_left_alone(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 2, at_a_time(1)).await?;
    let (odd, other) = (fleet.name(0), fleet.name(1));
    let names = Names::default();
    let state = r#"{"phase":"Levitating","policy":"x"}"#;
    fleet
        .annotate(&odd, json!({ &*names.state: state, &*names.needed: "" }))
        .await?;
    fleet.policed(|policy| status(policy).unavailable == 1).await?;
    fleet.request(&other).await?;
    fleet.pass(Duration::from_mins(10)).await;
    assert!(fleet.view(&other).await?.state.is_none());
    let node = fleet.nodes().get(&odd).await?;
    assert_eq!(node.annotations()[&names.state], state);
    assert!(fleet.told(&odd).await?.contains(&"StateUnreadable".to_owned()));
    fleet.annotate(&odd, json!({ &*names.state: null })).await?;
    fleet.done(&odd).await?;
    fleet.done(&other).await?;
    fleet.end().await
}

/// How an API server is away.
const THERE: u8 = 0;
const UNAVAILABLE: u8 = 1;
const TOO_BUSY: u8 = 2;
const SILENT: u8 = 3;

/// The API server answers nobody for ten minutes, from the moment in which a node enters a phase, for each of them.
pub(crate) async fn an_outage_in_any_phase_costs_nothing_but_time(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    spec["soak"] = "1s".into();
    // Deadlines that an outage does not use up.
    for part in ["drain", "reboot", "after"] {
        spec[part]["timeout"] = "2h".into();
    }
    let fleet = Fleet::new(&case, 1, spec).await?;
    let node = fleet.name(0);
    let (away, next) = (Arc::new(AtomicU8::new(THERE)), Arc::new(Mutex::new(None)));
    let is = |how: u8| {
        let away = Arc::clone(&away);
        move |_: &Sent| away.load(Ordering::Relaxed) == how
    };
    let (unavailable, busy) = (StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS);
    let silence = Duration::from_secs(if fleet.is_embedded() { 600 } else { 2 });
    fleet.wire.refuse(usize::MAX, unavailable, is(UNAVAILABLE));
    fleet.wire.refuse(usize::MAX, busy, is(TOO_BUSY));
    fleet.wire.delay(usize::MAX, silence, is(SILENT));
    // After the others: the write by which it begins passes.
    let (begins, takes) = (Arc::clone(&next), Arc::clone(&away));
    fleet.wire.refuse(usize::MAX, unavailable, move |sent| {
        let enters = |next: &mut (Phase, u8)| {
            let mark = format!(r#"\"phase\":\"{}\""#, next.0.name());
            sent.is_write() && sent.resource() == "nodes" && sent.body.to_string().contains(&mark)
        };
        let begun = begins.lock().expect("nobody panics with it").take_if(enters);
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
        // Where time is real, each phase has one of them.
        let some = if fleet.is_embedded() {
            &ways[..]
        } else {
            &ways[place % 3..=place % 3]
        };
        some.iter().map(move |how| (phase, *how))
    });
    for (number, (phase, how)) in (1..).zip(all) {
        let begin = || *next.lock().expect("nobody panics with it") = Some((phase, how));
        begin();
        fleet.request(&node).await?;
        // A write for which somebody else was too fast enters nothing: then it begins with the next one.
        while tokio::time::timeout(Duration::from_secs(5), fleet.phase(&node, phase))
            .await
            .is_err()
        {
            begin();
            away.store(THERE, Ordering::Relaxed);
        }
        assert_eq!(away.load(Ordering::Relaxed), how, "{phase}");
        fleet.pass(Duration::from_mins(10)).await;
        if how != SILENT {
            assert_eq!(fleet.view(&node).await?.phase(), Some(phase));
        }
        away.store(THERE, Ordering::Relaxed);
        // Who was refused for so long asks again ever more seldom.
        fleet.pass(Duration::from_mins(20)).await;
        fleet.done(&node).await?;
        assert_eq!(fleet.boots(&node), number, "{phase}");
    }
    fleet.end().await
}

/// The API server is away for ten minutes, in the middle of it.
pub(crate) async fn an_api_that_is_away_costs_nothing_but_time(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 3, at_a_time(1)).await?;
    let away = StatusCode::SERVICE_UNAVAILABLE;
    // Each is tried again after twice as long: for minutes, where that costs nothing.
    let times = if fleet.is_embedded() { 15 } else { 6 };
    for number in 0..3 {
        fleet.request(&fleet.name(number)).await?;
    }
    for phase in [Phase::Draining, Phase::Armed, Phase::Rebooted] {
        fleet.wire.refuse(times, away, move |sent| {
            sent.is_write() && sent.resource() == "nodes" && sent.body.to_string().contains(phase.name())
        });
        fleet.wire.refuse(times / 3, away, |sent| {
            sent.resource() == "rebootpolicies" && sent.is_write()
        });
    }
    for number in 0..3 {
        fleet.done(&fleet.name(number)).await?;
    }
    assert_eq!((fleet.rebooted().len(), fleet.most_down()), (3, 1));
    fleet.end().await
}
