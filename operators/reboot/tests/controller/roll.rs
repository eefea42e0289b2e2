//! Successful rollouts: from a request to a node that has rebooted and is cleaned up.

use std::time::Duration;

use serde_json::{Value, json};
use windlass::prelude::*;
use windlass_reboot::{DEFAULT_POLICY, PlannedReboot, PolicyPhase, RebootPolicyStatus, state::Phase};
use windlass_suite::Context as Case;

use crate::controller::fleet::Fleet;

/// A policy for `max` nodes at a time, with the shortest health check.
pub(crate) fn at_a_time(max: impl Into<Value>) -> Value {
    json!({ "maxUnavailable": max.into(), "healthCheck": { "minReadySeconds": 0 } })
}

pub(crate) fn status(policy: &windlass_reboot::RebootPolicy) -> RebootPolicyStatus {
    policy.status.clone().unwrap_or_default()
}

/// All that an administrator has to do: set one annotation.
pub(crate) async fn annotated_node_reboots_once_and_is_cleaned_up(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 3, json!({ "healthCheck": { "minReadySeconds": 1 } })).await?;
    let node = fleet.name(1);
    let before = fleet.nodes().get(&node).await?;
    fleet.request(&node).await?;
    let view = fleet.wait_until_idle(&node).await?;
    assert!(!view.unschedulable, "it is schedulable again");
    assert_eq!(fleet.boots(&node), 1);
    let idle =
        |status: RebootPolicyStatus| status.granted.is_empty() && status.phase == Some(PolicyPhase::Idle);
    let policy = fleet.wait_for_policy(|policy| idle(status(policy))).await?;
    let status = status(&policy);
    assert_eq!((status.nodes, status.requested, status.rebooting), (3, 0, 0));
    fleet.settle().await;
    let after = fleet.nodes().get(&node).await?;
    assert_eq!(after.metadata.annotations, before.metadata.annotations);
    let conditions = json!(after.status)["conditions"].as_array().map(Vec::len);
    assert_eq!(conditions, Some(1), "the controller's conditions are gone");
    assert_eq!(
        fleet.event_reasons(&node).await?,
        [
            "RebootGranted",
            "Cordoned",
            "Draining",
            "Drained",
            "RebootArmed",
            "Rebooted",
            "RebootCompleted"
        ]
    );
    assert_eq!(
        fleet.boots(&fleet.name(0)),
        0,
        "no reboot was requested for the others"
    );
    fleet.end().await
}

pub(crate) async fn ten_nodes_reboot_two_at_a_time_in_order(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 10, at_a_time(2)).await?;
    let names: Vec<_> = (0..10).map(|number| fleet.name(number)).collect();
    for name in &names {
        fleet.request(name).await?;
    }
    for name in &names {
        fleet.wait_until_idle(name).await?;
    }
    assert_eq!(fleet.max_down(), 2);
    let mut order = fleet.rebooted();
    assert_eq!(order.len(), 10, "each node once: {order:?}");
    for (number, pair) in order.chunks_mut(2).enumerate() {
        pair.sort();
        assert_eq!(pair, &names[2 * number..2 * number + 2]);
    }
    fleet.end().await
}

/// A percentage is of the policy's nodes, rounded down; each zone has its own limit.
pub(crate) async fn max_unavailable_applies_to_all_nodes_and_to_each_zone(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time("50%");
    spec["perTopology"] = json!({ "key": "topology.kubernetes.io/zone" });
    let fleet = Fleet::new(&case, 0, spec).await?;
    let names: Vec<_> = (0..7).map(|number| fleet.name(number)).collect();
    for (number, name) in names.iter().enumerate() {
        let zone = if number < 3 { "east" } else { "west" };
        fleet
            .add(name, json!({ "topology.kubernetes.io/zone": zone }))
            .await?;
        fleet.request(name).await?;
    }
    fleet
        .wait_for_policy(|policy| status(policy).max_unavailable == 3)
        .await?;
    for name in &names {
        fleet.wait_until_idle(name).await?;
    }
    assert_eq!(fleet.max_down(), 2, "one in each zone");
    assert_eq!(fleet.rebooted().len(), 7);
    fleet.end().await
}

