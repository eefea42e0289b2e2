//! Drains: what is in the way, and what becomes of the node.

use std::time::Duration;

use tokio::time::Instant;
use windlass::{
    k8s_openapi::api::core::v1::{Event, Pod},
    kube::api::{ListParams, Patch, PatchParams},
    prelude::*,
};
use windlass_cluster::Backend;
use windlass_reboot::{RebootPolicy, state::Phase};
use windlass_suite::{Context as Case, Sent};

use crate::{
    fleet::Fleet,
    pods::{allow, budget, pod, stays, stopped},
};

/// When the controller asked for the pod's eviction.
fn asked(fleet: &Fleet, pod: &str) -> Vec<Instant> {
    let sent = fleet.wire.sent();
    let evictions = sent
        .iter()
        .filter(|sent| sent.part() == "eviction" && sent.name() == pod);
    evictions.map(|sent| sent.at).collect()
}

fn blockers(policy: &RebootPolicy) -> Vec<(String, Option<String>)> {
    let blockers = policy.status.iter().flat_map(|status| &status.blockers);
    let mut named: Vec<_> = blockers
        .map(|one| (one.pod.clone(), one.budget.clone()))
        .collect();
    named.sort();
    named
}

/// A budget at zero, two of them on one pod, and one that is still being processed, on a node each.
pub(crate) async fn what_is_in_the_way_is_named_and_the_node_given_back_in_time(
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
    // All of them, with what covers them, for who looks at the policy.
    let namespace = case.namespace();
    let named = |pod: &str, budget: &str| (format!("{namespace}/{pod}"), Some(budget.to_owned()));
    let all = [
        named("api", "one,two"),
        named("db", "fresh"),
        named("web", "at-zero"),
    ];
    fleet.policed(|policy| blockers(policy) == all).await?;
    // And for who looks at the node: its condition, and an event.
    let node = fleet.nodes().get(&nodes[0]).await?;
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let draining = conditions
        .filter(|one| one.type_ == "DrainInProgress")
        .find_map(|one| one.message.clone());
    assert!(
        draining.is_some_and(|message| message.contains("at-zero needs 1 healthy pods")),
        "{:?}",
        node.status
    );

    for node in &nodes {
        let view = fleet.phase(node, Phase::Aborted).await?;
        assert!(
            !view.unschedulable && !view.cordoned,
            "it takes pods again: {view:?}"
        );
        assert!(
            view.needed.is_some() && view.order.is_none(),
            "it is asked for as before: {view:?}"
        );
        assert_eq!(fleet.boots(node), 0);
    }
    let policy = fleet
        .policed(|policy| blockers(policy).is_empty() && granted(policy) == 0)
        .await?;
    assert_eq!(policy.status.as_ref().map(|status| status.requested), Some(3));
    fleet.settle().await;
    for (node, budget) in nodes.iter().zip(["at-zero", "one,two", "fresh"]) {
        let about = format!("involvedObject.name={node},reason=DrainBlocked");
        let events = windlass::kube::Api::<Event>::all(case.client());
        let events = events.list(&ListParams::default().fields(&about)).await?;
        let tells = |event: &Event| {
            event
                .message
                .as_ref()
                .is_some_and(|message| message.contains(budget))
        };
        assert!(events.items.iter().any(tells), "{budget}: {events:#?}");
        assert!(fleet.told(node).await?.contains(&"RebootAborted".to_owned()));
        let node = json!(fleet.nodes().get(node).await?.status);
        let conditions = node["conditions"].as_array().into_iter().flatten();
        let planned = conditions.filter(|one| one["type"] == "MaintenancePlanned");
        let said: Vec<_> = planned
            .map(|one| (&one["reason"], one["message"].as_str()))
            .collect();
        assert!(
            matches!(said[..], [(reason, Some(why))] if reason == "RebootAborted" && why.contains("within 16s; it rests until")),
            "{said:?}"
        );
    }
    // Seldom enough, although everything that happens wakes it: pods, nodes and policies.
    for (name, wait, most) in [("web", 5, 4), ("api", 5, 4), ("db", 10, 2)] {
        let asked = asked(&fleet, name);
        let wait = Duration::from_secs(wait);
        assert!((2..=most).contains(&asked.len()), "{name}: {asked:?}");
        assert!(
            asked.windows(2).all(|pair| pair[1] - pair[0] >= wait),
            "{name}: {asked:?}"
        );
    }
    for name in ["web", "api", "db"] {
        stopped(&fleet.case, name).await?;
    }
    fleet.end().await
}

fn granted(policy: &RebootPolicy) -> usize {
    policy.status.as_ref().map_or(0, |status| status.granted.len())
}

pub(crate) async fn a_drain_that_is_let_through_goes_on_to_the_reboot(case: Case) -> anyhow::Result<()> {
    let spec = json!({ "after": { "minReadySeconds": 1 }, "drain": { "gracePeriodSeconds": 0 } });
    let fleet = Fleet::new(&case, 1, spec).await?;
    let node = fleet.name(0);
    pod(&fleet.case, &node, "web", "ReplicaSet").await?;
    let proxy = pod(&fleet.case, &node, "proxy", "DaemonSet").await?;
    budget(&fleet.case, "strict", "web", Some(0)).await?;
    fleet.request(&node).await?;
    fleet.policed(|policy| !blockers(policy).is_empty()).await?;
    allow(&fleet.case, "strict", 1).await?;
    let view = fleet.done(&node).await?;
    assert!(!view.unschedulable);
    assert_eq!(fleet.boots(&node), 1);
    assert!(
        stays(&fleet.case, &proxy).await?,
        "a DaemonSet's pod is not asked to go"
    );
    assert_eq!(asked(&fleet, "proxy").len(), 0);
    fleet.policed(|policy| blockers(policy).is_empty()).await?;
    stopped(&fleet.case, "proxy").await?;
    fleet.end().await
}

