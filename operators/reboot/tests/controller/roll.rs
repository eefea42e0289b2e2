//! A roll that goes well: from a request to a node that has rebooted, and nothing left of it.

use serde_json::json;
use windlass_reboot::{PolicyPhase, RebootPolicyStatus};
use windlass_suite::Context as Case;

use crate::fleet::Fleet;

/// What an administrator needs: one annotation.
pub(crate) async fn an_annotated_node_reboots_once_and_nothing_is_left_of_it(
    case: Case,
) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 3, json!({ "after": { "minReadySeconds": 1 } })).await?;
    let node = fleet.name(1);
    let before = fleet.nodes().get(&node).await?;
    fleet.request(&node).await?;
    fleet.until(&node, |view| view.state.is_some()).await?;
    let view = fleet.done(&node).await?;
    assert!(!view.unschedulable, "it takes pods again");
    assert_eq!(fleet.boots(&node), 1);
    let idle =
        |status: &RebootPolicyStatus| status.granted.is_empty() && status.phase == Some(PolicyPhase::Idle);
    let policy = fleet
        .policed(|policy| policy.status.as_ref().is_some_and(idle))
        .await?;
    let status = policy.status.clone().unwrap_or_default();
    assert_eq!((status.nodes, status.requested, status.rebooting), (3, 0, 0));
    fleet.settle().await;
    let after = fleet.nodes().get(&node).await?;
    assert_eq!(after.metadata.annotations, before.metadata.annotations);
    let conditions = json!(after.status)["conditions"].as_array().map(Vec::len);
    assert_eq!(conditions, Some(1), "none of ours is left");
    assert_eq!(
        fleet.told(&node).await?,
        [
            "RebootGranted",
            "Cordoned",
            "Draining",
            "Drained",
            "RebootArmed",
            "Rebooted",
            "RebootDone"
        ]
    );
    assert_eq!(fleet.boots(&fleet.name(0)), 0, "nobody asked for the others");
    fleet.end().await
}
