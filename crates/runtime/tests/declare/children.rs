//! Children: created, kept, changed and deleted.

use std::{future::ready, sync::Arc, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject},
};
use serde_json::json;
use tokio::sync::oneshot;
use windlass_runtime::{CONTROLLER_LABEL, Context, Controller, Desired, Error, Manager, Watch};

use crate::declare::{
    harness::{CHILD, Harness, config, create, one, parent, plan, server},
    request_log::{RecordedRequest, recorded_on},
};

#[tokio::test(start_paused = true)]
async fn child_is_created_with_one_write_and_an_owner_reference() {
    let harness = Harness::new(plan(one)).await;
    assert_eq!(harness.writes(), [format!("PATCH {CHILD}")]);
    let (child, parent) = (
        harness.child().await,
        harness.parents().get("web").await.expect("exists"),
    );
    let owners = child.owner_references();
    assert_eq!(owners.len(), 1);
    assert_eq!(
        (Some(&owners[0].uid), owners[0].controller),
        (parent.metadata.uid.as_ref(), Some(true))
    );
    assert_eq!(child.labels()[CONTROLLER_LABEL], "sizes");
    let managers: Vec<_> = child
        .managed_fields()
        .iter()
        .map(|entry| entry.manager.clone())
        .collect();
    assert_eq!(managers, [Some("sizes".to_owned())]);
    harness.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_when_nothing_changed() {
    let harness = Harness::new(plan(one)).await;
    harness.log.take();
    harness.touch().await;
    assert!(harness.outcomes.done() >= 2, "reconciled again");
    assert_eq!(harness.writes(), Vec::<String>::new());
    // Nor by a restarted controller.
    let harness = harness.restart(None).await;
    assert!(harness.outcomes.done() >= 1);
    assert_eq!(harness.writes(), Vec::<String>::new());
    harness.stop().await;
}

/// The server normalizes quantities and sets defaults.
#[tokio::test(start_paused = true)]
async fn child_that_the_server_normalizes_is_applied_once() {
    let harness = Harness::new(plan(|_| {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "child" },
            "spec": { "containers": [{ "name": "c", "image": "nginx", "resources": { "requests": { "cpu": "1000m" } } }] },
        }))
        .expect("valid Pod");
        Desired::new().child(pod)
    }))
    .await;
    harness.log.take();
    let pods = Api::<Pod>::namespaced(harness.client.clone(), "default");
    for phase in ["Running", "Failed"] {
        let change = json!({ "status": { "phase": phase } });
        pods.patch_status("child", &PatchParams::default(), &Patch::Merge(change))
            .await
            .expect("exists");
        harness.settle().await;
    }
    harness.touch().await;
    assert_eq!(harness.writes(), Vec::<String>::new());
    harness.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drift_is_repaired_and_other_fields_are_left_alone() {
    let harness = Harness::new(plan(one)).await;
    harness.log.take();
    let theirs = json!({ "data": { "a": "theirs", "b": "theirs" }, "metadata": { "labels": { "x": "y" } } });
    let params = PatchParams {
        field_manager: Some("kubectl-edit".into()),
        ..PatchParams::default()
    };
    harness
        .configs()
        .patch("child", &params, &Patch::Merge(theirs))
        .await
        .expect("exists");
    harness.settle().await;
    assert_eq!(harness.writes(), [format!("PATCH {CHILD}")]);
    let child = harness.child().await;
    assert_eq!(json!(child.data), json!({ "a": "1", "b": "theirs" }));
    assert_eq!(child.labels()["x"], "y");
    harness.stop().await;
}

#[tokio::test(start_paused = true)]
async fn field_that_is_no_longer_desired_is_removed() {
    let harness = Harness::new(plan(|_| {
        Desired::new().child(config("child", &[("a", "1"), ("b", "2")]))
    }))
    .await;
    *harness.plan.lock() = Box::new(one);
    harness.touch().await;
    assert_eq!(json!(harness.child().await.data), json!({ "a": "1" }));
    harness.stop().await;
}

