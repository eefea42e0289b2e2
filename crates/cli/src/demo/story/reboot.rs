//! reboot: ten nodes roll, two at a time, under an application that stays available.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

use anyhow::Context;
use futures::FutureExt;
use windlass::{
    cache::{Cache, Selection},
    k8s_openapi::api::{
        apps::v1::Deployment,
        core::v1::{Node, Pod},
        policy::v1::PodDisruptionBudget,
    },
    kube::{
        Api, ResourceExt,
        api::{DeleteParams, Patch, PatchParams, PostParams},
    },
    prelude::{Lister, Query, from_value, json},
};
use windlass_reboot::{RebootPolicy, state::Names};

use super::{Chapter, Finding, NAMESPACE, Story, nodes::boot_id};
use crate::{demo::sight::pod_is_ready, embedded::is_ready};

/// How many nodes may be away, of how many pods, and how many of them have to be there.
const MOST_AWAY: usize = 2;
const PODS: usize = 10;
const LEAST_PODS: usize = 6;

/// How long the caches may take.
const SYNC: std::time::Duration = std::time::Duration::from_secs(10);

const READY: &str = "the shop's 10 pods are ready";
const ROLLED: &str = "all ten nodes have rebooted, each exactly once by its boot ID";
const TWO: &str = "at no time were more than 2 of them away or cordoned";
const WHOLE: &str = "at no time had the shop fewer pods ready than its budget asks for";
const TIDY: &str = "no node is left cordoned, and no slot taken";

pub(super) const ROLL: Chapter = Chapter {
    title: "reboot: ten nodes in turn, two at a time",
    claims: &[READY, ROLLED, TWO, WHOLE, TIDY],
    tell: |story| roll(story).boxed_local(),
};

async fn roll(story: &Story) -> anyhow::Result<()> {
    let (post, nodes) = (PostParams::default(), Api::<Node>::all(story.client.clone()));
    let policies = Api::<RebootPolicy>::all(story.client.clone());
    let opening = async {
        let labels = json!({ "app": "shop" });
        let container = json!({ "name": "shop", "image": "shop:1" });
        let shop: Deployment = from_value(json!({
            "metadata": { "name": "shop" },
            "spec": {
                "replicas": PODS,
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
            },
        }))?;
        let budget: PodDisruptionBudget = from_value(json!({
            "metadata": { "name": "shop" },
            "spec": { "minAvailable": LEAST_PODS, "selector": { "matchLabels": labels } },
        }))?;
        let spec = json!({ "maxUnavailable": MOST_AWAY, "after": { "minReadySeconds": 0 } });
        story.api::<Deployment>().create(&post, &shop).await?;
        story.api::<PodDisruptionBudget>().create(&post, &budget).await?;
        policies
            .create(&post, &RebootPolicy::new("demo", from_value(spec)?))
            .await?;
        anyhow::Ok(())
    };
    let what = format!(
        "create the Deployment demo/shop, a budget of {LEAST_PODS} of its {PODS} pods, and a RebootPolicy"
    );
    story.act(what, Box::pin(opening)).await?;

    let mut watcher = Watcher::open(story).await?;
    let ready = async || anyhow::Ok(watcher.ready());
    story.claim(READY, ready).await?;
    watcher.begin();
    let asking = async {
        let request = json!({ "metadata": { "annotations": { Names::default().needed: "demo" } } });
        for name in story.machines.names() {
            nodes
                .patch(&name, &PatchParams::default(), &Patch::Merge(&request))
                .await?;
        }
        anyhow::Ok(())
    };
    let telling = async {
        story
            .act(
                "annotate every node with reboot.windlass.dev/reboot-needed",
                asking,
            )
            .await?;
        story.claim(ROLLED, async || Ok(watcher.rolled())).await?;
        story.claim(TWO, async || Ok(watcher.two())).await?;
        story.claim(WHOLE, async || Ok(watcher.whole())).await?;
        let tidy = async || {
            let policy = policies.get("demo").await?;
            let taken = policy.status.map_or(0, |status| status.granted.len());
            anyhow::Ok(watcher.tidy().and(match taken {
                0 => Ok(()),
                taken => Err(format!("{taken} slots are taken")),
            }))
        };
        story.claim(TIDY, tidy).await
    };
    tokio::select! {
        told = telling => told?,
        ended = watcher.watch() => ended?,
    }
    let closing = async {
        let delete = DeleteParams::default();
        story.api::<Deployment>().delete("shop", &delete).await?;
        story.api::<PodDisruptionBudget>().delete("shop", &delete).await?;
        policies.delete("demo", &delete).await
    };
    story
        .act("delete the shop, its budget and the policy", closing)
        .await?;
    Ok(())
}

