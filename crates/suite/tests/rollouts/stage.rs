//! Where a case plays: a namespace, a node, a kubelet and a watcher.

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

use crate::{
    kubelet::Kubelet,
    rest,
    story::{self, Detail},
    watcher::Watcher,
};

/// A kubelet that has more to do than this never comes to an end.
const CHORES: usize = 200;

pub(crate) struct Stage {
    /// Nodes besides the kubelet's own.
    nodes: Vec<String>,
    pub(crate) ctx: Context,
    pub(crate) kubelet: Kubelet,
    watcher: Watcher,
}

impl Stage {
    pub(crate) async fn new(ctx: Context) -> Result<Self> {
        // Pods need it. A control plane that makes it does so soon; it is the same whoever is first.
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

    /// Begins a step of the story.
    pub(crate) fn step(&self, what: &str) {
        self.watcher.mark(what);
    }

    /// Another node, for what selects the nodes of this case.
    pub(crate) async fn add_node(&mut self, name: &str) -> Result<()> {
        let labels = json!({ "case": self.ctx.namespace() });
        self.nodes.push(name.to_owned());
        self.kubelet.add_node(name, labels).await
    }

    /// Waits until everything that follows from what was done has happened.
    pub(crate) async fn quiet(&mut self) -> Result<()> {
        // Nothing tells that a controller has nothing more to do; a while without news has to do.
        let quiet = if self.is_real() { 400 } else { 150 };
        loop {
            // The case's own time limit ends this.
            self.watcher
                .quiet(&self.ctx, Duration::from_millis(quiet))
                .await?;
            if rest::is_reached(&self.ctx).await? {
                return Ok(());
            }
        }
    }

    /// Plays kubelet for so many things, each followed by quiet.
    pub(crate) async fn chores(&mut self, number: usize) -> Result<()> {
        self.quiet().await?;
        for _ in 0..number {
            let Some(chore) = self.kubelet.next().await? else {
                return Ok(());
            };
            self.kubelet.act(&chore).await?;
            self.quiet().await?;
        }
        Ok(())
    }

    /// Plays kubelet until there is nothing to do.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        self.chores(CHORES).await
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

    /// Waits until an object is as it should be.
    pub(crate) async fn until<K>(&self, name: &str, is_so: impl Fn(Option<&K>) -> bool) -> Result<()>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        // The case's own time limit ends this.
        while !is_so(self.ctx.api::<K>().get_opt(name).await?.as_ref()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Another image for the Deployment `web`.
    pub(crate) async fn set_image(&self, image: &str) -> Result<()> {
        let container = json!({ "name": "web", "image": image });
        let change = json!({ "spec": { "template": { "spec": { "containers": [container] } } } });
        self.patch::<Deployment>("web", change).await.map(drop)
    }

    pub(crate) async fn scale(&self, replicas: i32) -> Result<()> {
        let change = json!({ "spec": { "replicas": replicas } });
        self.patch::<Deployment>("web", change).await.map(drop)
    }

    /// Compares what was seen with the recording of this case.
    pub(crate) async fn conclude(self, case: &str) -> Result<()> {
        self.compare(case, Detail::States).await
    }

    /// Compares what was decided with the recording of this case: others act at the same time.
    pub(crate) async fn conclude_decisions(self, case: &str) -> Result<()> {
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
        story::compare(case, self.is_real(), detail, &self.watcher.seen(), &chance)
    }
}

/// The Deployment `web`, with these fields of its spec.
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

/// Its pods are left to the case's own kubelet: no scheduler has that name.
pub(crate) fn template(image: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": "web" } },
        "spec": { "schedulerName": "by-hand", "containers": [{ "name": "web", "image": image }] },
    })
}
