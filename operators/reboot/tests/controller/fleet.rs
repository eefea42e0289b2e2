//! Nodes with machines that the test controls, with the controller and the agents. They work on every kind of
//! cluster: the kubelets here only take reboot requests and report their status.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::timeout;
use windlass::{
    cache::{Cache, WatchScope},
    k8s_openapi::api::{
        core::v1::{Event, Node, Pod},
        policy::v1::PodDisruptionBudget,
    },
    kube::{
        self, Api,
        api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    },
    prelude::*,
    runtime::{Clock, CrdInstaller},
};
use windlass_cluster::{Backend, simulation::MACHINE_ANNOTATION};
use windlass_reboot::{
    Arguments, RebootPolicy, agent, setup_at,
    state::{AnnotationKeys, DEFAULT_ANNOTATION_PREFIX, Phase},
    state_machine::NodeView,
};
use windlass_suite::{Context as Case, RequestProxy, RunningManager, install_crds};

pub(crate) use crate::controller::machines::RebootBehavior;
use crate::controller::machines::{
    Machine, Machines, OFF, boot, count_nodes_down, kubelets, report, stop_terminating_pods,
};

pub(crate) struct Fleet {
    pub(crate) case: Case,
    pub(crate) clock: Clock,
    pub(crate) policy: String,
    pub(crate) proxy: RequestProxy,
    machines: Arc<Mutex<Machines>>,
    most_down: Arc<Mutex<usize>>,
    kubelets: RunningManager,
    agents: Option<RunningManager>,
    controller: Option<RunningManager>,
}

impl Fleet {
    /// Creates Ready nodes under a policy, with agents but without the controller.
    pub(crate) async fn idle(case: &Case, nodes: usize, spec: Value) -> anyhow::Result<Self> {
        Self::idle_at(case, nodes, spec, Timestamp::now()).await
    }

    /// The same at this time of day, by the clock of all processes.
    pub(crate) async fn idle_at(
        case: &Case,
        nodes: usize,
        spec: Value,
        now: Timestamp,
    ) -> anyhow::Result<Self> {
        let embedded = case.cluster().backend() == Backend::Embedded;
        install_crds(case, [RebootPolicy::crd()]).await?;
        let clock = Clock::starting_at(now);
        let machines = Arc::<Mutex<Machines>>::default();
        let most_down = Arc::<Mutex<usize>>::default();
        let kubelets = Manager::new(case.client()).controller(kubelets(
            &machines,
            clock,
            if embedded { OFF } else { Duration::from_millis(100) },
        ));
        let kubelets = kubelets.controller(stop_terminating_pods());
        let kubelets = kubelets.controller(count_nodes_down(case.namespace(), &most_down));
        let mut fleet = Self {
            case: case.clone(),
            clock,
            policy: case.namespace().to_owned(),
            proxy: RequestProxy::new(&case.program_client().await?),
            machines,
            most_down,
            kubelets: RunningManager::start(kubelets),
            agents: None,
            controller: None,
        };
        for number in 0..nodes {
            fleet.add(&fleet.name(number), json!({})).await?;
        }
        fleet.create_policy(&fleet.policy, spec).await?;
        fleet.start_agents().await?;
        Ok(fleet)
    }

    /// The same, with the controller running.
    pub(crate) async fn new(case: &Case, nodes: usize, spec: Value) -> anyhow::Result<Self> {
        let mut fleet = Self::idle(case, nodes, spec).await?;
        fleet.start();
        Ok(fleet)
    }

