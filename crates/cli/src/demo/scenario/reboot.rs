//! reboot: ten nodes reboot, two at a time, while an application stays available.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

use anyhow::Context;
use futures::FutureExt;
use windlass::{
    cache::{Cache, WatchScope},
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
use windlass_reboot::{RebootPolicy, state::AnnotationKeys};

use super::{Chapter, CheckResult, NAMESPACE, Scenario, nodes::boot_id};
use crate::{demo::cluster_view::pod_is_ready, embedded::is_ready};

/// The maximum number of unavailable nodes.
const MAX_UNAVAILABLE: usize = 2;
/// The number of the application's pods, and how many must be available.
const PODS: usize = 10;
const MIN_AVAILABLE: usize = 6;

/// How long the caches may take to sync.
const SYNC_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

const READY: &str = "the shop's 10 pods are ready";
const ROLLED: &str = "all ten nodes have rebooted, each exactly once by its boot ID";
const LIMIT_KEPT: &str = "never were more than 2 of them down or cordoned";
const BUDGET_KEPT: &str = "the shop never had fewer ready pods than its budget requires";
const CLEANED_UP: &str = "no node is left cordoned, and no reboot slot is taken";

pub(super) const ROLL: Chapter = Chapter {
    title: "reboot: ten nodes in turn, two at a time",
    claims: &[READY, ROLLED, LIMIT_KEPT, BUDGET_KEPT, CLEANED_UP],
    run: |scenario| roll(scenario).boxed_local(),
};

async fn roll(scenario: &Scenario) -> anyhow::Result<()> {
    let (post, nodes) = (PostParams::default(), Api::<Node>::all(scenario.client.clone()));
    let policies = Api::<RebootPolicy>::all(scenario.client.clone());
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
            "spec": { "minAvailable": MIN_AVAILABLE, "selector": { "matchLabels": labels } },
        }))?;
        let spec = json!({ "maxUnavailable": MAX_UNAVAILABLE, "healthCheck": { "minReadySeconds": 0 } });
        scenario.api::<Deployment>().create(&post, &shop).await?;
        scenario
            .api::<PodDisruptionBudget>()
            .create(&post, &budget)
            .await?;
        policies
            .create(&post, &RebootPolicy::new("demo", from_value(spec)?))
            .await?;
        anyhow::Ok(())
    };
    let what = format!(
        "create the Deployment demo/shop, a budget of {MIN_AVAILABLE} of its {PODS} pods, and a RebootPolicy"
    );
    scenario.perform(what, Box::pin(opening)).await?;

    let mut watcher = Recorder::open(scenario).await?;
    let ready = async || anyhow::Ok(watcher.check_ready());
    scenario.check_claim(READY, ready).await?;
    watcher.start();
    let asking = async {
        let request =
            json!({ "metadata": { "annotations": { AnnotationKeys::default().reboot_needed: "demo" } } });
        for name in scenario.nodes.names() {
            nodes
                .patch(&name, &PatchParams::default(), &Patch::Merge(&request))
                .await?;
        }
        anyhow::Ok(())
    };
    let checking = async {
        scenario
            .perform(
                "annotate every node with reboot.windlass.dev/reboot-needed",
                asking,
            )
            .await?;
        scenario
            .check_claim(ROLLED, async || Ok(watcher.check_rebooted()))
            .await?;
        scenario
            .check_claim(LIMIT_KEPT, async || Ok(watcher.check_limit()))
            .await?;
        scenario
            .check_claim(BUDGET_KEPT, async || Ok(watcher.check_budget()))
            .await?;
        let cleaned_up = async || {
            let policy = policies.get("demo").await?;
            let taken = policy.status.map_or(0, |status| status.granted.len());
            anyhow::Ok(watcher.check_uncordoned().and(match taken {
                0 => Ok(()),
                taken => Err(format!("{taken} reboot slots are taken")),
            }))
        };
        scenario.check_claim(CLEANED_UP, cleaned_up).await
    };
    tokio::select! {
        outcome = checking => outcome?,
        ended = watcher.watch() => ended?,
    }
    let closing = async {
        let delete = DeleteParams::default();
        scenario.api::<Deployment>().delete("shop", &delete).await?;
        scenario
            .api::<PodDisruptionBudget>()
            .delete("shop", &delete)
            .await?;
        policies.delete("demo", &delete).await
    };
    scenario
        .perform("delete the shop, its budget and the policy", closing)
        .await?;
    Ok(())
}

