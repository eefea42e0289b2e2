//! A death at any request of a fan-out and of its end, and the process that comes after.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use windlass::{
    k8s_openapi::api::core::v1::Secret,
    kube::{Client, ResourceExt, api::ListParams},
    prelude::*,
    serde_json::Value,
};
use windlass_cluster::Backend;
use windlass_secretsync::{
    SecretSync,
    api::{SOURCE_UID, SYNCED_BY},
};
use windlass_suite::{Context as Case, Running, Sent, Story, World as Inner, at_every_request, at_requests};

use crate::world::{HOME, World, is_work, namespace_of, secret, shipped, spelled};

/// From both front ends, into so many namespaces, one of which has a secret of its own in the way.
struct Spread {
    namespaces: usize,
    /// How often each copy was written, over both lives.
    writes: Mutex<BTreeMap<String, usize>>,
}

/// The same taken away: the annotated source is deleted and so is the SecretSync, while nobody looks.
struct Withdrawn(Spread);

impl Spread {
    fn to(namespaces: usize) -> Self {
        Self {
            namespaces,
            writes: Mutex::default(),
        }
    }

    fn names(&self) -> impl Iterator<Item = String> {
        (0..self.namespaces).map(|number| format!("ns-{number:03}"))
    }

    /// Everything that there should be, with this value; `None`: not any more.
    fn copies(&self, value: Option<&'static str>) -> Vec<(String, &'static str, Option<&'static str>)> {
        let annotated = self.names().skip(1).map(|name| (name, "annotated", value));
        let selected = self.names().map(|name| (name, "selected", value));
        annotated.chain(selected).collect()
    }

    /// Everything that it finds.
    async fn stage(&self, world: &World) -> anyhow::Result<()> {
        self.writes.lock().clear();
        for namespace in self.names() {
            world.consenting(&[&namespace]).await?;
        }
        world.within("ns-000").create(secret("annotated", "own")).await?;
        world.source("annotated", "1").await?;
        world.within(HOME).create(secret("selected", "1")).await?;
        world
            .sync(HOME, "shared", json!({ "names": ["selected"] }))
            .await?;
        world
            .within(HOME)
            .wait_for::<SecretSync>("shared", |_| true)
            .await?;
        Ok(())
    }

    async fn spread(&self, world: &World) -> anyhow::Result<()> {
        world.all(&self.copies(Some("1"))).await?;
        let all = u32::try_from(self.namespaces)?;
        world.says(HOME, "shared", |status| status.synced == all).await?;
        Ok(())
    }

    /// Every Secret that there is: where, what it holds, and whether it has our marks.
    async fn state(&self, inner: &Inner) -> anyhow::Result<Value> {
        let all = windlass::kube::Api::<Secret>::all(inner.case().client());
        let all = all.list(&ListParams::default()).await?;
        let state = all.items.iter().map(|secret| {
            let path = format!("{}/{}", secret.namespace().unwrap_or_default(), secret.name_any());
            let marks = (
                secret.labels().contains_key(SOURCE_UID),
                secret.annotations().contains_key(SYNCED_BY),
            );
            Ok((path, json!({ "data": secret.data, "marks": marks })))
        });
        Ok(Value::Object(state.collect::<anyhow::Result<_>>()?))
    }

    /// At most one write more than it takes, over both lives.
    fn at_most_twice(&self, write: &Sent) -> bool {
        let mut writes = self.writes.lock();
        let times = writes.entry(spelled(write)).or_default();
        *times += 1;
        *times <= 2
    }

    /// What every life may write.
    fn is_telling(write: &Sent) -> bool {
        !is_work(write) || write.is_about("secretsyncs", "shared")
    }
}

/// The process of a story.
async fn process(inner: &Inner) -> anyhow::Result<Manager> {
    World::of(inner.clone(), inner.case().client()).whole().await
}

/// The world of the one who makes what is there.
async fn maker(inner: &Inner) -> anyhow::Result<World> {
    let client = inner.case().client();
    let world = World::of(Inner::of(inner.case(), &client), client);
    windlass_suite::install(inner.case(), [SecretSync::crd()]).await?;
    world.namespace(HOME, json!({})).await?;
    Ok(world)
}

impl Story for Spread {
    async fn client(&self, case: &Case) -> anyhow::Result<Client> {
        shipped().client(case).await
    }

    async fn prepare(&self, inner: &Inner) -> anyhow::Result<()> {
        self.stage(&maker(inner).await?).await
    }

    async fn manager(&self, inner: &Inner) -> anyhow::Result<Manager> {
        process(inner).await
    }

