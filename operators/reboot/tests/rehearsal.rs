//! The rehearsals of docs/reboot.md: `--simulated-agents` with nodes that never return, return late, or flap.

use std::time::Duration;

use windlass::{
    cache::{Cache, WatchScope},
    k8s_openapi::api::core::v1::{Event, Node},
    kube::{
        Api, Client,
        api::{ListParams, Patch, PatchParams, PostParams},
    },
    prelude::*,
    runtime::{CrdInstaller, Writer},
};
use windlass_cluster::{Cluster, simulation::REBOOT_BEHAVIOR_ANNOTATION};
use windlass_reboot::{
    Arguments, RebootPolicy, agent, setup,
    state::{AnnotationKeys, DEFAULT_ANNOTATION_PREFIX, Phase},
    state_machine::NodeView,
};
use windlass_suite::{RunningManager, STEP_TIMEOUT};

/// An embedded cluster, with the controller and its simulated agents.
struct Rehearsal {
    cluster: Cluster,
    client: Client,
    running: RunningManager,
}

impl Rehearsal {
    async fn start(spec: serde_json::Value) -> anyhow::Result<Self> {
        let cluster = Cluster::embedded().nodes(2).start().await?;
        let client = cluster.client();
        let installer = CrdInstaller::new([RebootPolicy::crd()]).apply();
        installer.run(&Writer::new(client.clone(), "test")).await?;
        let manager = setup(Manager::new(client.clone()), &Arguments::default())?;
        let manager = agent::simulated(manager, &client, DEFAULT_ANNOTATION_PREFIX).await?;
        let running = RunningManager::start(manager);
        let rehearsal = Self {
            cluster,
            client,
            running,
        };
        let policy = json!({ "metadata": { "name": "default" }, "spec": spec });
        let policies = Api::<RebootPolicy>::all(rehearsal.client.clone());
        let policy: RebootPolicy = from_value(policy)?;
        policies.create(&PostParams::default(), &policy).await?;
        Ok(rehearsal)
    }

