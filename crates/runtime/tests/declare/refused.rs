//! Children that cannot be.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret},
};
use windlass_runtime::Desired;

use crate::world::{World, config, plan};

#[tokio::test(start_paused = true)]
async fn a_child_that_cannot_be_is_a_terminal_error() {
    let elsewhere = |_: &Deployment| {
        let mut child = config("child", &[]);
        child.metadata.namespace = Some("kube-system".to_owned());
        Desired::new().child(child)
    };
    let undeclared = |_: &Deployment| {
        let mut secret = Secret::default();
        secret.metadata.name = Some("child".to_owned());
        Desired::new().child(secret)
    };
    for wants in [
        plan(elsewhere),
        plan(undeclared),
        plan(|_| Desired::new().child(ConfigMap::default())),
        // It would be read as a part of another child.
        plan(|_| Desired::new().child(config("child/status", &[]))),
    ] {
        let world = World::new(wants).await;
        assert_eq!((world.outcomes.terminal(), world.outcomes.failed()), (1, 0));
        assert_eq!(world.writes(), Vec::<String>::new());
        let told = world.told("ErrInvalid").await;
        assert_eq!(told.len(), 1, "people are told, once");
        assert_eq!(told[0].type_.as_deref(), Some("Warning"));
        world.stop().await;
    }
}

/// The server knows which names it takes; what it says is for people, and asked again ever more seldom.
#[tokio::test(start_paused = true)]
async fn a_child_that_the_server_refuses_is_told_of() {
    let world = World::new(plan(|_| Desired::new().child(config("Not_Valid!", &[])))).await;
    let told = world.told("ErrInvalid").await;
    let message = told[0].message.as_deref().unwrap_or_default();
    assert!(message.contains("ConfigMap default/Not_Valid!"), "{message}");
    assert!(message.contains("lowercase RFC 1123 subdomain"), "{message}");
    assert_eq!(told.len(), 1);
    let before = world.outcomes.failed();
    tokio::time::sleep(Duration::from_hours(1)).await;
    let tries = world.outcomes.failed() - before;
    assert!((1..=12).contains(&tries), "{tries} in an hour");
    world.stop().await;
}
