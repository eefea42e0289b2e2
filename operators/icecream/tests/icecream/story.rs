//! The controller is stopped at each of its requests, and goes on as if nothing had been.

use serde_json::{Value, json};
use windlass::{
    k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod},
    kube::Client,
    prelude::*,
    runtime::APPLIED,
};
use windlass_icecream::{FLAVOR, Icecream, IcecreamSpec, controller};
use windlass_rights::Rule;
use windlass_suite::{Context as Case, Sent, Shipped, Snapshot, Story, World, at_every_request, install};

use crate::stand::{RIGHTS, pod};

/// An Icecream of a flavor comes, finds two pods, and is given another Deployment's name. Another one wants a name that
/// is taken.
struct Summer {
    shipped: Shipped,
}

impl Story for Summer {
    async fn client(&self, case: &Case) -> anyhow::Result<Client> {
        self.shipped.client(case).await
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
            let metadata = json!({ "name": name, "labels": { FLAVOR: "mint" } });
            world.create(pod(metadata, node)).await?;
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
        let mut state = snapshot.with::<Pod>(world).await?.take();
        for object in state.as_array_mut().into_iter().flatten() {
            // A fingerprint of, among others, uids.
            if let Some(applied) = object.pointer_mut("/metadata/annotations") {
                applied[APPLIED] = Value::Null;
            }
        }
        Ok(state)
    }

    fn may_write(&self, write: &Sent) -> bool {
        match write.resource() {
            "icecreams" => write.part() == "status" && write.name() == "example",
            "deployments" => match write.name() {
                "scoops" | "renamed" => true,
                _ => false,
            },
            "events" => true,
            _ => false,
        }
    }
}

/// With exactly the rights that are shipped: none is missing, and none is never used.
pub(crate) async fn it_comes_to_the_same_end_wherever_it_is_stopped(case: Case) -> anyhow::Result<()> {
    install(&case, [Icecream::crd()]).await?;
    let summer = Summer {
        shipped: Shipped::read(RIGHTS)?,
    };
    let told = at_every_request(&case, &summer).await?;
    assert!(told.deaths > 10, "{told:?}");
    assert_eq!(summer.shipped.refused(), [""; 0]);
    // Servers that do not stream lists are asked for them; who applies what is not there needs to be allowed to create.
    let spare = |rule: &Rule| rule.verbs.iter().all(|verb| verb == "list" || verb == "create");
    let unused = summer.shipped.unused();
    assert!(unused.iter().all(spare), "rights that nobody uses: {unused:?}");
    Ok(())
}
