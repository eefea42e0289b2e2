//! Objects that belong to others.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Event;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams},
};
use parking_lot::Mutex;
use serde_json::json;
use windlass_runtime::CONTROLLER_LABEL;

use crate::declare::{
    harness::{CHILD, Harness, config, create, one, parent, plan, server},
    request_log::{RecordedRequest, recorded_with},
};

/// Neither the owner reference nor the label alone makes a child.
#[tokio::test(start_paused = true)]
async fn only_objects_with_owner_reference_and_label_are_pruned() {
    let harness = Harness::new(plan(one)).await;
    let parent = harness.parents().get("web").await.expect("exists");
    let owner = parent.controller_owner_ref(&()).expect("it has a uid");
    let mut unlabelled = config("unlabelled", &[]);
    unlabelled.metadata.owner_references = Some(vec![owner.clone()]);
    let mut labelled = config("labelled", &[]);
    labelled.metadata.labels = Some([(CONTROLLER_LABEL.to_owned(), "sizes".to_owned())].into());
    let mut of_another = labelled.clone();
    of_another.metadata.name = Some("of-another".to_owned());
    of_another.metadata.labels = Some([(CONTROLLER_LABEL.to_owned(), "another".to_owned())].into());
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
        create(&harness.client, theirs).await;
    }
    harness.touch().await;
    let names: Vec<_> = harness
        .configs()
        .list(&ListParams::default())
        .await
        .expect("list")
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    for name in ["child", "labelled", "not-controlled", "of-another", "unlabelled"] {
        assert!(names.iter().any(|there| there == name), "{name} is gone");
    }
    harness.stop().await;
}

#[tokio::test(start_paused = true)]
async fn foreign_object_is_reported_and_not_touched() {
    let server = server();
    let client = Client::new(server.clone(), "default");
    create(&client, parent("web")).await;
    let theirs = create(&client, config("child", &[("theirs", "yes")])).await;
    let harness = Harness::on(server, plan(one)).await;
    assert!(harness.outcomes.failed() > 0, "an error that is retried");
    assert_eq!(
        harness.child().await.resource_version(),
        theirs.resource_version()
    );
    assert_eq!(harness.writes(), Vec::<String>::new());
    let events = Api::<Event>::namespaced(harness.client.clone(), "default");
    let events = events.list(&ListParams::default()).await.expect("list");
    let warning = events
        .iter()
        .find(|event| event.reason.as_deref() == Some("ErrResourceExists"));
    let message = warning.and_then(|event| event.message.as_deref());
    assert_eq!(
        message,
        Some("Resource \"child\" already exists and is not managed by Deployment")
    );
    // After it is deleted, the child is created.
    harness
        .configs()
        .delete("child", &DeleteParams::default())
        .await
        .expect("exists");
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(json!(harness.child().await.data), json!({ "a": "1" }));
    harness.stop().await;
}

/// An object created between the read and the write causes a conflict and is not touched.
#[tokio::test(start_paused = true)]
async fn object_created_concurrently_is_not_touched() {
    let server = server();
    let theirs = Client::new(server.clone(), "default");
    create(&theirs, parent("web")).await;
    let (racer, made) = (theirs.clone(), Arc::new(Mutex::new(None)));
    let sneaked = Arc::clone(&made);
    let meddle = move |sent: RecordedRequest| {
        let (racer, sneaked) = (racer.clone(), Arc::clone(&sneaked));
        async move {
            if sent.line() == format!("PATCH {CHILD}") && sneaked.lock().is_none() {
                let child = create(&racer, config("child", &[("theirs", "yes")])).await;
                *sneaked.lock() = Some(child);
            }
            None
        }
    };
    let (recorded_client, log) = recorded_with(server, meddle);
    let harness = Harness::with(theirs, recorded_client, log, plan(one)).await;
    assert_eq!(Some(harness.child().await), *made.lock());
    assert!(harness.outcomes.failed() > 0);
    assert_eq!(harness.events("ErrResourceExists").await.len(), 1);
    harness.stop().await;
}
