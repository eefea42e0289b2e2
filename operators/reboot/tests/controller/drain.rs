//! Drains: blockers, and what happens to the node.

use std::time::Duration;

use tokio::time::Instant;
use windlass::{
    k8s_openapi::api::core::v1::{Event, Pod},
    kube::api::{ListParams, Patch, PatchParams},
    prelude::*,
};
use windlass_cluster::Backend;
use windlass_reboot::{RebootPolicy, state::Phase};
use windlass_suite::{Context as Case, RecordedRequest};

use crate::controller::{
    fleet::Fleet,
    pods::{budget, is_running, pod, set_disruptions_allowed, stop_pod},
};

/// When the controller tried to evict the pod.
fn eviction_times(fleet: &Fleet, pod: &str) -> Vec<Instant> {
    let sent = fleet.proxy.requests();
    let evictions = sent
        .iter()
        .filter(|sent| sent.subresource() == "eviction" && sent.name() == pod);
    evictions.map(|sent| sent.at).collect()
}

/// The pods with their reasons and budgets.
fn blockers(policy: &RebootPolicy) -> Vec<(String, String, Option<String>)> {
    let blockers = policy.status.iter().flat_map(|status| &status.blockers);
    let mut named: Vec<_> = blockers
        .map(|one| (one.pod.clone(), one.reason.clone(), one.budget.clone()))
        .collect();
    named.sort();
    named
}

fn blocker(namespace: &str, pod: &str, reason: &str, budget: &str) -> (String, String, Option<String>) {
    let pod = format!("{namespace}/{pod}");
    (pod, reason.to_owned(), Some(budget.to_owned()))
}

/// An exhausted budget, two budgets on one pod, and an unprocessed budget, on one node each.
pub(crate) async fn blockers_are_reported_and_the_drain_aborts_at_its_timeout(
    case: Case,
) -> anyhow::Result<()> {
    let spec = json!({ "maxUnavailable": 3, "drain": { "timeout": "16s" }, "backoff": "1h" });
    let fleet = Fleet::new(&case, 3, spec).await?;
    let nodes = [0, 1, 2].map(|number| fleet.name(number));
    for (node, name) in nodes.iter().zip(["web", "api", "db"]) {
        pod(&fleet.case, node, name, "ReplicaSet").await?;
    }
    budget(&fleet.case, "at-zero", "web", Some(0)).await?;
    budget(&fleet.case, "one", "api", Some(1)).await?;
    budget(&fleet.case, "two", "api", Some(1)).await?;
    budget(&fleet.case, "fresh", "db", None).await?;
    for node in &nodes {
        fleet.request(node).await?;
    }
    // All of them with their budgets, in the policy's status.
    let namespace = case.namespace();
    let named = |pod: &str, reason: &str, budget: &str| blocker(namespace, pod, reason, budget);
    let all = [
        named("api", "MultipleBudgets", "one,two"),
        named("db", "DisruptionBudget", "fresh"),
        named("web", "DisruptionBudget", "at-zero"),
    ];
    fleet.wait_for_policy(|policy| blockers(policy) == all).await?;
    // And on the node: its condition, and an event.
    let node = fleet.nodes().get(&nodes[0]).await?;
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let draining = conditions
        .filter(|one| one.type_ == "DrainInProgress")
        .find_map(|one| one.message.clone());
    assert!(
        draining.is_some_and(|message| {
            message.contains("DisruptionBudget: ") && message.contains("at-zero needs 1 healthy pods")
        }),
        "{:?}",
        node.status
    );

    for node in &nodes {
        let view = fleet.wait_for_phase(node, Phase::Aborted).await?;
        assert!(
            !view.unschedulable && !view.cordoned,
            "it is schedulable again: {view:?}"
        );
        assert!(
            view.request.is_some() && view.command.is_none(),
            "the request is kept: {view:?}"
        );
        assert_eq!(fleet.boots(node), 0);
    }
    let policy = fleet
        .wait_for_policy(|policy| blockers(policy).is_empty() && granted(policy) == 0)
        .await?;
    assert_eq!(policy.status.as_ref().map(|status| status.requested), Some(3));
    fleet.settle().await;
    for (node, (budget, reason)) in nodes.iter().zip([
        ("at-zero", "DisruptionBudget"),
        ("one,two", "MultipleBudgets"),
        ("fresh", "DisruptionBudget"),
    ]) {
        let about = format!("involvedObject.name={node},reason=DrainBlocked");
        let events = windlass::kube::Api::<Event>::all(case.client());
        let events = events.list(&ListParams::default().fields(&about)).await?;
        let tells = |event: &Event| {
            event
                .message
                .as_ref()
                .is_some_and(|message| message.contains(budget) && message.contains(reason))
        };
        assert!(events.items.iter().any(tells), "{budget}: {events:#?}");
        assert!(
            fleet
                .event_reasons(node)
                .await?
                .contains(&"RebootAborted".to_owned())
        );
        let node = json!(fleet.nodes().get(node).await?.status);
        let conditions = node["conditions"].as_array().into_iter().flatten();
        let planned = conditions.filter(|one| one["type"] == "MaintenancePlanned");
        let planned_reasons: Vec<_> = planned
            .map(|one| (&one["reason"], one["message"].as_str()))
            .collect();
        assert!(
            matches!(planned_reasons[..], [(reason, Some(why))] if reason == "RebootAborted" && why.contains("within 16s; retried after")),
            "{planned_reasons:?}"
        );
    }
    // Rarely enough, although every change of pods, nodes and policies triggers a reconcile.
    for (name, wait, most) in [("web", 5, 4), ("api", 5, 4), ("db", 10, 2)] {
        let asked = eviction_times(&fleet, name);
        let wait = Duration::from_secs(wait);
        assert!((2..=most).contains(&asked.len()), "{name}: {asked:?}");
        assert!(
            asked.windows(2).all(|pair| pair[1] - pair[0] >= wait),
            "{name}: {asked:?}"
        );
    }
    for name in ["web", "api", "db"] {
        stop_pod(&fleet.case, name).await?;
    }
    fleet.end().await
}

