//! Status, conditions and events.

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
use windlass_runtime::{ConditionUpdate, Context, Controller, Desired, Error, Manager};

use crate::declare::{
    harness::{CHILD, Harness, config, create, one, plan, server},
    request_log::recorded_on,
};

fn replicas(count: i32) -> Value {
    json!({ "replicas": count, "observedGeneration": 1 })
}

#[tokio::test(start_paused = true)]
async fn status_is_written_only_when_it_differs() {
    let harness = Harness::new(plan(|_| Desired::new().status(replicas(3)))).await;
    let status = |parent: Deployment| parent.status.expect("status");
    let parent = || async { harness.parents().get("web").await.expect("exists") };
    assert_eq!(status(parent().await).replicas, Some(3));
    harness.log.take();
    harness.touch().await;
    assert_eq!(harness.writes(), Vec::<String>::new());
    *harness.plan.lock() = Box::new(|_| Desired::new().status(json!({ "observedGeneration": 1 })));
    harness.touch().await;
    assert_eq!(
        status(parent().await).replicas,
        None,
        "a field that is no longer set is removed"
    );
    let harness = harness.restart(None).await;
    assert_eq!(harness.writes(), Vec::<String>::new());
    harness.stop().await;
}

/// Status fields of other managers are left alone.
#[tokio::test(start_paused = true)]
async fn status_fields_of_other_managers_are_kept() {
    let harness = Harness::new(plan(|_| Desired::new().status(replicas(3)))).await;
    let theirs = json!({ "status": { "readyReplicas": 2 } });
    let params = PatchParams {
        field_manager: Some("other".into()),
        ..PatchParams::default()
    };
    harness
        .parents()
        .patch_status("web", &params, &Patch::Merge(theirs))
        .await
        .expect("exists");
    harness.settle().await;
    harness.log.take();
    harness.touch().await;
    assert_eq!(harness.writes(), Vec::<String>::new());
    let status = harness
        .parents()
        .get("web")
        .await
        .expect("exists")
        .status
        .expect("status");
    assert_eq!((status.replicas, status.ready_replicas), (Some(3), Some(2)));
    harness.stop().await;
}

/// It has an observed generation and a transition time, and conditions of other managers are kept.
#[tokio::test(start_paused = true)]
async fn condition_is_written_when_it_changes() {
    let server = server();
    let (client, (recorded_client, log)) = (Client::new(server.clone(), "default"), recorded_on(server));
    let service = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    create(
        &client,
        serde_json::from_value::<Service>(service).expect("valid Service"),
    )
    .await;
    let found = Arc::new(Mutex::new(ConditionUpdate::false_("Ready", "Waiting")));
    let condition = Arc::clone(&found);
    let controller = Controller::<Service>::new("sizes").declare(move |_: Arc<Service>, _: Context| {
        ready(Ok::<_, Error>(Desired::new().condition(condition.lock().clone())))
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = Manager::new(recorded_client).controller(controller);
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
                .expect("exists");
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    };
    let theirs = json!({ "type": "Theirs", "status": "True", "reason": "So", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z" });
    patch(json!({ "status": { "conditions": [theirs] } })).await;
    log.take();
    patch(json!({ "metadata": { "annotations": { "touched": "yes" } } })).await;
    assert!(
        log.take().iter().all(|sent| sent.method == "GET"),
        "nothing changed"
    );
    *found.lock() = ConditionUpdate::true_("Ready", "AllRun");
    patch(json!({ "metadata": { "annotations": { "touched": "again" } } })).await;
    let status = services.get("web").await.expect("exists").status.expect("status");
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
    stop.send(()).expect("running");
    manager.await.expect("no panic").expect("no error");
}

#[tokio::test(start_paused = true)]
async fn event_is_recorded_after_the_children_are_applied() {
    let harness = Harness::new(plan(|_| {
        one(&Deployment::default()).event("Synced", "all children are applied")
    }))
    .await;
    let events = harness.events("Synced").await;
    assert_eq!(events.len(), 1);
    assert_eq!(
        events[0]
            .source
            .as_ref()
            .and_then(|source| source.component.as_deref()),
        Some("sizes")
    );
    harness.stop().await;
}

/// All requests for a new object: no extra read, no outdated status, no event for own writes.
#[tokio::test(start_paused = true)]
async fn new_object_costs_one_child_one_status_and_one_event() {
    let server = server();
    let (client, (recorded_client, log)) = (Client::new(server.clone(), "default"), recorded_on(server));
    let controller = Controller::<Service>::new("sizes").owns::<ConfigMap>().declare(
        |_: Arc<Service>, ctx: Context| async move {
            let condition = match ctx.get::<ConfigMap>("child")? {
                Some(_) => ConditionUpdate::true_("Seen", "ChildExists"),
                None => ConditionUpdate::false_("Seen", "ChildMissing"),
            };
            let desired = Desired::new().child(config("child", &[("a", "1")]));
            Ok::<_, Error>(
                desired
                    .condition(condition)
                    .event("Synced", "all children are applied"),
            )
        },
    );
    let service = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
    let service: Service = serde_json::from_value(service).expect("valid Service");
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = Manager::new(recorded_client).controller(controller);
    let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
    tokio::time::sleep(Duration::from_secs(2)).await;
    log.take();
    create(&client, service).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let sent = || log.take().into_iter().map(|sent| sent.line()).collect::<Vec<_>>();
    let status = "PATCH /api/v1/namespaces/default/services/web/status".to_owned();
    let event = "POST /api/v1/namespaces/default/events".to_owned();
    assert_eq!(sent(), [format!("PATCH {CHILD}"), status, event]);
    let services = Api::<Service>::namespaced(client.clone(), "default");
    let web = services.get("web").await.expect("exists");
    let conditions = web
        .status
        .and_then(|status| status.conditions)
        .unwrap_or_default();
    assert_eq!(conditions[0].reason, "ChildExists");

    // A deleted child is read before it is created again; the status is unchanged, and an event is recorded.
    let configs = Api::<ConfigMap>::namespaced(client, "default");
    let params = DeleteParams::default();
    configs.delete("child", &params).await.expect("exists");
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
        .expect("exists");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let lines = sent();
    assert!(
        lines.len() == 1 && lines[0].contains("/events/"),
        "an event for each change: {lines:?}"
    );
    stop.send(()).expect("running");
    manager.await.expect("no panic").expect("no error");
}
