//! Nodes that do not come back as expected, and administrators who intervene.

use std::time::Duration;

use anyhow::Context as _;
use windlass::{
    k8s_openapi::api::core::v1::Pod,
    kube::api::{Patch, PatchParams},
    prelude::*,
};
use windlass_cluster::Backend;
use windlass_reboot::{
    PolicyPhase, RebootPolicy,
    state::{AnnotationKeys, Phase, Progress},
    state_machine::NodeView,
};
use windlass_suite::Context as Case;

use crate::controller::{
    fleet::{Fleet, RebootBehavior},
    pods::{pod, stop_pod},
    roll::{at_a_time, status},
};

/// Sets a pod's Ready condition.
async fn set_pod_ready(fleet: &Fleet, name: &str, ready: &str) -> anyhow::Result<()> {
    let conditions = json!([{ "type": "Ready", "status": ready }]);
    let patch = Patch::Merge(json!({ "status": { "conditions": conditions } }));
    fleet
        .case
        .api::<Pod>()
        .patch_status(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

fn reason(view: &NodeView) -> String {
    let reason = view.state().and_then(|state| state.reason.clone());
    reason.unwrap_or_default()
}

pub(crate) async fn flapping_node_is_healthy_only_after_min_ready_seconds(case: Case) -> anyhow::Result<()> {
    let (long, flap) = match case.cluster().backend() {
        Backend::Embedded => (20, Duration::from_secs(12)),
        _ => (4, Duration::from_secs(2)),
    };
    let mut spec = at_a_time(1);
    spec["healthCheck"] = json!({ "minReadySeconds": long });
    let fleet = Fleet::new(&case, 2, spec).await?;
    let (node, next) = (fleet.name(0), fleet.name(1));
    fleet.request(&node).await?;
    fleet.request(&next).await?;
    fleet.wait_for_phase(&node, Phase::Rebooted).await?;
    for _ in 0..4 {
        fleet.set_ready(&node, "False").await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        fleet.set_ready(&node, "True").await?;
        tokio::time::sleep(flap).await;
        let view = fleet.view(&node).await?;
        assert_eq!(view.phase(), Some(Phase::Rebooted), "{view:?}");
        assert!(
            fleet.view(&next).await?.state.is_none(),
            "its slot is not released"
        );
    }
    let view = fleet.wait_until_idle(&node).await?;
    assert!(!view.unschedulable);
    fleet.wait_until_idle(&next).await?;
    assert_eq!(
        (fleet.boots(&node), fleet.boots(&next), fleet.max_down()),
        (1, 1, 1)
    );
    fleet.end().await
}

/// The kubelet is up, but something else on the node is not, for example its network.
pub(crate) async fn node_with_unready_pods_fails_and_keeps_its_slot(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    spec["healthCheck"] = json!({ "minReadySeconds": 0, "timeout": "4s" });
    let fleet = Fleet::new(&case, 2, spec).await?;
    let (node, next) = (fleet.name(0), fleet.name(1));
    pod(&fleet.case, &node, "network", "DaemonSet").await?;
    set_pod_ready(&fleet, "network", "False").await?;
    fleet.request(&node).await?;
    fleet.request(&next).await?;
    let rebooted = fleet.wait_for_phase(&node, Phase::Rebooted).await?;
    assert!(rebooted.unschedulable);
    let view = fleet.wait_for_phase(&node, Phase::Failed).await?;
    assert!(
        reason(&view).contains("did not become healthy in time"),
        "{}",
        reason(&view)
    );
    assert!(view.unschedulable && view.request.is_some());
    let policy = fleet.wait_for_policy(|policy| status(policy).failed == 1).await?;
    assert_eq!(status(&policy).granted.len(), 1);
    // It has rebooted, so the administrator who repaired it removes both annotations.
    set_pod_ready(&fleet, "network", "True").await?;
    fleet.pass_time(Duration::from_hours(1)).await;
    assert_eq!(
        fleet.view(&node).await?.phase(),
        Some(Phase::Failed),
        "an administrator has to look at it"
    );
    assert!(fleet.view(&next).await?.state.is_none());
    let names = AnnotationKeys::default();
    fleet
        .annotate(&node, json!({ &*names.state: null, &*names.reboot_needed: null }))
        .await?;
    let view = fleet.wait_until_idle(&node).await?;
    assert!(!view.unschedulable);
    fleet.wait_until_idle(&next).await?;
    assert_eq!((fleet.boots(&node), fleet.boots(&next)), (1, 1));
    stop_pod(&fleet.case, "network").await?;
    fleet.end().await
}

/// The agent runs a command of the administrator, and reports in which boot it passed.
pub(crate) async fn node_waits_for_the_agent_check(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    spec["healthCheck"] = json!({ "minReadySeconds": 0, "agentCheck": true });
    let fleet = Fleet::new(&case, 1, spec).await?;
    let (node, names) = (fleet.name(0), AnnotationKeys::default());
    fleet.request(&node).await?;
    let proved = |view: &NodeView| {
        view.progress()
            .is_some_and(|progress| progress.new_boot_id.is_some())
    };
    let view = fleet
        .wait_for_node(&node, |view| {
            view.phase() == Some(Phase::Rebooted) && proved(view)
        })
        .await?;
    let mut progress = view.progress().cloned().context("no progress")?;
    // A check that passed in the previous boot does not count.
    progress.checked_boot_id = Some(progress.boot_id.clone());
    let text = |progress: &Progress| windlass::serde_json::to_string(progress);
    fleet
        .annotate(&node, json!({ &*names.reboot_in_progress: text(&progress)? }))
        .await?;
    fleet.pass_time(Duration::from_secs(5)).await;
    let view = fleet.view(&node).await?;
    assert_eq!((view.phase(), view.unschedulable), (Some(Phase::Rebooted), true));
    progress.checked_boot_id.clone_from(&progress.new_boot_id);
    fleet
        .annotate(&node, json!({ &*names.reboot_in_progress: text(&progress)? }))
        .await?;
    fleet.wait_until_idle(&node).await?;
    assert_eq!(fleet.boots(&node), 1);
    fleet.end().await
}

pub(crate) async fn rollout_continues_until_the_failure_budget_is_exhausted(
    case: Case,
) -> anyhow::Result<()> {
    let mut spec = at_a_time(4);
    spec["failureBudget"] = 2.into();
    let fleet = Fleet::new(&case, 4, spec).await?;
    fleet.shorten_reboot_timeout().await?;
    let [first, well, second, last] = [0, 1, 2, 3].map(|number| fleet.name(number));
    for node in [&first, &second] {
        fleet.set_behavior(node, RebootBehavior::Dies);
    }
    fleet.request(&first).await?;
    fleet.wait_for_phase(&first, Phase::Failed).await?;
    // No other node asks for a reboot, but a person has to act.
    let waits = |policy: &RebootPolicy| {
        let conditions = &status(policy).conditions;
        let progressing = conditions.of_type("Progressing");
        progressing.is_some_and(|progressing| progressing.reason == "NodesFailed")
    };
    let policy = fleet.wait_for_policy(waits).await?;
    let found = status(&policy);
    assert!(found.conditions.is_true("Degraded") && !found.conditions.is_true("Paused"));
    assert_eq!(found.phase, Some(PolicyPhase::Waiting));
    fleet.request(&well).await?;
    fleet.wait_until_idle(&well).await?;
    fleet.request(&second).await?;
    fleet.wait_for_phase(&second, Phase::Failed).await?;
    fleet
        .wait_for_policy(|policy| status(policy).phase == Some(PolicyPhase::Paused))
        .await?;
    fleet.request(&last).await?;
    fleet.pass_time(Duration::from_hours(3)).await;
    assert!(fleet.view(&last).await?.state.is_none());
    // One of them is given up: its node is deleted, and with it its slot and its failure.
    fleet.delete(&first).await?;
    fleet.wait_until_idle(&last).await?;
    assert_eq!(fleet.rebooted(), [well, last]);
    fleet.end().await
}

/// Otherwise its slot would never be released while the other policy waits.
pub(crate) async fn node_that_moves_to_another_policy_releases_its_slot(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 2, at_a_time(1)).await?;
    let (moved, next) = (fleet.name(0), fleet.name(1));
    fleet.shorten_reboot_timeout().await?;
    fleet.set_behavior(&moved, RebootBehavior::Dies);
    fleet.request(&moved).await?;
    fleet.request(&next).await?;
    fleet.wait_for_phase(&moved, Phase::Failed).await?;
    // After an administrator's intervention, the first policy by name has it.
    let paused = json!({ "paused": true, "nodeSelector": { "matchLabels": { "moved": "yes" } } });
    fleet
        .create_policy(&format!("a-{}", fleet.policy), paused)
        .await?;
    let label = Patch::Merge(json!({ "metadata": {
        "labels": { "moved": "yes" }, "annotations": { AnnotationKeys::default().state: null },
    } }));
    fleet
        .nodes()
        .patch(&moved, &PatchParams::default(), &label)
        .await?;
    fleet.wait_until_idle(&next).await?;
    assert_eq!((fleet.boots(&moved), fleet.boots(&next)), (0, 1));
    assert!(
        fleet.view(&moved).await?.request.is_some(),
        "it waits for the other policy"
    );
    fleet.end().await
}

pub(crate) async fn administrator_uncordon_and_cordon_are_respected(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 1, at_a_time(1)).await?;
    let node = fleet.name(0);
    pod(&fleet.case, &node, "network", "DaemonSet").await?;
    set_pod_ready(&fleet, "network", "False").await?;
    fleet.request(&node).await?;
    fleet.wait_for_phase(&node, Phase::Rebooted).await?;
    // It has rebooted, and the administrator uncordons it although it is not healthy.
    fleet.cordon(&node, false).await?;
    let view = fleet.wait_for_node(&node, |view| !view.cordoned).await?;
    assert_eq!((view.phase(), view.unschedulable), (Some(Phase::Rebooted), false));
    // And cordons it again.
    fleet.cordon(&node, true).await?;
    set_pod_ready(&fleet, "network", "True").await?;
    let view = fleet.wait_until_idle(&node).await?;
    assert!(view.unschedulable, "the administrator's cordon is kept");
    assert!(
        fleet
            .event_reasons(&node)
            .await?
            .contains(&"ExternallyUncordoned".to_owned())
    );
    stop_pod(&fleet.case, "network").await?;
    fleet.end().await
}

