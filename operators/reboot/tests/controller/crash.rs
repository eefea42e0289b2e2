//! A death of the controller at any of its requests, and the process that comes after: one boot, nothing left behind.

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Mutex as Turns;
use windlass::{kube::Client, prelude::*};
use windlass_cluster::Backend;
use windlass_reboot::state::Names;
use windlass_suite::{Context as Case, Sent, Shipped, Story, World, at_every_request};

use crate::{
    fleet::{Fleet, controllers},
    rights::shipped,
    roll::{at_a_time, status},
};

/// Two nodes are asked to reboot, one at a time; one of them has a pod that goes when it is asked to.
struct Roll {
    rights: Shipped,
    /// That of the current run. Machines and agents go on while the controller is dead.
    fleet: Turns<Option<Fleet>>,
    clock: Mutex<windlass::runtime::Clock>,
}

impl Roll {
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
        let fleet = Fleet::idle(world.case(), 2, at_a_time(1)).await?;
        fleet.pinned(&fleet.name(0)).await?;
        fleet.allow(&fleet.name(0), 1).await?;
        for number in 0..2 {
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
        for number in 0..2 {
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
        for number in 0..2 {
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
            ("nodes", "status", "patch") => !text.contains("Ready"),
            ("rebootpolicies", "status", "update") | ("events", ..) => true,
            ("pods", "eviction", "create") => text.contains("\"uid\""),
            _ => false,
        }
    }
}

pub(crate) async fn a_controller_that_dies_at_any_request_leaves_nothing_behind(
    case: Case,
) -> anyhow::Result<()> {
    windlass_suite::install(&case, [windlass_reboot::RebootPolicy::crd()]).await?;
    let story = Roll {
        rights: shipped(),
        fleet: Turns::default(),
        clock: Mutex::default(),
    };
    let told = at_every_request(&case, &story).await?;
    story.replace(None).await?;
    assert!(told.requests >= 30, "{told:?}");
    if case.cluster().backend() == Backend::Embedded {
        assert!(told.deaths >= 2 * told.requests - 10, "{told:?}");
    }
    Ok(())
}
