//! Large and small clusters, and metrics.

use serde_json::json;
use windlass::{prelude::*, runtime::metrics::Format};
use windlass_reboot::{Arguments, state::Phase};
use windlass_suite::{Context as Case, RunningManager};

use crate::controller::{
    fleet::{Fleet, controllers, controllers_with},
    roll::{at_a_time, status},
};

/// Two of the nodes are lost all the time, and each zone has its own limit.
pub(crate) async fn hundred_nodes_reboot_ten_percent_at_a_time_with_lost_nodes(
    case: Case,
) -> anyhow::Result<()> {
    let mut spec = at_a_time("10%");
    spec["perTopology"] = json!({ "key": "zone", "maxUnavailable": 5 });
    let mut fleet = Fleet::idle(&case, 0, spec).await?;
    let size = if fleet.is_embedded() { 100 } else { 40 };
    for number in 0..size {
        let zone = format!("zone-{}", number % 3);
        fleet.add(&fleet.name(number), json!({ "zone": zone })).await?;
    }
    for (number, state) in [(size - 1, "Unknown"), (size - 2, "False")] {
        fleet.set_ready(&fleet.name(number), state).await?;
    }
    for number in 0..size - 2 {
        fleet.request(&fleet.name(number)).await?;
    }
    fleet.start();
    for number in 0..size - 2 {
        fleet.wait_until_idle(&fleet.name(number)).await?;
    }
    let mut rebooted = fleet.rebooted();
    rebooted.sort();
    let expected: Vec<_> = (0..size - 2).map(|number| fleet.name(number)).collect();
    assert_eq!(rebooted, expected, "each node once");
    assert_eq!(fleet.max_down(), size / 10);
    fleet
        .wait_for_policy(|policy| status(policy).unavailable == 2 && status(policy).granted.is_empty())
        .await?;
    fleet.end().await
}

/// The controller's pod cannot move: it stays, and the node reboots anyway.
pub(crate) async fn single_node_cluster_reboots_with_its_controller(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::idle(&case, 1, at_a_time(1)).await?;
    let node = fleet.name(0);
    fleet.create_protected_pod(&node).await?;
    fleet.allow(&node, 1).await?;
    let arguments = Arguments {
        own_node: Some(node.clone()),
        own_pod: Some(ObjectKey::namespaced(case.namespace(), node.as_str())),
        ..Arguments::default()
    };
    let start = || {
        let manager = Manager::new(fleet.proxy.client());
        RunningManager::start(controllers_with(manager, fleet.clock, &arguments))
    };
    let running = start();
    fleet.request(&node).await?;
    fleet.wait_for_phase(&node, Phase::Armed).await?;
    assert!(
        fleet.has_protected_pod(&node).await?,
        "the controller did not evict itself"
    );
    // The pod stops with its node, and comes back with it.
    running.kill().await;
    fleet
        .wait_for_node(&node, |view| view.is_ready && view.boot_id == "boot-1")
        .await?;
    let running = start();
    fleet.wait_until_idle(&node).await?;
    assert_eq!(fleet.boots(&node), 1);
    running.stop().await?;
    fleet.end().await
}

pub(crate) async fn metrics_report_phases_durations_and_blockers(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::idle(&case, 2, at_a_time(1)).await?;
    let manager = Manager::new(fleet.proxy.client());
    let metrics = manager.metrics();
    let running = RunningManager::start(controllers(manager, fleet.clock, None));
    let node = fleet.name(0);
    fleet.create_protected_pod(&node).await?;
    for number in 0..2 {
        fleet.request(&fleet.name(number)).await?;
    }
    fleet
        .wait_for_policy(|policy| !status(policy).blockers.is_empty())
        .await?;
    let figure = |line: String| {
        let text = metrics.scrape(Format::Prometheus);
        let found = text
            .lines()
            .find_map(|one| one.strip_prefix(&line))
            .map(str::trim);
        found.map_or_else(|| format!("no {line} in\n{text}"), ToOwned::to_owned)
    };
    let nodes = |phase: &str| {
        figure(format!(
            "windlass_reboot_nodes{{phase=\"{phase}\",policy=\"{}\"}}",
            fleet.policy
        ))
    };
    let blockers = |reason: &str| figure(format!("windlass_reboot_drain_blockers{{reason=\"{reason}\"}}"));
    let counts = |phase: &str| {
        figure(format!(
            "windlass_reboot_phase_duration_seconds_count{{phase=\"{phase}\"}}"
        ))
    };
    let of_node = |number: usize, phase: &str| {
        let (name, policy) = (fleet.name(number), &fleet.policy);
        figure(format!(
            "windlass_reboot_node_phase{{node=\"{name}\",phase=\"{phase}\",policy=\"{policy}\"}}"
        ))
    };
    let progress = |reason: &str| {
        let policy = &fleet.policy;
        figure(format!(
            "windlass_reboot_policy_progress{{policy=\"{policy}\",reason=\"{reason}\"}}"
        ))
    };
    let attempts = |outcome: &str| {
        let policy = &fleet.policy;
        figure(format!(
            "windlass_reboot_attempts_total{{outcome=\"{outcome}\",policy=\"{policy}\"}}"
        ))
    };
    assert_eq!((nodes("Draining"), nodes("Requested")), ("1".into(), "1".into()));
    assert_eq!(
        (of_node(0, "Draining"), of_node(1, "Requested")),
        ("1".into(), "1".into())
    );
    assert_eq!(progress("DrainBlocked"), "1");
    assert_eq!(
        (blockers("DisruptionBudget"), blockers("TerminationOverdue")),
        ("1".into(), "0".into())
    );
    assert_eq!((counts("Cordoned"), counts("Draining")), ("1".into(), "0".into()));
    fleet.allow(&node, 1).await?;
    for number in 0..2 {
        fleet.wait_until_idle(&fleet.name(number)).await?;
    }
    fleet
        .wait_for_policy(|policy| status(policy).granted.is_empty() && status(policy).rebooting == 0)
        .await?;
    fleet.settle().await;
    assert_eq!((nodes("Idle"), nodes("Draining")), ("2".into(), "0".into()));
    assert_eq!(
        (progress("Idle"), attempts("Completed")),
        ("1".into(), "2".into())
    );
    let text = metrics.scrape(Format::Prometheus);
    assert!(
        !text.contains("windlass_reboot_node_phase{"),
        "idle nodes are not reported: {text}"
    );
    assert_eq!(
        (blockers("DisruptionBudget"), counts("Rebooted")),
        ("0".into(), "2".into())
    );
    running.stop().await?;
    fleet.end().await
}