/// In every phase: a node with the same name is another node, and no reboot was requested for it.
pub(crate) async fn replaced_node_passes_nothing_to_its_successor(case: Case) -> anyhow::Result<()> {
    let mut fleet = Fleet::new(&case, 2, at_a_time(1)).await?;
    let (node, next) = (fleet.name(0), fleet.name(1));
    fleet.shorten_reboot_timeout().await?;
    for phase in [Phase::Armed, Phase::Failed, Phase::Rebooted] {
        if phase == Phase::Armed {
            fleet.stop_agents().await?;
        }
        if phase == Phase::Rebooted {
            pod(&fleet.case, &node, "network", "DaemonSet").await?;
            set_pod_ready(&fleet, "network", "False").await?;
        }
        fleet.set_behavior(
            &node,
            if phase == Phase::Failed {
                RebootBehavior::Dies
            } else {
                RebootBehavior::Well
            },
        );
        fleet.request(&node).await?;
        fleet.wait_for_phase(&node, phase).await?;
        let before = fleet.boots(&next);
        fleet.request(&next).await?;
        fleet.delete(&node).await?;
        fleet.add(&node, json!({})).await?;
        if phase == Phase::Armed {
            fleet.start_agents().await?;
        }
        fleet.wait_until_idle(&next).await?;
        fleet
            .wait_for_policy(|policy| status(policy).granted.is_empty() && status(policy).failed == 0)
            .await?;
        fleet.pass_time(Duration::from_mins(10)).await;
        let view = fleet.view(&node).await?;
        assert!(
            view.is_idle() && !view.unschedulable && view.command.is_none(),
            "{phase}: {view:?}"
        );
        assert_eq!(
            (fleet.boots(&node), fleet.boots(&next)),
            (0, before + 1),
            "{phase}"
        );
    }
    stop_pod(&fleet.case, "network").await?;
    fleet.end().await
}

