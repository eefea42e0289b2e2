//! Nodes that do not come back as they should, and administrators who do something meanwhile.

use std::time::Duration;

use anyhow::Context as _;
use windlass::{
    k8s_openapi::api::core::v1::Pod,
    kube::api::{Patch, PatchParams},
    prelude::*,
};
use windlass_cluster::Backend;
use windlass_reboot::{
    PolicyPhase,
    machine::NodeView,
    state::{Names, Phase, Progress},
};
use windlass_suite::Context as Case;

use crate::{
    fleet::{Fleet, Temper},
    pods::{pod, stopped},
    roll::{at_a_time, status},
};

/// Says of a pod whether it is ready.
async fn pod_is(fleet: &Fleet, name: &str, ready: &str) -> anyhow::Result<()> {
    let conditions = json!([{ "type": "Ready", "status": ready }]);
    let patch = Patch::Merge(json!({ "status": { "conditions": conditions } }));
    fleet
        .case
        .api::<Pod>()
        .patch_status(name, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

fn reason(view: &NodeView) -> String {
    let reason = view.state().and_then(|state| state.reason.clone());
    reason.unwrap_or_default()
}

pub(crate) async fn a_node_that_flaps_is_not_good_until_it_stays_ready(case: Case) -> anyhow::Result<()> {
    let (long, flap) = match case.cluster().backend() {
        Backend::Embedded => (20, Duration::from_secs(12)),
        _ => (4, Duration::from_secs(2)),
    };
    let mut spec = at_a_time(1);
    spec["after"] = json!({ "minReadySeconds": long });
    let fleet = Fleet::new(&case, 2, spec).await?;
    let (node, next) = (fleet.name(0), fleet.name(1));
    fleet.request(&node).await?;
    fleet.request(&next).await?;
    fleet.phase(&node, Phase::Rebooted).await?;
    for _ in 0..4 {
        fleet.ready(&node, "False").await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        fleet.ready(&node, "True").await?;
        tokio::time::sleep(flap).await;
        let view = fleet.view(&node).await?;
        assert_eq!(view.phase(), Some(Phase::Rebooted), "{view:?}");
        assert!(fleet.view(&next).await?.state.is_none(), "its slot is not free");
    }
    let view = fleet.done(&node).await?;
    assert!(!view.unschedulable);
    fleet.done(&next).await?;
    assert_eq!(
        (fleet.boots(&node), fleet.boots(&next), fleet.most_down()),
        (1, 1, 1)
    );
    fleet.end().await
}

/// Its kubelet is up, and what makes a node of a machine is not: its network, for example.
pub(crate) async fn a_node_whose_pods_do_not_come_back_fails_and_keeps_its_slot(
    case: Case,
) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    spec["after"] = json!({ "minReadySeconds": 0, "timeout": "4s" });
    let fleet = Fleet::new(&case, 2, spec).await?;
    let (node, next) = (fleet.name(0), fleet.name(1));
    pod(&fleet.case, &node, "network", "DaemonSet").await?;
    pod_is(&fleet, "network", "False").await?;
    fleet.request(&node).await?;
    fleet.request(&next).await?;
    let rebooted = fleet.phase(&node, Phase::Rebooted).await?;
    assert!(rebooted.unschedulable);
    let view = fleet.phase(&node, Phase::Failed).await?;
    assert!(
        reason(&view).contains("did not become good in time"),
        "{}",
        reason(&view)
    );
    assert!(view.unschedulable && view.needed.is_some());
    let policy = fleet.policed(|policy| status(policy).failed == 1).await?;
    assert_eq!(status(&policy).granted.len(), 1);
    // It has rebooted, so whoever has mended it takes both off.
    pod_is(&fleet, "network", "True").await?;
    fleet.pass(Duration::from_hours(1)).await;
    assert_eq!(
        fleet.view(&node).await?.phase(),
        Some(Phase::Failed),
        "somebody has to look"
    );
    assert!(fleet.view(&next).await?.state.is_none());
    let names = Names::default();
    fleet
        .annotate(&node, json!({ &*names.state: null, &*names.needed: null }))
        .await?;
    let view = fleet.done(&node).await?;
    assert!(!view.unschedulable);
    fleet.done(&next).await?;
    assert_eq!((fleet.boots(&node), fleet.boots(&next)), (1, 1));
    stopped(&fleet.case, "network").await?;
    fleet.end().await
}

/// The agent runs a command of the administrator's, and says in which boot it has passed.
pub(crate) async fn a_node_waits_for_the_check_of_its_agent(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(1);
    spec["after"] = json!({ "minReadySeconds": 0, "agentCheck": true });
    let fleet = Fleet::new(&case, 1, spec).await?;
    let (node, names) = (fleet.name(0), Names::default());
    fleet.request(&node).await?;
    let proved = |view: &NodeView| view.progress().is_some_and(|progress| progress.proved.is_some());
    let view = fleet
        .until(&node, |view| {
            view.phase() == Some(Phase::Rebooted) && proved(view)
        })
        .await?;
    let mut progress = view.progress().cloned().context("it was proved")?;
    // That it passed in the boot before says nothing.
    progress.checked = Some(progress.boot_id.clone());
    let text = |progress: &Progress| windlass::serde_json::to_string(progress);
    fleet
        .annotate(&node, json!({ &*names.in_progress: text(&progress)? }))
        .await?;
    fleet.pass(Duration::from_secs(5)).await;
    let view = fleet.view(&node).await?;
    assert_eq!((view.phase(), view.unschedulable), (Some(Phase::Rebooted), true));
    progress.checked.clone_from(&progress.proved);
    fleet
        .annotate(&node, json!({ &*names.in_progress: text(&progress)? }))
        .await?;
    fleet.done(&node).await?;
    assert_eq!(fleet.boots(&node), 1);
    fleet.end().await
}

pub(crate) async fn the_roll_goes_on_until_the_failure_budget_is_spent(case: Case) -> anyhow::Result<()> {
    let mut spec = at_a_time(4);
    spec["failureBudget"] = 2.into();
    let fleet = Fleet::new(&case, 4, spec).await?;
    fleet
        .change_policy(json!({ "reboot": { "timeout": fleet.short() } }))
        .await?;
    let [first, well, second, last] = [0, 1, 2, 3].map(|number| fleet.name(number));
    for node in [&first, &second] {
        fleet.temper(node, Temper::Dies);
    }
    fleet.request(&first).await?;
    fleet.phase(&first, Phase::Failed).await?;
    let policy = fleet
        .policed(|policy| status(policy).conditions.is_true("Degraded"))
        .await?;
    assert!(!status(&policy).conditions.is_true("Paused"));
    fleet.request(&well).await?;
    fleet.done(&well).await?;
    fleet.request(&second).await?;
    fleet.phase(&second, Phase::Failed).await?;
    fleet
        .policed(|policy| status(policy).phase == Some(PolicyPhase::Paused))
        .await?;
    fleet.request(&last).await?;
    fleet.pass(Duration::from_hours(3)).await;
    assert!(fleet.view(&last).await?.state.is_none());
    // One of them is given up: its node goes, and with it its slot and its failure.
    fleet.delete(&first).await?;
    fleet.done(&last).await?;
    assert_eq!(fleet.rebooted(), [well, last]);
    fleet.end().await
}

/// Its slot would be nobody's to take back, for as long as the other policy lets it wait.
pub(crate) async fn a_node_that_is_another_policys_by_now_holds_no_slot_of_its_former_one(
    case: Case,
) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 2, at_a_time(1)).await?;
    let (moved, next) = (fleet.name(0), fleet.name(1));
    fleet
        .change_policy(json!({ "reboot": { "timeout": fleet.short() } }))
        .await?;
    fleet.temper(&moved, Temper::Dies);
    fleet.request(&moved).await?;
    fleet.request(&next).await?;
    fleet.phase(&moved, Phase::Failed).await?;
    // The first by name has it, once somebody has looked.
    let paused = json!({ "paused": true, "nodeSelector": { "matchLabels": { "moved": "yes" } } });
    fleet.govern(&format!("a-{}", fleet.policy), paused).await?;
    let label = Patch::Merge(json!({ "metadata": {
        "labels": { "moved": "yes" }, "annotations": { Names::default().state: null },
    } }));
    fleet
        .nodes()
        .patch(&moved, &PatchParams::default(), &label)
        .await?;
    fleet.done(&next).await?;
    assert_eq!((fleet.boots(&moved), fleet.boots(&next)), (0, 1));
    assert!(
        fleet.view(&moved).await?.needed.is_some(),
        "it waits for the other one"
    );
    fleet.end().await
}