/// The control plane waits for the workers, and the controller's own node for all others.
pub(crate) async fn control_plane_reboots_after_workers_and_own_node_last(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::idle(&case, 1, at_a_time(3)).await?;
    let control = json!({ "node-role.kubernetes.io/control-plane": "" });
    fleet.add(&fleet.name(1), control).await?;
    for number in 2..5 {
        fleet.add(&fleet.name(number), json!({})).await?;
    }
    for number in 0..5 {
        fleet.request(&fleet.name(number)).await?;
    }
    let controller = fleet.start_another(&fleet.proxy, Some(fleet.name(0)));
    for number in 0..5 {
        fleet.wait_until_idle(&fleet.name(number)).await?;
    }
    let order = fleet.rebooted();
    assert_eq!(order[3..], [fleet.name(1), fleet.name(0)], "{order:?}");
    controller.stop().await?;
    fleet.end().await
}

/// There is no policy.
pub(crate) async fn default_policy_is_created_and_reboots_one_node_at_a_time(
    case: Case,
) -> anyhow::Result<()> {
    let mut fleet = Fleet::idle(&case, 3, at_a_time(1)).await?;
    fleet
        .policies()
        .delete(&fleet.policy, &windlass::kube::api::DeleteParams::default())
        .await?;
    DEFAULT_POLICY.clone_into(&mut fleet.policy);
    fleet.start();
    for number in 0..3 {
        fleet.request(&fleet.name(number)).await?;
    }
    for number in 0..3 {
        fleet.wait_until_idle(&fleet.name(number)).await?;
    }
    assert_eq!((fleet.max_down(), fleet.rebooted().len()), (1, 3));
    let policy = fleet.policy().await?;
    assert_eq!(status(&policy).epoch, 3);
    fleet.end().await
}

/// A dry run shows the batches, and changes nothing.
pub(crate) async fn dry_run_plans_without_changes(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(2);
    spec["dryRun"] = true.into();
    let fleet = Fleet::new(&case, 3, spec).await?;
    for number in 0..3 {
        fleet.request(&fleet.name(number)).await?;
    }
    let policy = fleet
        .wait_for_policy(|policy| status(policy).plan.len() == 3)
        .await?;
    let planned = |number, batch| PlannedReboot {
        node: fleet.name(number),
        batch,
    };
    assert_eq!(
        status(&policy).plan,
        [planned(0, 1), planned(1, 1), planned(2, 2)]
    );
    assert_eq!(status(&policy).phase, Some(PolicyPhase::DryRun));
    fleet.pass_time(Duration::from_hours(1)).await;
    assert_eq!((fleet.rebooted().len(), fleet.max_down()), (0, 0));
    assert!(fleet.view(&fleet.name(0)).await?.state.is_none());
    fleet.change_policy(json!({ "dryRun": false })).await?;
    for number in 0..3 {
        fleet.wait_until_idle(&fleet.name(number)).await?;
    }
    assert_eq!(status(&fleet.policy().await?).plan, []);
    fleet.end().await
}

/// Nothing starts outside of the window.
pub(crate) async fn closed_window_grants_no_slot(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    // A day a year ago.
    let past = json!({ "from": "2001-01-01", "to": "2999-01-01" });
    spec["exclusions"] = json!([past]);
    let fleet = Fleet::new(&case, 1, spec).await?;
    let node = fleet.name(0);
    fleet.request(&node).await?;
    fleet
        .wait_for_policy(|policy| status(policy).phase == Some(PolicyPhase::Waiting))
        .await?;
    fleet.pass_time(Duration::from_hours(1)).await;
    assert!(fleet.view(&node).await?.state.is_none());
    fleet.change_policy(json!({ "exclusions": [] })).await?;
    fleet.wait_until_idle(&node).await?;
    assert_eq!(fleet.boots(&node), 1);
    fleet.end().await
}

/// A node has to stay healthy for the soak time before the next one starts.
pub(crate) async fn node_soaks_before_its_slot_is_released(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    spec["soak"] = "2s".into();
    let fleet = Fleet::new(&case, 2, spec).await?;
    for number in 0..2 {
        fleet.request(&fleet.name(number)).await?;
    }
    let soaking = fleet.wait_for_phase(&fleet.name(0), Phase::Soaking).await?;
    assert!(
        soaking.unschedulable && soaking.request.is_some(),
        "the annotations stay until then"
    );
    assert!(fleet.view(&fleet.name(1)).await?.state.is_none());
    let deadline = soaking.state().and_then(|state| state.deadline);
    fleet.wait_until_idle(&fleet.name(0)).await?;
    assert!(deadline.is_some_and(|deadline| fleet.clock.now() >= deadline));
    fleet.wait_until_idle(&fleet.name(1)).await?;
    fleet.end().await
}

