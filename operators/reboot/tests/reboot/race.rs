//! A controller that takes its order back while the agent acts on it: both write the same object under the version that they
//! have seen, so that exactly one of them does.

use std::time::Duration;

use serde_json::json;
use windlass::{
    k8s_openapi::api::core::v1::Node,
    kube::{
        self,
        api::{Patch, PatchParams},
    },
};
use windlass_reboot::state::Names;
use windlass_suite::{Context as Case, Sent, Wire};

use crate::node::TestNode;

const QUIET: Duration = Duration::from_millis(300);

/// Takes the order off if the node still is this version, as the controller does.
async fn disarm(node: &TestNode, seen: &Node) -> kube::Result<Node> {
    let names = Names::default();
    let patch = Patch::Merge(json!({"metadata": {
        "uid": seen.metadata.uid,
        "resourceVersion": seen.metadata.resource_version,
        "annotations": {names.now: null, names.state: null},
    }}));
    node.nodes
        .patch(&node.name, &PatchParams::default(), &patch)
        .await
}

fn is_conflict<T>(answer: &kube::Result<T>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.is_conflict())
}

pub(crate) async fn who_disarms_first_stops_the_agent(case: Case) -> anyhow::Result<()> {
    let (node, wire) = (TestNode::new(&case, "a").await?, Wire::new(&case.client()));
    // The agent's word is on its way for so long that the controller's comes first.
    wire.delay(1, Duration::from_secs(2), Sent::is_write);
    let agent = node.agent(&wire, Duration::ZERO).await?;
    let armed = node.arm(7).await?;
    wire.seen(Sent::is_write).await?;
    disarm(&node, &armed).await?;
    wire.quiet(QUIET).await;
    assert_eq!((node.progress().await?, node.reboots()), (None, 0));
    assert_eq!(wire.writes().len(), 1, "it does not insist");
    agent.stop().await
}

pub(crate) async fn who_disarms_late_is_told_so(case: Case) -> anyhow::Result<()> {
    let (node, wire) = (TestNode::new(&case, "a").await?, Wire::new(&case.client()));
    let agent = node.agent(&wire, Duration::ZERO).await?;
    let armed = node.arm(7).await?;
    node.until(|progress| progress.epoch == 7).await?;
    let answer = disarm(&node, &armed).await;
    assert!(is_conflict(&answer), "{answer:?}");
    node.proved().await?;
    assert_eq!(node.reboots(), 1);
    agent.stop().await
}

pub(crate) async fn of_disarm_and_claim_at_once_exactly_one_happens(case: Case) -> anyhow::Result<()> {
    let (mut stopped, mut rebooted) = (0, 0);
    for round in 0..12 {
        let (node, wire) = (
            TestNode::new(&case, &round.to_string()).await?,
            Wire::new(&case.client()),
        );
        let agent = node.agent(&wire, Duration::ZERO).await?;
        let armed = node.arm(7).await?;
        tokio::time::sleep(Duration::from_micros(400 * round)).await;
        let answer = disarm(&node, &armed).await;
        wire.quiet(QUIET).await;
        if answer.is_ok() {
            stopped += 1;
            assert_eq!(
                (node.progress().await?, node.reboots()),
                (None, 0),
                "round {round}"
            );
        } else {
            assert!(is_conflict(&answer), "{answer:?}");
            rebooted += 1;
            node.proved().await?;
            assert_eq!(node.reboots(), 1, "round {round}");
        }
        agent.stop().await?;
    }
    assert_eq!(stopped + rebooted, 12);
    Ok(())
}
