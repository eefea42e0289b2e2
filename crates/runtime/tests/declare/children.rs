//! Children: made, kept, changed and removed.

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
use windlass_runtime::{CONTROLLER, Context, Controller, Desired, Error, Manager, Watch};

use crate::{
    wire::{Sent, recorded_on},
    world::{CHILD, World, config, create, one, parent, plan, server},
};

#[tokio::test(start_paused = true)]
async fn a_child_is_made_with_one_write_and_says_whose_it_is() {
    let world = World::new(plan(one)).await;
    assert_eq!(world.writes(), [format!("PATCH {CHILD}")]);
    let (child, parent) = (
        world.child().await,
        world.parents().get("web").await.expect("it is there"),
    );
    let owners = child.owner_references();
    assert_eq!(owners.len(), 1);
    assert_eq!(
        (Some(&owners[0].uid), owners[0].controller),
        (parent.metadata.uid.as_ref(), Some(true))
    );
    assert_eq!(child.labels()[CONTROLLER], "sizes");
    let managers: Vec<_> = child
        .managed_fields()
        .iter()
        .map(|entry| entry.manager.clone())
        .collect();
    assert_eq!(managers, [Some("sizes".to_owned())]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_when_nothing_changed() {
    let world = World::new(plan(one)).await;
    world.wire.take();
    world.touch().await;
    assert!(world.outcomes.done() >= 2, "it was looked at again");
    assert_eq!(world.writes(), Vec::<String>::new());
    // Nor by a controller that knows nothing of what the last one did.
    let world = world.restart(None).await;
    assert!(world.outcomes.done() >= 1);
    assert_eq!(world.writes(), Vec::<String>::new());
    world.stop().await;
}

/// The server writes a quantity in another way than the author, and fills in defaults.
#[tokio::test(start_paused = true)]
async fn what_the_server_writes_differently_is_applied_once() {
    let world = World::new(plan(|_| {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "child" },
            "spec": { "containers": [{ "name": "c", "image": "nginx", "resources": { "requests": { "cpu": "1000m" } } }] },
        }))
        .expect("a pod");
        Desired::new().child(pod)
    }))
    .await;
    world.wire.take();
    let pods = Api::<Pod>::namespaced(world.client.clone(), "default");
    for phase in ["Running", "Failed"] {
        let change = json!({ "status": { "phase": phase } });
        pods.patch_status("child", &PatchParams::default(), &Patch::Merge(change))
            .await
            .expect("it is there");
        world.settle().await;
    }
    world.touch().await;
    assert_eq!(world.writes(), Vec::<String>::new());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drift_is_repaired_and_what_is_not_said_is_left_alone() {
    let world = World::new(plan(one)).await;
    world.wire.take();
    let theirs = json!({ "data": { "a": "theirs", "b": "theirs" }, "metadata": { "labels": { "x": "y" } } });
    let params = PatchParams {
        field_manager: Some("kubectl-edit".into()),
        ..PatchParams::default()
    };
    world
        .configs()
        .patch("child", &params, &Patch::Merge(theirs))
        .await
        .expect("it is there");
    world.settle().await;
    assert_eq!(world.writes(), [format!("PATCH {CHILD}")]);
    let child = world.child().await;
    assert_eq!(json!(child.data), json!({ "a": "1", "b": "theirs" }));
    assert_eq!(child.labels()["x"], "y");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_field_that_is_not_said_any_more_goes() {
    let world = World::new(plan(|_| {
        Desired::new().child(config("child", &[("a", "1"), ("b", "2")]))
    }))
    .await;
    *world.plan.lock() = Box::new(one);
    world.touch().await;
    assert_eq!(json!(world.child().await.data), json!({ "a": "1" }));
    world.stop().await;
}

/// Also by a controller that was started after the author changed their mind.
#[tokio::test(start_paused = true)]
async fn a_field_that_a_new_version_does_not_say_goes() {
    let world = World::new(plan(|_| {
        Desired::new().child(config("child", &[("a", "1"), ("b", "2")]))
    }))
    .await;
    let world = world.restart(Some(plan(one))).await;
    assert_eq!(json!(world.child().await.data), json!({ "a": "1" }));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_deleted_comes_back() {
    let world = World::new(plan(one)).await;
    let before = world.child().await.uid();
    world
        .configs()
        .delete("child", &DeleteParams::default())
        .await
        .expect("it is there");
    world.settle().await;
    assert_ne!(world.child().await.uid(), before);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_not_wanted_any_more_is_deleted_after_its_successor_is_there() {
    let world = World::new(plan(one)).await;
    *world.plan.lock() = Box::new(|_| Desired::new().child(config("renamed", &[])));
    world.wire.take();
    world.touch().await;
    assert!(!world.has("child").await);
    assert!(world.has("renamed").await);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn kinds_that_are_known_at_run_time_work_like_typed_ones() {
    let client = Client::new(server(), "default");
    create(&client, parent("web")).await;
    let (deployments, configs) = (
        ApiResource::erase::<Deployment>(&()),
        ApiResource::erase::<ConfigMap>(&()),
    );
    let kind = configs.clone();
    let controller = Controller::of("sizes", Watch::<DynamicObject>::dynamic(deployments.clone()))
        .watch(Watch::<DynamicObject>::dynamic(configs).owned())
        .declare(move |object: Arc<DynamicObject>, ctx: Context| {
            let seen = ctx
                .lister_of::<DynamicObject>(&deployments)
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
        json!(api.get("web").await.expect("it is there").data),
        json!({ "seen": "Ok(1)" })
    );
    api.delete("web", &DeleteParams::default())
        .await
        .expect("it is there");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(
        api.get_opt("web").await.expect("an answer").is_some(),
        "its change leads to its owner"
    );
    stop.send(()).expect("it runs");
    manager.await.expect("no panic").expect("no error");
}

/// Then the server is asked, and nothing is written that is there; nor by the next controller.
#[tokio::test(start_paused = true)]
async fn a_child_that_the_cache_is_not_told_of_is_made_once() {
    let server = server();
    let client = Client::new(server.clone(), "default");
    create(&client, parent("web")).await;
    let configs = Api::<ConfigMap>::namespaced(client.clone(), "default");
    let mut before = None;
    for round in ["first", "second"] {
        let (noted, wire) = recorded_on(server.clone());
        let controller = Controller::<Deployment>::new("sizes")
            .watch(Watch::<ConfigMap>::new().labels("shown=yes").owned())
            .declare(|_: Arc<Deployment>, _: Context| ready(Ok::<_, Error>(one(&Deployment::default()))));
        let (stop, stopped) = oneshot::channel::<()>();
        let manager = Manager::new(noted).controller(controller);
        let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
        tokio::time::sleep(Duration::from_secs(2)).await;
        let child = configs.get("child").await.expect("it is there");
        assert_eq!(before.get_or_insert_with(|| child.clone()), &child);
        wire.take();
        let touch = Patch::Merge(json!({ "metadata": { "labels": { "touched": round } } }));
        let parents = Api::<Deployment>::namespaced(client.clone(), "default");
        let touched = parents.patch("web", &PatchParams::default(), &touch).await;
        touched.expect("it is there");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let lines: Vec<_> = wire.take().iter().map(Sent::line).collect();
        assert_eq!(
            lines,
            [format!("GET {CHILD}")],
            "it is looked at, and left as it is"
        );
        stop.send(()).expect("it runs");
        manager.await.expect("no panic").expect("no error");
    }
}
