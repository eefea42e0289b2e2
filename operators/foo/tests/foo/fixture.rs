//! Fixture: a case's namespace, and the controller with its shipped rights.

use std::{
    ops::Deref,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use windlass::{
    k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec},
    kube,
    prelude::*,
    runtime::{CrdInstaller, OutcomeCounters},
};
use windlass_cluster::Backend;
use windlass_foo::{Foo, FooSpec};
use windlass_suite::{Context as Case, ManifestRoles, RunningManager, install_crds};

/// Without requests for this long, the controller is idle.
pub(crate) const IDLE_AFTER: Duration = Duration::from_millis(200);

pub(crate) struct Fixture {
    inner: windlass_suite::TestEnvironment,
    probes_created: AtomicUsize,
    /// Those of the last started controller.
    outcomes: Mutex<Arc<OutcomeCounters>>,
}

impl Deref for Fixture {
    type Target = windlass_suite::TestEnvironment;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

/// The rights in rbac.yaml.
pub(crate) fn shipped() -> ManifestRoles {
    ManifestRoles::parse(include_str!("../../rbac.yaml")).expect("a manifest of roles")
}

/// Adds the controller, as in `main`.
pub(crate) fn add_controller(manager: Manager) -> Manager {
    manager
        .install(CrdInstaller::new([Foo::crd()]))
        .controller(windlass_foo::controller())
}

impl Fixture {
    pub(crate) async fn new(case: &Case) -> anyhow::Result<Self> {
        Self::with(case, &shipped()).await
    }

    pub(crate) async fn with(case: &Case, rights: &ManifestRoles) -> anyhow::Result<Self> {
        install_crds(case, [Foo::crd()]).await?;
        let client = rights.client(case).await?;
        Ok(Self::of(windlass_suite::TestEnvironment::with_client(
            case, &client,
        )))
    }

    pub(crate) fn of(inner: windlass_suite::TestEnvironment) -> Self {
        Self {
            inner,
            probes_created: AtomicUsize::new(0),
            outcomes: Mutex::default(),
        }
    }

    pub(crate) fn start(&self) -> RunningManager {
        let controller = windlass_foo::controller();
        *self.outcomes.lock().unwrap_or_else(PoisonError::into_inner) = controller.outcomes();
        let manager = self.manager().install(CrdInstaller::new([Foo::crd()]));
        RunningManager::start(manager.controller(controller))
    }

    pub(crate) fn outcomes(&self) -> Arc<OutcomeCounters> {
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&outcomes)
    }

    pub(crate) async fn create_foo(
        &self,
        name: &str,
        deployment: &str,
        replicas: Option<i32>,
    ) -> kube::Result<Foo> {
        let spec = FooSpec {
            deployment_name: deployment.to_owned(),
            replicas,
        };
        self.create(Foo::new(name, spec)).await
    }

    /// Waits until the Foo has a status.
    pub(crate) async fn wait_for_status(&self, foo: &str) -> anyhow::Result<Arc<Foo>> {
        self.wait_for::<Foo>(foo, |foo| foo.status.is_some()).await
    }

    /// Waits until everything so far has been processed: until a new Foo is reconciled and the controller is idle.
    pub(crate) async fn wait_until_processed(&self) -> anyhow::Result<()> {
        let name = format!("settle-{}", self.probes_created.fetch_add(1, Ordering::Relaxed));
        self.create_foo(&name, &name, None).await?;
        self.wait_for_status(&name).await?;
        self.proxy().wait_until_idle(IDLE_AFTER).await;
        Ok(())
    }

    /// The controller's writes to objects of these names, in order, without events.
    pub(crate) fn writes_about(&self, names: &[&str]) -> Vec<String> {
        let writes = self.proxy().writes();
        let about = writes
            .iter()
            .filter(|write| write.resource() != "events" && names.contains(&write.name()));
        about.map(ToString::to_string).collect()
    }

    /// Waits long enough to notice a retry loop: a minute on a paused clock.
    pub(crate) async fn wait_for_retries(&self) {
        let seconds = match self.case().cluster().backend() {
            Backend::Embedded => 60,
            _ => 2,
        };
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
}

pub(crate) fn spec(deployment: &Deployment) -> &DeploymentSpec {
    let spec = deployment.spec.as_ref();
    spec.expect("the server stores no Deployment without a spec")
}

pub(crate) fn image(deployment: &Deployment) -> Option<&str> {
    let containers = &spec(deployment).template.spec.as_ref()?.containers;
    let nginx = containers.iter().find(|container| container.name == "nginx");
    nginx?.image.as_deref()
}
