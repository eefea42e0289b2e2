//! Crashes at each request, and the minimal rights.

use http::StatusCode;
use serde_json::{Value, json};
use windlass::{
    k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod},
    kube::Client,
    prelude::*,
    runtime::{CrdInstaller, ElectionConfig},
};
use windlass_cluster::Backend;
use windlass_icecream::{Icecream, IcecreamSpec, controller};
use windlass_suite::{
    Context as Case, CrashScenario, ManifestRoles, RecordedRequest, Snapshot, TestEnvironment,
    crash_at_every_request, install_crds,
};

use crate::icecream::fixture::{Fixture, flavor_label, pod, shipped};

/// An Icecream with two pods is created, and its Deployment renamed. A second one asks for a name that is taken.
struct RenameScenario(ManifestRoles);

impl CrashScenario for RenameScenario {
    async fn client(&self, case: &Case) -> anyhow::Result<Client> {
        self.0.client(case).await
    }

    async fn prepare(&self, env: &TestEnvironment) -> anyhow::Result<()> {
        let theirs: Deployment = serde_json::from_value(json!({
            "metadata": { "name": "theirs" },
            "spec": {
                "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "containers": [{ "name": "web", "image": "web" }] },
                },
            },
        }))?;
        env.create(theirs).await?;
        for (name, node) in [("two", "north"), ("one", "south")] {
            env.create(pod(name, flavor_label("mint"), node)).await?;
        }
        for (name, deployment) in [("example", "scoops"), ("late", "theirs")] {
            let spec = IcecreamSpec {
                deployment_name: deployment.to_owned(),
                replicas: Some(2),
                flavor: Some("mint".to_owned()),
            };
            env.create(Icecream::new(name, spec)).await?;
        }
        Ok(())
    }

    fn controllers(&self, manager: Manager) -> Manager {
        let manager = manager.install(CrdInstaller::new([Icecream::crd()]));
        manager.controller(controller())
    }

    async fn wait_until_done(&self, env: &TestEnvironment) -> anyhow::Result<()> {
        let synced = |icecream: &Icecream| {
            let status = icecream.status.as_ref();
            status.is_some_and(|status| status.pod_names == ["one", "two"])
        };
        let icecream = env.wait_for::<Icecream>("example", synced).await?;
        env.patch::<Icecream>("example", json!({ "spec": { "deploymentName": "renamed" } }))
            .await?;
        env.wait_for::<Deployment>("renamed", |_| true).await?;
        env.wait_until_deleted::<Deployment>("scoops").await?;
        env.wait_for_event(&*icecream, |event| event.reason.as_deref() == Some("Synced"))
            .await?;
        let late = env.get::<Icecream>("late").await?;
        env.wait_for_event(&late, |event| {
            event.reason.as_deref() == Some("ErrResourceExists")
        })
        .await?;
        Ok(())
    }

    async fn end_state(&self, env: &TestEnvironment) -> anyhow::Result<Value> {
        let snapshot = Snapshot::new(env).with::<Icecream>(env).await?;
        let snapshot = snapshot.with::<Deployment>(env).await?;
        Ok(snapshot.with::<Pod>(env).await?.finish())
    }

    fn may_write(&self, write: &RecordedRequest) -> bool {
        match write.resource() {
            "icecreams" => write.subresource() == "status" && write.name() == "example",
            "deployments" => match &*write.access.verb {
                "patch" => ["scoops", "renamed"].contains(&write.name()),
                // With a UID precondition.
                "delete" => write.name() == "scoops" && write.body["preconditions"]["uid"].is_string(),
                _ => false,
            },
            "events" => true,
            _ => false,
        }
    }
}

pub(crate) async fn crash_at_any_request_leads_to_the_same_state(case: Case) -> anyhow::Result<()> {
    install_crds(&case, [Icecream::crd()]).await?;
    let report = crash_at_every_request(&case, &RenameScenario(shipped())).await?;
    assert!(report.requests > 10, "{report:?}");
    if case.cluster().backend() == Backend::Embedded {
        assert_eq!(
            report.crashes,
            2 * report.requests,
            "before and after each request"
        );
    }
    Ok(())
}

/// All cases run with the shipped rights. This one needs each of them.
pub(crate) async fn shipped_rights_are_sufficient_and_minimal(case: Case) -> anyhow::Result<()> {
    let rights = shipped();
    let mut fixture = Fixture::with_rights(&case, &rights).await?;
    // A server without streaming lists makes the caches list.
    let streams = |sent: &RecordedRequest| sent.access.verb == "watch";
    fixture
        .proxy()
        .reject(3, StatusCode::UNPROCESSABLE_ENTITY, streams);
    fixture.start_with(fixture.manager().elect(ElectionConfig::new("icecream")));
    fixture.create_example().await?;
    fixture
        .create_pod("one", flavor_label("mint"), "north", 1)
        .await?;
    fixture.wait_for_pods("example", &["one"]).await?;
    let renamed = json!({ "spec": { "deploymentName": "renamed" } });
    fixture.patch::<Icecream>("example", renamed).await?;
    fixture.wait_until_deleted::<Deployment>("scoops").await?;
    let first = fixture.wait_for::<Deployment>("renamed", |_| true).await?;
    fixture.delete::<Deployment>("renamed").await?;
    let is_another = |now: &Deployment| now.uid() != first.uid();
    fixture.wait_for("renamed", is_another).await?;
    fixture.stop().await?;
    assert_eq!(rights.forbidden(), [""; 0]);
    assert_eq!(rights.unused(), [], "unused rights");
    Ok(())
}
