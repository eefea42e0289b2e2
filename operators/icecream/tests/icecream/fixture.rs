//! Fixture: a case's namespace, the controller with its shipped rights, and pods that the test places.

use std::{ops::Deref, sync::Arc, time::Duration};

use serde_json::{Value, json};
use windlass::{
    k8s_openapi::api::core::v1::{Event, Pod},
    kube,
    prelude::*,
    runtime::{CrdInstaller, OutcomeCounters},
};
use windlass_cluster::Backend;
use windlass_icecream::{FLAVOR_LABEL, ICECREAM_LABEL, Icecream, IcecreamSpec, IcecreamStatus, controller};
use windlass_suite::{Context as Case, ManifestRoles, RunningManager, TestEnvironment, install_crds};

/// The rights that the controller ships with.
pub(crate) fn shipped() -> ManifestRoles {
    ManifestRoles::parse(include_str!("../../rbac.yaml")).expect("a manifest of roles")
}

pub(crate) struct Fixture {
    env: TestEnvironment,
    running: Option<RunningManager>,
    outcomes: Arc<OutcomeCounters>,
}

impl Fixture {
    /// With the controller running under exactly its shipped rights.
    pub(crate) async fn running(case: &Case) -> anyhow::Result<Self> {
        let mut fixture = Self::stopped(case).await?;
        fixture.start();
        Ok(fixture)
    }

    /// Without a running controller.
    pub(crate) async fn stopped(case: &Case) -> anyhow::Result<Self> {
        Self::with_rights(case, &shipped()).await
    }

    pub(crate) async fn with_rights(case: &Case, rights: &ManifestRoles) -> anyhow::Result<Self> {
        install_crds(case, [Icecream::crd()]).await?;
        let client = rights.client(case).await?;
        Ok(Self {
            env: TestEnvironment::with_client(case, &client),
            running: None,
            outcomes: Arc::default(),
        })
    }

    pub(crate) fn start(&mut self) {
        self.start_with(self.env.manager());
    }

    pub(crate) fn start_with(&mut self, manager: Manager) {
        let controller = controller();
        self.outcomes = controller.outcomes();
        // As in `main`.
        let manager = manager.install(CrdInstaller::new([Icecream::crd()]));
        self.running = Some(RunningManager::start(manager.controller(controller)));
    }

    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        match self.running.take() {
            Some(running) => running.stop().await,
            None => Ok(()),
        }
    }

    /// Restarts the controller with empty caches.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<()> {
        self.stop().await?;
        self.proxy().clear();
        self.start();
        self.wait_until_idle().await;
        Ok(())
    }

    /// Waits until the controller sends no more requests.
    pub(crate) async fn wait_until_idle(&self) {
        let long = match self.case().cluster().backend() {
            Backend::Embedded => Duration::from_secs(1),
            _ => Duration::from_millis(300),
        };
        self.proxy().wait_until_idle(long).await;
    }

    /// The number of requests in a minute; on a real clock, in a second.
    pub(crate) async fn requests_in_a_minute(&self) -> usize {
        let before = self.proxy().request_count();
        tokio::time::sleep(match self.case().cluster().backend() {
            Backend::Embedded => Duration::from_mins(1),
            _ => Duration::from_secs(1),
        })
        .await;
        self.proxy().request_count() - before
    }

    /// The number of successful and of failed reconciles.
    pub(crate) fn reconciles(&self) -> (u64, u64) {
        let failed = self.outcomes.failed() + self.outcomes.terminal();
        (self.outcomes.done(), failed)
    }

    pub(crate) async fn create_icecream(&self, name: &str, spec: Value) -> kube::Result<Icecream> {
        let spec: IcecreamSpec = serde_json::from_value(spec).map_err(kube::Error::SerdeError)?;
        self.create(Icecream::new(name, spec)).await
    }

    /// Creates the Icecream `example`, which selects pods of the flavor `mint`.
    pub(crate) async fn create_example(&self) -> kube::Result<Icecream> {
        let spec = json!({ "deploymentName": "scoops", "flavor": "mint" });
        self.create_icecream("example", spec).await
    }

    /// Creates a running pod with this label on `node`, with the address `10.0.0.<n>`.
    pub(crate) async fn create_pod(
        &self,
        name: &str,
        label: (&str, &str),
        node: &str,
        n: u8,
    ) -> anyhow::Result<()> {
        self.create(pod(name, label, node)).await?;
        let address = format!("10.0.0.{n}");
        let status = json!({ "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }] });
        self.patch_status::<Pod>(name, json!({ "status": status }))
            .await?;
        Ok(())
    }

    /// Waits until the status reports these pods, in this order.
    pub(crate) async fn wait_for_pods(
        &self,
        icecream: &str,
        pods: &[&str],
    ) -> anyhow::Result<IcecreamStatus> {
        let icecream = self
            .wait_for::<Icecream>(icecream, |icecream| {
                let status = icecream.status.as_ref();
                status.is_some_and(|status| status.pod_names == pods)
            })
            .await?;
        Ok(icecream.status.clone().unwrap_or_default())
    }

    /// Waits for a Warning about the Icecream.
    pub(crate) async fn wait_for_warning(&self, icecream: &Icecream, reason: &str) -> anyhow::Result<String> {
        let warning = |event: &Event| {
            event.type_.as_deref() == Some("Warning") && event.reason.as_deref() == Some(reason)
        };
        Ok(self
            .wait_for_event(icecream, warning)
            .await?
            .message
            .unwrap_or_default())
    }

    /// The controller's writes, without events.
    pub(crate) fn writes(&self) -> Vec<String> {
        let writes = self.proxy().writes().into_iter();
        let writes = writes.filter(|write| write.resource() != "events");
        writes.map(|write| write.to_string()).collect()
    }
}

impl Deref for Fixture {
    type Target = TestEnvironment;

    fn deref(&self) -> &TestEnvironment {
        &self.env
    }
}

pub(crate) fn flavor_label(flavor: &str) -> (&'static str, &str) {
    (FLAVOR_LABEL, flavor)
}

pub(crate) fn icecream_label(name: &str) -> (&'static str, &str) {
    (ICECREAM_LABEL, name)
}

/// A pod with one container that requests 250m CPU and 64Mi.
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
