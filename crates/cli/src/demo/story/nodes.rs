//! Machines: ten of them are there, one reboots, one is given up.

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

use super::{Chapter, Finding, Story, node_of};
use crate::{demo::sight::pod_is_ready, embedded::is_ready};

const TEN: &str = "ten nodes are ready";
const BACK: &str = "the node is back and ready, with another boot ID";
const RESTARTED: &str = "its pods are the same, started again and ready";
const LEFT: &str = "all of its pods have left the node";
const WHOLE: &str = "all replicas are there again, on other nodes";

pub(super) const READY: Chapter = Chapter {
    title: "A cluster in this process",
    claims: &[TEN],
    tell: |story| ready(story).boxed_local(),
};

pub(super) const REBOOT: Chapter = Chapter {
    title: "A node reboots",
    claims: &[BACK, RESTARTED],
    tell: |story| reboot(story).boxed_local(),
};

pub(super) const GIVEN_UP: Chapter = Chapter {
    title: "A node is given up",
    claims: &[LEFT, WHOLE],
    tell: |story| given_up(story).boxed_local(),
};

async fn ready(story: &Story) -> anyhow::Result<()> {
    let ten = async || {
        let nodes = Api::<Node>::all(story.client.clone());
        let nodes = nodes.list(&ListParams::default()).await?.items;
        let ready = nodes.iter().filter(|node| is_ready(node)).count();
        anyhow::Ok((ready == 10).then_some(()).ok_or(format!("{ready} are")))
    };
    story.claim(TEN, ten).await
}

/// The pods of one moment on one node, by uid, and how often each was started again.
type Restarts = BTreeMap<String, i32>;

async fn reboot(story: &Story) -> anyhow::Result<()> {
    let by_load = by_load(&story.all::<Pod>().await?);
    let name = by_load.into_iter().next().context("no node has pods")?;
    let before: Restarts = restarts(&story.all::<Pod>().await?, &name);
    let nodes = Api::<Node>::all(story.client.clone());
    let old = boot_id(&nodes.get(&name).await?);

    let count = before.len();
    let rebooting = story.machines.reboot(&name);
    story
        .act(format!("reboot {name}, which runs {count} pods"), rebooting)
        .await?;
    let back = async || {
        let node = nodes.get(&name).await?;
        let found = format!("ready is {}, the boot ID {}", is_ready(&node), boot_id(&node));
        let back = is_ready(&node) && boot_id(&node) != old;
        anyhow::Ok(back.then_some(()).ok_or(found))
    };
    story.claim(BACK, back).await?;
    let restarted = async || {
        let pods = story.all::<Pod>().await?;
        let ready = pods
            .iter()
            .filter(|pod| node_of(pod) == Some(&name))
            .all(pod_is_ready);
        let after = restarts(&pods, &name);
        anyhow::Ok(
            started_again(&before, &after).and(ready.then_some(()).ok_or("not all are ready".to_owned())),
        )
    };
    story.claim(RESTARTED, restarted).await
}

/// The nodes with pods on them, those with the most first.
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

fn started_again(before: &Restarts, after: &Restarts) -> Finding {
    if !before.keys().eq(after.keys()) {
        return Err(format!("{} pods were there, and others are now", before.len()));
    }
    let waiting = after
        .iter()
        .filter(|(uid, count)| **count <= before[*uid])
        .count();
    match waiting {
        0 => Ok(()),
        waiting => Err(format!(
            "{waiting} of {} pods were not started again",
            before.len()
        )),
    }
}

pub(super) fn boot_id(node: &Node) -> String {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map(|info| info.boot_id.clone()).unwrap_or_default()
}

async fn given_up(story: &Story) -> anyhow::Result<()> {
    // Another one than the one that rebooted.
    let by_load = by_load(&story.all::<Pod>().await?);
    let name = by_load
        .into_iter()
        .nth(1)
        .context("fewer than two nodes have pods")?;
    let nodes = Api::<Node>::all(story.client.clone());
    let params = PatchParams::default();
    let taint =
        json!({ "spec": { "taints": [{ "key": "demo", "value": "failing", "effect": "NoExecute" }] } });
    let taint = Patch::Merge(taint);
    let tainting = nodes.patch(&name, &params, &taint);
    story
        .act(format!("taint {name} with demo=failing:NoExecute"), tainting)
        .await?;
    let left = async || {
        let pods = story.all::<Pod>().await?;
        let here = pods.iter().filter(|pod| node_of(pod) == Some(&name)).count();
        anyhow::Ok(
            (here == 0)
                .then_some(())
                .ok_or(format!("{here} are still on {name}")),
        )
    };
    story.claim(LEFT, left).await?;
    let whole = async || {
        let (foos, icecreams) = (story.all::<Foo>().await?, story.all::<Icecream>().await?);
        let foos_want: i32 = foos.iter().filter_map(|foo| foo.spec.replicas).sum();
        let icecreams_want: i32 = icecreams
            .iter()
            .filter_map(|icecream| icecream.spec.replicas)
            .sum();
        let wanted = foos_want + icecreams_want;
        let said = foos.iter().filter_map(|foo| foo.status.as_ref());
        let said: i32 = said.map(|status| status.available_replicas).sum();
        let pods = story.all::<Pod>().await?;
        let ready = pods
            .iter()
            .filter(|pod| pod_is_ready(pod) && node_of(pod) != Some(&name));
        let ready = i32::try_from(ready.count())?;
        let found =
            format!("of {wanted} replicas {ready} are ready, and of their {foos_want} the Foos say {said}");
        anyhow::Ok((ready == wanted && said == foos_want).then_some(()).ok_or(found))
    };
    story.claim(WHOLE, whole).await?;
    let untaint = Patch::Merge(json!({ "spec": { "taints": null } }));
    let untainting = nodes.patch(&name, &params, &untaint);
    story
        .act(format!("take the taint off {name}"), untainting)
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted<const N: usize>(restarts: [(&str, i32); N]) -> Restarts {
        restarts
            .into_iter()
            .map(|(uid, count)| (uid.to_owned(), count))
            .collect()
    }

    #[test]
    fn started_again_means_the_same_pods_and_one_more_start_of_each() {
        let before = noted([("a", 0), ("b", 2)]);
        assert_eq!(started_again(&before, &noted([("a", 1), ("b", 3)])), Ok(()));
        for after in [
            noted([("a", 1), ("b", 2)]),
            noted([("a", 1), ("c", 3)]),
            noted([("a", 1)]),
        ] {
            assert!(started_again(&before, &after).is_err(), "{after:?}");
        }
    }

    #[test]
    fn the_nodes_with_the_most_pods_come_first() {
        let pod = |node: Option<&str>| -> Pod {
            let pod = json!({ "metadata": {}, "spec": { "nodeName": node, "containers": [] } });
            windlass::prelude::from_value(pod).expect("a pod")
        };
        let pods = [Some("b"), Some("c"), Some("a"), Some("c"), None].map(pod);
        assert_eq!(by_load(&pods), ["c", "a", "b"]);
        assert!(by_load(&[]).is_empty());
    }
}
