//! What an agent can make the controller believe with its two annotations, and the consequences.

use std::time::Duration;

use serde_json::{Value, json};
use windlass_reboot::{
    state::{AnnotationKeys, Phase},
    state_machine::NodeView,
};
use windlass_suite::Context as Case;

use crate::attacks::fleet::Fleet;

/// One at a time, with short deadlines where time is real.
fn short_timeouts(fleet_is_real: bool) -> Value {
    let soon = if fleet_is_real { "3s" } else { "5m" };
    json!({
        "maxUnavailable": 1,
        "reboot": { "timeout": soon },
        "healthCheck": { "minReadySeconds": 0, "timeout": soon },
    })
}

/// Two nodes that are to be rebooted one after the other, the first of them armed, without honest agents.
async fn armed(case: &Case) -> anyhow::Result<(Fleet, [String; 2], u64)> {
    let is_real = case.cluster().backend() != windlass_cluster::Backend::Embedded;
    let mut fleet = Fleet::idle(case, 2, short_timeouts(is_real)).await?;
    fleet.stop_agents().await?;
    fleet.start();
    let nodes = [fleet.name(0), fleet.name(1)];
    for node in &nodes {
        fleet.request(node).await?;
    }
    let view = fleet.wait_for_phase(&nodes[0], Phase::Armed).await?;
    let epoch = view.state().map_or(0, |state| state.epoch);
    Ok((fleet, nodes, epoch))
}

fn progress(value: &Value) -> Value {
    json!({ AnnotationKeys::default().reboot_in_progress: value.to_string() })
}

fn reason(view: &NodeView) -> String {
    let reason = view.state().and_then(|state| state.reason.clone());
    reason.unwrap_or_default()
}

/// The first node has failed and keeps its slot, so that the second one is not touched.
async fn assert_rollout_stopped(fleet: Fleet, [node, next]: &[String; 2]) -> anyhow::Result<String> {
    let view = fleet.wait_for_phase(node, Phase::Failed).await?;
    fleet.pass_time(Duration::from_hours(1)).await;
    let policy = fleet.policy().await?;
    let granted = policy.status.map(|status| status.granted).unwrap_or_default();
    assert_eq!(granted.len(), 1, "the failed node keeps its slot");
    assert!(fleet.view(next).await?.state.is_none(), "the next node waits");
    assert_eq!((fleet.boots(node), fleet.boots(next)), (0, 0));
    fleet.end().await?;
    Ok(reason(&view))
}

/// `reboot-now` alone, written by a user or program that may annotate nodes: without the controller's state an agent
/// ignores it.
pub(crate) async fn forged_command_without_grant_reboots_nothing(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 1, json!({})).await?;
    let node = fleet.name(0);
    for epoch in [0, 1, u64::MAX] {
        let command = json!({ "bootID": "boot-0", "epoch": epoch });
        fleet
            .annotate(
                &node,
                json!({ AnnotationKeys::default().reboot_now: command.to_string() }),
            )
            .await?;
        fleet.settle().await;
        fleet.pass_time(Duration::from_hours(1)).await;
        assert_eq!(fleet.boots(&node), 0, "epoch {epoch}");
    }
    fleet.end().await
}

pub(crate) async fn forged_proof_does_not_release_a_slot(case: Case) -> anyhow::Result<()> {
    let (fleet, nodes, epoch) = armed(&case).await?;
    let lie = json!({
        "bootID": "boot-0", "epoch": epoch, "attempt": 1, "attemptedAt": "2026-01-01T00:00:00Z",
        "newBootID": "boot-9", "checkedBootID": "boot-9",
    });
    fleet.annotate(&nodes[0], progress(&lie)).await?;
    // The controller believes it only that far: the kubelet still reports the old boot.
    fleet.wait_for_phase(&nodes[0], Phase::Rebooted).await?;
    let reason = assert_rollout_stopped(fleet, &nodes).await?;
    assert!(reason.contains("did not become healthy in time"), "{reason}");
    Ok(())
}

pub(crate) async fn proof_for_another_grant_is_ignored(case: Case) -> anyhow::Result<()> {
    let (fleet, nodes, epoch) = armed(&case).await?;
    let lie = json!({
        "bootID": "boot-0", "epoch": epoch + 1, "attempt": 1, "attemptedAt": "2026-01-01T00:00:00Z", "newBootID": "boot-9",
    });
    fleet.annotate(&nodes[0], progress(&lie)).await?;
    fleet.settle().await;
    let reason = assert_rollout_stopped(fleet, &nodes).await?;
    assert!(reason.contains("no new boot ID was reported in time"), "{reason}");
    Ok(())
}

pub(crate) async fn invalid_progress_is_not_a_proof(case: Case) -> anyhow::Result<()> {
    let (fleet, nodes, _) = armed(&case).await?;
    fleet
        .annotate(
            &nodes[0],
            json!({ AnnotationKeys::default().reboot_in_progress: "{\"proved\":" }),
        )
        .await?;
    let reason = assert_rollout_stopped(fleet, &nodes).await?;
    assert!(reason.contains("no new boot ID was reported in time"), "{reason}");
    Ok(())
}

/// The text is copied into the state, which must still fit.
pub(crate) async fn huge_failure_text_still_fails_the_node(case: Case) -> anyhow::Result<()> {
    let (fleet, nodes, epoch) = armed(&case).await?;
    let lie = json!({
        "bootID": "boot-0", "epoch": epoch, "attempt": 1, "attemptedAt": "2026-01-01T00:00:00Z",
        "failureReason": format!("\u{1b}[2Jno\n{}", "x".repeat(200_000)),
    });
    fleet.annotate(&nodes[0], progress(&lie)).await?;
    let reason = assert_rollout_stopped(fleet, &nodes).await?;
    assert!(reason.starts_with("its agent gave up:  [2Jno xxx"), "{reason}");
    assert!(reason.chars().count() < 1100, "{}", reason.len());
    Ok(())
}

pub(crate) async fn huge_request_reason_does_not_block_the_roll(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(
        &case,
        2,
        json!({ "maxUnavailable": 1, "healthCheck": { "minReadySeconds": 0 } }),
    )
    .await?;
    let (node, next) = (fleet.name(0), fleet.name(1));
    fleet
        .annotate(
            &node,
            json!({ AnnotationKeys::default().reboot_needed: "x".repeat(200_000) }),
        )
        .await?;
    fleet.request(&next).await?;
    for node in [&node, &next] {
        fleet.wait_until_idle(node).await?;
        assert_eq!(fleet.boots(node), 1);
    }
    fleet.end().await
}
