//! Machines and kubelets that behave as a test tells them to.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use windlass::{
    k8s_openapi::api::core::v1::{Node, Pod},
    kube::{
        self, Api,
        api::{DeleteParams, Patch, PatchParams},
    },
    prelude::*,
    runtime::Clock,
};
use windlass_cluster::simulation::REBOOT_ANNOTATION;
use windlass_reboot::{state::AnnotationKeys, state_machine::NodeView};

/// How a machine reacts to a reboot request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RebootBehavior {
    /// It reboots.
    #[default]
    Well,
    /// It goes down and does not come back.
    Dies,
    /// It goes down and comes back in the same boot, as when only the kubelet restarts.
    Pretends,
    /// It does nothing.
    Deaf,
}

#[derive(Default)]
pub(crate) struct Machine {
    pub(crate) boots: usize,
    pub(crate) behavior: RebootBehavior,
}

/// The machines, and what was observed of the nodes.
#[derive(Default)]
pub(crate) struct Machines {
    pub(crate) by_name: BTreeMap<String, Machine>,
    /// In the order of their boots.
    pub(crate) rebooted: Vec<String>,
}

/// How long a machine is off, with simulated time.
pub(crate) const OFF: Duration = Duration::from_secs(20);

pub(crate) fn boot(number: usize) -> String {
    format!("boot-{number}")
}

/// Reports a kubelet's status, and leaves that of others.
pub(crate) async fn report(
    nodes: &Api<Node>,
    name: &str,
    boot: &str,
    ready: &str,
    now: Timestamp,
) -> kube::Result<()> {
    let patch = Patch::Strategic(json!({ "status": {
        "nodeInfo": { "bootID": boot },
        "conditions": [{
            "type": "Ready", "status": ready, "reason": "Test", "message": "", "lastTransitionTime": now.to_string(),
        }],
    } }));
    nodes.patch_status(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// The machines and their kubelets: a reboot request for the current boot is removed, and then ends it.
pub(crate) fn kubelets(
    machines: &Arc<Mutex<Machines>>,
    clock: Clock,
    off: Duration,
) -> Controller<Node, impl Reconciler> {
    let machines = Arc::clone(machines);
    let reconcile = move |request: Request, ctx: Context| {
        let machines = Arc::clone(&machines);
        async move {
            let Some(node) = ctx.lister::<Node>()?.get(&request.key) else {
                return Ok(Action::done());
            };
            let name = request.key.name();
            let machine =
                |machines: &Machines| machines.by_name.get(name).map(|one| (one.boots, one.behavior));
            let Some((boots, temper)) = machine(&machines.lock()) else {
                return Ok(Action::done());
            };
            if node.annotations().get(REBOOT_ANNOTATION) != Some(&boot(boots))
                || temper == RebootBehavior::Deaf
            {
                return Ok(Action::done());
            }
            let nodes = Api::<Node>::all(ctx.client().clone());
            let taken = Patch::Merge(json!({ "metadata": { "annotations": { REBOOT_ANNOTATION: null } } }));
            nodes.patch(name, &PatchParams::default(), &taken).await?;
            report(&nodes, name, &boot(boots), "False", clock.now()).await?;
            tokio::time::sleep(off).await;
            if temper == RebootBehavior::Dies {
                return Ok(Action::done());
            }
            let after = boots + usize::from(temper == RebootBehavior::Well);
            if temper == RebootBehavior::Well {
                let mut machines = machines.lock();
                machines.rebooted.push(name.to_owned());
                if let Some(machine) = machines.by_name.get_mut(name) {
                    machine.boots = after;
                }
            }
            report(&nodes, name, &boot(after), "True", clock.now()).await?;
            Ok::<_, Error>(Action::done())
        }
    };
    Controller::<Node>::new("kubelets")
        .workers::<64>()
        .reconcile(reconcile)
}

/// A kubelet that stops terminating pods at once.
pub(crate) fn stop_terminating_pods() -> Controller<Pod, impl Reconciler> {
    Controller::<Pod>::new("ends").reconcile(|request: Request, ctx: Context| async move {
        let pod = ctx.lister::<Pod>()?.get(&request.key);
        let Some(pod) = pod.filter(|pod| pod.metadata.deletion_timestamp.is_some()) else {
            return Ok(Action::done());
        };
        let now = DeleteParams::default().grace_period(0);
        ctx.writer().delete_with(&*pod, &now).await?;
        Ok::<_, Error>(Action::done())
    })
}

/// Counts the nodes that are down at the same time.
pub(crate) fn count_nodes_down(fleet: &str, most: &Arc<Mutex<usize>>) -> Controller<Node, impl Reconciler> {
    let most = Arc::clone(most);
    let fleet = fleet.to_owned();
    let reconcile = move |_: Request, ctx: Context| {
        let (most, fleet) = (Arc::clone(&most), fleet.clone());
        async move {
            let nodes = ctx.lister::<Node>()?.list(&Query::all());
            let down = nodes.iter().filter(|node| {
                let view = NodeView::from_node(node, &AnnotationKeys::default());
                // A node that has not reported yet does not count.
                let counts = view.labels.get("fleet") == Some(&fleet) && !view.boot_id.is_empty();
                counts && (view.cordoned || !view.is_ready)
            });
            let mut most = most.lock();
            *most = (*most).max(down.count());
            Ok::<_, Error>(Action::done())
        }
    };
    Controller::<Node>::new("census").reconcile(reconcile)
}
