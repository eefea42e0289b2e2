//! A death at any request, and the process that comes after.

use serde_json::{Value, json};
use windlass::{k8s_openapi::api::apps::v1::Deployment, kube::Client, prelude::*};
use windlass_cluster::Backend;
use windlass_foo::Foo;
use windlass_suite::{
    Context as Case, Sent, Shipped, Snapshot, Story, World as Namespace, at_every_request, install,
};

use crate::world::{World, foo, shipped, spec};

/// Somebody creates a Foo.
struct New(Shipped);

impl Story for New {
    async fn client(&self, case: &Case) -> anyhow::Result<Client> {
        self.0.client(case).await
    }

    async fn prepare(&self, namespace: &Namespace) -> anyhow::Result<()> {
        let world = World::of(namespace.clone());
        world.create_foo("example", "web", Some(2)).await?;
        world.wait_for::<Foo>("example", |_| true).await?;
        Ok(())
    }

    fn controllers(&self, manager: Manager) -> Manager {
        foo(manager)
    }

    async fn done(&self, namespace: &Namespace) -> anyhow::Result<()> {
        World::of(namespace.clone()).synced("example").await?;
        Ok(())
    }

    async fn state(&self, namespace: &Namespace) -> anyhow::Result<Value> {
        state(namespace).await
    }

    fn may_write(&self, write: &Sent) -> bool {
        let is_ours = write.is_about("deployments", "web") && write.access.verb == "patch";
        is_ours || is_of_every_sync(write)
    }
}

/// While nobody was looking a Foo was renamed and resized, and its Deployment tampered with.
struct Renamed(Shipped);

impl Story for Renamed {
    async fn client(&self, case: &Case) -> anyhow::Result<Client> {
        self.0.client(case).await
    }

    async fn prepare(&self, namespace: &Namespace) -> anyhow::Result<()> {
        let before = World::of(Namespace::new(namespace.case()));
        let running = before.start();
        for name in ["example", "other"] {
            before.create_foo(name, &format!("{name}-web"), Some(2)).await?;
            before.synced(name).await?;
        }
        before.settle().await?;
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
        foo(manager)
    }

    async fn done(&self, world: &Namespace) -> anyhow::Result<()> {
        world.wait_for::<Deployment>("renamed", |_| true).await?;
        world.wait_gone::<Deployment>("example-web").await?;
        let repaired = |web: &Deployment| spec(web).replicas == Some(2);
        world.wait_for::<Deployment>("other-web", repaired).await?;
        Ok(())
    }

    async fn state(&self, namespace: &Namespace) -> anyhow::Result<Value> {
        state(namespace).await
    }

    fn may_write(&self, write: &Sent) -> bool {
        let web = match &*write.access.verb {
            "patch" => write.is_about("deployments", "renamed") || write.is_about("deployments", "other-web"),
            // Exactly the one that it looked at.
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
    Ok(snapshot.with::<Deployment>(namespace).await?.take())
}

fn is_of_every_sync(write: &Sent) -> bool {
    let is_status = write.resource() == "foos" && write.part() == "status";
    is_status || write.resource() == "events"
}

pub(crate) async fn a_new_foo_survives_every_death(case: Case) -> anyhow::Result<()> {
    install(&case, [Foo::crd()]).await?;
    tell(&case, &New(shipped())).await
}

pub(crate) async fn a_renamed_foo_survives_every_death(case: Case) -> anyhow::Result<()> {
    install(&case, [Foo::crd()]).await?;
    tell(&case, &Renamed(shipped())).await
}

async fn tell(case: &Case, story: &impl Story) -> anyhow::Result<()> {
    let told = at_every_request(case, story).await?;
    assert!(told.requests >= 5, "{told:?}");
    if case.cluster().backend() == Backend::Embedded {
        assert_eq!(told.deaths, 2 * told.requests, "at every one, before and after");
    }
    Ok(())
}
