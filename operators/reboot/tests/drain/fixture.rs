//! A node of the case, with pods and budgets whose status the test controls.

use std::time::Duration;

use tokio::time::Instant;
use windlass::{
    k8s_openapi::api::core::v1::{Node, Pod},
    kube::{Api, api::PostParams},
    prelude::{from_value, json},
    runtime::{Clock, Writer},
};
use windlass_reboot::drain::{DrainMode, DrainProgress, DrainSpec, Drainer};
use windlass_suite::{Context as Case, RecordedRequest, TestEnvironment};

use crate::drain::case_pods;

pub(crate) struct Fixture {
    pub(crate) env: TestEnvironment,
    pub(crate) drainer: Drainer,
    pub(crate) options: DrainSpec,
}

impl Fixture {
    pub(crate) async fn new(case: &Case) -> anyhow::Result<Self> {
        let env = TestEnvironment::with_client(case, &case.program_client().await?);
        let fixture = Self {
            drainer: drainer(&env),
            env,
            options: DrainSpec::default(),
        };
        fixture.node(&fixture.node_name()).await?;
        Ok(fixture)
    }

    /// The node that is drained. Nodes are shared by all cases.
    pub(crate) fn node_name(&self) -> String {
        self.env.case().namespace().to_owned()
    }

    pub(crate) async fn node(&self, name: &str) -> anyhow::Result<()> {
        let owner = self.env.case().owner();
        let node: Node = from_value(json!({ "metadata": { "name": name, "ownerReferences": [owner] } }))?;
        let nodes = Api::<Node>::all(self.env.case().client());
        nodes.create(&PostParams::default(), &node).await?;
        Ok(())
    }

    /// Creates a ready pod on a node, with a controller of this kind.
    pub(crate) async fn pod_on(&self, node: &str, name: &str, owner: &str) -> anyhow::Result<Pod> {
        case_pods::pod(self.env.case(), node, name, owner).await
    }

    /// The same on the drained node, of a ReplicaSet.
    pub(crate) async fn pod(&self, name: &str) -> anyhow::Result<Pod> {
        self.pod_on(&self.node_name(), name, "ReplicaSet").await
    }

    /// Creates a budget for the pods of this name. `None`: it is not processed yet.
    pub(crate) async fn budget(&self, name: &str, pod: &str, allows: Option<i32>) -> anyhow::Result<()> {
        case_pods::budget(self.env.case(), name, pod, allows).await
    }

    /// Sets the budget's status.
    pub(crate) async fn allow(&self, budget: &str, disruptions: i32) -> anyhow::Result<()> {
        case_pods::set_disruptions_allowed(self.env.case(), budget, disruptions).await
    }

    /// Does what a kubelet does when a pod has stopped.
    pub(crate) async fn stop_pod(&self, pod: &str) -> anyhow::Result<()> {
        case_pods::stop_pod(self.env.case(), pod).await
    }

    /// Whether this pod, by UID, exists and is not terminating.
    pub(crate) async fn is_running(&self, pod: &Pod) -> anyhow::Result<bool> {
        case_pods::is_running(self.env.case(), pod).await
    }

    pub(crate) async fn pass(&self) -> anyhow::Result<DrainProgress> {
        Ok(self
            .drainer
            .pass(&self.node_name(), &self.options, DrainMode::Evict)
            .await?)
    }

    /// Runs a pass every second for `seconds`, as if every change triggered one. Returns the last progress.
    pub(crate) async fn passes(&self, seconds: u64) -> anyhow::Result<DrainProgress> {
        let begin = Instant::now();
        let mut progress = self.pass().await?;
        for second in 1..=seconds {
            tokio::time::sleep_until(begin + Duration::from_secs(second)).await;
            progress = self.pass().await?;
        }
        Ok(progress)
    }

    /// When the pod's eviction was attempted.
    pub(crate) fn eviction_times(&self, pod: &str) -> Vec<Instant> {
        let evictions = |sent: &RecordedRequest| sent.subresource() == "eviction" && sent.name() == pod;
        let sent = self.env.proxy().requests();
        sent.iter()
            .filter(|sent| evictions(sent))
            .map(|sent| sent.at)
            .collect()
    }
}

pub(crate) fn drainer(env: &TestEnvironment) -> Drainer {
    Drainer::new(Writer::new(env.proxy().client(), "drain-test"), Clock::system())
}
