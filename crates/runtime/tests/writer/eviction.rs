//! Evictions: requests and results.

use std::{future::ready, time::Duration};

use k8s_openapi::api::{core::v1::Pod, policy::v1::PodDisruptionBudget};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, EvictParams, PostParams, Preconditions},
};
use serde_json::json;
use windlass_apiserver::Server;
use windlass_runtime::{EvictOutcome, Writer};

use crate::writer::{
    MANAGER,
    request_log::{recorded, recorded_with},
};

fn pod(name: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "default", "labels": { "app": "web" } },
        "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "i" }] },
    }))
    .expect("valid Pod")
}

async fn running_pod(client: &Client, name: &str) -> Pod {
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let mut pod = pods
        .create(&PostParams::default(), &pod(name))
        .await
        .expect("created");
    // A PDB does not protect a pod that is not ready.
    let status = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
    pod.status = serde_json::from_value(status).expect("status");
    pods.replace_status(name, &PostParams::default(), &pod)
        .await
        .expect("running")
}

/// kube's field name `delete_options` is unknown to servers, so its options have no effect.
#[tokio::test(start_paused = true)]
async fn eviction_sends_delete_options_unlike_kubes() {
    let (client, log) = recorded();
    let pod = running_pod(&client, "a").await;
    let options = DeleteParams::default()
        .grace_period(7)
        .preconditions(Preconditions {
            uid: Some("another".to_owned()),
            resource_version: None,
        });
    log.take();
    let params = EvictParams {
        delete_options: Some(options.clone()),
        post_options: PostParams {
            dry_run: true,
            ..PostParams::default()
        },
    };
    let pods = Api::<Pod>::default_namespaced(client.clone());
    pods.evict("a", &params)
        .await
        .expect("kube evicts despite a different uid");
    let kubes = log.one();
    assert_eq!(kubes.body.get("deleteOptions"), None);
    assert_eq!(kubes.body["delete_options"]["gracePeriodSeconds"], 7);

    let writer = Writer::new(client.clone(), MANAGER);
    let evicted = writer.evict(&pod, &options).await;
    assert!(
        evicted.is_err_and(|error| error.is_uid_mismatch()),
        "the pod exists, but the precondition fails"
    );
    log.take();
    let evicted = writer
        .evict(&pod, &DeleteParams::default().grace_period(7))
        .await
        .expect("accepted");
    assert_eq!(evicted, EvictOutcome::Accepted);
    let ours = log.one();
    assert_eq!(ours.line(), "POST /api/v1/namespaces/default/pods/a/eviction");
    assert_eq!(
        ours.body,
        json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": { "name": "a", "namespace": "default" },
            "deleteOptions": { "gracePeriodSeconds": 7, "preconditions": { "uid": pod.uid() } },
        })
    );
    let left = pods.get("a").await.expect("it has its grace period");
    assert_eq!(left.meta().deletion_grace_period_seconds, Some(7));
}

#[tokio::test(start_paused = true)]
async fn eviction_distinguishes_a_blocking_budget_from_a_deleted_pod() {
    let (client, _) = recorded();
    let writer = Writer::new(client.clone(), MANAGER);
    let pod = running_pod(&client, "a").await;
    let evict = async || {
        let evicted = writer.evict(&pod, &DeleteParams::default()).await;
        evicted.expect("response")
    };
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "default" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } },
    }))
    .expect("a budget");
    let budgets = Api::<PodDisruptionBudget>::default_namespaced(client.clone());
    let mut budget = budgets
        .create(&PostParams::default(), &budget)
        .await
        .expect("created");

    let evicted = evict().await;
    let EvictOutcome::Blocked {
        budget: name,
        retry_after,
        ..
    } = evicted
    else {
        panic!("{evicted:?}")
    };
    assert_eq!(
        (name.as_deref(), retry_after),
        (Some("web"), Some(Duration::from_secs(10)))
    );

    let status = json!({ "observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1 });
    budget.status = serde_json::from_value(status).expect("status");
    budgets
        .replace_status("web", &PostParams::default(), &budget)
        .await
        .expect("the disruption controller");
    let evicted = evict().await;
    assert_eq!(
        evicted,
        EvictOutcome::Blocked {
            budget: Some("web".to_owned()),
            message: "The disruption budget web needs 1 healthy pods and has 1 currently".to_owned(),
            retry_after: None,
        }
    );

    // With two PDBs the server answers with an internal error; it is not retried soon.
    let mut second = budget.clone();
    second.metadata = kube::core::ObjectMeta {
        name: Some("web2".to_owned()),
        ..kube::core::ObjectMeta::default()
    };
    budgets
        .create(&PostParams::default(), &second)
        .await
        .expect("created");
    let evicted = evict().await;
    let message =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    assert_eq!(
        evicted,
        EvictOutcome::Blocked {
            budget: None,
            message: message.to_owned(),
            retry_after: None,
        }
    );

    for name in ["web", "web2"] {
        let deleted = budgets.delete(name, &DeleteParams::default()).await;
        deleted.expect("deleted");
    }
    writer
        .delete_with(&pod, &DeleteParams::default().grace_period(0))
        .await
        .expect("deleted");
    assert_eq!(
        writer
            .evict(&pod, &DeleteParams::default())
            .await
            .expect("response"),
        EvictOutcome::AlreadyGone
    );
    let successor = running_pod(&client, "a").await;
    assert_eq!(
        writer
            .evict(&pod, &DeleteParams::default())
            .await
            .expect("response"),
        EvictOutcome::AlreadyGone
    );
    let pods = Api::<Pod>::default_namespaced(client);
    let live = pods.get("a").await.expect("the recreated pod remains");
    assert!(live.uid() == successor.uid() && live.meta().deletion_timestamp.is_none());
}

#[tokio::test(start_paused = true)]
async fn overloaded_server_is_an_error_and_not_a_blocking_budget() {
    let busy = json!({
        "kind": "Status", "status": "Failure", "code": 429, "reason": "TooManyRequests",
        "message": "too many requests", "details": { "retryAfterSeconds": 3, "causes": [{ "reason": "Queue", "message": "it is full" }] },
    });
    let (client, _) = recorded_with(Server::new(), move |sent| {
        ready(sent.path.ends_with("/eviction").then(|| (429, busy.clone())))
    });
    let writer = Writer::new(client, MANAGER);
    let error = writer
        .evict(&pod("a"), &DeleteParams::default())
        .await
        .expect_err("the server is overloaded");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
    assert_eq!(error.to_string(), "cannot evict Pod default/a: too many requests");
}
