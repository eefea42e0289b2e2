//! The imperative style.

use std::{sync::Mutex, time::Duration};

use windlass::{
    k8s_openapi::api::core::v1::{ConfigMap, Event},
    kube::{
        api::DeleteParams,
        core::{ApiResource, DynamicObject},
    },
    prelude::*,
};
use windlass_suite::{Context as Case, DEADLINE, Running};

use crate::{
    garden::Garden,
    world::{World, lock},
};

async fn walk(request: Request, ctx: Context) -> Result<Action, Error> {
    let Some(garden) = ctx.lister::<Garden>()?.get(&request.key) else {
        return Ok(Action::done());
    };
    let beds = garden.spec.beds.len();
    let saw = format!("saw {beds} beds");
    ctx.recorder().normal(&garden, "Walked", saw);
    Ok(Action::done())
}

pub(crate) async fn what_was_done_is_told_where_people_look(case: Case) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let walker = Controller::<Garden>::new("walker")
        .component("garden-walker")
        .reconcile(walk);
    let running = Running::start(world.manager().controller(walker));
    let garden = world.garden("kitchen", &["herbs"]).await?;
    let seen = |event: &Event| event.reason.as_deref() == Some("Walked");
    let event = world.told(&garden, seen).await?;
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    assert_eq!(event.message.as_deref(), Some("saw 1 beds"));
    let source = event.source.and_then(|source| source.component);
    assert_eq!(source.as_deref(), Some("garden-walker"));
    assert_eq!(
        (event.involved_object.kind.as_deref(), event.count),
        (Some("Garden"), Some(1))
    );

    // Again is one more of the same, not another.
    world
        .patch::<Garden>(
            "kitchen",
            json!({ "metadata": { "annotations": { "again": "yes" } } }),
        )
        .await?;
    let again = world
        .told(&garden, |event| seen(event) && event.count == Some(2))
        .await?;
    assert_eq!(again.metadata.name, event.metadata.name);
    running.stop().await
}

pub(crate) async fn only_changes_that_pass_a_predicate_trigger_and_deletions_always(
    case: Case,
) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let seen = Arc::<Mutex<Vec<(String, Option<i64>)>>>::default();
    let log = Arc::clone(&seen);
    let watch = Watch::<Garden>::new().when(Predicate::generation_changed());
    let walker = Controller::of("walker", watch).reconcile(move |request: Request, ctx: Context| {
        let log = Arc::clone(&log);
        async move {
            let garden = ctx.lister::<Garden>()?.get(&request.key);
            let generation = garden.and_then(|garden| garden.metadata.generation);
            lock(&log).push((request.key.name().to_owned(), generation));
            Ok(Action::done())
        }
    });
    let running = Running::start(world.manager().controller(walker));
    let of = |name: &str| -> Vec<_> {
        let seen = lock(&seen);
        seen.iter()
            .filter(|(seen, _)| seen == name)
            .map(|(_, generation)| *generation)
            .collect()
    };
    // Changes come in order: when the marker is seen, so is all that went before it.
    let marked = async |marker: &str| {
        world.garden(marker, &[]).await?;
        let seen = async {
            while of(marker).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        anyhow::Ok(tokio::time::timeout(DEADLINE, seen).await?)
    };
    world.garden("kitchen", &["herbs"]).await?;
    marked("first").await?;
    assert_eq!(of("kitchen"), [Some(1)]);
    world
        .patch::<Garden>(
            "kitchen",
            json!({ "metadata": { "annotations": { "visited": "yes" } } }),
        )
        .await?;
    marked("second").await?;
    assert_eq!(of("kitchen"), [Some(1)], "the spec is as it was");
    world
        .patch::<Garden>("kitchen", json!({ "spec": { "beds": [] } }))
        .await?;
    marked("third").await?;
    assert_eq!(of("kitchen"), [Some(1), Some(2)]);
    case.api::<Garden>()
        .delete("kitchen", &DeleteParams::default())
        .await?;
    marked("fourth").await?;
    assert_eq!(of("kitchen"), [Some(1), Some(2), None]);
    running.stop().await
}

pub(crate) async fn a_kind_that_is_known_at_run_time_works_like_a_typed_one(
    case: Case,
) -> anyhow::Result<()> {
    let world = World::new(&case).await?;
    let gardens = ApiResource::erase::<Garden>(&());
    let kind = gardens.clone();
    let gardener = Controller::of("gardener", Watch::<DynamicObject>::dynamic(gardens))
        .owns::<ConfigMap>()
        .declare(move |garden: Arc<DynamicObject>, ctx: Context| {
            let kind = kind.clone();
            async move {
                let listed = ctx.lister_of::<DynamicObject>(&kind)?.len();
                let bed = garden.data["spec"]["beds"][0].clone();
                let child: ConfigMap = from_value(json!({
                    "metadata": { "name": garden.name_any() },
                    "data": { "bed": bed, "gardens": listed.to_string() },
                }))?;
                Ok(Desired::new().child(child).status(json!({ "planted": 1 })))
            }
        });
    let running = Running::start(world.manager().controller(gardener));
    let garden = world.garden("kitchen", &["herbs"]).await?;
    let status = |garden: &Garden| garden.status.as_ref().map(|status| status.planted);
    world
        .wait_for::<Garden>("kitchen", |garden| status(garden) == Some(1))
        .await?;
    let child = world.get::<ConfigMap>("kitchen").await?;
    assert_eq!(json!(child.data), json!({ "bed": "herbs", "gardens": "1" }));
    assert_eq!(
        Some(&child.owner_references()[0].uid),
        garden.metadata.uid.as_ref()
    );
    running.stop().await
}
