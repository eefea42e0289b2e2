//! The imperative style.

use std::{sync::Mutex, time::Duration};

use windlass::{
    k8s_openapi::api::core::v1::{ConfigMap, Event},
    kube::{
        api::{DeleteParams, ListParams, Patch, PatchParams},
        core::{ApiResource, DynamicObject},
    },
    prelude::*,
    runtime::ApplyOptions,
};
use windlass_suite::{Context as Case, RunningManager, STEP_TIMEOUT};

use crate::runtime::{
    fixture::{Fixture, lock, until},
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

/// The applied ConfigMap has the name of the garden. A garden with the bed `shared` does not take fields over.
async fn apply_bed(request: Request, ctx: Context) -> Result<Action, Error> {
    let Some(garden) = ctx.lister::<Garden>()?.get(&request.key) else {
        return Ok(Action::done());
    };
    let bed: ConfigMap = from_value(json!({
        "metadata": { "name": garden.name_any(), "namespace": garden.namespace(),
            "ownerReferences": [garden.controller_owner_ref(&())] },
        "data": { "bed": garden.spec.beds[0] },
    }))?;
    let mut options = ApplyOptions::default();
    if garden.spec.beds[0] == "shared" {
        options = options.without_force();
    }
    ctx.writer().apply_with(&bed, options).await?;
    Ok(Action::done())
}

pub(crate) async fn apply_takes_fields_over_and_can_be_told_not_to(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let digger = Controller::<Garden>::new("digger").owns::<ConfigMap>();
    let manager = env.manager().controller(digger.reconcile(apply_bed));
    let controllers = manager.controllers();
    let running = RunningManager::start(manager);
    let drift = async |name: &str| {
        let theirs = json!({ "apiVersion": "v1", "kind": "ConfigMap", "data": { "bed": "weeds" } });
        let params = PatchParams::apply("kubectl").force();
        case.api::<ConfigMap>()
            .patch(name, &params, &Patch::Apply(theirs))
            .await
    };
    let bed = |expected: &'static str| {
        move |config: &ConfigMap| config.data.as_ref().is_some_and(|data| data["bed"] == expected)
    };
    env.garden("kitchen", &["herbs"]).await?;
    env.wait_for("kitchen", bed("herbs")).await?;
    drift("kitchen").await?;
    env.wait_for("kitchen", bed("herbs")).await?;

    env.garden("common", &["shared"]).await?;
    env.wait_for("common", bed("shared")).await?;
    drift("common").await?;
    let failing = async {
        loop {
            let status = controllers.status().remove(0);
            if let Some(failing) = status.failing.first() {
                return failing.last_error.clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let error = tokio::time::timeout(STEP_TIMEOUT, failing).await?;
    assert!(error.contains("conflict with \"kubectl\""), "{error}");
    assert!(error.contains("without `ApplyOptions::without_force`"), "{error}");
    assert!(bed("weeds")(&env.get("common").await?));
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

/// Rejects gardens without beds.
fn strict() -> Controller<Garden, impl Reconciler> {
    Controller::<Garden>::new("strict").reconcile(|request: Request, ctx: Context| async move {
        match ctx.lister::<Garden>()?.get(&request.key) {
            Some(garden) if garden.spec.beds.is_empty() => {
                Err(Error::terminal("spec.beds is empty: add a bed"))
            }
            _ => Ok(Action::done()),
        }
    })
}

pub(crate) async fn terminal_error_is_reported_as_an_event(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let strict = strict();
    let outcomes = strict.outcomes();
    let running = RunningManager::start(env.manager().controller(strict));
    let garden = env.garden("empty", &[]).await?;
    let event = env
        .wait_for_event(&garden, |event| event.reason.as_deref() == Some("ErrInvalid"))
        .await?;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.message.as_deref(), Some("spec.beds is empty: add a bed"));
    assert_eq!(event.involved_object.uid, garden.metadata.uid);
    until(|| outcomes.terminal() >= 1).await?;
    assert_eq!((outcomes.terminal(), event.count), (1, Some(1)));
    running.stop().await
}

pub(crate) async fn terminal_error_is_not_announced_again_after_a_restart(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let running = RunningManager::start(env.manager().controller(strict()));
    let garden = env.garden("empty", &[]).await?;
    let is_warning = |event: &Event| event.reason.as_deref() == Some("ErrInvalid");
    let first = env.wait_for_event(&garden, is_warning).await?;
    running.stop().await?;
    env.proxy().clear();
    let strict = strict();
    let outcomes = strict.outcomes();
    let running = RunningManager::start(env.manager().controller(strict));
    until(|| outcomes.terminal() >= 1).await?;
    let is_event = |sent: &windlass_suite::RecordedRequest| sent.is_write() && sent.resource() == "events";
    env.proxy().wait_until_sent(is_event).await?;
    env.proxy().wait_until_idle(Duration::from_millis(200)).await;
    running.stop().await?;
    let events = env.case().api::<Event>().list(&ListParams::default()).await?;
    let warnings: Vec<_> = events.iter().filter(|event| is_warning(event)).collect();
    assert_eq!(warnings, [&first]);
    Ok(())
}

pub(crate) async fn trigger_names_what_changed(case: Case) -> anyhow::Result<()> {
    let env = Fixture::new(&case).await?;
    let triggers = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&triggers);
    let walker =
        Controller::<Garden>::new("walker")
            .owns::<ConfigMap>()
            .reconcile(move |_: Request, ctx: Context| {
                lock(&seen).push(ctx.trigger().to_string());
                std::future::ready(Ok(Action::done()))
            });
    env.garden("early", &[]).await?;
    let running = RunningManager::start(env.manager().controller(walker));
    // Waits for the next trigger, so that changes are not combined.
    let next = async |expected: String| {
        let seen = async {
            while lock(&triggers).last() != Some(&expected) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let seen = tokio::time::timeout(STEP_TIMEOUT, seen).await;
        seen.map_err(|_| anyhow::anyhow!("{expected} is not the last of {:?}", lock(&triggers)))
    };
    let namespace = case.namespace();
    next("start".to_owned()).await?;
    let garden = env.garden("kitchen", &[]).await?;
    next(format!("Garden {namespace}/kitchen created")).await?;
    env.patch::<Garden>("kitchen", json!({ "spec": { "beds": ["herbs"] } }))
        .await?;
    next(format!("Garden {namespace}/kitchen updated")).await?;
    let bed: ConfigMap = from_value(json!({ "metadata": {
        "name": "bed", "finalizers": ["suite.windlass.dev/hold"],
        "ownerReferences": [garden.controller_owner_ref(&())],
    } }))?;
    env.create(bed).await?;
    next(format!("ConfigMap {namespace}/bed created")).await?;
    env.delete::<ConfigMap>("bed").await?;
    next(format!("ConfigMap {namespace}/bed deleting")).await?;
    env.patch::<ConfigMap>("bed", json!({ "metadata": { "finalizers": null } }))
        .await?;
    next(format!("ConfigMap {namespace}/bed deleted")).await?;
    running.stop().await
}
