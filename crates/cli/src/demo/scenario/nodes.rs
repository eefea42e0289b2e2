//! Nodes: ten become ready, one reboots, one is drained by a taint.

use std::{cmp::Reverse, collections::BTreeMap};

use anyhow::Context;
use futures::FutureExt;
use windlass::{
    k8s_openapi::api::core::v1::{Node, Pod},
    kube::{
        Api, ResourceExt,
        api::{ListParams, Patch, PatchParams},
    },
    prelude::json,
};
use windlass_foo::Foo;
use windlass_icecream::Icecream;

use super::{Chapter, CheckResult, Scenario, node_of};
use crate::{demo::cluster_view::pod_is_ready, embedded::is_ready};

const NODES_READY: &str = "ten nodes are ready";
const NODE_REBOOTED: &str = "the node is ready again, with a new boot ID";
const PODS_RESTARTED: &str = "its pods are the same ones, restarted and ready";
const PODS_EVICTED: &str = "all pods were evicted from the node";
const REPLICAS_READY: &str = "all replicas are ready again on other nodes";

pub(super) const READY: Chapter = Chapter {
    title: "A cluster in this process",
    claims: &[NODES_READY],
    run: |scenario| ready(scenario).boxed_local(),
};

pub(super) const REBOOT: Chapter = Chapter {
    title: "A node reboots",
    claims: &[NODE_REBOOTED, PODS_RESTARTED],
    run: |scenario| reboot(scenario).boxed_local(),
};

pub(super) const TAINT: Chapter = Chapter {
    title: "A node is drained by a taint",
    claims: &[PODS_EVICTED, REPLICAS_READY],
    run: |scenario| taint(scenario).boxed_local(),
};

async fn ready(scenario: &Scenario) -> anyhow::Result<()> {
    let ten = async || {
        let nodes = Api::<Node>::all(scenario.client.clone());
        let nodes = nodes.list(&ListParams::default()).await?.items;
        let ready = nodes.iter().filter(|node| is_ready(node)).count();
        anyhow::Ok((ready == 10).then_some(()).ok_or(format!("{ready} are ready")))
    };
    scenario.check_claim(NODES_READY, ten).await
}

/// The restart counts of one node's pods, by UID.
type Restarts = BTreeMap<String, i32>;

async fn reboot(scenario: &Scenario) -> anyhow::Result<()> {
    let by_load = by_load(&scenario.list::<Pod>().await?);
    let name = by_load.into_iter().next().context("no node has pods")?;
    let before: Restarts = restarts(&scenario.list::<Pod>().await?, &name);
    let nodes = Api::<Node>::all(scenario.client.clone());
    let old = boot_id(&nodes.get(&name).await?);

    let count = before.len();
    let rebooting = scenario.nodes.reboot(&name);
    scenario
        .perform(format!("reboot {name}, which runs {count} pods"), rebooting)
        .await?;
    let back = async || {
        let node = nodes.get(&name).await?;
        let found = format!("ready: {}, boot ID: {}", is_ready(&node), boot_id(&node));
        let back = is_ready(&node) && boot_id(&node) != old;
        anyhow::Ok(back.then_some(()).ok_or(found))
    };
    scenario.check_claim(NODE_REBOOTED, back).await?;
    let restarted = async || {
        let pods = scenario.list::<Pod>().await?;
        let ready = pods
            .iter()
            .filter(|pod| node_of(pod) == Some(&name))
            .all(pod_is_ready);
        let after = restarts(&pods, &name);
        anyhow::Ok(
            check_restarted(&before, &after).and(ready.then_some(()).ok_or("not all are ready".to_owned())),
        )
    };
    scenario.check_claim(PODS_RESTARTED, restarted).await
}

/// The nodes that have pods, those with the most first.
fn by_load(pods: &[Pod]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for node in pods.iter().filter_map(node_of) {
        *counts.entry(node).or_default() += 1;
    }
    let mut nodes: Vec<_> = counts.into_iter().collect();
    nodes.sort_by_key(|(_, count)| Reverse(*count));
    nodes.into_iter().map(|(name, _)| name.to_owned()).collect()
}

fn restarts(pods: &[Pod], node: &str) -> Restarts {
    let here = pods.iter().filter(|pod| node_of(pod) == Some(node));
    here.map(|pod| {
        let statuses = pod.status.iter();
        let statuses = statuses.flat_map(|status| status.container_statuses.iter().flatten());
        (
            pod.uid().unwrap_or_default(),
            statuses.map(|status| status.restart_count).sum(),
        )
    })
    .collect()
}