    /// The name of a node; names sort by number.
    pub(crate) fn name(&self, number: usize) -> String {
        format!("{}-{number:03}", self.case.namespace())
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.case.client())
    }

    pub(crate) fn policies(&self) -> Api<RebootPolicy> {
        Api::all(self.case.client())
    }

    /// Adds a node with a machine in its first boot.
    pub(crate) async fn add(&self, name: &str, labels: Value) -> anyhow::Result<()> {
        let mut labels = labels;
        labels["fleet"] = self.case.namespace().into();
        let node = json!({ "metadata": {
            "name": name, "labels": labels, "annotations": { MACHINE_ANNOTATION: name }, "ownerReferences": [self.case.owner()],
        } });
        self.nodes()
            .create(&PostParams::default(), &from_value(node)?)
            .await?;
        self.machines
            .lock()
            .by_name
            .insert(name.to_owned(), Machine::default());
        report(&self.nodes(), name, &boot(0), "True", self.clock.now()).await?;
        Ok(())
    }

    /// Creates a policy for this fleet's nodes.
    pub(crate) async fn create_policy(&self, name: &str, mut spec: Value) -> anyhow::Result<RebootPolicy> {
        if spec.get("nodeSelector").is_none() {
            spec["nodeSelector"] = json!({ "matchLabels": { "fleet": self.case.namespace() } });
        }
        let policy = json!({
            "apiVersion": "reboot.windlass.dev/v1alpha1", "kind": "RebootPolicy",
            "metadata": { "name": name, "ownerReferences": [self.case.owner()] }, "spec": spec,
        });
        Ok(self
            .policies()
            .create(&PostParams::default(), &from_value(policy)?)
            .await?)
    }

    pub(crate) async fn change_policy(&self, spec: Value) -> kube::Result<RebootPolicy> {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.policies()
            .patch(&self.policy, &PatchParams::default(), &patch)
            .await
    }

    pub(crate) async fn policy(&self) -> kube::Result<RebootPolicy> {
        self.policies().get(&self.policy).await
    }

    pub(crate) fn start(&mut self) {
        let proxy = self.proxy.clone();
        self.controller = Some(self.start_another(&proxy, None));
    }

    /// Starts another controller, on this proxy.
    pub(crate) fn start_another(&self, proxy: &RequestProxy, own_node: Option<String>) -> RunningManager {
        RunningManager::start(controllers(Manager::new(proxy.client()), self.clock, own_node))
    }

    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        match self.controller.take() {
            Some(running) => running.stop().await,
            None => Ok(()),
        }
    }

    pub(crate) async fn start_agents(&mut self) -> anyhow::Result<()> {
        let client = self.case.client();
        let manager = agent::simulated_at(
            Manager::new(client.clone()),
            &client,
            DEFAULT_ANNOTATION_PREFIX,
            self.clock,
        )
        .await?;
        self.agents = Some(RunningManager::start(manager));
        Ok(())
    }

    pub(crate) async fn stop_agents(&mut self) -> anyhow::Result<()> {
        match self.agents.take() {
            Some(running) => running.stop().await,
            None => Ok(()),
        }
    }

    pub(crate) fn set_behavior(&self, node: &str, temper: RebootBehavior) {
        self.machines
            .lock()
            .by_name
            .entry(node.to_owned())
            .or_default()
            .behavior = temper;
    }

    pub(crate) fn boots(&self, node: &str) -> usize {
        self.machines
            .lock()
            .by_name
            .get(node)
            .map_or(0, |machine| machine.boots)
    }

    /// Boots a machine that is off.
    pub(crate) async fn boot(&self, node: &str) -> kube::Result<()> {
        {
            let mut machines = self.machines.lock();
            machines.rebooted.push(node.to_owned());
            machines.by_name.entry(node.to_owned()).or_default().boots += 1;
        }
        self.set_ready(node, "True").await
    }

    /// The cells of the policy's row in `kubectl get rebootpolicies -o wide`, by column.
    pub(crate) async fn columns(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let path = format!(
            "/apis/reboot.windlass.dev/v1alpha1/rebootpolicies/{}",
            self.policy
        );
        let request = http::Request::get(path)
            .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Vec::new())?;
        let table: Value = self.case.client().request(request).await?;
        let names = table["columnDefinitions"].as_array().into_iter().flatten();
        let cells = table["rows"][0]["cells"].as_array().into_iter().flatten();
        let text = |cell: &Value| cell.as_str().map_or_else(|| cell.to_string(), ToOwned::to_owned);
        let name = |column: &Value| column["name"].as_str().unwrap_or_default().to_owned();
        Ok(names
            .zip(cells)
            .map(|(column, cell)| (name(column), text(cell)))
            .collect())
    }

    /// The nodes that rebooted, in order.
    pub(crate) fn rebooted(&self) -> Vec<String> {
        self.machines.lock().rebooted.clone()
    }

    /// The maximum number of nodes that were not Ready or cordoned by the controller at the same time.
    pub(crate) fn max_down(&self) -> usize {
        *self.most_down.lock()
    }

    /// Sets a node's Ready condition.
    pub(crate) async fn set_ready(&self, node: &str, status: &str) -> kube::Result<()> {
        let boot = boot(self.boots(node));
        report(&self.nodes(), node, &boot, status, self.clock.now()).await
    }

    pub(crate) async fn annotate(&self, node: &str, annotations: Value) -> kube::Result<Node> {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        self.nodes().patch(node, &PatchParams::default(), &patch).await
    }

    /// `kubectl annotate node … reboot.windlass.dev/reboot-needed=`
    pub(crate) async fn request(&self, node: &str) -> kube::Result<Node> {
        self.annotate(node, json!({ AnnotationKeys::default().reboot_needed: "" }))
            .await
    }

    pub(crate) async fn cordon(&self, node: &str, unschedulable: bool) -> kube::Result<Node> {
        let patch = Patch::Merge(json!({ "spec": { "unschedulable": unschedulable } }));
        self.nodes().patch(node, &PatchParams::default(), &patch).await
    }

    pub(crate) async fn view(&self, node: &str) -> kube::Result<NodeView> {
        Ok(NodeView::from_node(
            &self.nodes().get(node).await?,
            &AnnotationKeys::default(),
        ))
    }

    /// Waits until this holds for the node.
    pub(crate) async fn wait_for_node(
        &self,
        node: &str,
        holds: impl Fn(&NodeView) -> bool,
    ) -> anyhow::Result<NodeView> {
        let names = AnnotationKeys::default();
        let key = ObjectKey::cluster_scoped(node);
        let found = self
            .watch(|lister: &Lister<Node>| {
                let node = lister.get(&key)?;
                Some(NodeView::from_node(&node, &names)).filter(&holds)
            })
            .await?;
        match found {
            Some(view) => Ok(view),
            None => {
                let policy = json!(self.policy().await.ok().and_then(|policy| policy.status));
                anyhow::bail!("{node} is still {:#?}\nunder {policy:#}", self.view(node).await)
            }
        }
    }

    pub(crate) async fn wait_for_phase(&self, node: &str, phase: Phase) -> anyhow::Result<NodeView> {
        self.wait_for_node(node, |view| view.phase() == Some(phase)).await
    }

    /// Waits until the node has neither a request nor annotations of the controller.
    pub(crate) async fn wait_until_idle(&self, node: &str) -> anyhow::Result<NodeView> {
        self.wait_for_node(node, |view| {
            view.is_idle() && view.command.is_none() && view.progress.is_none()
        })
        .await
    }

    /// Waits until this holds for the policy.
    pub(crate) async fn wait_for_policy(
        &self,
        holds: impl Fn(&RebootPolicy) -> bool,
    ) -> anyhow::Result<Arc<RebootPolicy>> {
        let key = ObjectKey::cluster_scoped(self.policy.as_str());
        let found = self
            .watch(|lister: &Lister<RebootPolicy>| lister.get(&key).filter(|policy| holds(policy)))
            .await?;
        match found {
            Some(policy) => Ok(policy),
            None => anyhow::bail!("the policy is still {:#}", json!(self.policy().await?)),
        }
    }

    async fn watch<K, T>(&self, look: impl Fn(&Lister<K>) -> Option<T>) -> anyhow::Result<Option<T>>
    where
        K: windlass::cache::Cacheable + Resource<DynamicType = ()>,
    {
        let limit = match self.case.cluster().backend() {
            Backend::Embedded => Duration::from_hours(8),
            _ => Duration::from_secs(40),
        };
        let cache = Cache::<K>::start(self.case.client(), &WatchScope::all());
        let lister = cache.synced(windlass_suite::STEP_TIMEOUT).await?;
        let mut changes = lister.subscribe();
        let seen = timeout(limit, async {
            loop {
                if let Some(seen) = look(&lister) {
                    return anyhow::Ok(seen);
                }
                changes.next().await.context("the watch ended")?;
            }
        });
        seen.await.ok().transpose()
    }

    /// Waits until everything that happens soon has happened.
    pub(crate) async fn settle(&self) {
        let long = match self.case.cluster().backend() {
            Backend::Embedded => Duration::from_secs(2),
            _ => Duration::from_millis(500),
        };
        self.proxy.wait_until_idle(long).await;
    }

    /// The reasons of all events about a node, in the order in which they were recorded; the server may receive them
    /// in another order. Their names end with the time.
    pub(crate) async fn event_reasons(&self, node: &str) -> anyhow::Result<Vec<String>> {
        let about = format!("involvedObject.kind=Node,involvedObject.name={node}");
        let events = Api::<Event>::all(self.case.client());
        let mut events = events.list(&ListParams::default().fields(&about)).await?.items;
        let time_in_name = |event: &Event| {
            let name = event.name_any();
            let (_, stamp) = name.rsplit_once('.')?;
            u64::from_str_radix(stamp, 16).ok()
        };
        events.sort_by_key(time_in_name);
        Ok(events.into_iter().filter_map(|event| event.reason).collect())
    }

    /// Creates a pod on the node that a budget protects until [`allow`](Self::allow).
    pub(crate) async fn create_protected_pod(&self, node: &str) -> anyhow::Result<()> {
        let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "it", "uid": "it", "controller": true });
        let pod = json!({
            "metadata": { "name": node, "labels": { "app": node }, "ownerReferences": [owner] },
            "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "main" }] },
        });
        let pods = self.case.api::<Pod>();
        pods.create(&PostParams::default(), &from_value(pod)?).await?;
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let running = Patch::Merge(json!({ "status": { "phase": "Running", "conditions": ready } }));
        pods.patch_status(node, &PatchParams::default(), &running).await?;
        let spec = json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": node } } });
        let budget = json!({ "metadata": { "name": node }, "spec": spec });
        let budgets = self.case.api::<PodDisruptionBudget>();
        budgets
            .create(&PostParams::default(), &from_value(budget)?)
            .await?;
        self.allow(node, 0).await
    }

    /// Sets the budget's status.
    pub(crate) async fn allow(&self, node: &str, disruptions: i32) -> anyhow::Result<()> {
        let status = json!({ "status": {
            "observedGeneration": 1, "disruptionsAllowed": disruptions, "currentHealthy": 1, "desiredHealthy": 1,
            "expectedPods": 1,
        } });
        let budgets = self.case.api::<PodDisruptionBudget>();
        budgets
            .patch_status(node, &PatchParams::default(), &Patch::Merge(status))
            .await?;
        Ok(())
    }

    /// Whether the pod on the node exists and is not terminating.
    pub(crate) async fn has_protected_pod(&self, node: &str) -> anyhow::Result<bool> {
        let pod = self.case.api::<Pod>().get_opt(node).await?;
        Ok(pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()))
    }

    pub(crate) async fn delete(&self, node: &str) -> anyhow::Result<()> {
        self.nodes().delete(node, &DeleteParams::default()).await?;
        Ok(())
    }

    pub(crate) fn is_embedded(&self) -> bool {
        self.case.cluster().backend() == Backend::Embedded
    }

    /// Sets the policy's reboot timeout to a little longer than a machine takes to boot.
    pub(crate) async fn shorten_reboot_timeout(&self) -> kube::Result<RebootPolicy> {
        let timeout = if self.is_embedded() { "40s" } else { "5s" };
        self.change_policy(json!({ "reboot": { "timeout": timeout } }))
            .await
    }

    /// Lets time pass; where the clock is real, a second.
    pub(crate) async fn pass_time(&self, time: Duration) {
        tokio::time::sleep(match self.case.cluster().backend() {
            Backend::Embedded => time,
            _ => Duration::from_secs(1),
        })
        .await;
    }

    /// Deletes everything.
    pub(crate) async fn end(mut self) -> anyhow::Result<()> {
        self.stop().await?;
        self.stop_agents().await?;
        self.kubelets.stop().await?;
        let ours = ListParams::default().labels(&format!("fleet={}", self.case.namespace()));
        let nodes: Api<Node> = Api::all(self.case.client());
        nodes.delete_collection(&DeleteParams::default(), &ours).await?;
        let policies: Api<RebootPolicy> = Api::all(self.case.client());
        policies
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await?;
        Ok(())
    }
}

/// The controller as the program runs it.
pub(crate) fn controllers(manager: Manager, clock: Clock, own_node: Option<String>) -> Manager {
    let arguments = Arguments {
        own_node,
        ..Arguments::default()
    };
    controllers_with(manager, clock, &arguments)
}

/// The same with flags.
pub(crate) fn controllers_with(manager: Manager, clock: Clock, arguments: &Arguments) -> Manager {
    let manager = manager.install(CrdInstaller::new([RebootPolicy::crd()]));
    setup_at(manager, arguments, clock).expect("the default prefix is valid")
}
