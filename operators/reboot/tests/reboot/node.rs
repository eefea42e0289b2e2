//! A node with a machine that the test controls, and its agent. It works on every kind of cluster: its kubelet only
//! reports boots.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle, time::timeout};
use windlass::{
    cache::{Cache, WatchScope},
    k8s_openapi::api::core::v1::Node,
    kube::{
        self, Api, Client,
        api::{Patch, PatchParams, PostParams},
    },
    prelude::*,
    runtime::Clock,
};
use windlass_reboot::{
    agent::{self, Arguments, RebootWith},
    state::{
        AnnotationKeys, DEFAULT_ANNOTATION_PREFIX, Phase, Progress, RebootCommand, State, to_annotation,
    },
};
use windlass_suite::{Context as Case, RequestProxy, RunningManager, STEP_TIMEOUT};

/// The annotations of simulated nodes; see `windlass-cluster`.
const MACHINE: &str = windlass_cluster::simulation::MACHINE_ANNOTATION;
const REBOOT: &str = windlass_cluster::simulation::REBOOT_ANNOTATION;

/// How long the machine is off.
const OFF: Duration = Duration::from_millis(200);

/// One node of a case.
pub(crate) struct TestNode {
    pub(crate) name: String,
    pub(crate) nodes: Api<Node>,
    client: Client,
    boots: Arc<AtomicUsize>,
    ignores_reboots: watch::Sender<bool>,
    kubelet: JoinHandle<anyhow::Result<()>>,
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.kubelet.abort();
    }
}

fn boot(number: usize) -> String {
    format!("boot-{number}")
}

impl TestNode {
    /// Creates a Ready node in its first boot.
    pub(crate) async fn new(case: &Case, suffix: &str) -> anyhow::Result<Self> {
        let client = case.client();
        let nodes = Api::<Node>::all(client.clone());
        let name = format!("{}-{suffix}", case.namespace());
        let node = json!({"metadata": {
            "name": name, "annotations": {MACHINE: name}, "ownerReferences": [case.owner()],
        }});
        nodes.create(&PostParams::default(), &from_value(node)?).await?;
        report(&nodes, &name, 0, true).await?;
        let (boots, ignores_reboots) = (Arc::new(AtomicUsize::new(0)), watch::Sender::new(false));
        let kubelet = tokio::spawn(run(
            client.clone(),
            name.clone(),
            Arc::clone(&boots),
            ignores_reboots.subscribe(),
        ));
        Ok(Self {
            name,
            nodes,
            client,
            boots,
            ignores_reboots,
            kubelet,
        })
    }

    /// How many times it was rebooted.
    pub(crate) fn reboots(&self) -> usize {
        self.boots.load(Ordering::SeqCst)
    }

    pub(crate) fn boot_id(&self) -> String {
        boot(self.reboots())
    }

    /// Sets whether it reacts to reboot requests.
    pub(crate) fn set_reacts_to_reboots(&self, reacts: bool) {
        self.ignores_reboots.send_replace(!reacts);
    }

