//! A node of the case's own, with pods and budgets that the test acts for.

use std::time::Duration;

use tokio::time::Instant;
use windlass::{
    k8s_openapi::api::core::v1::{Node, Pod},
    kube::{Api, api::PostParams},
    prelude::{from_value, json},
    runtime::{Clock, Writer},
};
use windlass_reboot::drain::{DrainProgress, DrainSpec, Drainer, How};
use windlass_suite::{Context as Case, Sent, World};

use crate::hands;

pub(crate) struct Stage {
    pub(crate) world: World,
    pub(crate) drainer: Drainer,
    pub(crate) options: DrainSpec,
}

impl Stage {
    pub(crate) async fn new(case: &Case) -> anyhow::Result<Self> {
        let world = World::of(case, &case.program_client().await?);
        let stage = Self {
            drainer: drainer(&world),
            world,
            options: DrainSpec::default(),
        };
        stage.node(&stage.here()).await?;
        Ok(stage)
    }

    /// The node that is drained. Nodes are shared by all cases.
    pub(crate) fn here(&self) -> String {
        self.world.case().namespace().to_owned()
    }

    pub(crate) async fn node(&self, name: &str) -> anyhow::Result<()> {
        let owner = self.world.case().owner();
        let node: Node = from_value(json!({ "metadata": { "name": name, "ownerReferences": [owner] } }))?;
        let nodes = Api::<Node>::all(self.world.case().client());
        nodes.create(&PostParams::default(), &node).await?;
        Ok(())
    }

    /// A pod on a node that somebody of this kind keeps there, and that is ready.
    pub(crate) async fn pod_on(&self, node: &str, name: &str, owner: &str) -> anyhow::Result<Pod> {
        hands::pod(self.world.case(), node, name, owner).await
    }

    /// The same on the node that is drained, of a ReplicaSet.
    pub(crate) async fn pod(&self, name: &str) -> anyhow::Result<Pod> {
        self.pod_on(&self.here(), name, "ReplicaSet").await
    }

    /// A budget for the pods of this name. `None`: nobody has looked at it yet.
    pub(crate) async fn budget(&self, name: &str, pod: &str, allows: Option<i32>) -> anyhow::Result<()> {
        hands::budget(self.world.case(), name, pod, allows).await
    }

    /// What the budget's controller says.
    pub(crate) async fn allow(&self, budget: &str, disruptions: i32) -> anyhow::Result<()> {
        hands::allow(self.world.case(), budget, disruptions).await
    }

    /// What a kubelet says when a pod has stopped.
    pub(crate) async fn stopped(&self, pod: &str) -> anyhow::Result<()> {
        hands::stopped(self.world.case(), pod).await
    }

    /// Whether this very pod is there, and nobody has asked it to go.
    pub(crate) async fn stays(&self, pod: &Pod) -> anyhow::Result<bool> {
        hands::stays(self.world.case(), pod).await
    }

    pub(crate) async fn pass(&self) -> anyhow::Result<DrainProgress> {
        Ok(self.drainer.pass(&self.here(), &self.options, How::Evict).await?)
    }

    /// Passes every second for so long, as somebody would who is woken by every change. The last progress.
    pub(crate) async fn passes(&self, seconds: u64) -> anyhow::Result<DrainProgress> {
        let begin = Instant::now();
        let mut progress = self.pass().await?;
        for second in 1..=seconds {
            tokio::time::sleep_until(begin + Duration::from_secs(second)).await;
            progress = self.pass().await?;
        }
        Ok(progress)
    }

    /// When the pod was asked to go.
    pub(crate) fn asked(&self, pod: &str) -> Vec<Instant> {
        let evictions = |sent: &Sent| sent.part() == "eviction" && sent.name() == pod;
        let sent = self.world.wire().sent();
        sent.iter()
            .filter(|sent| evictions(sent))
            .map(|sent| sent.at)
            .collect()
    }
}

pub(crate) fn drainer(world: &World) -> Drainer {
    Drainer::new(Writer::new(world.wire().client(), "drain-test"), Clock::system())
}
