//! What is somebody else's.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams},
};
use parking_lot::Mutex;
use serde_json::json;
use windlass_runtime::CONTROLLER;

use crate::{
    wire::{Sent, recorded_with},
    world::{CHILD, World, config, create, one, parent, plan, server},
};

/// Neither the owner reference nor the label alone makes a child.
#[tokio::test(start_paused = true)]
async fn only_what_has_both_marks_is_pruned() {
    let world = World::new(plan(one)).await;
    let parent = world.parents().get("web").await.expect("it is there");
    let owner = parent.controller_owner_ref(&()).expect("it has a uid");
    let mut unlabelled = config("unlabelled", &[]);
    unlabelled.metadata.owner_references = Some(vec![owner.clone()]);
    let mut labelled = config("labelled", &[]);
    labelled.metadata.labels = Some([(CONTROLLER.to_owned(), "sizes".to_owned())].into());
    let mut of_another = labelled.clone();
    of_another.metadata.name = Some("of-another".to_owned());
    of_another.metadata.labels = Some([(CONTROLLER.to_owned(), "another".to_owned())].into());
    of_another.metadata.owner_references = Some(vec![owner.clone()]);
    let mut not_controlled = labelled.clone();
    not_controlled.metadata.name = Some("not-controlled".to_owned());
    not_controlled.metadata.owner_references = Some(vec![
        k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
            controller: None,
            ..owner
        },
    ]);
    for theirs in [unlabelled, labelled, of_another, not_controlled] {
        create(&world.client, theirs).await;
    }
    world.touch().await;
    let names: Vec<_> = world
        .configs()
        .list(&ListParams::default())
        .await
        .expect("a list")
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    for name in ["child", "labelled", "not-controlled", "of-another", "unlabelled"] {
        assert!(names.iter().any(|there| there == name), "{name} is gone");
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_of_somebody_else_is_reported_and_not_touched() {
    let server = server();
    let client = Client::new(server.clone(), "default");
    create(&client, parent("web")).await;
    let theirs = create(&client, config("child", &[("theirs", "yes")])).await;
    let world = World::on(server, plan(one)).await;
    assert!(world.outcomes.failed() > 0, "it is an error, and retried");
    assert_eq!(world.child().await.resource_version(), theirs.resource_version());
    assert_eq!(world.writes(), Vec::<String>::new());
    let events = Api::<Event>::namespaced(world.client.clone(), "default");
    let events = events.list(&ListParams::default()).await.expect("a list");
    let told = events
        .iter()
        .find(|event| event.reason.as_deref() == Some("ErrResourceExists"));
    let message = told.and_then(|event| event.message.as_deref());
    assert_eq!(
        message,
        Some("Resource \"child\" already exists and is not managed by Deployment")
    );
    // And when it goes there is place for ours.
    world
        .configs()
        .delete("child", &DeleteParams::default())
        .await
        .expect("it is there");
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(json!(world.child().await.data), json!({ "a": "1" }));
    world.stop().await;
}

/// What comes between the look and the write is seen by the server, and not touched.
#[tokio::test(start_paused = true)]
async fn an_object_that_somebody_makes_in_the_same_moment_stays_theirs() {
    let server = server();
    let theirs = Client::new(server.clone(), "default");
    create(&theirs, parent("web")).await;
    let (racer, made) = (theirs.clone(), Arc::new(Mutex::new(None)));
    let sneaked = Arc::clone(&made);
    let meddle = move |sent: Sent| {
        let (racer, sneaked) = (racer.clone(), Arc::clone(&sneaked));
        async move {
            if sent.line() == format!("PATCH {CHILD}") && sneaked.lock().is_none() {
                let child = create(&racer, config("child", &[("theirs", "yes")])).await;
                *sneaked.lock() = Some(child);
            }
            None
        }
    };
    let (noted, wire) = recorded_with(server, meddle);
    let world = World::with(theirs, noted, wire, plan(one)).await;
    assert_eq!(Some(world.child().await), *made.lock());
    assert!(world.outcomes.failed() > 0);
    assert_eq!(world.told("ErrResourceExists").await.len(), 1);
    world.stop().await;
}