/// Observes every change of nodes and pods, and records the worst state.
struct Recorder {
    nodes: Lister<Node>,
    pods: Lister<Pod>,
    /// The boot IDs of each node since the start, including the first.
    boots: RefCell<BTreeMap<String, BTreeSet<String>>>,
    max_unavailable: Cell<usize>,
    min_ready: Cell<usize>,
}

impl Recorder {
    async fn open(scenario: &Scenario) -> anyhow::Result<Self> {
        let shop = WatchScope::all().namespace(NAMESPACE).labels("app=shop");
        let nodes = Cache::start(scenario.client.clone(), &WatchScope::all());
        let pods = Cache::start(scenario.client.clone(), &shop);
        Ok(Self {
            nodes: nodes.synced(SYNC_TIMEOUT).await?,
            pods: pods.synced(SYNC_TIMEOUT).await?,
            boots: RefCell::default(),
            max_unavailable: Cell::new(0),
            min_ready: Cell::new(usize::MAX),
        })
    }

    /// Starts recording.
    fn start(&mut self) {
        self.boots.get_mut().clear();
        self.record();
    }

    /// Records the state after each change.
    async fn watch(&self) -> anyhow::Result<()> {
        let (mut nodes, mut pods) = (self.nodes.subscribe(), self.pods.subscribe());
        loop {
            let is_open = tokio::select! {
                change = nodes.next() => change.is_some(),
                change = pods.next() => change.is_some(),
            };
            is_open.then_some(()).context("a watch ended")?;
            self.record();
        }
    }

    fn record(&self) {
        let nodes = self.nodes.list(&Query::all());
        let mut boots = self.boots.borrow_mut();
        for node in &nodes {
            boots.entry(node.name_any()).or_default().insert(boot_id(node));
        }
        let away = nodes.iter().filter(|node| !is_ready(node) || is_cordoned(node));
        self.max_unavailable
            .set(self.max_unavailable.get().max(away.count()));
        self.min_ready.set(self.min_ready.get().min(self.ready_pods()));
    }

    fn ready_pods(&self) -> usize {
        let pods = self.pods.list(&Query::all());
        pods.iter().filter(|pod| pod_is_ready(pod)).count()
    }

    fn check_ready(&self) -> CheckResult {
        let ready = self.ready_pods();
        (ready == PODS).then_some(()).ok_or(format!("{ready} are ready"))
    }

    /// Whether every node has rebooted once, and its request is completed.
    fn check_rebooted(&self) -> CheckResult {
        let needed = AnnotationKeys::default().reboot_needed;
        let nodes = self.nodes.list(&Query::all());
        let asked = nodes
            .iter()
            .filter(|node| node.annotations().contains_key(&needed))
            .count();
        let boots = self.boots.borrow();
        let wrong = boots.iter().find(|(_, boots)| boots.len() != 2);
        match (asked, wrong) {
            (0, None) => Ok(()),
            (0, Some((name, boots))) => Err(format!("{name} rebooted {} times", boots.len() - 1)),
            (asked, _) => Err(format!("{asked} nodes still have a reboot request")),
        }
    }

    fn check_limit(&self) -> CheckResult {
        match self.max_unavailable.get() {
            0 => Err("no node was ever seen down".to_owned()),
            most if most <= MAX_UNAVAILABLE => Ok(()),
            most => Err(format!("{most} were at the same time")),
        }
    }

    fn check_budget(&self) -> CheckResult {
        let least = self.min_ready.get();
        let found = format!("at one time only {least} of {PODS} pods were ready");
        (least >= MIN_AVAILABLE).then_some(()).ok_or(found)
    }

    fn check_uncordoned(&self) -> CheckResult {
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
