//! A stand that sells ice cream: a case's namespace with the controller, its shipped rights, and pods that go where the
//! test puts them.

use std::{ops::Deref, sync::Arc, time::Duration};

use serde_json::{Value, json};
use windlass::{
    k8s_openapi::api::core::v1::{Event, Pod},
    kube,
    prelude::*,
    runtime::{Install, Outcomes},
};
use windlass_cluster::Backend;
use windlass_icecream::{FLAVOR, ICECREAM, Icecream, IcecreamSpec, IcecreamStatus, controller};
use windlass_suite::{Context as Case, Running, Shipped, World, install};

/// The rights that the controller ships with.
pub(crate) fn shipped() -> Shipped {
    Shipped::read(include_str!("../../rbac.yaml")).expect("a manifest of roles")
}

pub(crate) struct Stand {
    world: World,
    running: Option<Running>,
    outcomes: Arc<Outcomes>,
}

impl Stand {
    /// With the controller at work, under exactly the rights that it ships with.
    pub(crate) async fn open(case: &Case) -> anyhow::Result<Self> {
        let mut stand = Self::closed(case).await?;
        stand.start();
        Ok(stand)
    }

    /// Without anybody at work.
    pub(crate) async fn closed(case: &Case) -> anyhow::Result<Self> {
        Self::under(case, &shipped()).await
    }

    pub(crate) async fn under(case: &Case, rights: &Shipped) -> anyhow::Result<Self> {
        install(case, [Icecream::crd()]).await?;
        let client = rights.client(case).await?;
        Ok(Self {
            world: World::of(case, &client),
            running: None,
            outcomes: Arc::default(),
        })
    }

    pub(crate) fn start(&mut self) {
        self.start_with(self.world.manager());
    }

    pub(crate) fn start_with(&mut self, manager: Manager) {
        let controller = controller();
        self.outcomes = controller.outcomes();
        // As the program does.
        let manager = manager.install(Install::new([Icecream::crd()]));
        self.running = Some(Running::start(manager.controller(controller)));
    }

    pub(crate) async fn close(&mut self) -> anyhow::Result<()> {
        match self.running.take() {
            Some(running) => running.stop().await,
            None => Ok(()),
        }
    }

    /// Another process: it knows nothing of what this one did.
    pub(crate) async fn reopen(&mut self) -> anyhow::Result<()> {
        self.close().await?;
        self.wire().forget();
        self.start();
        self.settle().await;
        Ok(())
    }

    /// Returns when everything has happened that is going to happen soon.
    pub(crate) async fn settle(&self) {
        let long = match self.case().cluster().backend() {
            Backend::Embedded => Duration::from_secs(1),
            _ => Duration::from_millis(300),
        };
        self.wire().quiet(long).await;
    }

    /// How many requests are made in a minute; where the clock is on the wall, in a second.
    pub(crate) async fn requests_in_a_minute(&self) -> usize {
        let before = self.wire().requests();
        tokio::time::sleep(match self.case().cluster().backend() {
            Backend::Embedded => Duration::from_mins(1),
            _ => Duration::from_secs(1),
        })
        .await;
        self.wire().requests() - before
    }

    /// How often an Icecream was looked at with success, and how often without.
    pub(crate) fn looks(&self) -> (u64, u64) {
        let failed = self.outcomes.failed() + self.outcomes.terminal();
        (self.outcomes.done(), failed)
    }

    pub(crate) async fn icecream(&self, name: &str, spec: Value) -> kube::Result<Icecream> {
        let spec: IcecreamSpec = serde_json::from_value(spec).map_err(kube::Error::SerdeError)?;
        self.create(Icecream::new(name, spec)).await
    }

    /// A pod on `node` with the address `10.0.0.<n>`, that runs and has the label.
    pub(crate) async fn pod(&self, name: &str, label: (&str, &str), node: &str, n: u8) -> anyhow::Result<()> {
        self.create(pod(name, label, node)).await?;
        let address = format!("10.0.0.{n}");
        let status = json!({ "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }] });
        self.patch_status::<Pod>(name, json!({ "status": status }))
            .await?;
        Ok(())
    }

    /// Waits until the status tells of these pods, in this order.
    pub(crate) async fn tells(&self, icecream: &str, pods: &[&str]) -> anyhow::Result<IcecreamStatus> {
        let told = self
            .wait_for::<Icecream>(icecream, |icecream| {
                let status = icecream.status.as_ref();
                status.is_some_and(|status| status.pod_names == pods)
            })
            .await?;
        Ok(told.status.clone().unwrap_or_default())
    }

    /// Waits for a Warning about the Icecream.
    pub(crate) async fn warned(&self, icecream: &Icecream, reason: &str) -> anyhow::Result<String> {
        let warning = |event: &Event| {
            event.type_.as_deref() == Some("Warning") && event.reason.as_deref() == Some(reason)
        };
        Ok(self.told(icecream, warning).await?.message.unwrap_or_default())
    }

    /// What the controller wrote, apart from events.
    pub(crate) fn writes(&self) -> Vec<String> {
        let writes = self.wire().writes().into_iter();
        let writes = writes.filter(|write| write.resource() != "events");
        writes.map(|write| write.to_string()).collect()
    }
}

impl Deref for Stand {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

pub(crate) fn of_flavor(flavor: &str) -> (&'static str, &str) {
    (FLAVOR, flavor)
}

pub(crate) fn of_icecream(name: &str) -> (&'static str, &str) {
    (ICECREAM, name)
}

/// One container that asks for a quarter of a CPU and 64 Mi.
pub(crate) fn pod(name: &str, (label, value): (&str, &str), node: &str) -> Pod {
    let metadata = json!({ "name": name, "labels": { label: value } });
    let requests = json!({ "cpu": "250m", "memory": "64Mi" });
    let container = json!({ "name": "cone", "image": "cone", "resources": { "requests": requests } });
    let mut spec = json!({ "containers": [container] });
    if !node.is_empty() {
        spec["nodeName"] = json!(node);
    }
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).expect("a pod")
}