pub(crate) async fn forced_the_node_reboots_whatever_its_budgets_say(case: Case) -> anyhow::Result<()> {
    let drain = json!({ "timeout": "6s", "onTimeout": "Force", "gracePeriodSeconds": 0 });
    let spec = json!({ "after": { "minReadySeconds": 1 }, "drain": drain });
    let fleet = Fleet::new(&case, 1, spec).await?;
    let node = fleet.name(0);
    let web = pod(&fleet.case, &node, "web", "ReplicaSet").await?;
    budget(&fleet.case, "strict", "web", Some(0)).await?;
    fleet.request(&node).await?;
    fleet.policed(|policy| !blockers(policy).is_empty()).await?;
    assert!(stays(&fleet.case, &web).await?, "not before its time");
    fleet.done(&node).await?;
    assert_eq!(fleet.boots(&node), 1);
    assert!(!stays(&fleet.case, &web).await?);
    fleet.end().await
}

/// A StatefulSet's pod has the same name wherever it is.
pub(crate) async fn a_pod_made_anew_elsewhere_while_its_node_is_drained_is_never_evicted(
    case: Case,
) -> anyhow::Result<()> {
    let spec = json!({ "after": { "minReadySeconds": 1 }, "drain": { "gracePeriodSeconds": 0 } });
    let fleet = Fleet::new(&case, 2, spec).await?;
    let (node, other) = (fleet.name(0), fleet.name(1));
    let before = pod(&fleet.case, &node, "db-0", "StatefulSet").await?;
    pod(&fleet.case, &node, "web", "ReplicaSet").await?;
    budget(&fleet.case, "strict", "web", Some(0)).await?;
    // It is on the other node by the time at which its eviction reaches the server.
    let eviction = |sent: &Sent| sent.part() == "eviction" && sent.name() == "db-0";
    fleet.wire.delay(1, Duration::from_secs(2), eviction);
    fleet.request(&node).await?;
    fleet.wire.seen(eviction).await?;
    stopped(&fleet.case, "db-0").await?;
    let successor = pod(&fleet.case, &other, "db-0", "StatefulSet").await?;
    assert_ne!(before.uid(), successor.uid());
    // The drain goes on meanwhile, since there is another pod that does not go.
    fleet.policed(|policy| !blockers(policy).is_empty()).await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(stays(&fleet.case, &successor).await?);
    allow(&fleet.case, "strict", 1).await?;
    fleet.done(&node).await?;
    assert_eq!(fleet.boots(&node), 1);
    assert!(stays(&fleet.case, &successor).await?);
    let sent = fleet.wire.sent();
    let sent: Vec<_> = sent.iter().filter(|sent| eviction(sent)).collect();
    assert_eq!(sent.len(), 1, "{sent:?}");
    let meant = &sent[0].body["deleteOptions"]["preconditions"]["uid"];
    assert_eq!(meant.as_str(), before.uid().as_deref());
    stopped(&fleet.case, "db-0").await?;
    fleet.end().await
}

/// A node whose kubelet is silent is what a reboot is good for, and nobody there says that a pod has stopped.
pub(crate) async fn on_a_node_that_is_silent_pods_whose_time_is_over_are_left_to_the_reboot(
    case: Case,
) -> anyhow::Result<()> {
    let embedded = case.cluster().backend() == Backend::Embedded;
    let spec = json!({ "after": { "minReadySeconds": 1 }, "drain": { "gracePeriodSeconds": 1 } });
    let fleet = Fleet::new(&case, 2, spec).await?;
    let (silent, well) = (fleet.name(0), fleet.name(1));
    for (node, name) in [(&silent, "lost"), (&well, "slow")] {
        pod(&fleet.case, node, name, "ReplicaSet").await?;
        hold(&fleet, name, &["example.com/held"]).await?;
    }
    fleet.ready(&silent, "Unknown").await?;
    let begin = fleet.clock.now();
    fleet.request(&silent).await?;
    // As long as the pod still may have been stopped.
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert_eq!(fleet.view(&silent).await?.phase(), Some(Phase::Draining));
    let view = fleet.phase(&silent, Phase::Armed).await?;
    let took = view.state().expect("it is armed").since.duration_since(begin);
    assert!(took.as_secs() >= 30, "not before their time is over: {took:?}");
    let lost = case.api::<Pod>().get("lost").await?;
    assert!(lost.metadata.deletion_timestamp.is_some(), "it was asked to go");
    // The agents of this fleet know a machine by what its kubelet says.
    fleet.ready(&silent, "True").await?;
    fleet.done(&silent).await?;
    assert_eq!(fleet.boots(&silent), 1);
    // Where a kubelet is there to tell, it is waited for.
    fleet.request(&well).await?;
    fleet.phase(&well, Phase::Draining).await?;
    if embedded {
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert_eq!(fleet.view(&well).await?.phase(), Some(Phase::Draining));
    }
    hold(&fleet, "slow", &[]).await?;
    fleet.done(&well).await?;
    assert_eq!(fleet.boots(&well), 1);
    hold(&fleet, "lost", &[]).await?;
    fleet.end().await
}

/// Nobody says of a pod with a finalizer that it is gone.
async fn hold(fleet: &Fleet, pod: &str, finalizers: &[&str]) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    fleet
        .case
        .api::<Pod>()
        .patch(pod, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}