/// A budget that never allows an eviction: the node rests longer each time, and the policy is degraded.
pub(crate) async fn repeated_aborts_rest_longer_and_degrade_the_policy(case: Case) -> anyhow::Result<()> {
    let spec = json!({
        "drain": { "timeout": "1s", "gracePeriodSeconds": 0 }, "backoff": "1s", "healthCheck": { "minReadySeconds": 0 },
    });
    let fleet = Fleet::new(&case, 1, spec).await?;
    let node = fleet.name(0);
    pod(&fleet.case, &node, "web", "ReplicaSet").await?;
    budget(&fleet.case, "strict", "web", Some(0)).await?;
    fleet.request(&node).await?;
    for (aborts, rest) in [(1, 1), (2, 2), (3, 4)] {
        let resting = |view: &windlass_reboot::state_machine::NodeView| {
            let state = view.state();
            state.is_some_and(|state| state.phase == Phase::Aborted && state.aborts == aborts)
        };
        let view = fleet.wait_for_node(&node, resting).await?;
        let state = view.state().expect("it is aborted");
        let rests = state.deadline.expect("it rests").duration_since(state.since);
        assert_eq!(rests.as_secs(), rest, "{state:?}");
    }
    let degraded = |policy: &RebootPolicy| {
        let status = policy.status.clone().unwrap_or_default();
        let degraded = status.conditions.of_type("Degraded").cloned();
        let message = status.message.unwrap_or_default();
        degraded.is_some_and(|one| {
            one.reason == "RebootsAborted"
                && one
                    .message
                    .contains(&format!("{node} (3 times: draining did not finish within 1s)"))
        }) && message.contains(&format!("{node} rests until "))
            && message.contains(" after 3 aborted attempts (draining did not finish within 1s)")
    };
    fleet.wait_for_policy(degraded).await?;
    set_disruptions_allowed(&fleet.case, "strict", 1).await?;
    fleet.wait_until_idle(&node).await?;
    assert_eq!(fleet.boots(&node), 1);
    fleet
        .wait_for_policy(|policy| {
            let status = policy.status.clone().unwrap_or_default();
            !status.conditions.is_true("Degraded") && granted(policy) == 0
        })
        .await?;
    fleet.end().await
}

fn granted(policy: &RebootPolicy) -> usize {
    policy.status.as_ref().map_or(0, |status| status.granted.len())
}

pub(crate) async fn drain_continues_to_the_reboot_once_budgets_allow(case: Case) -> anyhow::Result<()> {
    let spec = json!({ "healthCheck": { "minReadySeconds": 1 }, "drain": { "gracePeriodSeconds": 0 } });
    let fleet = Fleet::new(&case, 1, spec).await?;
    let node = fleet.name(0);
    pod(&fleet.case, &node, "web", "ReplicaSet").await?;
    let proxy = pod(&fleet.case, &node, "proxy", "DaemonSet").await?;
    budget(&fleet.case, "strict", "web", Some(0)).await?;
    fleet.request(&node).await?;
    fleet
        .wait_for_policy(|policy| !blockers(policy).is_empty())
        .await?;
    set_disruptions_allowed(&fleet.case, "strict", 1).await?;
    let view = fleet.wait_until_idle(&node).await?;
    assert!(!view.unschedulable);
    assert_eq!(fleet.boots(&node), 1);
    assert!(
        is_running(&fleet.case, &proxy).await?,
        "a DaemonSet's pod is not evicted"
    );
    assert_eq!(eviction_times(&fleet, "proxy").len(), 0);
    fleet
        .wait_for_policy(|policy| blockers(policy).is_empty())
        .await?;
    stop_pod(&fleet.case, "proxy").await?;
    fleet.end().await
}

