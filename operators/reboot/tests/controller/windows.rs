//! Windows: nothing begins outside of them, by any clock that counts.

use std::{ops::Range, time::Duration};

use jiff::Timestamp;
use windlass::{prelude::*, runtime::Clock};
use windlass_cluster::Backend;
use windlass_reboot::{
    PolicyPhase,
    machine::NodeView,
    state::Phase,
    window::{WindowSpec, Windows},
};
use windlass_suite::{Context as Case, Running, Wire};

use crate::{
    fleet::{Fleet, controllers},
    pods::{allow, budget, pod},
};

fn at(time: &str) -> Timestamp {
    time.parse().expect("a time")
}

fn is_embedded(case: &Case) -> bool {
    case.cluster().backend() == Backend::Embedded
}

fn berlin(start: &str, end: &str) -> serde_json::Value {
    json!([{ "start": start, "end": end, "timeZone": "Europe/Berlin" }])
}

fn spec(windows: &serde_json::Value) -> serde_json::Value {
    json!({ "windows": windows, "backoff": "1m", "after": { "minReadySeconds": 1 }, "drain": { "gracePeriodSeconds": 0 } })
}

/// Where the test's word counts for what is open.
fn windows(windows: &serde_json::Value) -> Windows {
    let specs: Vec<WindowSpec> = from_value(windows.clone()).expect("windows");
    Windows::parse(&specs, &[]).expect("windows")
}

/// A policy with these windows and one node, whose controllers do not run yet, at this time.
async fn one_node(case: &Case, windows: &serde_json::Value, from: &str) -> anyhow::Result<(Fleet, String)> {
    let fleet = Fleet::idle_at(case, 1, spec(windows), at(from)).await?;
    let node = fleet.name(0);
    Ok((fleet, node))
}

/// Starts the controllers, and asks for a reboot.
async fn ask(fleet: &mut Fleet, node: &str) -> anyhow::Result<()> {
    fleet.start();
    fleet.request(node).await?;
    Ok(())
}

/// Asks for a reboot of a node whose drain does not end before its window does.
async fn given_back(fleet: &mut Fleet, node: &str) -> anyhow::Result<NodeView> {
    pod(&fleet.case, node, "web", "ReplicaSet").await?;
    budget(&fleet.case, "strict", "web", Some(0)).await?;
    ask(fleet, node).await?;
    fleet.phase(node, Phase::Draining).await?;
    fleet.phase(node, Phase::Aborted).await
}

/// Waits until the node's agent has begun, at one of these times; when that was.
async fn begun_within(fleet: &Fleet, node: &str, times: Range<&str>) -> anyhow::Result<Timestamp> {
    let begun = begun(fleet, node).await?;
    assert!((at(times.start)..at(times.end)).contains(&begun), "{begun}");
    Ok(begun)
}

/// Waits until the node's agent has begun; when that was.
async fn begun(fleet: &Fleet, node: &str) -> anyhow::Result<Timestamp> {
    let view = fleet.until(node, |view| view.progress.is_some()).await?;
    let progress = view.progress.and_then(Result::ok);
    Ok(progress.map_or_else(|| fleet.clock.now(), |progress| progress.at))
}

/// Nothing has been done to the node, and nothing is.
fn is_untouched(view: &NodeView) -> bool {
    view.state.is_none() && !view.unschedulable && view.order.is_none()
}

pub(crate) async fn a_window_that_closes_during_a_drain_gives_the_node_back(
    case: Case,
) -> anyhow::Result<()> {
    let nights = berlin("22:00", "04:00");
    // Twelve seconds before four in the morning.
    let (mut fleet, node) = one_node(&case, &nights, "2026-06-06T01:59:48Z").await?;
    let view = given_back(&mut fleet, &node).await?;
    let state = view.state().expect("it is aborted");
    assert_eq!(state.reason.as_deref(), Some("no maintenance window is open"));
    assert!(
        state.since >= at("2026-06-06T02:00:00Z") && state.since <= at("2026-06-06T02:00:06Z"),
        "{state:?}"
    );
    assert!(!view.unschedulable && view.needed.is_some());
    // Nothing is in the way any more, and still nobody begins.
    allow(&fleet.case, "strict", 1).await?;
    let asked = |fleet: &Fleet| {
        fleet
            .wire
            .sent()
            .iter()
            .filter(|sent| sent.part() == "eviction")
            .count()
    };
    let before = asked(&fleet);
    fleet
        .policed(|policy| {
            policy
                .status
                .as_ref()
                .is_some_and(|status| status.granted.is_empty())
        })
        .await?;
    if is_embedded(&case) {
        tokio::time::sleep(Duration::from_hours(17)).await;
        assert_eq!((asked(&fleet), fleet.boots(&node)), (before, 0));
        begun_within(&fleet, &node, "2026-06-06T20:00:00Z".."2026-06-06T20:05:00Z").await?;
        fleet.done(&node).await?;
        assert_eq!(fleet.boots(&node), 1);
    }
    fleet.end().await
}

