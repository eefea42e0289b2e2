//! One case's namespace with the controller in it, which has the rights that it ships with.

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
    runtime::{Install, Outcomes},
};
use windlass_cluster::Backend;
use windlass_foo::{Foo, FooSpec};
use windlass_suite::{Context as Case, Running, Shipped, install};

/// Nobody who has something to do is silent for so long.
pub(crate) const QUIET: Duration = Duration::from_millis(200);

pub(crate) struct World {
    inner: windlass_suite::World,
    settled: AtomicUsize,
    /// Of the controller that was started last.
    outcomes: Mutex<Arc<Outcomes>>,
}

impl Deref for World {
    type Target = windlass_suite::World;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

/// The rights that the controller ships with.
pub(crate) fn shipped() -> Shipped {
    Shipped::read(include_str!("../../rbac.yaml")).expect("a manifest of roles")
}

/// Adds the controller as the program does.
pub(crate) fn foo(manager: Manager) -> Manager {
    manager
        .install(Install::new([Foo::crd()]))
        .controller(windlass_foo::controller())
}

impl World {
    pub(crate) async fn new(case: &Case) -> anyhow::Result<Self> {
        Self::with(case, &shipped()).await
    }

    pub(crate) async fn with(case: &Case, rights: &Shipped) -> anyhow::Result<Self> {
        install(case, [Foo::crd()]).await?;
        let client = rights.client(case).await?;
        Ok(Self::of(windlass_suite::World::of(case, &client)))
    }

    pub(crate) fn of(inner: windlass_suite::World) -> Self {
        Self {
            inner,
            settled: AtomicUsize::new(0),
            outcomes: Mutex::default(),
        }
    }

    pub(crate) fn start(&self) -> Running {
        let controller = windlass_foo::controller();
        *self.outcomes.lock().unwrap_or_else(PoisonError::into_inner) = controller.outcomes();
        let manager = self.manager().install(Install::new([Foo::crd()]));
        Running::start(manager.controller(controller))
    }

    pub(crate) fn outcomes(&self) -> Arc<Outcomes> {
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

    /// Waits until the Foo says what became of it.
    pub(crate) async fn synced(&self, foo: &str) -> anyhow::Result<Arc<Foo>> {
        self.wait_for::<Foo>(foo, |foo| foo.status.is_some()).await
    }

    /// Returns when everything that has happened so far has had its effect: a Foo that is made now has been dealt with, and
    /// nothing is on its way any more.
    pub(crate) async fn settle(&self) -> anyhow::Result<()> {
        let name = format!("settle-{}", self.settled.fetch_add(1, Ordering::Relaxed));
        self.create_foo(&name, &name, None).await?;
        self.synced(&name).await?;
        self.wire().quiet(QUIET).await;
        Ok(())
    }

    /// The controller's writes to objects of these names, in order. Events are not among them.
    pub(crate) fn writes_about(&self, names: &[&str]) -> Vec<String> {
        let writes = self.wire().writes();
        let about = writes
            .iter()
            .filter(|write| write.resource() != "events" && names.contains(&write.name()));
        about.map(ToString::to_string).collect()
    }

    /// A while that shows whether something is done again and again: a minute where that costs nothing.
    pub(crate) async fn a_while(&self) {
        let seconds = match self.case().cluster().backend() {
            Backend::Embedded => 60,
            _ => 2,
        };
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
}

pub(crate) fn spec(deployment: &Deployment) -> &DeploymentSpec {
    let spec = deployment.spec.as_ref();
    spec.expect("the server keeps no Deployment without one")
}

pub(crate) fn image(deployment: &Deployment) -> Option<&str> {
    let containers = &spec(deployment).template.spec.as_ref()?.containers;
    let nginx = containers.iter().find(|container| container.name == "nginx");
    nginx?.image.as_deref()
}
