//! A node with a machine behind it that the test owns, and the agent on it. It is there on every kind of cluster: its
//! kubelet does nothing but report boots.

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
    cache::{Cache, Selection},
    k8s_openapi::api::core::v1::Node,
    kube::{
        self, Api, Client,
        api::{Patch, PatchParams, PostParams},
    },
    prelude::*,
    runtime::Clock,
};
use windlass_reboot::{
    agent::{self, Arguments, Way},
    state::{Names, Order, PREFIX, Phase, Progress, State, text},
};
use windlass_suite::{Context as Case, DEADLINE, Running, Wire};

/// What simulated nodes take and show; `windlass-cluster` says more.
const MACHINE: &str = windlass_cluster::simulation::MACHINE;
const REBOOT: &str = windlass_cluster::simulation::REBOOT;

/// How long the machine is off.
const OFF: Duration = Duration::from_millis(200);

/// One node of a case.
pub(crate) struct TestNode {
    pub(crate) name: String,
    pub(crate) nodes: Api<Node>,
    client: Client,
    boots: Arc<AtomicUsize>,
    deaf: watch::Sender<bool>,
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
    /// A node that is ready, in its first boot.
    pub(crate) async fn new(case: &Case, suffix: &str) -> anyhow::Result<Self> {
        let client = case.client();
        let nodes = Api::<Node>::all(client.clone());
        let name = format!("{}-{suffix}", case.namespace());
        let node = json!({"metadata": {
            "name": name, "annotations": {MACHINE: name}, "ownerReferences": [case.owner()],
        }});
        nodes.create(&PostParams::default(), &from_value(node)?).await?;
        report(&nodes, &name, 0, true).await?;
        let (boots, deaf) = (Arc::new(AtomicUsize::new(0)), watch::Sender::new(false));
        let kubelet = tokio::spawn(run(
            client.clone(),
            name.clone(),
            Arc::clone(&boots),
            deaf.subscribe(),
        ));
        Ok(Self {
            name,
            nodes,
            client,
            boots,
            deaf,
            kubelet,
        })
    }

    /// How often it was rebooted.
    pub(crate) fn reboots(&self) -> usize {
        self.boots.load(Ordering::SeqCst)
    }

    pub(crate) fn boot_id(&self) -> String {
        boot(self.reboots())
    }

    /// Whether it takes requests to reboot.
    pub(crate) fn hears(&self, hears: bool) {
        self.deaf.send_replace(!hears);
    }

    pub(crate) async fn annotate(&self, annotations: Value) -> kube::Result<Node> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        self.nodes
            .patch(&self.name, &PatchParams::default(), &patch)
            .await
    }

    /// What a controller writes that arms it with this grant, for the boot that it is in.
    pub(crate) fn arming(&self, epoch: u64) -> Value {
        let (names, now) = (Names::default(), Timestamp::now());
        let state = State {
            phase: Phase::Armed,
            policy: "default".to_owned(),
            epoch,
            attempt: 1,
            since: now,
            deadline: None,
            boot_id_before: Some(self.boot_id()),
            good_by: None,
            cordoned: true,
            reason: None,
            more: [].into(),
        };
        let order = Order {
            boot_id: self.boot_id(),
            epoch,
            not_before: None,
            not_after: None,
        };
        json!({names.needed: "test", names.state: text(&state), names.now: text(&order)})
    }

    pub(crate) async fn arm(&self, epoch: u64) -> kube::Result<Node> {
        self.annotate(self.arming(epoch)).await
    }

    /// What its agent says of itself.
    pub(crate) async fn progress(&self) -> anyhow::Result<Option<Progress>> {
        Ok(progress(&self.nodes.get(&self.name).await?))
    }

    /// Waits until this holds of what its agent says.
    pub(crate) async fn until(&self, holds: impl Fn(&Progress) -> bool) -> anyhow::Result<Progress> {
        let selection = Selection::all().fields(format!("metadata.name={}", self.name));
        let lister = Cache::<Node>::start(self.client.clone(), &selection)
            .synced(DEADLINE)
            .await?;
        let mut changes = lister.subscribe();
        let key = ObjectKey::cluster(self.name.as_str());
        let waiting = async {
            loop {
                let found = lister.get(&key).and_then(|node| progress(&node));
                if let Some(found) = found.filter(&holds) {
                    return anyhow::Ok(found);
                }
                changes.next().await.context("the watch ended")?;
            }
        };
        // An agent that tries again waits for minutes, where that costs nothing.
        match timeout(DEADLINE.max(Duration::from_hours(1)), waiting).await {
            Ok(found) => found,
            Err(_) => anyhow::bail!("its agent stays at {:?}", self.progress().await?),
        }
    }

    /// Waits until its agent has proved the boot that it is in now.
    pub(crate) async fn proved(&self) -> anyhow::Result<Progress> {
        self.until(|progress| progress.proved.is_some()).await
    }

    /// Starts its agent, whose clock is ahead by so much.
    pub(crate) async fn agent(&self, wire: &Wire, ahead: Duration) -> anyhow::Result<Running> {
        self.agent_with(wire, ahead, Arguments::default()).await
    }

    pub(crate) async fn agent_with(
        &self,
        wire: &Wire,
        ahead: Duration,
        arguments: Arguments,
    ) -> anyhow::Result<Running> {
        let arguments = Arguments {
            node: Some(self.name.clone()),
            reboot_with: Way::Simulated,
            ..arguments
        };
        let client = wire.client();
        let manager = agent::setup_at(
            Manager::new(client.clone()),
            &client,
            PREFIX,
            &arguments,
            Clock::starting_at(Timestamp::now().checked_add(ahead)?),
        );
        Ok(Running::start(manager.await?))
    }
}

pub(crate) fn progress(node: &Node) -> Option<Progress> {
    let text = node.annotations().get(&Names::default().in_progress)?;
    Some(serde_json::from_str(text).expect("what agents write can be read"))
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

/// The machine and its kubelet: a request for the boot that it is in is taken off, and then ends it.
async fn run(
    client: Client,
    name: String,
    boots: Arc<AtomicUsize>,
    mut deaf: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let nodes = Api::<Node>::all(client.clone());
    let selection = Selection::all().fields(format!("metadata.name={name}"));
    let lister = Cache::<Node>::start(client, &selection).synced(DEADLINE).await?;
    let mut changes = lister.subscribe();
    let key = ObjectKey::cluster(name.as_str());
    loop {
        let number = boots.load(Ordering::SeqCst);
        let asked = lister
            .get(&key)
            .and_then(|node| node.annotations().get(REBOOT).cloned());
        // A request that was taken back may still be in the cache when the machine hears again.
        if asked == Some(boot(number))
            && !*deaf.borrow_and_update()
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
            heard = deaf.changed() => heard?,
        }
    }
}
