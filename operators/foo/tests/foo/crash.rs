//! Crashes at any request, and restarts.

use serde_json::{Value, json};
use windlass::{k8s_openapi::api::apps::v1::Deployment, kube::Client, prelude::*};
use windlass_cluster::Backend;
use windlass_foo::Foo;
use windlass_suite::{
    Context as Case, CrashScenario, ManifestRoles, RecordedRequest, Snapshot, TestEnvironment as Namespace,
    crash_at_every_request, install_crds,
};

use crate::foo::fixture::{Fixture, IDLE_AFTER, add_controller, shipped, spec};

/// A Foo is created.
struct CreateScenario(ManifestRoles);

impl CrashScenario for CreateScenario {
    async fn client(&self, case: &Case) -> anyhow::Result<Client> {
        self.0.client(case).await
    }

    async fn prepare(&self, namespace: &Namespace) -> anyhow::Result<()> {
        let env = Fixture::of(namespace.clone());
        env.create_foo("example", "web", Some(2)).await?;
        env.wait_for::<Foo>("example", |_| true).await?;
        Ok(())
    }

    fn controllers(&self, manager: Manager) -> Manager {
        add_controller(manager)
    }

    async fn wait_until_done(&self, namespace: &Namespace) -> anyhow::Result<()> {
        Fixture::of(namespace.clone()).wait_for_status("example").await?;
        Ok(())
    }

    async fn end_state(&self, namespace: &Namespace) -> anyhow::Result<Value> {
        state(namespace).await
    }

    fn may_write(&self, write: &RecordedRequest) -> bool {
        let is_ours = write.is_about("deployments", "web") && write.access.verb == "patch";
        is_ours || is_of_every_sync(write)
    }
}

/// While the controller was stopped, a Foo was renamed and scaled, and another Foo's Deployment was modified.
struct RenameScenario(ManifestRoles);

impl CrashScenario for RenameScenario {
    async fn client(&self, case: &Case) -> anyhow::Result<Client> {
        self.0.client(case).await
    }

    async fn prepare(&self, namespace: &Namespace) -> anyhow::Result<()> {
        let before = Fixture::of(Namespace::new(namespace.case()));
        let running = before.start();
        for name in ["example", "other"] {
            before.create_foo(name, &format!("{name}-web"), Some(2)).await?;
            before.wait_for_status(name).await?;
        }
        before.proxy().wait_until_idle(IDLE_AFTER).await;
        running.stop().await?;
        let renamed = json!({ "spec": { "deploymentName": "renamed", "replicas": 3 } });
        before.patch::<Foo>("example", renamed).await?;
        let tampered = json!({ "spec": { "replicas": 9 } });
        before.patch::<Deployment>("other-web", tampered).await?;
        let is_tampered = |web: &Deployment| spec(web).replicas == Some(9);
        before.wait_for::<Deployment>("other-web", is_tampered).await?;
        before
            .wait_for::<Foo>("example", |foo| foo.spec.deployment_name == "renamed")
            .await?;
        Ok(())
    }

    fn controllers(&self, manager: Manager) -> Manager {
        add_controller(manager)
    }

    async fn wait_until_done(&self, env: &Namespace) -> anyhow::Result<()> {
        env.wait_for::<Deployment>("renamed", |_| true).await?;
        env.wait_until_deleted::<Deployment>("example-web").await?;
        let repaired = |web: &Deployment| spec(web).replicas == Some(2);
        env.wait_for::<Deployment>("other-web", repaired).await?;
        Ok(())
    }

    async fn end_state(&self, namespace: &Namespace) -> anyhow::Result<Value> {
        state(namespace).await
    }

    fn may_write(&self, write: &RecordedRequest) -> bool {
        let web = match &*write.access.verb {
            "patch" => write.is_about("deployments", "renamed") || write.is_about("deployments", "other-web"),
            // With a UID precondition.
            "delete" => {
                write.is_about("deployments", "example-web") && write.body["preconditions"]["uid"].is_string()
            }
            _ => false,
        };
        web || is_of_every_sync(write)
    }
}

async fn state(namespace: &Namespace) -> anyhow::Result<Value> {
    let snapshot = Snapshot::new(namespace).with::<Foo>(namespace).await?;
    Ok(snapshot.with::<Deployment>(namespace).await?.finish())
}

fn is_of_every_sync(write: &RecordedRequest) -> bool {
    let is_status = write.resource() == "foos" && write.subresource() == "status";
    is_status || write.resource() == "events"
}

pub(crate) async fn new_foo_survives_a_crash_at_any_request(case: Case) -> anyhow::Result<()> {
    install_crds(&case, [Foo::crd()]).await?;
    check_crashes(&case, &CreateScenario(shipped())).await
}

pub(crate) async fn renamed_foo_survives_a_crash_at_any_request(case: Case) -> anyhow::Result<()> {
    install_crds(&case, [Foo::crd()]).await?;
    check_crashes(&case, &RenameScenario(shipped())).await
}

async fn check_crashes(case: &Case, scenario: &impl CrashScenario) -> anyhow::Result<()> {
    let report = crash_at_every_request(case, scenario).await?;
    assert!(report.requests >= 5, "{report:?}");
    if case.cluster().backend() == Backend::Embedded {
        assert_eq!(
            report.crashes,
            2 * report.requests,
            "before and after each request"
        );
    }
    Ok(())
}