fn check_restarted(before: &Restarts, after: &Restarts) -> CheckResult {
    if !before.keys().eq(after.keys()) {
        return Err(format!("some of its {} pods were replaced", before.len()));
    }
    let waiting = after
        .iter()
        .filter(|(uid, count)| **count <= before[*uid])
        .count();
    match waiting {
        0 => Ok(()),
        waiting => Err(format!("{waiting} of {} pods were not restarted", before.len())),
    }
}

pub(super) fn boot_id(node: &Node) -> String {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map(|info| info.boot_id.clone()).unwrap_or_default()
}

async fn taint(scenario: &Scenario) -> anyhow::Result<()> {
    // Not the node that rebooted.
    let by_load = by_load(&scenario.list::<Pod>().await?);
    let name = by_load
        .into_iter()
        .nth(1)
        .context("fewer than two nodes have pods")?;
    let nodes = Api::<Node>::all(scenario.client.clone());
    let params = PatchParams::default();
    let taint =
        json!({ "spec": { "taints": [{ "key": "demo", "value": "failing", "effect": "NoExecute" }] } });
    let taint = Patch::Merge(taint);
    let tainting = nodes.patch(&name, &params, &taint);
    scenario
        .perform(format!("taint {name} with demo=failing:NoExecute"), tainting)
        .await?;
    let left = async || {
        let pods = scenario.list::<Pod>().await?;
        let here = pods.iter().filter(|pod| node_of(pod) == Some(&name)).count();
        anyhow::Ok(
            (here == 0)
                .then_some(())
                .ok_or(format!("{here} are still on {name}")),
        )
    };
    scenario.check_claim(PODS_EVICTED, left).await?;
    let whole = async || {
        let (foos, icecreams) = (scenario.list::<Foo>().await?, scenario.list::<Icecream>().await?);
        let foos_want: i32 = foos.iter().filter_map(|foo| foo.spec.replicas).sum();
        let icecreams_want: i32 = icecreams
            .iter()
            .filter_map(|icecream| icecream.spec.replicas)
            .sum();
        let wanted = foos_want + icecreams_want;
        let reported = foos.iter().filter_map(|foo| foo.status.as_ref());
        let reported: i32 = reported.map(|status| status.available_replicas).sum();
        let pods = scenario.list::<Pod>().await?;
        let ready = pods
            .iter()
            .filter(|pod| pod_is_ready(pod) && node_of(pod) != Some(&name));
        let ready = i32::try_from(ready.count())?;
        let found =
            format!("{ready} of {wanted} replicas are ready, and the Foos report {reported} of {foos_want}");
        anyhow::Ok(
            (ready == wanted && reported == foos_want)
                .then_some(())
                .ok_or(found),
        )
    };
    scenario.check_claim(REPLICAS_READY, whole).await?;
    let untaint = Patch::Merge(json!({ "spec": { "taints": null } }));
    let untainting = nodes.patch(&name, &params, &untaint);
    scenario
        .perform(format!("remove the taint from {name}"), untainting)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restarts_of<const N: usize>(restarts: [(&str, i32); N]) -> Restarts {
        restarts
            .into_iter()
            .map(|(uid, count)| (uid.to_owned(), count))
            .collect()
    }

    #[test]
    fn restarted_requires_same_pods_with_higher_restart_counts() {
        let before = restarts_of([("a", 0), ("b", 2)]);
        assert_eq!(
            check_restarted(&before, &restarts_of([("a", 1), ("b", 3)])),
            Ok(())
        );
        for after in [
            restarts_of([("a", 1), ("b", 2)]),
            restarts_of([("a", 1), ("c", 3)]),
            restarts_of([("a", 1)]),
        ] {
            assert!(check_restarted(&before, &after).is_err(), "{after:?}");
        }
    }

    #[test]
    fn nodes_are_sorted_by_pod_count() {
        let pod = |node: Option<&str>| -> Pod {
            let pod = json!({ "metadata": {}, "spec": { "nodeName": node, "containers": [] } });
            windlass::prelude::from_value(pod).expect("a pod")
        };
        let pods = [Some("b"), Some("c"), Some("a"), Some("c"), None].map(pod);
        assert_eq!(by_load(&pods), ["c", "a", "b"]);
        assert!(by_load(&[]).is_empty());
    }
}
