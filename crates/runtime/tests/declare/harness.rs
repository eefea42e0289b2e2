//! A running controller whose desired state the test changes.

use std::{future::ready, sync::Arc, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Event, Pod},
};
use kube::{
    Api, Client, Resource,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use parking_lot::Mutex;
use serde_json::json;
use tokio::{sync::oneshot, task::JoinHandle};
use windlass_apiserver::Server;
use windlass_runtime::{Context, Controller, Desired, Error, Manager, ManagerError, OutcomeCounters};

use crate::request_log::{RequestLog, recorded_on};

/// The desired state function of the controller, which the test can replace.
pub(crate) type Plan = Arc<Mutex<Box<dyn Fn(&Deployment) -> Desired + Send>>>;

pub(crate) fn plan(wants: impl Fn(&Deployment) -> Desired + Send + 'static) -> Plan {
    Arc::new(Mutex::new(Box::new(wants)))
}

pub(crate) fn config(name: &str, data: &[(&str, &str)]) -> ConfigMap {
    let mut config = ConfigMap::default();
    config.metadata.name = Some(name.to_owned());
    let data = data
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    config.data = Some(data.collect());
    config
}

pub(crate) fn one(_: &Deployment) -> Desired {
    Desired::new().child(config("child", &[("a", "1")]))
}

/// A running controller of Deployments with ConfigMap and Pod children.
pub(crate) struct Harness {
    /// The test's own client, which is not recorded.
    pub(crate) client: Client,
    /// The controller's client.
    pub(crate) recorded_client: Client,
    /// The requests of the controller.
    pub(crate) log: RequestLog,
    pub(crate) plan: Plan,
    pub(crate) outcomes: Arc<OutcomeCounters>,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) manager: JoinHandle<Result<(), ManagerError>>,
}

impl Harness {
    pub(crate) async fn new(plan: Plan) -> Self {
        let server = server();
        create(&Client::new(server.clone(), "default"), parent("web")).await;
        Self::on(server, plan).await
    }

    pub(crate) async fn on(server: Server, plan: Plan) -> Self {
        let (recorded_client, log) = recorded_on(server.clone());
        Self::with(Client::new(server, "default"), recorded_client, log, plan).await
    }

    pub(crate) async fn with(client: Client, recorded_client: Client, log: RequestLog, plan: Plan) -> Self {
        let wants = Arc::clone(&plan);
        let controller = Controller::<Deployment>::new("sizes")
            .owns::<ConfigMap>()
            .owns::<Pod>()
            .declare(move |deployment: Arc<Deployment>, _: Context| {
                ready(Ok::<_, Error>(wants.lock()(&deployment)))
            });
        let outcomes = controller.outcomes();
        let (stop, stopped) = oneshot::channel();
        let manager = Manager::new(recorded_client.clone()).controller(controller);
        let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
        let harness = Self {
            client,
            recorded_client,
            log,
            plan,
            outcomes,
            stop,
            manager,
        };
        harness.settle().await;
        harness
    }

    /// Restarts the controller with an empty history.
    pub(crate) async fn restart(self, plan: Option<Plan>) -> Self {
        let (client, recorded_client, log) = (
            self.client.clone(),
            self.recorded_client.clone(),
            self.log.clone(),
        );
        let plan = plan.unwrap_or_else(|| Arc::clone(&self.plan));
        self.stop().await;
        log.take();
        Self::with(client, recorded_client, log, plan).await
    }

    /// Waits until the controller is idle.
    pub(crate) async fn settle(&self) {
        tokio::time::sleep(Duration::from_secs(2)).await;
    }

    /// The writes since the last call, without events.
    pub(crate) fn writes(&self) -> Vec<String> {
        let sent = self.log.take().into_iter();
        sent.filter(|sent| sent.method != "GET" && !sent.path.contains("/events"))
            .map(|sent| sent.line())
            .collect()
    }

    pub(crate) fn configs(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) fn parents(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) async fn events(&self, reason: &str) -> Vec<Event> {
        let events = Api::<Event>::namespaced(self.client.clone(), "default");
        let events = events.list(&ListParams::default()).await.expect("list");
        let about = |event: &Event| event.reason.as_deref() == Some(reason);
        events.items.into_iter().filter(about).collect()
    }

    pub(crate) async fn has(&self, config: &str) -> bool {
        let there = self.configs().get_opt(config).await;
        there.expect("response").is_some()
    }

    pub(crate) async fn child(&self) -> ConfigMap {
        self.configs().get("child").await.expect("exists")
    }

    /// Changes the parent, so that it is reconciled again.
    pub(crate) async fn touch(&self) {
        let change =
            json!({ "metadata": { "annotations": { "at": format!("{:?}", tokio::time::Instant::now()) } } });
        let parents = self.parents();
        parents
            .patch("web", &PatchParams::default(), &Patch::Merge(change))
            .await
            .expect("exists");
        self.settle().await;
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).expect("running");
        self.manager.await.expect("no panic").expect("no error");
    }
}

pub(crate) fn server() -> Server {
    Server::builder().without_service_accounts().build()
}

pub(crate) fn parent(name: &str) -> Deployment {
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "c", "image": "nginx" }] },
            },
        },
    }))
    .expect("valid Deployment")
}

pub(crate) async fn create<K>(client: &Client, object: K) -> K
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    let api = Api::<K>::namespaced(client.clone(), "default");
    api.create(&PostParams::default(), &object)
        .await
        .expect("accepted")
}

pub(crate) const CHILD: &str = "/api/v1/namespaces/default/configmaps/child";