/// Sees every state of nodes and pods, and remembers the worst of them.
struct Watcher {
    nodes: Lister<Node>,
    pods: Lister<Pod>,
    /// The boots of each node since the beginning, that one included.
    boots: RefCell<BTreeMap<String, BTreeSet<String>>>,
    most_away: Cell<usize>,
    least_ready: Cell<usize>,
}

impl Watcher {
    async fn open(story: &Story) -> anyhow::Result<Self> {
        let shop = Selection::all().namespace(NAMESPACE).labels("app=shop");
        let nodes = Cache::start(story.client.clone(), &Selection::all());
        let pods = Cache::start(story.client.clone(), &shop);
        Ok(Self {
            nodes: nodes.synced(SYNC).await?,
            pods: pods.synced(SYNC).await?,
            boots: RefCell::default(),
            most_away: Cell::new(0),
            least_ready: Cell::new(usize::MAX),
        })
    }

    /// From now on it counts.
    fn begin(&mut self) {
        self.boots.get_mut().clear();
        self.look();
    }

    /// Looks after each change.
    async fn watch(&self) -> anyhow::Result<()> {
        let (mut nodes, mut pods) = (self.nodes.subscribe(), self.pods.subscribe());
        loop {
            let there = tokio::select! {
                change = nodes.next() => change.is_some(),
                change = pods.next() => change.is_some(),
            };
            there.then_some(()).context("a watch ended")?;
            self.look();
        }
    }

    fn look(&self) {
        let nodes = self.nodes.list(&Query::all());
        let mut boots = self.boots.borrow_mut();
        for node in &nodes {
            boots.entry(node.name_any()).or_default().insert(boot_id(node));
        }
        let away = nodes.iter().filter(|node| !is_ready(node) || is_cordoned(node));
        self.most_away.set(self.most_away.get().max(away.count()));
        self.least_ready
            .set(self.least_ready.get().min(self.ready_pods()));
    }

    fn ready_pods(&self) -> usize {
        let pods = self.pods.list(&Query::all());
        pods.iter().filter(|pod| pod_is_ready(pod)).count()
    }

    fn ready(&self) -> Finding {
        let ready = self.ready_pods();
        (ready == PODS).then_some(()).ok_or(format!("{ready} are"))
    }

    /// All have rebooted, and are done with it.
    fn rolled(&self) -> Finding {
        let needed = Names::default().needed;
        let nodes = self.nodes.list(&Query::all());
        let asked = nodes
            .iter()
            .filter(|node| node.annotations().contains_key(&needed))
            .count();
        let boots = self.boots.borrow();
        let wrong = boots.iter().find(|(_, boots)| boots.len() != 2);
        match (asked, wrong) {
            (0, None) => Ok(()),
            (0, Some((name, boots))) => Err(format!("{name} was rebooted {} times", boots.len() - 1)),
            (asked, _) => Err(format!("{asked} nodes are still asked to")),
        }
    }

    fn two(&self) -> Finding {
        match self.most_away.get() {
            0 => Err("none was ever seen away".to_owned()),
            most if most <= MOST_AWAY => Ok(()),
            most => Err(format!("{most} were")),
        }
    }

    fn whole(&self) -> Finding {
        let least = self.least_ready.get();
        let found = format!("of {PODS} pods, {least} were ready");
        (least >= LEAST_PODS).then_some(()).ok_or(found)
    }

    fn tidy(&self) -> Finding {
        let nodes = self.nodes.list(&Query::all());
        match nodes.iter().find(|node| is_cordoned(node)) {
            None => Ok(()),
            Some(node) => Err(format!("{} is cordoned", node.name_any())),
        }
    }
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true)
}
