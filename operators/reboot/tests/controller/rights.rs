//! The rights that the controller ships with, and one leader of many.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use windlass::{
    k8s_openapi::api::policy::v1::PodDisruptionBudget, kube::api::PostParams, prelude::*,
    runtime::ElectionConfig,
};
use windlass_reboot::{DEFAULT_POLICY, state::Phase};
use windlass_suite::{Context as Case, Running, Sent, Shipped, Wire};

use crate::{
    fleet::{Fleet, controllers},
    roll::{at_a_time, status},
};

/// The rights that the controller ships with.
pub(crate) fn shipped() -> Shipped {
    Shipped::read(include_str!("../../rbac.yaml")).expect("a manifest of roles")
}

/// A life in which each of them is needed.
pub(crate) async fn the_roles_are_enough_and_nothing_in_them_is_idle(case: Case) -> anyhow::Result<()> {
    let rights = shipped();
    let mut fleet = Fleet::idle(&case, 1, at_a_time(1)).await?;
    fleet
        .policies()
        .delete(&fleet.policy, &windlass::kube::api::DeleteParams::default())
        .await?;
    DEFAULT_POLICY.clone_into(&mut fleet.policy);
    let wire = Wire::new(&rights.client(&case).await?).within(case.namespace());
    // A server that does not stream lists is asked for them.
    let streams = |sent: &Sent| sent.access.verb == "watch";
    wire.refuse(4, StatusCode::UNPROCESSABLE_ENTITY, streams);
    // Somebody else is faster, once: with the node, and with the pod.
    let cordons = |sent: &Sent| sent.resource() == "nodes" && sent.body.to_string().contains("Cordoned");
    wire.refuse(1, StatusCode::CONFLICT, cordons);
    wire.refuse(1, StatusCode::CONFLICT, |sent| sent.part() == "eviction");
    let manager = Manager::new(wire.client()).elect(ElectionConfig::new("reboot"));
    let running = Running::start(controllers(manager, fleet.clock, None));

    let node = fleet.name(0);
    fleet.pinned(&node).await?;
    // Two budgets on one pod: the server does not say which.
    let spec = json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": node } } });
    let budget = from_value(json!({ "metadata": { "name": "second" }, "spec": spec }))?;
    let budgets = case.api::<PodDisruptionBudget>();
    budgets.create(&PostParams::default(), &budget).await?;
    fleet.request(&node).await?;
    fleet.policed(|_| true).await?;
    fleet
        .policed(|policy| {
            let blockers = status(policy).blockers;
            blockers.iter().any(|one| {
                one.budget
                    .as_deref()
                    .is_some_and(|names| names.contains("second"))
            })
        })
        .await?;
    fleet
        .change_policy(json!({ "drain": { "timeout": "1s", "onTimeout": "Force" }, "backoff": "1s" }))
        .await?;
    // The deadline of this drain is that of when it began: it begins anew.
    fleet.cordon(&node, false).await?;
    fleet.done(&node).await?;
    assert_eq!(fleet.boots(&node), 1);
    running.stop().await?;
    assert_eq!(rights.refused(), [""; 0]);
    assert_eq!(rights.unused(), [], "granted, and nobody needs it");
    fleet.end().await
}

/// Whoever leads is stopped in the middle; the other one goes on where it was.
pub(crate) async fn a_second_controller_takes_over_where_the_leader_stopped(
    case: Case,
) -> anyhow::Result<()> {
    let fleet = Fleet::idle(&case, 2, at_a_time(1)).await?;
    let start = || {
        let wire = fleet.wire.clone().within(case.namespace());
        let manager = Manager::new(wire.client()).elect(ElectionConfig::new("reboot"));
        Running::start(controllers(manager, fleet.clock, None))
    };
    let first = start();
    let node = fleet.name(0);
    fleet.pinned(&node).await?;
    for number in 0..2 {
        fleet.request(&fleet.name(number)).await?;
    }
    fleet.phase(&node, Phase::Draining).await?;
    let second = start();
    fleet.pass(Duration::from_mins(1)).await;
    first.stop().await?;
    fleet.allow(&node, 1).await?;
    for number in 0..2 {
        fleet.done(&fleet.name(number)).await?;
    }
    assert_eq!((fleet.rebooted().len(), fleet.most_down()), (2, 1));
    let epoch = status(&fleet.policy().await?).epoch;
    assert_eq!(epoch, 2, "each node had one slot: nothing was begun anew");
    second.stop().await?;
    fleet.end().await
}