pub(crate) async fn a_window_over_midnight_opens_on_its_own_day_only(case: Case) -> anyhow::Result<()> {
    let fridays = json!([{ "days": ["Fri"], "start": "22:00", "end": "04:00", "timeZone": "Europe/Berlin" }]);
    // A Friday: at one in the morning it is Thursday's night; on the real server, eight seconds before ten.
    let from = if is_embedded(&case) {
        "2026-06-04T23:00:00Z"
    } else {
        "2026-06-05T19:59:52Z"
    };
    let (mut fleet, node) = one_node(&case, &fridays, from).await?;
    ask(&mut fleet, &node).await?;
    let waits = fleet.policed(|policy| {
        let status = policy.status.as_ref();
        status.is_some_and(|status| status.requested == 1 && status.phase == Some(PolicyPhase::Waiting))
    });
    let policy = waits.await?;
    let message = policy.status.as_ref().and_then(|status| status.message.clone());
    assert_eq!(message.as_deref(), Some("no maintenance window is open"));
    assert!(is_untouched(&fleet.view(&node).await?));
    if is_embedded(&case) {
        // More than a watch has patience for.
        tokio::time::sleep(Duration::from_hours(20)).await;
        assert!(is_untouched(&fleet.view(&node).await?));
    }
    begun_within(&fleet, &node, "2026-06-05T20:00:00Z".."2026-06-05T20:05:00Z").await?;
    fleet.done(&node).await?;
    fleet.end().await?;

    // On Saturday at one it is open.
    let (mut fleet, node) = one_node(&case, &fridays, "2026-06-05T23:00:00Z").await?;
    ask(&mut fleet, &node).await?;
    fleet.done(&node).await?;
    assert!(fleet.clock.now() < at("2026-06-05T23:10:00Z"));
    assert_eq!(fleet.boots(&node), 1);
    fleet.end().await
}

pub(crate) async fn a_window_opens_when_the_clock_is_set_forward_over_its_start(
    case: Case,
) -> anyhow::Result<()> {
    let nights = berlin("02:30", "04:00");
    // On that night half past two does not come: at two it is three.
    let (mut fleet, node) = one_node(&case, &nights, "2026-03-29T00:59:52Z").await?;
    ask(&mut fleet, &node).await?;
    let begun = begun_within(&fleet, &node, "2026-03-29T01:00:00Z".."2026-03-29T01:01:00Z").await?;
    assert!(windows(&nights).open_at(begun));
    fleet.done(&node).await?;
    fleet.end().await
}

pub(crate) async fn a_window_closes_when_the_clock_is_set_back_before_its_start(
    case: Case,
) -> anyhow::Result<()> {
    let nights = berlin("02:30", "04:00");
    // Ten seconds before three it becomes two again.
    let (mut fleet, node) = one_node(&case, &nights, "2026-10-25T00:59:50Z").await?;
    let view = given_back(&mut fleet, &node).await?;
    assert!(
        view.state()
            .is_some_and(|state| state.since >= at("2026-10-25T01:00:00Z"))
    );
    allow(&fleet.case, "strict", 1).await?;
    if is_embedded(&case) {
        // Half past two comes again, half an hour later.
        begun_within(&fleet, &node, "2026-10-25T01:30:00Z".."2026-10-25T01:32:00Z").await?;
        fleet.done(&node).await?;
        assert_eq!(fleet.boots(&node), 1);
    }
    fleet.end().await
}

