//! The controller withdraws its command while the agent claims it: both writes are conditional on the resource
//! version, so exactly one succeeds.

use std::time::Duration;

use serde_json::json;
use windlass::{
    k8s_openapi::api::core::v1::Node,
    kube::{
        self,
        api::{Patch, PatchParams},
    },
};
use windlass_reboot::state::AnnotationKeys;
use windlass_suite::{Context as Case, RecordedRequest, RequestProxy};

use crate::reboot::node::TestNode;

const QUIET: Duration = Duration::from_millis(300);

/// Removes the command, conditional on the node's resource version, as the controller does.
async fn disarm(node: &TestNode, seen: &Node) -> kube::Result<Node> {
    let names = AnnotationKeys::default();
    let patch = Patch::Merge(json!({"metadata": {
        "uid": seen.metadata.uid,
        "resourceVersion": seen.metadata.resource_version,
        "annotations": {names.reboot_now: null, names.state: null},
    }}));
    node.nodes
        .patch(&node.name, &PatchParams::default(), &patch)
        .await
}

fn is_conflict<T>(answer: &kube::Result<T>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.is_conflict())
}

pub(crate) async fn disarming_before_the_claim_stops_the_agent(case: Case) -> anyhow::Result<()> {
    let (node, proxy) = (
        TestNode::new(&case, "a").await?,
        RequestProxy::new(&case.client()),
    );
    // The agent's claim is delayed so long that the controller's write comes first.
    proxy.delay(1, Duration::from_secs(2), RecordedRequest::is_write);
    let agent = node.agent(&proxy, Duration::ZERO).await?;
    let armed = node.arm(7).await?;
    proxy.wait_until_sent(RecordedRequest::is_write).await?;
    disarm(&node, &armed).await?;
    proxy.wait_until_idle(QUIET).await;
    assert_eq!((node.progress().await?, node.reboots()), (None, 0));
    assert_eq!(proxy.writes().len(), 1, "it does not retry");
    agent.stop().await
}

pub(crate) async fn disarming_after_the_claim_conflicts(case: Case) -> anyhow::Result<()> {
    let (node, proxy) = (
        TestNode::new(&case, "a").await?,
        RequestProxy::new(&case.client()),
    );
    let agent = node.agent(&proxy, Duration::ZERO).await?;
    let armed = node.arm(7).await?;
    node.wait_for_progress(|progress| progress.epoch == 7).await?;
    let answer = disarm(&node, &armed).await;
    assert!(is_conflict(&answer), "{answer:?}");
    node.wait_for_proof().await?;
    assert_eq!(node.reboots(), 1);
    agent.stop().await
}

pub(crate) async fn concurrent_disarm_and_claim_exactly_one_succeeds(case: Case) -> anyhow::Result<()> {
    let (mut stopped, mut rebooted) = (0, 0);
    for round in 0..12 {
        let (node, proxy) = (
            TestNode::new(&case, &round.to_string()).await?,
            RequestProxy::new(&case.client()),
        );
        let agent = node.agent(&proxy, Duration::ZERO).await?;
        let armed = node.arm(7).await?;
        tokio::time::sleep(Duration::from_micros(400 * round)).await;
        let answer = disarm(&node, &armed).await;
        proxy.wait_until_idle(QUIET).await;
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
            node.wait_for_proof().await?;
            assert_eq!(node.reboots(), 1, "round {round}");
        }
        agent.stop().await?;
    }
    assert_eq!(stopped + rebooted, 12);
    Ok(())
}
