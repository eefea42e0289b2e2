//! The shipped rights of the controller, and leader election.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use windlass::{
    k8s_openapi::api::policy::v1::PodDisruptionBudget, kube::api::PostParams, prelude::*,
    runtime::ElectionConfig,
};
use windlass_reboot::{Arguments, DEFAULT_POLICY, state::Phase};
use windlass_suite::{Context as Case, ManifestRoles, RecordedRequest, RequestProxy, RunningManager};

use crate::controller::{
    fleet::{Fleet, controllers, controllers_with},
    hooks::{create_template, finish_jobs},
    roll::{at_a_time, status},
};

/// The shipped rights of the controller, with those for hooks.
pub(crate) fn shipped() -> ManifestRoles {
    let (always, hooks) = (
        include_str!("../../rbac.yaml"),
        include_str!("../../hooks/rbac.yaml"),
    );
    ManifestRoles::parse(&format!("{always}\n---\n{hooks}")).expect("valid roles")
}

/// A scenario that needs each of the rights.
pub(crate) async fn shipped_roles_are_sufficient_and_minimal(case: Case) -> anyhow::Result<()> {
    let rights = shipped();
    let mut fleet = Fleet::idle(&case, 1, at_a_time(1)).await?;
    fleet
        .policies()
        .delete(&fleet.policy, &windlass::kube::api::DeleteParams::default())
        .await?;
    DEFAULT_POLICY.clone_into(&mut fleet.policy);
    let proxy = RequestProxy::new(&rights.client(&case).await?).in_namespace(case.namespace());
    // A server without streaming lists is listed from.
    let streams = |sent: &RecordedRequest| sent.access.verb == "watch";
    proxy.reject(4, StatusCode::UNPROCESSABLE_ENTITY, streams);
    // One conflict each, with the node and with the pod.
    let cordons =
        |sent: &RecordedRequest| sent.resource() == "nodes" && sent.body.to_string().contains("Cordoned");
    proxy.reject(1, StatusCode::CONFLICT, cordons);
    proxy.reject(1, StatusCode::CONFLICT, |sent| sent.subresource() == "eviction");
    let manager = Manager::new(proxy.client()).elect(ElectionConfig::new("reboot"));
    let arguments = Arguments {
        hook_namespace: case.namespace().to_owned(),
        ..Arguments::default()
    };
    let running = RunningManager::start(controllers_with(manager, fleet.clock, &arguments));

    let node = fleet.name(0);
    fleet.create_protected_pod(&node).await?;
    // Two budgets on one pod: the server does not name them.
    let spec = json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": node } } });
    let budget = from_value(json!({ "metadata": { "name": "second" }, "spec": spec }))?;
    let budgets = case.api::<PodDisruptionBudget>();
    budgets.create(&PostParams::default(), &budget).await?;
    fleet.request(&node).await?;
    fleet.wait_for_policy(|_| true).await?;
    fleet
        .wait_for_policy(|policy| {
            let blockers = status(policy).blockers;
            blockers.iter().any(|one| {
                one.budget
                    .as_deref()
                    .is_some_and(|names| names.contains("second"))
            })
        })
        .await?;
    fleet
        .change_policy(json!({
            "drain": { "timeout": "1s", "onTimeout": "Force" }, "backoff": "1s", "hooks": { "before": "noout" },
        }))
        .await?;
    create_template(&case, "noout").await?;
    let jobs = finish_jobs(&case, "Complete");
    // The deadline was set when the drain began: it has to start over.
    fleet.cordon(&node, false).await?;
    fleet.wait_until_idle(&node).await?;
    assert_eq!(fleet.boots(&node), 1);
    jobs.stop().await?;
    running.stop().await?;
    assert_eq!(rights.forbidden(), [""; 0]);
    assert_eq!(rights.unused(), [], "unused rights");
    fleet.end().await
}

/// The leader stops in the middle; the other controller continues.
pub(crate) async fn second_controller_continues_after_the_leader_stops(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::idle(&case, 2, at_a_time(1)).await?;
    let start = || {
        let proxy = fleet.proxy.clone().in_namespace(case.namespace());
        let manager = Manager::new(proxy.client()).elect(ElectionConfig::new("reboot"));
        RunningManager::start(controllers(manager, fleet.clock, None))
    };
    let first = start();
    let node = fleet.name(0);
    fleet.create_protected_pod(&node).await?;
    for number in 0..2 {
        fleet.request(&fleet.name(number)).await?;
    }
    fleet.wait_for_phase(&node, Phase::Draining).await?;
    let second = start();
    fleet.pass_time(Duration::from_mins(1)).await;
    first.stop().await?;
    fleet.allow(&node, 1).await?;
    for number in 0..2 {
        fleet.wait_until_idle(&fleet.name(number)).await?;
    }
    assert_eq!((fleet.rebooted().len(), fleet.max_down()), (2, 1));
    let epoch = status(&fleet.policy().await?).epoch;
    assert_eq!(epoch, 2, "each node had one slot: nothing was started over");
    second.stop().await?;
    fleet.end().await
}