pub(crate) async fn what_an_administrator_decides_meanwhile_is_theirs(case: Case) -> anyhow::Result<()> {
    let fleet = Fleet::new(&case, 1, at_a_time(1)).await?;
    let node = fleet.name(0);
    pod(&fleet.case, &node, "network", "DaemonSet").await?;
    pod_is(&fleet, "network", "False").await?;
    fleet.request(&node).await?;
    fleet.phase(&node, Phase::Rebooted).await?;
    // It has rebooted, and is to take pods although it is not good.
    fleet.cordon(&node, false).await?;
    let view = fleet.until(&node, |view| !view.cordoned).await?;
    assert_eq!((view.phase(), view.unschedulable), (Some(Phase::Rebooted), false));
    // No: it is not.
    fleet.cordon(&node, true).await?;
    pod_is(&fleet, "network", "True").await?;
    let view = fleet.done(&node).await?;
    assert!(view.unschedulable, "nobody undoes what they did");
    assert!(fleet.told(&node).await?.contains(&"CordonLifted".to_owned()));
    stopped(&fleet.case, "network").await?;
    fleet.end().await
}

/// Wherever it is on its way: one of its name is another node, which nobody asked to reboot.
pub(crate) async fn a_node_that_is_replaced_on_its_way_leaves_nothing_to_its_successor(
    case: Case,
) -> anyhow::Result<()> {
    let mut fleet = Fleet::new(&case, 2, at_a_time(1)).await?;
    let (node, next) = (fleet.name(0), fleet.name(1));
    fleet
        .change_policy(json!({ "reboot": { "timeout": fleet.short() } }))
        .await?;
    for phase in [Phase::Armed, Phase::Failed, Phase::Rebooted] {
        if phase == Phase::Armed {
            fleet.stop_agents().await?;
        }
        if phase == Phase::Rebooted {
            pod(&fleet.case, &node, "network", "DaemonSet").await?;
            pod_is(&fleet, "network", "False").await?;
        }
        fleet.temper(
            &node,
            if phase == Phase::Failed {
                Temper::Dies
            } else {
                Temper::Well
            },
        );
        fleet.request(&node).await?;
        fleet.phase(&node, phase).await?;
        let before = fleet.boots(&next);
        fleet.request(&next).await?;
        fleet.delete(&node).await?;
        fleet.add(&node, json!({})).await?;
        if phase == Phase::Armed {
            fleet.start_agents().await?;
        }
        fleet.done(&next).await?;
        fleet
            .policed(|policy| status(policy).granted.is_empty() && status(policy).failed == 0)
            .await?;
        fleet.pass(Duration::from_mins(10)).await;
        let view = fleet.view(&node).await?;
        assert!(
            view.is_idle() && !view.unschedulable && view.order.is_none(),
            "{phase}: {view:?}"
        );
        assert_eq!(
            (fleet.boots(&node), fleet.boots(&next)),
            (0, before + 1),
            "{phase}"
        );
    }
    stopped(&fleet.case, "network").await?;
    fleet.end().await
}