pub(crate) async fn an_order_that_nobody_takes_up_is_taken_back_when_the_window_closes(
    case: Case,
) -> anyhow::Result<()> {
    let nights = berlin("22:00", "04:00");
    let (mut fleet, node) = one_node(&case, &nights, "2026-06-06T01:59:50Z").await?;
    fleet.stop_agents().await?;
    ask(&mut fleet, &node).await?;
    let armed = fleet.phase(&node, Phase::Armed).await?;
    let order = armed.order.and_then(Result::ok).expect("it is armed");
    assert_eq!(
        (order.not_before, order.not_after),
        (Some(at("2026-06-05T20:00:00Z")), Some(at("2026-06-06T02:00:00Z")))
    );
    let view = fleet.phase(&node, Phase::Aborted).await?;
    assert!(view.order.is_none() && !view.unschedulable, "{view:?}");
    assert!(
        view.state()
            .is_some_and(|state| state.since <= at("2026-06-06T02:00:05Z")),
        "{view:?}"
    );
    // An agent that is late has nothing to do.
    fleet.start_agents().await?;
    fleet.settle().await;
    assert_eq!((fleet.boots(&node), fleet.view(&node).await?.progress), (0, None));
    fleet.end().await
}

/// A controller by another clock than that of the agents, which is right.
fn skewed(fleet: &Fleet, wire: &Wire, minutes: i64) -> Running {
    let wrong = fleet.clock.now() + jiff::SignedDuration::from_mins(minutes);
    Running::start(controllers(
        Manager::new(wire.client()),
        Clock::starting_at(wrong),
        None,
    ))
}

pub(crate) async fn a_controller_that_is_ten_minutes_ahead_reboots_nothing_early(
    case: Case,
) -> anyhow::Result<()> {
    let nights = berlin("22:00", "04:00");
    // By the controller's clock the window has been open for nearly ten minutes; by the agents' it opens in eight seconds.
    let (fleet, node) = one_node(&case, &nights, "2026-06-05T19:59:52Z").await?;
    let controller = skewed(&fleet, &fleet.wire, 10);
    fleet.request(&node).await?;
    fleet.phase(&node, Phase::Armed).await?;
    assert!(
        fleet.clock.now() < at("2026-06-05T20:00:00Z"),
        "or this shows nothing"
    );
    let begun = begun(&fleet, &node).await?;
    assert!(begun >= at("2026-06-05T20:00:00Z"), "{begun}");
    fleet.done(&node).await?;
    assert_eq!(fleet.boots(&node), 1);
    controller.stop().await?;
    fleet.end().await
}

pub(crate) async fn a_controller_that_is_ten_minutes_behind_reboots_nothing_late(
    case: Case,
) -> anyhow::Result<()> {
    let nights = berlin("22:00", "04:00");
    // By the agents' clock the window is closed; by the controller's it will be in eight seconds.
    let (fleet, node) = one_node(&case, &nights, "2026-06-06T02:09:52Z").await?;
    let controller = skewed(&fleet, &fleet.wire, -10);
    fleet.request(&node).await?;
    fleet.phase(&node, Phase::Armed).await?;
    let view = fleet.phase(&node, Phase::Aborted).await?;
    assert_eq!(
        (fleet.boots(&node), &view.progress),
        (0, &None),
        "no agent takes it up"
    );
    assert!(!view.unschedulable && view.needed.is_some());
    controller.stop().await?;
    fleet.end().await
}

/// Kubelets write when they became Ready by their own clocks, which are ten minutes behind or ahead of the controller's.
pub(crate) async fn kubelets_with_other_clocks_hold_nothing_up(case: Case) -> anyhow::Result<()> {
    for minutes in [-10, 10] {
        let (fleet, node) = one_node(&case, &json!([]), "2026-06-05T12:00:00Z").await?;
        let controller = skewed(&fleet, &fleet.wire, minutes);
        fleet.request(&node).await?;
        fleet.done(&node).await?;
        let took = fleet.clock.now().duration_since(at("2026-06-05T12:00:00Z"));
        assert!(took.as_secs() < 120, "{minutes} minutes: {took:?}");
        assert_eq!(fleet.boots(&node), 1);
        controller.stop().await?;
        fleet.end().await?;
    }
    Ok(())
}