/// How every phase looks in `kubectl`.
pub(crate) async fn conditions_and_columns_show_progress(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 1, at_a_time(1)).await?;
    let node = fleet.name(0);
    fleet.create_protected_pod(&node).await?;
    fleet.request(&node).await?;
    fleet.wait_for_phase(&node, Phase::Draining).await?;
    let policy = fleet
        .wait_for_policy(|policy| !status(policy).blockers.is_empty())
        .await?;
    let blocker = &status(&policy).blockers[0];
    assert_eq!((&blocker.node, blocker.budget.as_ref()), (&node, Some(&node)));
    assert_eq!(blocker.pod, format!("{}/{node}", case.namespace()));
    let conditions = json!(fleet.nodes().get(&node).await?.status)["conditions"].clone();
    let conditions = conditions.as_array().cloned().unwrap_or_default();
    let of = |kind: &str| {
        conditions
            .iter()
            .find(|one| one["type"] == kind)
            .cloned()
            .unwrap_or_default()
    };
    assert_eq!(of("MaintenancePlanned")["reason"], "RebootRequested");
    assert_eq!(of("MaintenanceInProgress")["reason"], "Draining");
    let message = of("DrainInProgress")["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(
        message.contains(&format!("disruption budget {node}")),
        "{message}"
    );
    assert!(
        fleet
            .event_reasons(&node)
            .await?
            .contains(&"DrainBlocked".to_owned())
    );
    let status = status(&policy);
    assert_eq!((status.rebooting, status.phase), (1, Some(PolicyPhase::Rolling)));
    let prefix = format!("{node}: Draining (1 pod remaining, until ");
    let pod = format!("blocked by: pod {}/{node}: ", case.namespace());
    let says = |policy: &windlass_reboot::RebootPolicy| {
        let message = crate::controller::roll::status(policy)
            .message
            .unwrap_or_default();
        message.starts_with(&prefix) && message.contains(&pod) && message.contains("disruption budget")
    };
    let policy = fleet.wait_for_policy(says).await?;
    let conditions = crate::controller::roll::status(&policy).conditions;
    let progressing = conditions.of_type("Progressing").expect("it is reported");
    assert_eq!(
        (&*progressing.status, &*progressing.reason),
        ("True", "DrainBlocked")
    );
    assert!(progressing.message.contains(&pod), "{}", progressing.message);
    fleet.allow(&node, 1).await?;
    fleet.wait_until_idle(&node).await?;
    fleet.end().await
}