pub(crate) async fn a_pause_in_the_middle_of_a_roll_is_over_as_if_it_had_not_been(
    case: Case,
) -> anyhow::Result<()> {
    let mut spec = at_a_time(2);
    spec["backoff"] = "1s".into();
    let fleet = Fleet::new(&case, 5, spec).await?;
    let nodes = [0, 1, 2, 3, 4].map(|number| fleet.name(number));
    // The first does not hear yet that it is to reboot, the second has a pod that does not go.
    fleet.temper(&nodes[0], Temper::Deaf);
    fleet.pinned(&nodes[1]).await?;
    for node in &nodes {
        fleet.request(node).await?;
    }
    fleet.until(&nodes[0], |view| view.progress.is_some()).await?;
    fleet.phase(&nodes[1], Phase::Draining).await?;
    fleet.change_policy(json!({ "paused": true })).await?;
    let view = fleet.phase(&nodes[1], Phase::Aborted).await?;
    assert!(!view.unschedulable && view.needed.is_some());
    fleet.pass(Duration::from_mins(5)).await;
    let policy = fleet.policed(|policy| status(policy).granted.len() == 1).await?;
    assert_eq!(
        (status(&policy).requested, status(&policy).phase),
        (4, Some(PolicyPhase::Paused))
    );
    assert_eq!(
        fleet.view(&nodes[0]).await?.phase(),
        Some(Phase::Armed),
        "it has begun"
    );
    for node in &nodes[2..] {
        assert!(fleet.view(node).await?.state.is_none());
    }
    // What has begun comes to its end under the pause.
    fleet.temper(&nodes[0], Temper::Well);
    fleet.ready(&nodes[0], "True").await?;
    fleet.annotate(&nodes[0], json!({ "heard": "" })).await?;
    fleet.done(&nodes[0]).await?;
    assert_eq!(fleet.rebooted(), [nodes[0].clone()]);
    fleet
        .change_policy(json!({ "paused": false, "drain": { "timeout": "1s", "onTimeout": "Force" } }))
        .await?;
    for node in &nodes {
        let view = fleet.done(node).await?;
        assert!(!view.unschedulable);
        assert_eq!(fleet.boots(node), 1);
    }
    assert!(fleet.most_down() <= 2);
    fleet.end().await
}
