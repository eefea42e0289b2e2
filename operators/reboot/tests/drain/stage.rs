//! A node of the case's own, with pods and budgets that the test acts for.

use std::time::Duration;

use tokio::time::Instant;
use windlass::{
    k8s_openapi::api::{
        core::v1::{Node, Pod},
        policy::v1::PodDisruptionBudget,
    },
    kube::{
        Api, ResourceExt,
        api::{DeleteParams, PostParams},
    },
    prelude::{from_value, json},
    runtime::{Clock, Writer},
};
use windlass_reboot::drain::{DrainProgress, DrainSpec, Drainer, How};
use windlass_suite::{Context as Case, Sent, World};

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

    /// A pod on a node that somebody keeps there, and that is ready.
    pub(crate) async fn pod_on(&self, node: &str, name: &str, owner: &str) -> anyhow::Result<Pod> {
        let controller =
            json!({ "apiVersion": "apps/v1", "kind": owner, "name": "it", "uid": "it", "controller": true });
        let pod = json!({
            "metadata": { "name": name, "labels": { "app": name, "all": "true" }, "ownerReferences": [controller] },
            "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "main" }] },
        });
        self.world.create::<Pod>(from_value(pod)?).await?;
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let status = json!({ "status": { "phase": "Running", "conditions": ready } });
        Ok(self.world.patch_status(name, status).await?)
    }

    /// The same on the node that is drained, of a ReplicaSet.
    pub(crate) async fn pod(&self, name: &str) -> anyhow::Result<Pod> {
        self.pod_on(&self.here(), name, "ReplicaSet").await
    }

    /// A budget for the pods with this label that nobody has looked at yet.
    pub(crate) async fn budget(&self, name: &str, label: (&str, &str)) -> anyhow::Result<()> {
        let spec = json!({ "minAvailable": 1, "selector": { "matchLabels": { label.0: label.1 } } });
        let budget = json!({ "metadata": { "name": name }, "spec": spec });
        self.world
            .create::<PodDisruptionBudget>(from_value(budget)?)
            .await?;
        Ok(())
    }

    /// What the budget's controller says.
    pub(crate) async fn allow(&self, budget: &str, disruptions: i32) -> anyhow::Result<()> {
        let status = json!({
            "observedGeneration": 1, "disruptionsAllowed": disruptions, "currentHealthy": 1, "desiredHealthy": 1,
            "expectedPods": 1,
        });
        let status = json!({ "status": status });
        self.world
            .patch_status::<PodDisruptionBudget>(budget, status)
            .await?;
        Ok(())
    }

    /// What a kubelet says when a pod has stopped.
    pub(crate) async fn stopped(&self, pod: &str) -> anyhow::Result<()> {
        let pods = self.world.case().api::<Pod>();
        pods.delete(pod, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    /// Whether the pod is there and nobody has asked it to go.
    pub(crate) async fn stays(&self, pod: &Pod) -> anyhow::Result<bool> {
        let found = self.world.case().api::<Pod>().get_opt(&pod.name_any()).await?;
        Ok(
            found
                .is_some_and(|found| found.uid() == pod.uid() && found.metadata.deletion_timestamp.is_none()),
        )
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
