//! The controller is stopped at each of its requests and goes on as if nothing had been, with the rights it ships with.

use http::StatusCode;
use serde_json::{Value, json};
use windlass::{
    k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod},
    kube::Client,
    prelude::*,
    runtime::{ElectionConfig, Install},
};
use windlass_cluster::Backend;
use windlass_icecream::{Icecream, IcecreamSpec, controller};
use windlass_suite::{Context as Case, Sent, Shipped, Snapshot, Story, World, at_every_request, install};

use crate::stand::{Stand, of_flavor, pod, shipped};

/// An Icecream of a flavor comes, finds two pods, and is given another Deployment's name. Another one wants a name that
/// is taken.
struct Summer(Shipped);

impl Story for Summer {
    async fn client(&self, case: &Case) -> anyhow::Result<Client> {
        self.0.client(case).await
    }

    async fn prepare(&self, world: &World) -> anyhow::Result<()> {
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
        world.create(theirs).await?;
        for (name, node) in [("two", "north"), ("one", "south")] {
            world.create(pod(name, of_flavor("mint"), node)).await?;
        }
        for (name, deployment) in [("example", "scoops"), ("late", "theirs")] {
            let spec = IcecreamSpec {
                deployment_name: deployment.to_owned(),
                replicas: Some(2),
                flavor: Some("mint".to_owned()),
            };
            world.create(Icecream::new(name, spec)).await?;
        }
        Ok(())
    }

    fn controllers(&self, manager: Manager) -> Manager {
        let manager = manager.install(Install::new([Icecream::crd()]));
        manager.controller(controller())
    }

    async fn done(&self, world: &World) -> anyhow::Result<()> {
        let synced = |icecream: &Icecream| {
            let status = icecream.status.as_ref();
            status.is_some_and(|status| status.pod_names == ["one", "two"])
        };
        let icecream = world.wait_for::<Icecream>("example", synced).await?;
        world
            .patch::<Icecream>("example", json!({ "spec": { "deploymentName": "renamed" } }))
            .await?;
        world.wait_for::<Deployment>("renamed", |_| true).await?;
        world.wait_gone::<Deployment>("scoops").await?;
        world
            .told(&*icecream, |event| event.reason.as_deref() == Some("Synced"))
            .await?;
        let late = world.get::<Icecream>("late").await?;
        world
            .told(&late, |event| {
                event.reason.as_deref() == Some("ErrResourceExists")
            })
            .await?;
        Ok(())
    }

    async fn state(&self, world: &World) -> anyhow::Result<Value> {
        let snapshot = Snapshot::new(world).with::<Icecream>(world).await?;
        let snapshot = snapshot.with::<Deployment>(world).await?;
        Ok(snapshot.with::<Pod>(world).await?.take())
    }

    fn may_write(&self, write: &Sent) -> bool {
        match write.resource() {
            "icecreams" => write.part() == "status" && write.name() == "example",
            "deployments" => match &*write.access.verb {
                "patch" => ["scoops", "renamed"].contains(&write.name()),
                // Exactly the one that it looked at.
                "delete" => write.name() == "scoops" && write.body["preconditions"]["uid"].is_string(),
                _ => false,
            },
            "events" => true,
            _ => false,
        }
    }
}

pub(crate) async fn it_comes_to_the_same_end_wherever_it_is_stopped(case: Case) -> anyhow::Result<()> {
    install(&case, [Icecream::crd()]).await?;
    let told = at_every_request(&case, &Summer(shipped())).await?;
    assert!(told.requests > 10, "{told:?}");
    if case.cluster().backend() == Backend::Embedded {
        assert_eq!(told.deaths, 2 * told.requests, "at every one, before and after");
    }
    Ok(())
}

/// All cases run with the rights that are shipped. Here is a life in which each of them is needed.
pub(crate) async fn the_roles_are_enough_and_nothing_in_them_is_idle(case: Case) -> anyhow::Result<()> {
    let rights = shipped();
    let mut stand = Stand::under(&case, &rights).await?;
    // A server that does not stream lists is asked for them.
    let streams = |sent: &Sent| sent.access.verb == "watch";
    stand.wire().refuse(3, StatusCode::UNPROCESSABLE_ENTITY, streams);
    stand.start_with(stand.manager().elect(ElectionConfig::new("icecream")));
    let spec = json!({ "deploymentName": "scoops", "flavor": "mint" });
    stand.icecream("example", spec).await?;
    stand.pod("one", of_flavor("mint"), "north", 1).await?;
    stand.tells("example", &["one"]).await?;
    let renamed = json!({ "spec": { "deploymentName": "renamed" } });
    stand.patch::<Icecream>("example", renamed).await?;
    stand.wait_gone::<Deployment>("scoops").await?;
    let first = stand.wait_for::<Deployment>("renamed", |_| true).await?;
    stand.delete::<Deployment>("renamed").await?;
    let is_another = |now: &Deployment| now.uid() != first.uid();
    stand.wait_for("renamed", is_another).await?;
    stand.close().await?;
    assert_eq!(rights.refused(), [""; 0]);
    assert_eq!(rights.unused(), [], "granted, and nobody needs it");
    Ok(())
}