pub(crate) async fn pause_during_a_rollout_can_be_resumed(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(2);
    spec["backoff"] = "1s".into();
    let fleet = Fleet::new(&case, 5, spec).await?;
    let nodes = [0, 1, 2, 3, 4].map(|number| fleet.name(number));
    // The first node ignores the reboot for now, the second has a pod that does not leave.
    fleet.set_behavior(&nodes[0], RebootBehavior::Deaf);
    fleet.create_protected_pod(&nodes[1]).await?;
    for node in &nodes {
        fleet.request(node).await?;
    }
    fleet
        .wait_for_node(&nodes[0], |view| view.progress.is_some())
        .await?;
    fleet.wait_for_phase(&nodes[1], Phase::Draining).await?;
    fleet.change_policy(json!({ "paused": true })).await?;
    let view = fleet.wait_for_phase(&nodes[1], Phase::Aborted).await?;
    assert!(!view.unschedulable && view.request.is_some());
    fleet.pass_time(Duration::from_mins(5)).await;
    let policy = fleet
        .wait_for_policy(|policy| status(policy).granted.len() == 1)
        .await?;
    assert_eq!(
        (status(&policy).requested, status(&policy).phase),
        (4, Some(PolicyPhase::Paused))
    );
    assert_eq!(
        fleet.view(&nodes[0]).await?.phase(),
        Some(Phase::Armed),
        "its agent has started the reboot"
    );
    for node in &nodes[2..] {
        assert!(fleet.view(node).await?.state.is_none());
    }
    // A reboot that has started finishes during the pause.
    fleet.set_behavior(&nodes[0], RebootBehavior::Well);
    fleet.set_ready(&nodes[0], "True").await?;
    fleet.annotate(&nodes[0], json!({ "heard": "" })).await?;
    fleet.wait_until_idle(&nodes[0]).await?;
    assert_eq!(fleet.rebooted(), [nodes[0].clone()]);
    fleet
        .change_policy(json!({ "paused": false, "drain": { "timeout": "1s", "onTimeout": "Force" } }))
        .await?;
    for node in &nodes {
        let view = fleet.wait_until_idle(node).await?;
        assert!(!view.unschedulable);
        assert_eq!(fleet.boots(node), 1);
    }
    assert!(fleet.max_down() <= 2);
    fleet.end().await
}