    pub(crate) async fn annotate(&self, annotations: Value) -> kube::Result<Node> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        self.nodes
            .patch(&self.name, &PatchParams::default(), &patch)
            .await
    }

    /// The annotations with which a controller arms it for its current boot, under this grant.
    pub(crate) fn armed_annotations(&self, epoch: u64) -> Value {
        let (names, now) = (AnnotationKeys::default(), Timestamp::now());
        let state = State {
            phase: Phase::Armed,
            policy: "default".to_owned(),
            epoch,
            attempt: 1,
            aborts: 0,
            since: now,
            deadline: None,
            boot_id_before: Some(self.boot_id()),
            healthy_deadline: None,
            cordoned: true,
            reason: None,
            unknown_fields: [].into(),
        };
        let order = RebootCommand {
            boot_id: self.boot_id(),
            epoch,
            not_before: None,
            not_after: None,
        };
        json!({names.reboot_needed: "test", names.state: to_annotation(&state), names.reboot_now: to_annotation(&order)})
    }

    pub(crate) async fn arm(&self, epoch: u64) -> kube::Result<Node> {
        self.annotate(self.armed_annotations(epoch)).await
    }

    /// The agent's progress.
    pub(crate) async fn progress(&self) -> anyhow::Result<Option<Progress>> {
        Ok(progress(&self.nodes.get(&self.name).await?))
    }

    /// Waits until this holds for the agent's progress.
    pub(crate) async fn wait_for_progress(
        &self,
        holds: impl Fn(&Progress) -> bool,
    ) -> anyhow::Result<Progress> {
        let scope = WatchScope::all().fields(format!("metadata.name={}", self.name));
        let lister = Cache::<Node>::start(self.client.clone(), &scope)
            .synced(STEP_TIMEOUT)
            .await?;
        let mut changes = lister.subscribe();
        let key = ObjectKey::cluster_scoped(self.name.as_str());
        let waiting = async {
            loop {
                let found = lister.get(&key).and_then(|node| progress(&node));
                if let Some(found) = found.filter(&holds) {
                    return anyhow::Ok(found);
                }
                changes.next().await.context("the watch ended")?;
            }
        };
        // An agent's retries take minutes, where time is simulated.
        match timeout(STEP_TIMEOUT.max(Duration::from_hours(1)), waiting).await {
            Ok(found) => found,
            Err(_) => anyhow::bail!("its agent is still at {:?}", self.progress().await?),
        }
    }

    /// Waits until the agent has proved the current boot.
    pub(crate) async fn wait_for_proof(&self) -> anyhow::Result<Progress> {
        self.wait_for_progress(|progress| progress.new_boot_id.is_some())
            .await
    }

    /// Starts its agent, whose clock is ahead by this much.
    pub(crate) async fn agent(
        &self,
        proxy: &RequestProxy,
        ahead: Duration,
    ) -> anyhow::Result<RunningManager> {
        self.agent_with(proxy, ahead, Arguments::default()).await
    }

    pub(crate) async fn agent_with(
        &self,
        proxy: &RequestProxy,
        ahead: Duration,
        arguments: Arguments,
    ) -> anyhow::Result<RunningManager> {
        let arguments = Arguments {
            node: Some(self.name.clone()),
            reboot_with: RebootWith::Simulated,
            ..arguments
        };
        let client = proxy.client();
        let manager = agent::setup_at(
            Manager::new(client.clone()),
            &client,
            DEFAULT_ANNOTATION_PREFIX,
            &arguments,
            Clock::starting_at(Timestamp::now().checked_add(ahead)?),
        );
        Ok(RunningManager::start(manager.await?))
    }
}

pub(crate) fn progress(node: &Node) -> Option<Progress> {
    let text = node
        .annotations()
        .get(&AnnotationKeys::default().reboot_in_progress)?;
    Some(serde_json::from_str(text).expect("valid progress"))
}

async fn report(nodes: &Api<Node>, name: &str, number: usize, ready: bool) -> kube::Result<()> {
    let status = if ready { "True" } else { "False" };
    let patch = Patch::Merge(json!({"status": {
        "nodeInfo": {"bootID": boot(number)},
        "conditions": [{"type": "Ready", "status": status, "reason": "Test", "message": ""}],
    }}));
    nodes.patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// The machine and its kubelet: a reboot request for the current boot is removed, and then ends it.
async fn run(
    client: Client,
    name: String,
    boots: Arc<AtomicUsize>,
    mut ignores_reboots: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    let scope = WatchScope::all().fields(format!("metadata.name={name}"));
    let lister = Cache::<Node>::start(client, &scope).synced(STEP_TIMEOUT).await?;
    let mut changes = lister.subscribe();
    let key = ObjectKey::cluster_scoped(name.as_str());
    loop {
        let number = boots.load(Ordering::SeqCst);
        let asked = lister
            .get(&key)
            .and_then(|node| node.annotations().get(REBOOT).cloned());
        // A withdrawn request may still be in the cache when the machine reacts again.
        if asked == Some(boot(number))
            && !*ignores_reboots.borrow_and_update()
            && nodes.get(&name).await?.annotations().get(REBOOT) == asked.as_ref()
        {
            let off = Patch::Merge(json!({"metadata": {"annotations": {REBOOT: null}}}));
            nodes.patch(&name, &PatchParams::default(), &off).await?;
            report(&nodes, &name, number, false).await?;
            tokio::time::sleep(OFF).await;
            boots.store(number + 1, Ordering::SeqCst);
            report(&nodes, &name, number + 1, true).await?;
        }
        tokio::select! {
            seen = changes.next() => drop(seen.context("the watch ended")?),
            toggled = ignores_reboots.changed() => toggled?,
        }
    }
}
