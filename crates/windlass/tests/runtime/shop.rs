//! A custom resource with standard conditions, and a controller whose desired state the test changes.

use std::sync::Mutex;

use windlass::{
    k8s_openapi::{
        api::core::v1::{ConfigMap, Secret},
        apimachinery::pkg::apis::meta::v1::Condition,
    },
    kube,
    prelude::*,
};
use windlass_suite::{Context as Case, RunningManager, TestEnvironment, install_crds};

use crate::runtime::fixture::lock;

/// Desired state of a [`Shop`].
#[windlass::resource(group = "suite.windlass.dev", version = "v1")]
#[kube(kind = "Shop", namespaced, status = "ShopStatus")]
pub(crate) struct ShopSpec {
    #[serde(default)]
    pub(crate) size: i32,
}

/// Observed state of a [`Shop`].
#[windlass::api_type]
#[derive(Default)]
pub(crate) struct ShopStatus {
    pub(crate) observed_generation: Option<i64>,
    #[schemars(length(max = 100))]
    pub(crate) note: Option<String>,
    pub(crate) theirs: Option<String>,
    #[serde(default)]
    #[schemars(schema_with = "windlass::schemas::conditions")]
    pub(crate) conditions: Vec<Condition>,
}

/// The desired state function of the controller, which the test can replace.
pub(crate) type Plan = Arc<Mutex<Arc<dyn Wants>>>;

pub(crate) trait Wants: Fn(&Shop) -> Result<Desired, Error> + Send + Sync + 'static {}

impl<F: Fn(&Shop) -> Result<Desired, Error> + Send + Sync + 'static> Wants for F {}

pub(crate) fn replace(plan: &Plan, wants: impl Wants) {
    *lock(plan) = Arc::new(wants);
}

pub(crate) fn shops(plan: &Plan) -> Controller<Shop, impl Reconciler> {
    let plan = Arc::clone(plan);
    let shops = Controller::<Shop>::new("shops")
        .owns::<ConfigMap>()
        .owns::<Secret>();
    shops.declare(move |shop: Arc<Shop>, _: Context| {
        // Called without the lock: it may panic.
        let wants = Arc::clone(&lock(&plan));
        async move { wants(&shop) }
    })
}

pub(crate) fn config(name: impl Into<String>) -> ConfigMap {
    let mut config = ConfigMap::default();
    config.metadata.name = Some(name.into());
    config
}

pub(crate) fn secret(name: impl Into<String>) -> Secret {
    let mut secret = Secret::default();
    secret.metadata.name = Some(name.into());
    secret
}

/// One test case with a shop named `corner`.
pub(crate) struct Street {
    pub(crate) env: TestEnvironment,
    pub(crate) plan: Plan,
    running: Option<RunningManager>,
}

impl Street {
    pub(crate) async fn new(case: &Case, wants: impl Wants) -> anyhow::Result<Self> {
        let mut street = Self::closed(case, wants).await?;
        street.open();
        Ok(street)
    }

    /// Without a running controller.
    pub(crate) async fn closed(case: &Case, wants: impl Wants) -> anyhow::Result<Self> {
        install_crds(case, [Shop::crd()]).await?;
        let env = TestEnvironment::new(case);
        env.create(Shop::new("corner", ShopSpec { size: 1 })).await?;
        Ok(Self {
            env,
            plan: Arc::new(Mutex::new(Arc::new(wants))),
            running: None,
        })
    }

    pub(crate) fn open(&mut self) {
        self.run(shops(&self.plan));
    }

    pub(crate) fn run(&mut self, controller: Controller<Shop, impl Reconciler>) {
        let manager = self.env.manager().controller(controller);
        self.running = Some(RunningManager::start(manager));
    }

    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        match self.running.take() {
            Some(running) => running.stop().await,
            None => Ok(()),
        }
    }

    /// Replaces the desired state, changes the spec, and waits until a condition about the new generation has this status
    /// and reason.
    pub(crate) async fn want(&self, wants: impl Wants, ready: &str) -> anyhow::Result<Arc<Shop>> {
        replace(&self.plan, wants);
        let shop = self.env.get::<Shop>("corner").await?;
        let size = shop.spec.size + 1;
        let shop = self
            .env
            .patch::<Shop>("corner", json!({ "spec": { "size": size } }))
            .await?;
        let generation = shop.metadata.generation;
        self.wait(move |shop| {
            let found = condition(shop, "Ready");
            found.is_some_and(|found| found.observed_generation == generation && shown(found) == ready)
        })
        .await
    }

    pub(crate) async fn wait(&self, holds: impl Fn(&Shop) -> bool) -> anyhow::Result<Arc<Shop>> {
        self.env.wait_for::<Shop>("corner", holds).await
    }

    /// Waits until `Ready` has this status and reason, such as `False Invalid`.
    pub(crate) async fn wait_for_ready(&self, expected: &str) -> anyhow::Result<Arc<Shop>> {
        self.wait(|shop| condition(shop, "Ready").is_some_and(|found| shown(found) == expected))
            .await
    }

    /// The writes since the last call, without events.
    pub(crate) fn writes(&self) -> Vec<String> {
        let proxy = self.env.proxy();
        let writes = proxy.take(|sent| sent.is_write() && sent.resource() != "events");
        writes.iter().map(ToString::to_string).collect()
    }

    pub(crate) async fn has<K: windlass_suite::Namespaced>(&self, name: &str) -> kube::Result<bool> {
        Ok(self.env.case().api::<K>().get_opt(name).await?.is_some())
    }
}

pub(crate) fn condition<'a>(shop: &'a Shop, kind: &str) -> Option<&'a Condition> {
    shop.status.as_ref()?.conditions.of_type(kind)
}

/// Status and reason.
pub(crate) fn shown(condition: &Condition) -> String {
    format!("{} {}", condition.status, condition.reason)
}

/// Type, status and reason of all conditions, sorted.
pub(crate) fn all_shown(shop: &Shop) -> Vec<String> {
    let conditions = shop.status.iter().flat_map(|status| &status.conditions);
    let mut shown: Vec<_> = conditions
        .map(|found| format!("{} {}", found.type_, shown(found)))
        .collect();
    shown.sort();
    shown
}

pub(crate) fn message(shop: &Shop, kind: &str) -> String {
    condition(shop, kind)
        .map(|found| found.message.clone())
        .unwrap_or_default()
}