    async fn done(&self, inner: &Inner) -> anyhow::Result<()> {
        let world = World::of(inner.clone(), inner.case().client());
        self.spread(&world).await?;
        world.settle().await;
        Ok(())
    }

    async fn state(&self, inner: &Inner) -> anyhow::Result<Value> {
        Self::state(self, inner).await
    }

    fn may_write(&self, write: &Sent) -> bool {
        let copy = write.resource() == "secrets"
            && ["create", "update"].contains(&&*write.access.verb)
            && namespace_of(write).starts_with("ns-")
            && ["annotated", "selected"].contains(&write.name());
        Self::is_telling(write) || copy && self.at_most_twice(write)
    }
}

impl Story for Withdrawn {
    async fn client(&self, case: &Case) -> anyhow::Result<Client> {
        shipped().client(case).await
    }

    async fn prepare(&self, inner: &Inner) -> anyhow::Result<()> {
        let world = maker(inner).await?;
        self.0.stage(&world).await?;
        let running = Running::start(world.whole().await?);
        self.0.spread(&world).await?;
        world.settle().await;
        running.stop().await?;
        let home = world.within(HOME);
        home.delete::<Secret>("annotated").await?;
        home.delete::<SecretSync>("shared").await?;
        home.wait_gone::<Secret>("annotated").await?;
        let going = |sync: &SecretSync| sync.metadata.deletion_timestamp.is_some();
        home.wait_for::<SecretSync>("shared", going).await?;
        Ok(())
    }

    async fn manager(&self, inner: &Inner) -> anyhow::Result<Manager> {
        process(inner).await
    }

    async fn done(&self, inner: &Inner) -> anyhow::Result<()> {
        let world = World::of(inner.clone(), inner.case().client());
        world.all(&self.0.copies(None)).await?;
        world.within(HOME).wait_gone::<SecretSync>("shared").await?;
        world.settle().await;
        Ok(())
    }

    async fn state(&self, inner: &Inner) -> anyhow::Result<Value> {
        self.0.state(inner).await
    }

    fn may_write(&self, write: &Sent) -> bool {
        let delete = write.resource() == "secrets"
            && write.access.verb == "delete"
            && namespace_of(write).starts_with("ns-")
            && spelled(write) != "delete ns-000/annotated"
            // Exactly the one that it looked at.
            && write.body["preconditions"]["uid"].is_string();
        Spread::is_telling(write) || delete && self.0.at_most_twice(write)
    }
}

async fn tell(case: &Case, story: &impl Story) -> anyhow::Result<()> {
    // Where each run starts a control plane, fewer of them tell enough.
    let told = match case.cluster().backend() {
        Backend::Embedded => at_every_request(case, story).await?,
        _ => at_requests(case, story, |n| n + n + 1).await?,
    };
    assert!(told.requests >= 15, "{told:?}");
    if case.cluster().backend() == Backend::Embedded {
        assert_eq!(told.deaths, 2 * told.requests, "at every one, before and after");
    }
    Ok(())
}

/// Demand 1, at every request.
pub(crate) async fn a_fan_out_survives_every_death(case: Case) -> anyhow::Result<()> {
    tell(&case, &Spread::to(5)).await
}

/// Demand 1, at every request.
pub(crate) async fn its_end_survives_every_death(case: Case) -> anyhow::Result<()> {
    tell(&case, &Withdrawn(Spread::to(5))).await
}

/// Demand 1, in a large one.
pub(crate) async fn a_fan_out_to_200_namespaces_survives_a_death(case: Case) -> anyhow::Result<()> {
    sample(&case, &Spread::to(many(&case))).await
}

/// Demand 1, in a large one.
pub(crate) async fn the_end_of_200_copies_survives_a_death(case: Case) -> anyhow::Result<()> {
    sample(&case, &Withdrawn(Spread::to(many(&case)))).await
}

/// Fewer where making them takes longer than what is tested.
fn many(case: &Case) -> usize {
    match case.cluster().backend() {
        Backend::Embedded => 200,
        _ => 60,
    }
}

/// Here and there; where time is real, at the beginning and in the middle.
async fn sample(case: &Case, story: &impl Story) -> anyhow::Result<()> {
    let (least, told) = match case.cluster().backend() {
        Backend::Embedded => (16, at_requests(case, story, |n| n + n + 1).await?),
        _ => (
            4,
            at_requests(case, story, |n| if n == 1 { 70 } else { 900 }).await?,
        ),
    };
    assert!(told.requests > 2 * many(case) && told.deaths >= least, "{told:?}");
    Ok(())
}
