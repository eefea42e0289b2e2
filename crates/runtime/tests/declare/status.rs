//! The status, and what is told.

use std::{future::ready, sync::Arc, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use windlass_runtime::{Context, Controller, Desired, Error, Finding, Manager};

use crate::{
    wire::recorded_on,
    world::{CHILD, World, config, create, one, plan, server},
};

fn replicas(count: i32) -> Value {
    json!({ "replicas": count, "observedGeneration": 1 })
}

#[tokio::test(start_paused = true)]
async fn the_status_is_written_when_it_differs_and_not_again() {
    let world = World::new(plan(|_| Desired::new().status(replicas(3)))).await;
    let status = |parent: Deployment| parent.status.expect("a status");
    let parent = || async { world.parents().get("web").await.expect("it is there") };
    assert_eq!(status(parent().await).replicas, Some(3));
    world.wire.take();
    world.touch().await;
    assert_eq!(world.writes(), Vec::<String>::new());
    *world.plan.lock() = Box::new(|_| Desired::new().status(json!({ "observedGeneration": 1 })));
    world.touch().await;
    assert_eq!(
        status(parent().await).replicas,
        None,
        "what is not said any more goes"
    );
    let world = world.restart(None).await;
    assert_eq!(world.writes(), Vec::<String>::new());
    world.stop().await;
}

/// What others write into the status is theirs, and not fought over.
#[tokio::test(start_paused = true)]
async fn a_part_of_the_status_may_be_somebody_elses() {
    let world = World::new(plan(|_| Desired::new().status(replicas(3)))).await;
    let theirs = json!({ "status": { "readyReplicas": 2 } });
    let params = PatchParams {
        field_manager: Some("other".into()),
        ..PatchParams::default()
    };
    world
        .parents()
        .patch_status("web", &params, &Patch::Merge(theirs))
        .await
        .expect("it is there");
    world.settle().await;
    world.wire.take();
    world.touch().await;
    assert_eq!(world.writes(), Vec::<String>::new());
    let status = world
        .parents()
        .get("web")
        .await
        .expect("it is there")
        .status
        .expect("a status");
    assert_eq!((status.replicas, status.ready_replicas), (Some(3), Some(2)));
    world.stop().await;
}

/// A condition is written once, says for which generation and since when, and stands beside those of others.
#[tokio::test(start_paused = true)]
async fn a_condition_is_written_when_it_changes() {
    let server = server();
    let (client, (noted, wire)) = (Client::new(server.clone(), "default"), recorded_on(server));
    let service = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    create(
        &client,
        serde_json::from_value::<Service>(service).expect("a service"),
    )
    .await;
    let found = Arc::new(Mutex::new(Finding::no("Ready", "Waiting")));
    let finding = Arc::clone(&found);
    let controller = Controller::<Service>::new("sizes").declare(move |_: Arc<Service>, _: Context| {
        ready(Ok::<_, Error>(Desired::new().condition(finding.lock().clone())))
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = Manager::new(noted).controller(controller);
    let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
    let services = Api::<Service>::namespaced(client, "default");
    let patch = |change: Value| {
        let services = services.clone();
        async move {
            let params = PatchParams::default();
            tokio::time::sleep(Duration::from_secs(2)).await;
            services
                .patch_status("web", &params, &Patch::Strategic(change))
                .await
                .expect("it is there");
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    };
    let theirs = json!({ "type": "Theirs", "status": "True", "reason": "So", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z" });
    patch(json!({ "status": { "conditions": [theirs] } })).await;
    wire.take();
    patch(json!({ "metadata": { "annotations": { "touched": "yes" } } })).await;
    assert!(
        wire.take().iter().all(|sent| sent.method == "GET"),
        "nothing changed"
    );
    *found.lock() = Finding::yes("Ready", "AllRun");
    patch(json!({ "metadata": { "annotations": { "touched": "again" } } })).await;
    let status = services
        .get("web")
        .await
        .expect("it is there")
        .status
        .expect("a status");
    let mut conditions: Vec<_> = status
        .conditions
        .into_iter()
        .flatten()
        .map(|condition| (condition.type_, condition.status))
        .collect();
    conditions.sort();
    assert_eq!(
        conditions,
        [("Ready", "True"), ("Theirs", "True")].map(|(a, b)| (a.to_owned(), b.to_owned()))
    );
    stop.send(()).expect("it runs");
    manager.await.expect("no panic").expect("no error");
}

#[tokio::test(start_paused = true)]
async fn an_event_is_recorded_once_all_is_as_it_should_be() {
    let world = World::new(plan(|_| {
        one(&Deployment::default()).event("Synced", "all is there")
    }))
    .await;
    let told = world.told("Synced").await;
    assert_eq!(told.len(), 1);
    assert_eq!(
        told[0]
            .source
            .as_ref()
            .and_then(|source| source.component.as_deref()),
        Some("sizes")
    );
    world.stop().await;
}

/// Everything that a new object costs: no look, no status that is wrong at once, no word about echoes.
#[tokio::test(start_paused = true)]
async fn a_new_object_costs_a_child_a_status_and_an_event() {
    let server = server();
    let (client, (noted, wire)) = (Client::new(server.clone(), "default"), recorded_on(server));
    let controller = Controller::<Service>::new("sizes").owns::<ConfigMap>().declare(
        |_: Arc<Service>, ctx: Context| async move {
            let finding = match ctx.get::<ConfigMap>("child")? {
                Some(_) => Finding::yes("Seen", "ItIsThere"),
                None => Finding::no("Seen", "ItIsNot"),
            };
            let desired = Desired::new().child(config("child", &[("a", "1")]));
            Ok::<_, Error>(desired.condition(finding).event("Synced", "all is there"))
        },
    );
    let service = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    let service: Service = serde_json::from_value(service).expect("a service");
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = Manager::new(noted).controller(controller);
    let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
    tokio::time::sleep(Duration::from_secs(2)).await;
    wire.take();
    create(&client, service).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let sent = || {
        wire.take()
            .into_iter()
            .map(|sent| sent.line())
            .collect::<Vec<_>>()
    };
    let status = "PATCH /api/v1/namespaces/default/services/web/status".to_owned();
    let told = "POST /api/v1/namespaces/default/events".to_owned();
    assert_eq!(sent(), [format!("PATCH {CHILD}"), status, told]);
    let services = Api::<Service>::namespaced(client.clone(), "default");
    let web = services.get("web").await.expect("it is there");
    let conditions = web
        .status
        .and_then(|status| status.conditions)
        .unwrap_or_default();
    assert_eq!(conditions[0].reason, "ItIsThere");

    // A child that goes is looked for before it is made anew; the status has not changed, and people are told.
    let configs = Api::<ConfigMap>::namespaced(client, "default");
    let params = DeleteParams::default();
    configs.delete("child", &params).await.expect("it is there");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let lines = sent();
    assert_eq!(lines[..2], [format!("GET {CHILD}"), format!("PATCH {CHILD}")]);
    assert!(
        lines.len() == 3 && lines[2].starts_with("PATCH") && lines[2].contains("/events/"),
        "{lines:?}"
    );

    let touch = json!({ "metadata": { "annotations": { "touched": "yes" } } });
    let patch = Patch::Merge(touch);
    services
        .patch("web", &PatchParams::default(), &patch)
        .await
        .expect("it is there");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let lines = sent();
    assert!(
        lines.len() == 1 && lines[0].contains("/events/"),
        "each change is told: {lines:?}"
    );
    stop.send(()).expect("it runs");
    manager.await.expect("no panic").expect("no error");
}