/// Also by a controller that was restarted with a new version.
#[tokio::test(start_paused = true)]
async fn field_that_a_new_version_omits_is_removed() {
    let harness = Harness::new(plan(|_| {
        Desired::new().child(config("child", &[("a", "1"), ("b", "2")]))
    }))
    .await;
    let harness = harness.restart(Some(plan(one))).await;
    assert_eq!(json!(harness.child().await.data), json!({ "a": "1" }));
    harness.stop().await;
}

#[tokio::test(start_paused = true)]
async fn deleted_child_is_created_again() {
    let harness = Harness::new(plan(one)).await;
    let before = harness.child().await.uid();
    harness
        .configs()
        .delete("child", &DeleteParams::default())
        .await
        .expect("exists");
    harness.settle().await;
    assert_ne!(harness.child().await.uid(), before);
    harness.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unwanted_child_is_deleted_after_its_replacement_exists() {
    let harness = Harness::new(plan(one)).await;
    *harness.plan.lock() = Box::new(|_| Desired::new().child(config("renamed", &[])));
    harness.log.take();
    harness.touch().await;
    assert!(!harness.has("child").await);
    assert!(harness.has("renamed").await);
    harness.stop().await;
}

#[tokio::test(start_paused = true)]
async fn dynamic_kinds_work_like_typed_ones() {
    let client = Client::new(server(), "default");
    create(&client, parent("web")).await;
    let (deployments, configs) = (
        ApiResource::erase::<Deployment>(&()),
        ApiResource::erase::<ConfigMap>(&()),
    );
    let kind = configs.clone();
    let controller = Controller::from_watch("sizes", Watch::<DynamicObject>::dynamic(deployments.clone()))
        .watch(Watch::<DynamicObject>::dynamic(configs).owned())
        .declare(move |object: Arc<DynamicObject>, ctx: Context| {
            let seen = ctx
                .dynamic_lister::<DynamicObject>(&deployments)
                .map(windlass_cache::Lister::len);
            let mut child = DynamicObject::new(&object.name_any(), &kind);
            child.data = json!({ "data": { "seen": format!("{seen:?}") } });
            ready(Ok::<_, Error>(Desired::new().dynamic_child(child, kind.clone())))
        });
    let (stop, stopped) = oneshot::channel::<()>();
    let manager = Manager::new(client.clone()).controller(controller);
    let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let api = Api::<ConfigMap>::namespaced(client, "default");
    assert_eq!(
        json!(api.get("web").await.expect("exists").data),
        json!({ "seen": "Ok(1)" })
    );
    api.delete("web", &DeleteParams::default()).await.expect("exists");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(
        api.get_opt("web").await.expect("response").is_some(),
        "a deleted child triggers its owner"
    );
    stop.send(()).expect("running");
    manager.await.expect("no panic").expect("no error");
}

/// Then the live object is read, and nothing is written again, not even by a restarted controller.
#[tokio::test(start_paused = true)]
async fn child_outside_the_watch_selector_is_created_once() {
    let server = server();
    let client = Client::new(server.clone(), "default");
    create(&client, parent("web")).await;
    let configs = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let mut before = None;
    for round in ["first", "second"] {
        let (recorded_client, log) = recorded_on(server.clone());
        let controller = Controller::<Deployment>::new("sizes")
            .watch(Watch::<ConfigMap>::new().labels("shown=yes").owned())
            .declare(|_: Arc<Deployment>, _: Context| ready(Ok::<_, Error>(one(&Deployment::default()))));
        let (stop, stopped) = oneshot::channel::<()>();
        let manager = Manager::new(recorded_client).controller(controller);
        let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
        tokio::time::sleep(Duration::from_secs(2)).await;
        let child = configs.get("child").await.expect("exists");
        assert_eq!(before.get_or_insert_with(|| child.clone()), &child);
        log.take();
        let touch = Patch::Merge(json!({ "metadata": { "labels": { "touched": round } } }));
        let parents = Api::<Deployment>::namespaced(client.clone(), "default");
        let touched = parents.patch("web", &PatchParams::default(), &touch).await;
        touched.expect("exists");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let lines: Vec<_> = log.take().iter().map(RecordedRequest::line).collect();
        assert_eq!(lines, [format!("GET {CHILD}")], "read and left unchanged");
        stop.send(()).expect("running");
        manager.await.expect("no panic").expect("no error");
    }
}
