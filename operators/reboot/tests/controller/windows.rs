//! Windows: nothing starts outside of them, by the controller's and the agent's clock.

use std::{ops::Range, time::Duration};

use jiff::Timestamp;
use windlass::{prelude::*, runtime::Clock};
use windlass_cluster::Backend;
use windlass_reboot::{
    PolicyPhase,
    state::Phase,
    state_machine::NodeView,
    window::{WindowSpec, Windows},
};
use windlass_suite::{Context as Case, RequestProxy, RunningManager};

use crate::controller::{
    fleet::{Fleet, controllers},
    pods::{budget, pod, set_disruptions_allowed},
};

fn at(time: &str) -> Timestamp {
    time.parse().expect("a valid time")
}

fn is_embedded(case: &Case) -> bool {
    case.cluster().backend() == Backend::Embedded
}

fn berlin(start: &str, end: &str) -> serde_json::Value {
    json!([{ "start": start, "end": end, "timeZone": "Europe/Berlin" }])
}

fn spec(windows: &serde_json::Value) -> serde_json::Value {
    json!({ "windows": windows, "backoff": "1m", "healthCheck": { "minReadySeconds": 1 }, "drain": { "gracePeriodSeconds": 0 } })
}

/// The windows as the test defines them.
fn windows(windows: &serde_json::Value) -> Windows {
    let specs: Vec<WindowSpec> = from_value(windows.clone()).expect("valid windows");
    Windows::parse(&specs, &[]).expect("valid windows")
}

/// A policy with these windows and one node at this time, without running controllers.
async fn one_node(case: &Case, windows: &serde_json::Value, from: &str) -> anyhow::Result<(Fleet, String)> {
    let fleet = Fleet::idle_at(case, 1, spec(windows), at(from)).await?;
    let node = fleet.name(0);
    Ok((fleet, node))
}

/// Starts the controllers, and requests a reboot.
async fn ask(fleet: &mut Fleet, node: &str) -> anyhow::Result<()> {
    fleet.start();
    fleet.request(node).await?;
    Ok(())
}

/// Requests a reboot of a node whose drain does not finish before its window closes.
async fn abort_drain_by_window(fleet: &mut Fleet, node: &str) -> anyhow::Result<NodeView> {
    pod(&fleet.case, node, "web", "ReplicaSet").await?;
    budget(&fleet.case, "strict", "web", Some(0)).await?;
    ask(fleet, node).await?;
    fleet.wait_for_phase(node, Phase::Draining).await?;
    fleet.wait_for_phase(node, Phase::Aborted).await
}

/// Waits until the node's agent has started the reboot, within these times; returns when.
async fn reboot_started_within(fleet: &Fleet, node: &str, times: Range<&str>) -> anyhow::Result<Timestamp> {
    let begun = reboot_started(fleet, node).await?;
    assert!((at(times.start)..at(times.end)).contains(&begun), "{begun}");
    Ok(begun)
}

/// Waits until the node's agent has started the reboot; returns when.
async fn reboot_started(fleet: &Fleet, node: &str) -> anyhow::Result<Timestamp> {
    let view = fleet.wait_for_node(node, |view| view.progress.is_some()).await?;
    let progress = view.progress.and_then(Result::ok);
    Ok(progress.map_or_else(|| fleet.clock.now(), |progress| progress.attempted_at))
}

/// Nothing was done to the node.
fn is_untouched(view: &NodeView) -> bool {
    view.state.is_none() && !view.unschedulable && view.command.is_none()
}

pub(crate) async fn closing_window_aborts_a_drain(case: Case) -> anyhow::Result<()> {
    let nights = berlin("22:00", "04:00");
    // Twelve seconds before four in the morning.
    let (mut fleet, node) = one_node(&case, &nights, "2026-06-06T01:59:48Z").await?;
    let view = abort_drain_by_window(&mut fleet, &node).await?;
    let state = view.state().expect("it is aborted");
    assert_eq!(state.reason.as_deref(), Some("no maintenance window is open"));
    assert!(
        state.since >= at("2026-06-06T02:00:00Z") && state.since <= at("2026-06-06T02:00:06Z"),
        "{state:?}"
    );
    assert!(!view.unschedulable && view.request.is_some());
    // Nothing blocks any more, and still nothing starts.
    set_disruptions_allowed(&fleet.case, "strict", 1).await?;
    let asked = |fleet: &Fleet| {
        fleet
            .proxy
            .requests()
            .iter()
            .filter(|sent| sent.subresource() == "eviction")
            .count()
    };
    let before = asked(&fleet);
    fleet
        .wait_for_policy(|policy| {
            policy
                .status
                .as_ref()
                .is_some_and(|status| status.granted.is_empty())
        })
        .await?;
    if is_embedded(&case) {
        tokio::time::sleep(Duration::from_hours(17)).await;
        assert_eq!((asked(&fleet), fleet.boots(&node)), (before, 0));
        reboot_started_within(&fleet, &node, "2026-06-06T20:00:00Z".."2026-06-06T20:05:00Z").await?;
        fleet.wait_until_idle(&node).await?;
        assert_eq!(fleet.boots(&node), 1);
    }
    fleet.end().await
}