pub(crate) async fn forced_drain_ignores_budgets_and_reboots(case: Case) -> anyhow::Result<()> {
    let drain = json!({ "timeout": "6s", "onTimeout": "Force", "gracePeriodSeconds": 0 });
    let spec = json!({ "healthCheck": { "minReadySeconds": 1 }, "drain": drain });
    let fleet = Fleet::new(&case, 1, spec).await?;
    let node = fleet.name(0);
    let web = pod(&fleet.case, &node, "web", "ReplicaSet").await?;
    budget(&fleet.case, "strict", "web", Some(0)).await?;
    fleet.request(&node).await?;
    fleet
        .wait_for_policy(|policy| !blockers(policy).is_empty())
        .await?;
    assert!(is_running(&fleet.case, &web).await?, "not before the timeout");
    fleet.wait_until_idle(&node).await?;
    assert_eq!(fleet.boots(&node), 1);
    assert!(!is_running(&fleet.case, &web).await?);
    fleet.end().await
}

/// A StatefulSet's pod has the same name on every node.
pub(crate) async fn drain_does_not_evict_a_pod_recreated_on_another_node(case: Case) -> anyhow::Result<()> {
    let spec = json!({ "healthCheck": { "minReadySeconds": 1 }, "drain": { "gracePeriodSeconds": 0 } });
    let fleet = Fleet::new(&case, 2, spec).await?;
    let (node, other) = (fleet.name(0), fleet.name(1));
    let before = pod(&fleet.case, &node, "db-0", "StatefulSet").await?;
    pod(&fleet.case, &node, "web", "ReplicaSet").await?;
    budget(&fleet.case, "strict", "web", Some(0)).await?;
    // It has moved to the other node when its eviction reaches the server.
    let eviction = |sent: &RecordedRequest| sent.subresource() == "eviction" && sent.name() == "db-0";
    fleet.proxy.delay(1, Duration::from_secs(2), eviction);
    fleet.request(&node).await?;
    fleet.proxy.wait_until_sent(eviction).await?;
    stop_pod(&fleet.case, "db-0").await?;
    let successor = pod(&fleet.case, &other, "db-0", "StatefulSet").await?;
    assert_ne!(before.uid(), successor.uid());
    // The drain continues meanwhile, since another pod does not leave.
    fleet
        .wait_for_policy(|policy| !blockers(policy).is_empty())
        .await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(is_running(&fleet.case, &successor).await?);
    set_disruptions_allowed(&fleet.case, "strict", 1).await?;
    fleet.wait_until_idle(&node).await?;
    assert_eq!(fleet.boots(&node), 1);
    assert!(is_running(&fleet.case, &successor).await?);
    let sent = fleet.proxy.requests();
    let sent: Vec<_> = sent.iter().filter(|sent| eviction(sent)).collect();
    assert_eq!(sent.len(), 1, "{sent:?}");
    let meant = &sent[0].body["deleteOptions"]["preconditions"]["uid"];
    assert_eq!(meant.as_str(), before.uid().as_deref());
    stop_pod(&fleet.case, "db-0").await?;
    fleet.end().await
}

/// A node with a dead kubelet needs a reboot most, and nothing there reports that a pod has stopped.
pub(crate) async fn overdue_pods_on_an_unready_node_do_not_block_the_reboot(
    case: Case,
) -> anyhow::Result<()> {
    let embedded = case.cluster().backend() == Backend::Embedded;
    let spec = json!({ "healthCheck": { "minReadySeconds": 1 }, "drain": { "gracePeriodSeconds": 1 } });
    let fleet = Fleet::new(&case, 2, spec).await?;
    let (silent, well) = (fleet.name(0), fleet.name(1));
    for (node, name) in [(&silent, "lost"), (&well, "slow")] {
        pod(&fleet.case, node, name, "ReplicaSet").await?;
        set_finalizers(&fleet, name, &["example.com/held"]).await?;
    }
    fleet.set_ready(&silent, "Unknown").await?;
    let begin = fleet.clock.now();
    fleet.request(&silent).await?;
    // While the pod may still have been stopped.
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(fleet.view(&silent).await?.phase(), Some(Phase::Draining));
    let view = fleet.wait_for_phase(&silent, Phase::Armed).await?;
    let took = view.state().expect("it is armed").since.duration_since(begin);
    assert!(took.as_secs() >= 30, "not before the pods are overdue: {took:?}");
    let lost = case.api::<Pod>().get("lost").await?;
    assert!(lost.metadata.deletion_timestamp.is_some(), "it was evicted");
    // The agents of this fleet read the boot ID from the node's status.
    fleet.set_ready(&silent, "True").await?;
    fleet.wait_until_idle(&silent).await?;
    assert_eq!(fleet.boots(&silent), 1);
    // If the kubelet is up, it is waited for.
    fleet.request(&well).await?;
    fleet.wait_for_phase(&well, Phase::Draining).await?;
    if embedded {
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert_eq!(fleet.view(&well).await?.phase(), Some(Phase::Draining));
    }
    set_finalizers(&fleet, "slow", &[]).await?;
    fleet.wait_until_idle(&well).await?;
    assert_eq!(fleet.boots(&well), 1);
    set_finalizers(&fleet, "lost", &[]).await?;
    fleet.end().await
}

/// A pod with a finalizer is never reported as gone.
async fn set_finalizers(fleet: &Fleet, pod: &str, finalizers: &[&str]) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    fleet
        .case
        .api::<Pod>()
        .patch(pod, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}