    async fn annotate(&self, node: &str, annotations: serde_json::Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.patch(node, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Requests a reboot that goes wrong.
    async fn request(&self, node: &str, behavior: &str) -> anyhow::Result<()> {
        let needed = AnnotationKeys::default().reboot_needed;
        let annotations = json!({ REBOOT_BEHAVIOR_ANNOTATION: behavior, needed: "rehearsal" });
        self.annotate(node, annotations).await
    }

    async fn wait_for(&self, node: &str, holds: impl Fn(&NodeView) -> bool) -> anyhow::Result<NodeView> {
        let cache = Cache::<Node>::start(self.client.clone(), &WatchScope::all());
        let lister = cache.synced(STEP_TIMEOUT).await?;
        let (mut changes, key) = (lister.subscribe(), ObjectKey::cluster_scoped(node));
        let wait = async {
            loop {
                let view = lister
                    .get(&key)
                    .map(|node| NodeView::from_node(&node, &AnnotationKeys::default()));
                match view {
                    Some(view) if holds(&view) => return view,
                    _ => drop(changes.next().await.expect("the watch continues")),
                }
            }
        };
        let found = tokio::time::timeout(Duration::from_hours(8), wait).await;
        found.map_err(|_| anyhow::anyhow!("{node} is still {:#?}", lister.get(&key)))
    }

    async fn wait_for_failure(&self, node: &str) -> anyhow::Result<String> {
        let view = self
            .wait_for(node, |view| view.phase() == Some(Phase::Failed))
            .await?;
        Ok(view
            .state()
            .and_then(|state| state.reason.clone())
            .unwrap_or_default())
    }

    async fn message(&self) -> anyhow::Result<String> {
        let policy = Api::<RebootPolicy>::all(self.client.clone())
            .get("default")
            .await?;
        Ok(policy
            .status
            .and_then(|status| status.message)
            .unwrap_or_default())
    }

    async fn stop(self) -> anyhow::Result<()> {
        self.running.stop().await?;
        self.cluster.stop().await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn node_that_never_returns_fails_until_it_is_switched_on() -> anyhow::Result<()> {
    let rehearsal = Rehearsal::start(json!({ "reboot": { "timeout": "2m" } })).await?;
    let before = rehearsal
        .wait_for("node-1", |view| !view.boot_id.is_empty())
        .await?;
    rehearsal.request("node-1", "never-return").await?;
    let reason = rehearsal.wait_for_failure("node-1").await?;
    assert!(reason.contains("no new boot ID was reported in time"), "{reason}");
    tokio::time::sleep(Duration::from_mins(20)).await;
    let message = rehearsal.message().await?;
    assert!(
        message.contains("too many nodes have failed; failed: node-1"),
        "{message}"
    );
    // Someone switches the machine on.
    rehearsal
        .annotate("node-1", json!({ REBOOT_BEHAVIOR_ANNOTATION: null }))
        .await?;
    let after = rehearsal.wait_for("node-1", NodeView::is_idle).await?;
    assert!(
        after.boot_id != before.boot_id && !after.unschedulable,
        "{after:?}"
    );
    rehearsal.stop().await
}

#[tokio::test(start_paused = true)]
async fn node_that_returns_late_fails_and_then_completes() -> anyhow::Result<()> {
    let rehearsal = Rehearsal::start(json!({})).await?;
    rehearsal
        .wait_for("node-1", |view| !view.boot_id.is_empty())
        .await?;
    // Later than the default timeout.
    rehearsal.request("node-1", "return-after=40m").await?;
    rehearsal.wait_for_failure("node-1").await?;
    let late = rehearsal.wait_for("node-1", NodeView::is_idle).await?;
    tokio::time::sleep(Duration::from_mins(20)).await;
    let still = rehearsal.wait_for("node-1", |_| true).await?;
    assert_eq!(late.boot_id, still.boot_id, "it is not rebooted again");
    rehearsal.stop().await
}

/// With the default timeout, a server that takes 25 minutes to boot does not fail.
#[tokio::test(start_paused = true)]
async fn slow_server_reboots_within_the_default_timeout() -> anyhow::Result<()> {
    let rehearsal = Rehearsal::start(json!({})).await?;
    rehearsal
        .wait_for("node-1", |view| !view.boot_id.is_empty())
        .await?;
    rehearsal.request("node-1", "return-after=25m").await?;
    let ended = |view: &NodeView| view.is_idle() || view.phase() == Some(Phase::Failed);
    let view = rehearsal.wait_for("node-1", ended).await?;
    assert!(view.is_idle(), "{view:?}");
    rehearsal.stop().await
}

#[tokio::test(start_paused = true)]
async fn flapping_node_fails_its_health_check() -> anyhow::Result<()> {
    let rehearsal = Rehearsal::start(json!({})).await?;
    rehearsal
        .wait_for("node-1", |view| !view.boot_id.is_empty())
        .await?;
    rehearsal.request("node-1", "flap").await?;
    let reason = rehearsal.wait_for_failure("node-1").await?;
    assert!(reason.contains("did not become healthy in time"), "{reason}");
    rehearsal.stop().await
}

/// A node that is Ready long enough for its health check, but not for the soak, never completes and gets no other reboot.
#[tokio::test(start_paused = true)]
async fn flapping_node_interrupts_its_soak() -> anyhow::Result<()> {
    let spec = json!({ "soak": "1m", "healthCheck": { "minReadySeconds": 2 } });
    let rehearsal = Rehearsal::start(spec).await?;
    rehearsal
        .wait_for("node-1", |view| !view.boot_id.is_empty())
        .await?;
    rehearsal.request("node-1", "flap").await?;
    let soaking = |view: &NodeView| view.phase() == Some(Phase::Soaking);
    let first = rehearsal.wait_for("node-1", soaking).await?;
    rehearsal
        .wait_for("node-1", |view| view.phase() == Some(Phase::Rebooted))
        .await?;
    tokio::time::sleep(Duration::from_mins(5)).await;
    let events = Api::<Event>::all(rehearsal.client.clone());
    let about = ListParams::default().fields("involvedObject.name=node-1,reason=SoakInterrupted");
    assert!(!events.list(&about).await?.items.is_empty(), "an event says so");
    let later = rehearsal.wait_for("node-1", |view| !view.is_idle()).await?;
    assert_eq!(first.boot_id, later.boot_id, "it is not rebooted again");
    rehearsal.stop().await
}