pub(crate) async fn overnight_window_opens_only_on_its_start_day(case: Case) -> anyhow::Result<()> {
    let fridays = json!([{ "days": ["Fri"], "start": "22:00", "end": "04:00", "timeZone": "Europe/Berlin" }]);
    // A Friday: at one in the morning it is Thursday's night; on the real server, eight seconds before ten.
    let from = if is_embedded(&case) {
        "2026-06-04T23:00:00Z"
    } else {
        "2026-06-05T19:59:52Z"
    };
    let (mut fleet, node) = one_node(&case, &fridays, from).await?;
    ask(&mut fleet, &node).await?;
    let waits = fleet.wait_for_policy(|policy| {
        let status = policy.status.as_ref();
        status.is_some_and(|status| status.requested == 1 && status.phase == Some(PolicyPhase::Waiting))
    });
    let policy = waits.await?;
    let message = policy.status.as_ref().and_then(|status| status.message.clone());
    assert_eq!(
        message.as_deref(),
        Some("no maintenance window is open: the next one opens at 2026-06-05T20:00:00Z")
    );
    assert!(is_untouched(&fleet.view(&node).await?));
    if is_embedded(&case) {
        // Longer than a watch's timeout.
        tokio::time::sleep(Duration::from_hours(20)).await;
        assert!(is_untouched(&fleet.view(&node).await?));
    }
    reboot_started_within(&fleet, &node, "2026-06-05T20:00:00Z".."2026-06-05T20:05:00Z").await?;
    fleet.wait_until_idle(&node).await?;
    fleet.end().await?;

    // On Saturday at one it is open.
    let (mut fleet, node) = one_node(&case, &fridays, "2026-06-05T23:00:00Z").await?;
    ask(&mut fleet, &node).await?;
    fleet.wait_until_idle(&node).await?;
    assert!(fleet.clock.now() < at("2026-06-05T23:10:00Z"));
    assert_eq!(fleet.boots(&node), 1);
    fleet.end().await
}

pub(crate) async fn window_opens_when_dst_skips_its_start(case: Case) -> anyhow::Result<()> {
    let nights = berlin("02:30", "04:00");
    // On that night 02:30 is skipped: at two it becomes three.
    let (mut fleet, node) = one_node(&case, &nights, "2026-03-29T00:59:52Z").await?;
    ask(&mut fleet, &node).await?;
    let begun = reboot_started_within(&fleet, &node, "2026-03-29T01:00:00Z".."2026-03-29T01:01:00Z").await?;
    assert!(windows(&nights).open_at(begun));
    fleet.wait_until_idle(&node).await?;
    fleet.end().await
}

pub(crate) async fn window_closes_when_dst_repeats_the_hour_before_its_start(
    case: Case,
) -> anyhow::Result<()> {
    let nights = berlin("02:30", "04:00");
    // Ten seconds before three it becomes two again.
    let (mut fleet, node) = one_node(&case, &nights, "2026-10-25T00:59:50Z").await?;
    let view = abort_drain_by_window(&mut fleet, &node).await?;
    assert!(
        view.state()
            .is_some_and(|state| state.since >= at("2026-10-25T01:00:00Z"))
    );
    set_disruptions_allowed(&fleet.case, "strict", 1).await?;
    if is_embedded(&case) {
        // 02:30 comes again half an hour later.
        reboot_started_within(&fleet, &node, "2026-10-25T01:30:00Z".."2026-10-25T01:32:00Z").await?;
        fleet.wait_until_idle(&node).await?;
        assert_eq!(fleet.boots(&node), 1);
    }
    fleet.end().await
}

