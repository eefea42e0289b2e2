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
use windlass_suite::{Context as Case, RunningManager, STEP_TIMEOUT};

use crate::runtime::{
    fixture::{Fixture, lock},
    garden::Garden,
};

async fn reconcile(request: Request, ctx: Context) -> Result<Action, Error> {
    let Some(garden) = ctx.lister::<Garden>()?.get(&request.key) else {
        return Ok(Action::done());
    };
    let beds = garden.spec.beds.len();
    let saw = format!("saw {beds} beds");
    ctx.recorder().normal(&garden, "Walked", saw);
    Ok(Action::done())
}

pub(crate) async fn reconcile_records_events_and_counts_repeats(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let walker = Controller::<Garden>::new("walker")
        .field_manager("garden-walker")
        .reconcile(reconcile);
    let running = RunningManager::start(env.manager().controller(walker));
    let garden = env.garden("kitchen", &["herbs"]).await?;
    let seen = |event: &Event| event.reason.as_deref() == Some("Walked");
    let event = env.wait_for_event(&garden, seen).await?;
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    assert_eq!(event.message.as_deref(), Some("saw 1 beds"));
    let source = event.source.and_then(|source| source.component);
    assert_eq!(source.as_deref(), Some("garden-walker"));
    assert_eq!(
        (event.involved_object.kind.as_deref(), event.count),
        (Some("Garden"), Some(1))
    );

    // A repeated event increases the count.
    env.patch::<Garden>(
        "kitchen",
        json!({ "metadata": { "annotations": { "again": "yes" } } }),
    )
    .await?;
    let again = env
        .wait_for_event(&garden, |event| seen(event) && event.count == Some(2))
        .await?;
    assert_eq!(again.metadata.name, event.metadata.name);
    running.stop().await
}

pub(crate) async fn predicate_filters_updates_but_not_deletions(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let seen = Arc::<Mutex<Vec<(String, Option<i64>)>>>::default();
    let log = Arc::clone(&seen);
    let watch = Watch::<Garden>::new().filter(Predicate::generation_changed());
    let walker = Controller::from_watch("walker", watch).reconcile(move |request: Request, ctx: Context| {
        let log = Arc::clone(&log);
        async move {
            let garden = ctx.lister::<Garden>()?.get(&request.key);
            let generation = garden.and_then(|garden| garden.metadata.generation);
            lock(&log).push((request.key.name().to_owned(), generation));
            Ok(Action::done())
        }
    });
    let running = RunningManager::start(env.manager().controller(walker));
    let of = |name: &str| -> Vec<_> {
        let seen = lock(&seen);
        seen.iter()
            .filter(|(seen, _)| seen == name)
            .map(|(_, generation)| *generation)
            .collect()
    };
    // Changes are delivered in order: when the marker is reconciled, so is everything before it.
    let marked = async |marker: &str| {
        env.garden(marker, &[]).await?;
        let seen = async {
            while of(marker).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        anyhow::Ok(tokio::time::timeout(STEP_TIMEOUT, seen).await?)
    };
    env.garden("kitchen", &["herbs"]).await?;
    marked("first").await?;
    assert_eq!(of("kitchen"), [Some(1)]);
    env.patch::<Garden>(
        "kitchen",
        json!({ "metadata": { "annotations": { "visited": "yes" } } }),
    )
    .await?;
    marked("second").await?;
    assert_eq!(of("kitchen"), [Some(1)], "the spec did not change");
    env.patch::<Garden>("kitchen", json!({ "spec": { "beds": [] } }))
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

pub(crate) async fn dynamic_kind_works_like_a_typed_one(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let gardens = ApiResource::erase::<Garden>(&());
    let kind = gardens.clone();
    let gardener = Controller::from_watch("gardener", Watch::<DynamicObject>::dynamic(gardens))
        .owns::<ConfigMap>()
        .declare(move |garden: Arc<DynamicObject>, ctx: Context| {
            let kind = kind.clone();
            async move {
                let listed = ctx.dynamic_lister::<DynamicObject>(&kind)?.len();
                let bed = garden.data["spec"]["beds"][0].clone();
                let child: ConfigMap = from_value(json!({
                    "metadata": { "name": garden.name_any() },
                    "data": { "bed": bed, "gardens": listed.to_string() },
                }))?;
                Ok(Desired::new().child(child).status(json!({ "planted": 1 })))
            }
        });
    let running = RunningManager::start(env.manager().controller(gardener));
    let garden = env.garden("kitchen", &["herbs"]).await?;
    let status = |garden: &Garden| garden.status.as_ref().map(|status| status.planted);
    env.wait_for::<Garden>("kitchen", |garden| status(garden) == Some(1))
        .await?;
    let child = env.get::<ConfigMap>("kitchen").await?;
    assert_eq!(json!(child.data), json!({ "bed": "herbs", "gardens": "1" }));
    assert_eq!(
        Some(&child.owner_references()[0].uid),
        garden.metadata.uid.as_ref()
    );
    running.stop().await
}
