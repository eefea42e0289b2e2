//! One run of a case: a namespace, a node, a kubelet and a watcher.

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::Deployment,
        core::v1::{Node, ServiceAccount},
    },
};
use kube::{
    Api, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, from_value, json};
use windlass_cluster::Backend;
use windlass_suite::Context;

use crate::rollouts::{
    kubelet::Kubelet,
    settled,
    transcript::{self, Detail},
    watcher::Watcher,
};

/// A kubelet with more actions than this is in a loop.
const MAX_ACTIONS: usize = 200;

pub(crate) struct TestRun {
    /// Nodes in addition to the kubelet's own.
    nodes: Vec<String>,
    pub(crate) ctx: Context,
    pub(crate) kubelet: Kubelet,
    watcher: Watcher,
}

impl TestRun {
    pub(crate) async fn new(ctx: Context) -> Result<Self> {
        // Pods need it. The control plane may create it too.
        let account = from_value(json!({ "metadata": { "name": "default" } }))?;
        let made = ctx
            .api::<ServiceAccount>()
            .create(&PostParams::default(), &account)
            .await;
        if let Err(kube::Error::Api(status)) = &made
            && status.code != 409
        {
            made?;
        }
        let kubelet = Kubelet::new(&ctx).await?;
        let watcher = Watcher::start(&ctx).await?;
        Ok(Self {
            nodes: Vec::new(),
            ctx,
            kubelet,
            watcher,
        })
    }

    fn is_real(&self) -> bool {
        self.ctx.cluster().backend() != Backend::Embedded
    }

    /// Begins a step of the transcript.
    pub(crate) fn step(&self, what: &str) {
        self.watcher.begin_step(what);
    }

    /// Adds a node with the label of this case.
    pub(crate) async fn add_node(&mut self, name: &str) -> Result<()> {
        let labels = json!({ "case": self.ctx.namespace() });
        self.nodes.push(name.to_owned());
        self.kubelet.add_node(name, labels).await
    }

    /// Waits until all controllers are done.
    pub(crate) async fn wait_until_idle(&mut self) -> Result<()> {
        // Controllers do not report that they are done, so wait for a time without events.
        let quiet = if self.is_real() { 400 } else { 150 };
        loop {
            // Bounded by the timeout of the case.
            self.watcher
                .wait_until_idle(&self.ctx, Duration::from_millis(quiet))
                .await?;
            if settled::is_settled(&self.ctx).await? {
                return Ok(());
            }
        }
    }

    /// Runs up to this number of kubelet actions, and waits until idle after each.
    pub(crate) async fn run_kubelet(&mut self, number: usize) -> Result<()> {
        self.wait_until_idle().await?;
        for _ in 0..number {
            let Some(chore) = self.kubelet.next().await? else {
                return Ok(());
            };
            self.kubelet.act(&chore).await?;
            self.wait_until_idle().await?;
        }
        Ok(())
    }

    /// Runs kubelet actions until there are none.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        self.run_kubelet(MAX_ACTIONS).await
    }

    pub(crate) async fn create<K>(&self, object: Value) -> Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let object = from_value(object).context("an object")?;
        Ok(self
            .ctx
            .api::<K>()
            .create(&PostParams::default(), &object)
            .await?)
    }

    pub(crate) async fn patch<K>(&self, name: &str, change: Value) -> Result<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let params = PatchParams::default();
        Ok(self
            .ctx
            .api::<K>()
            .patch(name, &params, &Patch::Strategic(&change))
            .await?)
    }

    /// Waits until `is_so` returns true for an object.
    pub(crate) async fn wait_until<K>(&self, name: &str, is_so: impl Fn(Option<&K>) -> bool) -> Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        // Bounded by the timeout of the case.
        while !is_so(self.ctx.api::<K>().get_opt(name).await?.as_ref()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Sets the image of the Deployment `web`.
    pub(crate) async fn set_image(&self, image: &str) -> Result<()> {
        let container = json!({ "name": "web", "image": image });
        let change = json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
        self.patch::<Deployment>("web", change).await.map(drop)
    }

    pub(crate) async fn scale(&self, replicas: i32) -> Result<()> {
        let change = json!({ "spec": { "replicas": replicas } });
        self.patch::<Deployment>("web", change).await.map(drop)
    }

    /// Compares all observed states with the recording of this case.
    pub(crate) async fn compare_states(self, case: &str) -> Result<()> {
        self.compare(case, Detail::States).await
    }

    /// Compares only decisions with the recording of this case, for cases in which several controllers act concurrently.
    pub(crate) async fn compare_decisions(self, case: &str) -> Result<()> {
        self.compare(case, Detail::Decisions).await
    }

    async fn compare(self, case: &str, detail: Detail) -> Result<()> {
        let nodes = Api::<Node>::all(self.ctx.client());
        let chance: Vec<_> = self.nodes.iter().chain([&self.kubelet.node]).cloned().collect();
        for node in &chance {
            nodes.delete(node, &DeleteParams::default()).await?;
        }
        let chance: Vec<_> = chance
            .into_iter()
            .chain([self.ctx.namespace().to_owned()])
            .collect();
        transcript::compare(case, self.is_real(), detail, &self.watcher.changes(), &chance)
    }
}

/// Builds the Deployment `web` with these spec fields.
pub(crate) fn web(spec: &Value) -> Value {
    let mut deployment = json!({
        "metadata": { "name": "web" },
        "spec": { "selector": { "matchLabels": { "app": "web" } }, "template": template("one") },
    });
    let fields = spec.as_object().into_iter().flatten();
    for (field, value) in fields {
        deployment["spec"][field] = value.clone();
    }
    deployment
}

/// Builds a pod template. No scheduler has its `schedulerName`, so the test binds the pods.
pub(crate) fn template(image: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "schedulerName": "by-hand", "containers": [{ "name": "web", "image": image }] },
    })
}
