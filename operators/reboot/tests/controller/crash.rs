//! A crash of the controller at any of its requests, and its successor: one boot per node, nothing left behind.

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Mutex as Turns;
use windlass::{kube::Client, prelude::*};
use windlass_cluster::Backend;
use windlass_reboot::{
    state::{AnnotationKeys, Phase},
    state_machine::NodeView,
};
use windlass_suite::{
    Context as Case, CrashScenario, ManifestRoles, RecordedRequest, TestEnvironment, crash_at_every_request,
};

use crate::controller::{
    fleet::{Fleet, controllers},
    rights::shipped,
    roll::{at_a_time, status},
};

/// Two nodes request a reboot, one at a time; one of them has a pod that leaves when evicted.
struct RolloutScenario {
    rights: ManifestRoles,
    /// The pod does not leave at first, so that the drain is aborted and retried; and the node soaks.
    called_off: bool,
    /// The fleet of the current run. Machines and agents keep running while the controller is down.
    fleet: Turns<Option<Fleet>>,
    clock: Mutex<windlass::runtime::Clock>,
}

impl RolloutScenario {
    fn nodes(&self) -> usize {
        if self.called_off { 1 } else { 2 }
    }

    async fn replace(&self, fleet: Option<Fleet>) -> anyhow::Result<()> {
        if let Some(fleet) = &fleet {
            *self.clock.lock() = fleet.clock;
        }
        let before = std::mem::replace(&mut *self.fleet.lock().await, fleet);
        match before {
            Some(before) => before.end().await,
            None => Ok(()),
        }
    }
}

impl CrashScenario for RolloutScenario {
    async fn client(&self, case: &Case) -> anyhow::Result<Client> {
        self.rights.client(case).await
    }

    async fn prepare(&self, env: &TestEnvironment) -> anyhow::Result<()> {
        self.replace(None).await?;
        let mut spec = at_a_time(1);
        if self.called_off {
            spec["drain"] = json!({ "timeout": "1s" });
            (spec["backoff"], spec["soak"]) = ("1s".into(), "1s".into());
        }
        let fleet = Fleet::idle(env.case(), self.nodes(), spec).await?;
        fleet.create_protected_pod(&fleet.name(0)).await?;
        if !self.called_off {
            fleet.allow(&fleet.name(0), 1).await?;
        }
        for number in 0..self.nodes() {
            fleet.request(&fleet.name(number)).await?;
        }
        self.replace(Some(fleet)).await
    }

    fn controllers(&self, manager: Manager) -> Manager {
        controllers(manager, *self.clock.lock(), None)
    }

    async fn wait_until_done(&self, _: &TestEnvironment) -> anyhow::Result<()> {
        let fleet = self.fleet.lock().await;
        let fleet = fleet.as_ref().expect("prepared");
        if self.called_off {
            let again =
                |view: &NodeView| view.is_idle() || view.state().is_some_and(|state| state.attempt > 1);
            fleet.wait_for_node(&fleet.name(0), again).await?;
            fleet.allow(&fleet.name(0), 1).await?;
        }
        for number in 0..self.nodes() {
            fleet.wait_until_idle(&fleet.name(number)).await?;
        }
        fleet
            .wait_for_policy(|policy| status(policy).granted.is_empty() && status(policy).rebooting == 0)
            .await?;
        Ok(())
    }

    async fn end_state(&self, _: &TestEnvironment) -> anyhow::Result<Value> {
        let fleet = self.fleet.lock().await;
        let fleet = fleet.as_ref().expect("prepared");
        let mut nodes = Vec::new();
        for number in 0..self.nodes() {
            let name = fleet.name(number);
            let node = fleet.nodes().get(&name).await?;
            let conditions = json!(node.status)["conditions"].clone();
            let conditions: Vec<_> = conditions
                .as_array()
                .into_iter()
                .flatten()
                .map(|one| one["type"].clone())
                .collect();
            let ours = node
                .annotations()
                .keys()
                .filter(|name| name.starts_with("reboot."));
            nodes.push(json!({
                "boots": fleet.boots(&name),
                "unschedulable": json!(node.spec)["unschedulable"],
                "annotations": ours.collect::<Vec<_>>(),
                "conditions": conditions,
            }));
        }
        Ok(
            json!({ "nodes": nodes, "mostDown": fleet.max_down(), "pinned": fleet.has_protected_pod(&fleet.name(0)).await? }),
        )
    }

    fn may_write(&self, write: &RecordedRequest) -> bool {
        let text = write.body.to_string();
        match (write.resource(), write.subresource(), &*write.access.verb) {
            // The request is removed in the same write as the state.
            ("nodes", "", "patch") => {
                let names = AnnotationKeys::default();
                let annotations = &write.body["metadata"]["annotations"];
                let answers = annotations.get(&names.reboot_needed).is_some_and(Value::is_null);
                let conditional = write.body["metadata"]["resourceVersion"].is_string();
                conditional && (!answers || annotations.get(&names.state).is_some_and(Value::is_null))
            }
            // The kubelet's own conditions are not the controller's to write.
            ("nodes", "status", "patch") => {
                let mut conditions = write.body["status"]["conditions"]
                    .as_array()
                    .into_iter()
                    .flatten();
                !conditions.any(|one| one["type"] == "Ready")
            }
            ("rebootpolicies", "status", "update") | ("events", ..) => true,
            ("pods", "eviction", "create") => text.contains("\"uid\""),
            _ => false,
        }
    }
}

pub(crate) async fn crash_at_any_request_is_recovered(case: Case) -> anyhow::Result<()> {
    run_scenario(&case, false).await
}

/// Where each run takes real time, the controller crashes once in each phase instead.
pub(crate) async fn crash_at_any_request_with_an_aborted_drain_is_recovered(
    case: Case,
) -> anyhow::Result<()> {
    if case.cluster().backend() == Backend::Embedded {
        return run_scenario(&case, true).await;
    }
    let mut spec = at_a_time(1);
    spec["drain"] = json!({ "timeout": "2s" });
    (spec["backoff"], spec["soak"]) = ("2s".into(), "2s".into());
    let fleet = Fleet::idle(&case, 1, spec).await?;
    let node = fleet.name(0);
    fleet.create_protected_pod(&node).await?;
    fleet.request(&node).await?;
    for phase in [Phase::Draining, Phase::Aborted, Phase::Soaking] {
        let running = fleet.start_another(&fleet.proxy, None);
        fleet.wait_for_phase(&node, phase).await?;
        running.kill().await;
        if phase == Phase::Aborted {
            fleet.allow(&node, 1).await?;
        }
    }
    let running = fleet.start_another(&fleet.proxy, None);
    let view = fleet.wait_until_idle(&node).await?;
    assert!(!view.unschedulable);
    assert_eq!(fleet.boots(&node), 1);
    fleet
        .wait_for_policy(|policy| status(policy).granted.is_empty())
        .await?;
    running.stop().await?;
    fleet.end().await
}

async fn run_scenario(case: &Case, called_off: bool) -> anyhow::Result<()> {
    windlass_suite::install_crds(case, [windlass_reboot::RebootPolicy::crd()]).await?;
    let scenario = RolloutScenario {
        rights: shipped(),
        called_off,
        fleet: Turns::default(),
        clock: Mutex::default(),
    };
    let report = crash_at_every_request(case, &scenario).await?;
    scenario.replace(None).await?;
    assert!(report.requests >= 30, "{report:?}");
    if case.cluster().backend() == Backend::Embedded {
        assert!(report.crashes >= 2 * report.requests - 20, "{report:?}");
    }
    Ok(())
}
