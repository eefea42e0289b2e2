//! Invalid children.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret},
};
use windlass_runtime::Desired;

use crate::declare::harness::{Harness, config, plan};

#[tokio::test(start_paused = true)]
async fn invalid_child_is_a_terminal_error() {
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
        // It would be a subresource of another child.
        plan(|_| Desired::new().child(config("child/status", &[]))),
    ] {
        let harness = Harness::new(wants).await;
        assert_eq!((harness.outcomes.terminal(), harness.outcomes.failed()), (1, 0));
        assert_eq!(harness.writes(), Vec::<String>::new());
        let events = harness.events("ErrInvalid").await;
        assert_eq!(events.len(), 1, "one warning event");
        assert_eq!(events[0].type_.as_deref(), Some("Warning"));
        harness.stop().await;
    }
}

/// The server's validation error becomes a warning event, and retries back off.
#[tokio::test(start_paused = true)]
async fn child_rejected_by_the_server_is_reported_as_an_event() {
    let harness = Harness::new(plan(|_| Desired::new().child(config("Not_Valid!", &[])))).await;
    let events = harness.events("ErrInvalid").await;
    let message = events[0].message.as_deref().unwrap_or_default();
    assert!(message.contains("ConfigMap default/Not_Valid!"), "{message}");
    assert!(message.contains("lowercase RFC 1123 subdomain"), "{message}");
    assert_eq!(events.len(), 1);
    let before = harness.outcomes.failed();
    tokio::time::sleep(Duration::from_hours(1)).await;
    let tries = harness.outcomes.failed() - before;
    assert!((1..=12).contains(&tries), "{tries} in an hour");
    harness.stop().await;
}