/// `kubectl get rebootpolicies -o wide`, from an idle policy to one whose nodes wait.
pub(crate) async fn wide_columns_show_what_is_waited_for(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    let closed = json!({ "from": "2001-01-01", "to": "2998-12-31" });
    spec["exclusions"] = json!([closed]);
    spec["windows"] = json!([{ "start": "22:00", "end": "04:00" }]);
    let fleet = Fleet::new(&case, 2, spec).await?;
    let says = |text: String| {
        move |policy: &windlass_reboot::RebootPolicy| {
            status(policy)
                .message
                .is_some_and(|message| message.starts_with(&text))
        }
    };
    fleet
        .wait_for_policy(says("no reboot is requested".to_owned()))
        .await?;
    fleet.request(&fleet.name(1)).await?;
    let opens = "no maintenance window is open: the next one opens at 2999-01-01T00:00:00Z";
    let policy = fleet.wait_for_policy(says(opens.to_owned())).await?;
    let conditions = status(&policy).conditions;
    let progressing = conditions.of_type("Progressing").expect("it is reported");
    assert_eq!(
        (&*progressing.status, &*progressing.reason, &*progressing.message),
        ("False", "WindowClosed", opens)
    );
    let columns = fleet.columns().await?;
    let cell = |columns: &std::collections::BTreeMap<String, String>, name: &str| columns.get(name).cloned();
    assert_eq!(
        cell(&columns, "Window").as_deref(),
        Some("closed until 2999-01-01T00:00:00Z")
    );
    assert_eq!(cell(&columns, "Message").as_deref(), Some(opens));
    assert_eq!(cell(&columns, "Requested").as_deref(), Some("1"));
    // A node that is down for another reason takes the only slot.
    fleet.set_ready(&fleet.name(0), "False").await?;
    fleet
        .change_policy(json!({ "exclusions": [], "windows": [] }))
        .await?;
    let full = format!(
        "waiting for a slot: {} (1 of at most 1 nodes are unavailable: {} not Ready)",
        fleet.name(1),
        fleet.name(0)
    );
    let policy = fleet.wait_for_policy(says(full)).await?;
    let conditions = status(&policy).conditions;
    assert_eq!(
        conditions
            .of_type("Progressing")
            .map(|one| one.reason.clone())
            .as_deref(),
        Some("NoSlot")
    );
    assert_eq!(
        cell(&fleet.columns().await?, "Window").as_deref(),
        Some("always open")
    );
    let planned = json!(fleet.nodes().get(&fleet.name(1)).await?.status)["conditions"].clone();
    let planned = planned.as_array().into_iter().flatten();
    let planned = planned.filter(|one| one["type"] == "MaintenancePlanned");
    let messages: Vec<_> = planned.filter_map(|one| one["message"].as_str()).collect();
    assert!(
        matches!(messages[..], [one] if one.contains(&format!("kubectl get rebootpolicy {} -o wide", fleet.policy))),
        "{messages:?}"
    );
    fleet.set_ready(&fleet.name(0), "True").await?;
    fleet.wait_until_idle(&fleet.name(1)).await?;
    fleet.end().await
}

/// An explicit policy overrides the default, and the first of two by name has their nodes.
pub(crate) async fn overlapping_policies_resolve_by_name_and_report_overlap(
    case: Case,
) -> anyhow::Result<()> {
    let mut fleet = Fleet::idle(&case, 1, at_a_time(1)).await?;
    let second = format!("{}-z", fleet.policy);
    let mut paused = at_a_time(1);
    paused["paused"] = true.into();
    fleet.create_policy(&second, paused).await?;
    let overlap = json!({ "paused": true, "nodeSelector": {} });
    fleet.create_policy(DEFAULT_POLICY, overlap).await?;
    fleet.start();
    fleet.request(&fleet.name(0)).await?;
    fleet.wait_until_idle(&fleet.name(0)).await?;
    let overlaps = |policy: &windlass_reboot::RebootPolicy| status(policy).conditions.is_true("Overlap");
    fleet.wait_for_policy(overlaps).await?;
    let first = std::mem::replace(&mut fleet.policy, second);
    fleet.wait_for_policy(overlaps).await?;
    fleet.policy = first;
    let default = fleet.policies().get(DEFAULT_POLICY).await?;
    assert!(!overlaps(&default), "every policy overrides it");
    fleet.end().await
}

/// An invalid policy reports its error and starts nothing.
pub(crate) async fn invalid_policy_reports_its_error(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 1, at_a_time(1)).await?;
    fleet.settle().await;
    let mistakes = [
        (json!({ "maxUnavailable": "some" }), "maxUnavailable `some`"),
        (
            json!({ "windows": [{ "start": "22:00", "end": "04:00", "timeZone": "Europe/Nowhere" }] }),
            "windows[0].timeZone `Europe/Nowhere`",
        ),
    ];
    let node = fleet.name(0);
    for (spec, reported) in mistakes {
        fleet.change_policy(spec).await?;
        let policy = fleet
            .wait_for_policy(|policy| {
                status(policy)
                    .message
                    .is_some_and(|message| message.contains(reported))
            })
            .await?;
        assert!(!status(&policy).conditions.is_true("Ready"));
        fleet.request(&node).await?;
        fleet.pass_time(Duration::from_mins(10)).await;
        assert!(fleet.view(&node).await?.state.is_none(), "{reported}");
        fleet
            .change_policy(json!({ "maxUnavailable": 1, "windows": [] }))
            .await?;
        fleet.wait_until_idle(&node).await?;
    }
    fleet.end().await
}
