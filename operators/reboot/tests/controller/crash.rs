//! A death of the controller at any of its requests, and the process that comes after: one boot, nothing left behind.

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Mutex as Turns;
use windlass::{kube::Client, prelude::*};
use windlass_cluster::Backend;
use windlass_reboot::{
    machine::NodeView,
    state::{Names, Phase},
};
use windlass_suite::{Context as Case, Sent, Shipped, Story, World, at_every_request};

use crate::{
    fleet::{Fleet, controllers},
    rights::shipped,
    roll::{at_a_time, status},
};

/// Two nodes are asked to reboot, one at a time; one of them has a pod that goes when it is asked to.
struct Roll {
    rights: Shipped,
    /// The pod does not go at first, so that the drain is called off and tried again; and the node soaks.
    called_off: bool,
    /// That of the current run. Machines and agents go on while the controller is dead.
    fleet: Turns<Option<Fleet>>,
    clock: Mutex<windlass::runtime::Clock>,
}

impl Roll {
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

impl Story for Roll {
    async fn client(&self, case: &Case) -> anyhow::Result<Client> {
        self.rights.client(case).await
    }

    async fn prepare(&self, world: &World) -> anyhow::Result<()> {
        self.replace(None).await?;
        let mut spec = at_a_time(1);
        if self.called_off {
            spec["drain"] = json!({ "timeout": "1s" });
            (spec["backoff"], spec["soak"]) = ("1s".into(), "1s".into());
        }
        let fleet = Fleet::idle(world.case(), self.nodes(), spec).await?;
        fleet.pinned(&fleet.name(0)).await?;
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

    async fn done(&self, _: &World) -> anyhow::Result<()> {
        let fleet = self.fleet.lock().await;
        let fleet = fleet.as_ref().expect("prepared");
        if self.called_off {
            let again =
                |view: &NodeView| view.is_idle() || view.state().is_some_and(|state| state.attempt > 1);
            fleet.until(&fleet.name(0), again).await?;
            fleet.allow(&fleet.name(0), 1).await?;
        }
        for number in 0..self.nodes() {
            fleet.done(&fleet.name(number)).await?;
        }
        fleet
            .policed(|policy| status(policy).granted.is_empty() && status(policy).rebooting == 0)
            .await?;
        Ok(())
    }

    async fn state(&self, _: &World) -> anyhow::Result<Value> {
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
            json!({ "nodes": nodes, "mostDown": fleet.most_down(), "pinned": fleet.is_pinned(&fleet.name(0)).await? }),
        )
    }

    fn may_write(&self, write: &Sent) -> bool {
        let text = write.body.to_string();
        match (write.resource(), write.part(), &*write.access.verb) {
            // The request goes in one write with the state, and never by itself.
            ("nodes", "", "patch") => {
                let names = Names::default();
                let annotations = &write.body["metadata"]["annotations"];
                let answers = annotations.get(&names.needed).is_some_and(Value::is_null);
                let conditional = write.body["metadata"]["resourceVersion"].is_string();
                conditional && (!answers || annotations.get(&names.state).is_some_and(Value::is_null))
            }
            // A kubelet's own are not the controller's to say.
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

pub(crate) async fn a_controller_that_dies_at_any_request_leaves_nothing_behind(
    case: Case,
) -> anyhow::Result<()> {
    tell(&case, false).await
}

/// Where each run takes real time, it dies once in each phase instead.
pub(crate) async fn so_does_one_whose_drain_is_called_off_at_first(case: Case) -> anyhow::Result<()> {
    if case.cluster().backend() == Backend::Embedded {
        return tell(&case, true).await;
    }
    let mut spec = at_a_time(1);
    spec["drain"] = json!({ "timeout": "2s" });
    (spec["backoff"], spec["soak"]) = ("2s".into(), "2s".into());
    let fleet = Fleet::idle(&case, 1, spec).await?;
    let node = fleet.name(0);
    fleet.pinned(&node).await?;
    fleet.request(&node).await?;
    for phase in [Phase::Draining, Phase::Aborted, Phase::Soaking] {
        let running = fleet.another(&fleet.wire, None);
        fleet.phase(&node, phase).await?;
        running.kill().await;
        if phase == Phase::Aborted {
            fleet.allow(&node, 1).await?;
        }
    }
    let running = fleet.another(&fleet.wire, None);
    let view = fleet.done(&node).await?;
    assert!(!view.unschedulable);
    assert_eq!(fleet.boots(&node), 1);
    fleet.policed(|policy| status(policy).granted.is_empty()).await?;
    running.stop().await?;
    fleet.end().await
}

async fn tell(case: &Case, called_off: bool) -> anyhow::Result<()> {
    windlass_suite::install(case, [windlass_reboot::RebootPolicy::crd()]).await?;
    let story = Roll {
        rights: shipped(),
        called_off,
        fleet: Turns::default(),
        clock: Mutex::default(),
    };
    let told = at_every_request(case, &story).await?;
    story.replace(None).await?;
    assert!(told.requests >= 30, "{told:?}");
    if case.cluster().backend() == Backend::Embedded {
        assert!(told.deaths >= 2 * told.requests - 20, "{told:?}");
    }
    Ok(())
}