pub(crate) async fn unclaimed_command_is_withdrawn_when_the_window_closes(case: Case) -> anyhow::Result<()> {
    let nights = berlin("22:00", "04:00");
    let (mut fleet, node) = one_node(&case, &nights, "2026-06-06T01:59:50Z").await?;
    fleet.stop_agents().await?;
    ask(&mut fleet, &node).await?;
    let armed = fleet.wait_for_phase(&node, Phase::Armed).await?;
    let order = armed.command.and_then(Result::ok).expect("it is armed");
    assert_eq!(
        (order.not_before, order.not_after),
        (Some(at("2026-06-05T20:00:00Z")), Some(at("2026-06-06T02:00:00Z")))
    );
    let view = fleet.wait_for_phase(&node, Phase::Aborted).await?;
    assert!(view.command.is_none() && !view.unschedulable, "{view:?}");
    assert!(
        view.state()
            .is_some_and(|state| state.since <= at("2026-06-06T02:00:05Z")),
        "{view:?}"
    );
    // A late agent has nothing to do.
    fleet.start_agents().await?;
    fleet.settle().await;
    assert_eq!((fleet.boots(&node), fleet.view(&node).await?.progress), (0, None));
    fleet.end().await
}

/// A controller with another clock than the agents', which are right.
fn skewed(fleet: &Fleet, proxy: &RequestProxy, minutes: i64) -> RunningManager {
    let wrong = fleet.clock.now() + jiff::SignedDuration::from_mins(minutes);
    RunningManager::start(controllers(
        Manager::new(proxy.client()),
        Clock::starting_at(wrong),
        None,
    ))
}

pub(crate) async fn controller_clock_ahead_does_not_reboot_early(case: Case) -> anyhow::Result<()> {
    let nights = berlin("22:00", "04:00");
    // By the controller's clock the window has been open for nearly ten minutes; by the agents' it opens in eight
    // seconds.
    let (fleet, node) = one_node(&case, &nights, "2026-06-05T19:59:52Z").await?;
    let controller = skewed(&fleet, &fleet.proxy, 10);
    fleet.request(&node).await?;
    fleet.wait_for_phase(&node, Phase::Armed).await?;
    assert!(
        fleet.clock.now() < at("2026-06-05T20:00:00Z"),
        "precondition of this test"
    );
    let begun = reboot_started(&fleet, &node).await?;
    assert!(begun >= at("2026-06-05T20:00:00Z"), "{begun}");
    fleet.wait_until_idle(&node).await?;
    assert_eq!(fleet.boots(&node), 1);
    controller.stop().await?;
    fleet.end().await
}

pub(crate) async fn controller_clock_behind_does_not_reboot_late(case: Case) -> anyhow::Result<()> {
    let nights = berlin("22:00", "04:00");
    // By the agents' clock the window is closed; by the controller's it closes in eight seconds.
    let (fleet, node) = one_node(&case, &nights, "2026-06-06T02:09:52Z").await?;
    let controller = skewed(&fleet, &fleet.proxy, -10);
    fleet.request(&node).await?;
    fleet.wait_for_phase(&node, Phase::Armed).await?;
    let view = fleet.wait_for_phase(&node, Phase::Aborted).await?;
    assert_eq!(
        (fleet.boots(&node), &view.progress),
        (0, &None),
        "no agent claims it"
    );
    assert!(!view.unschedulable && view.request.is_some());
    controller.stop().await?;
    fleet.end().await
}

/// Kubelets use their own clocks, which are ten minutes behind or ahead of the controller's.
pub(crate) async fn skewed_kubelet_clocks_do_not_delay_reboots(case: Case) -> anyhow::Result<()> {
    for minutes in [-10, 10] {
        let (fleet, node) = one_node(&case, &json!([]), "2026-06-05T12:00:00Z").await?;
        let controller = skewed(&fleet, &fleet.proxy, minutes);
        fleet.request(&node).await?;
        fleet.wait_until_idle(&node).await?;
        let took = fleet.clock.now().duration_since(at("2026-06-05T12:00:00Z"));
        assert!(took.as_secs() < 120, "{minutes} minutes: {took:?}");
        assert_eq!(fleet.boots(&node), 1);
        controller.stop().await?;
        fleet.end().await?;
    }
    Ok(())
}
