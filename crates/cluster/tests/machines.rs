//! What happens to machines, as the API shows it: silence, reboots, removal.

mod lively;

use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, EvictParams, Patch, PatchParams, PostParams},
};
use lively::{condition, events, is_ready, made, pod, pods, scripted, start, states, until};
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_cluster::{Cluster, NodeSpec, Nodes, simulation};

async fn cluster(nodes: usize) -> Result<(Cluster, Nodes, Api<Node>)> {
    let cluster = start(Cluster::embedded().nodes(nodes)).await?;
    let machines = cluster
        .nodes()
        .context("an embedded cluster with controllers has nodes")?;
    let nodes = Api::all(cluster.client());
    Ok((cluster, machines, nodes))
}

fn taints(node: &Value) -> Vec<String> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let text = |taint: &Value| {
        let (key, effect) = (taint["key"].as_str(), taint["effect"].as_str());
        format!("{}:{}", key.unwrap_or_default(), effect.unwrap_or_default())
    };
    taints.map(text).collect()
}

fn boot_id(node: &Value) -> String {
    node["status"]["nodeInfo"]["bootID"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_reboot_shows_in_the_node_and_restarts_its_pods() -> Result<()> {
    let (cluster, machines, nodes) = cluster(1).await?;
    let pods = pods(&cluster);
    let policies = [("always", "Always"), ("never", "Never")];
    for (name, policy) in policies {
        made(
            &pods,
            &pod(name, json!({"spec": {"restartPolicy": policy}})),
            is_ready,
        )
        .await?;
    }
    let before = until(&nodes, "node-1", is_ready).await?;
    let version = before["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    machines.reboot("node-1").await?;

    let seen = states(&nodes, "node-1", &version, |node| {
        is_ready(node) && boot_id(node) != boot_id(&before)
    })
    .await?;
    let first = condition(&seen[0], "Ready");
    assert_eq!(
        (&first["status"], &first["message"]),
        (&json!("False"), &json!("node is shutting down"))
    );
    let boot_id = boot_id(&seen[seen.len() - 1]);
    assert_eq!(machines.machine("node-1")?.boot_id(), boot_id);
    let restarted = until(&pods, "always", |pod| {
        is_ready(pod) && pod["status"]["containerStatuses"][0]["restartCount"] == 1
    });
    let restarted = restarted.await?;
    let last = &restarted["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(
        (&last["exitCode"], &last["reason"]),
        (&json!(255), &json!("Unknown"))
    );
    let ended = until(&pods, "never", |pod| pod["status"]["phase"] == "Failed").await?;
    assert_eq!(ended["status"]["containerStatuses"][0]["restartCount"], 0);

    let told = events(&cluster, "node-1").await?;
    let text = format!("Node node-1 has been rebooted, boot id: {boot_id}");
    assert!(told.contains(&("Rebooted".to_owned(), text)), "{told:?}");
    let clean = until(&nodes, "node-1", |node| taints(node).is_empty()).await?;
    assert!(is_ready(&clean));
    cluster.stop().await;
    Ok(())
}

/// The hook that an agent on the machine calls does the same, unless the machine hangs.
#[tokio::test(start_paused = true)]
async fn an_agent_reboots_its_own_machine() -> Result<()> {
    let (cluster, machines, nodes) = cluster(2).await?;
    let before = until(&nodes, "node-2", is_ready).await?;
    let machine = machines.machine("node-2")?;
    let hook: Box<dyn Fn() + Send + Sync> = Box::new(move || machine.reboot());
    hook();
    let back = until(&nodes, "node-2", |node| {
        is_ready(node) && boot_id(node) != boot_id(&before)
    })
    .await?;

    machines.hang("node-2")?;
    hook();
    let silent = until(&nodes, "node-2", |node| {
        condition(node, "Ready")["status"] == "Unknown"
    })
    .await?;
    assert_eq!(boot_id(&silent), boot_id(&back));
    machines.reboot("node-2").await?;
    until(&nodes, "node-2", |node| {
        is_ready(node) && boot_id(node) != boot_id(&back)
    })
    .await?;
    cluster.stop().await;
    Ok(())
}

/// Asks a node to end a boot, as a program in another process can.
async fn ask(nodes: &Api<Node>, name: &str, boot: &str) -> Result<()> {
    let annotation = json!({"metadata": {"annotations": {simulation::REBOOT: boot}}});
    nodes
        .patch(name, &PatchParams::default(), &Patch::Merge(annotation))
        .await?;
    Ok(())
}

fn is_asked(node: &Value) -> bool {
    !node["metadata"]["annotations"][simulation::REBOOT].is_null()
}

#[tokio::test(start_paused = true)]
async fn a_node_reboots_once_when_its_annotation_asks_to_end_this_boot() -> Result<()> {
    let (cluster, machines, nodes) = cluster(1).await?;
    let first = until(&nodes, "node-1", is_ready).await?;
    let machine = &first["metadata"]["annotations"][simulation::MACHINE];
    assert_eq!(
        machine, &first["status"]["nodeInfo"]["machineID"],
        "it says that it is simulated"
    );

    ask(&nodes, "node-1", &boot_id(&first)).await?;
    let second = until(&nodes, "node-1", |node| {
        is_ready(node) && boot_id(node) != boot_id(&first)
    })
    .await?;
    assert!(!is_asked(&second), "{}", second["metadata"]);

    // The same once more, as one who did not hear the answer would: that boot has ended already.
    ask(&nodes, "node-1", &boot_id(&first)).await?;
    let third = until(&nodes, "node-1", |node| !is_asked(node)).await?;
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(machines.machine("node-1")?.boot_id(), boot_id(&third));
    assert_eq!(boot_id(&third), boot_id(&second));
    let told = events(&cluster, "node-1").await?;
    let reboots = told.iter().filter(|(reason, _)| reason == "Rebooted").count();
    let refused = told
        .iter()
        .filter(|(reason, _)| reason == "RebootNotMeant")
        .count();
    assert_eq!((reboots, refused), (1, 1), "{told:?}");
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_hangs_or_is_cut_off_is_asked_in_vain() -> Result<()> {
    for fault in [Nodes::hang, Nodes::cut_off] {
        let (cluster, machines, nodes) = cluster(1).await?;
        let before = until(&nodes, "node-1", is_ready).await?;
        fault(&machines, "node-1")?;
        ask(&nodes, "node-1", &boot_id(&before)).await?;
        tokio::time::sleep(Duration::from_mins(5)).await;
        let now = until(&nodes, "node-1", |_| true).await?;
        assert!(is_asked(&now) && boot_id(&now) == boot_id(&before), "{now:#}");
        assert_eq!(machines.machine("node-1")?.boot_id(), boot_id(&before));

        machines.restore("node-1")?;
        until(&nodes, "node-1", |node| {
            is_ready(node) && boot_id(node) != boot_id(&before) && !is_asked(node)
        })
        .await?;
        cluster.stop().await;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_declared_lost_and_its_pods_move() -> Result<()> {
    for fault in [Nodes::hang, Nodes::cut_off] {
        let (cluster, machines, nodes) = cluster(2).await?;
        let pods = pods(&cluster);
        let here = json!({"nodeName": "node-1"});
        let stays = json!({"nodeName": "node-1", "tolerations": [{"operator": "Exists"}]});
        for (name, spec) in [("leaves", &here), ("stays", &stays)] {
            made(&pods, &pod(name, json!({"spec": spec})), is_ready).await?;
        }
        let begun = Instant::now();
        fault(&machines, "node-1")?;
        let lost = until(&nodes, "node-1", |node| {
            condition(node, "Ready")["status"] == "Unknown"
        })
        .await?;
        let waited = begun.elapsed().as_secs();
        assert!(
            (40..=50).contains(&waited),
            "{waited} s since the last heartbeat of at most 10 s before"
        );
        for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
            let condition = condition(&lost, kind);
            assert_eq!(
                (&condition["status"], &condition["reason"]),
                (&json!("Unknown"), &json!("NodeStatusUnknown"))
            );
        }
        let expected = [
            "node.kubernetes.io/unreachable:NoSchedule",
            "node.kubernetes.io/unreachable:NoExecute",
        ];
        until(&nodes, "node-1", |node| taints(node) == expected).await?;
        until(&pods, "stays", |pod| condition(pod, "Ready")["status"] == "False").await?;
        assert!(is_ready(&until(&nodes, "node-2", |_| true).await?));

        let tainted = Instant::now();
        let leaving = until(&pods, "leaves", |pod| {
            !pod["metadata"]["deletionTimestamp"].is_null()
        })
        .await?;
        assert_eq!(tainted.elapsed().as_secs(), 300);
        assert_eq!(
            condition(&leaving, "DisruptionTarget")["reason"],
            "DeletionByTaintManager"
        );
        // Nobody is there who could end it.
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert!(pods.get_opt("leaves").await?.is_some());

        machines.restore("node-1")?;
        until(&nodes, "node-1", |node| is_ready(node) && taints(node).is_empty()).await?;
        until(&pods, "leaves", Value::is_null).await?;
        let back = until(&pods, "stays", is_ready).await?;
        assert_eq!(back["status"]["containerStatuses"][0]["restartCount"], 0);
        let told = events(&cluster, "stays").await?;
        assert!(
            told.contains(&("NodeNotReady".to_owned(), "Node is not ready".to_owned())),
            "{told:?}"
        );
        cluster.stop().await;
    }
    Ok(())
}

/// A node that comes back in time loses nobody.
#[tokio::test(start_paused = true)]
async fn a_node_that_returns_keeps_its_pods() -> Result<()> {
    let (cluster, machines, nodes) = cluster(1).await?;
    let pods = pods(&cluster);
    made(&pods, &pod("web", json!({})), is_ready).await?;
    machines.cut_off("node-1")?;
    until(&pods, "web", |pod| !is_ready(pod)).await?;
    tokio::time::sleep(Duration::from_mins(4)).await;
    machines.restore("node-1")?;
    until(&nodes, "node-1", |node| is_ready(node) && taints(node).is_empty()).await?;
    until(&pods, "web", is_ready).await?;
    tokio::time::sleep(Duration::from_mins(10)).await;
    let web = pods.get("web").await?;
    assert_eq!(web.metadata.deletion_timestamp, None);
    let told = events(&cluster, "web").await?;
    let text = "Cancelling deletion of Pod default/web".to_owned();
    assert!(
        told.contains(&("TaintManagerEviction".to_owned(), text)),
        "{told:?}"
    );
    cluster.stop().await;
    Ok(())
}

/// A drain of a node that vanishes: its pods are terminating until the cluster gives them up.
#[tokio::test(start_paused = true)]
async fn a_node_that_vanishes_during_a_drain_leaves_pods_that_are_given_up() -> Result<()> {
    let (cluster, machines, nodes) = cluster(2).await?;
    let pods = pods(&cluster);
    let here = json!({"nodeName": "node-1"});
    for name in ["evicted", "forgotten"] {
        made(&pods, &scripted(name, "ignores-term", &here), is_ready).await?;
    }
    pods.evict("evicted", &EvictParams::default()).await?;
    let begun = Instant::now();
    machines.remove("node-1").await?;
    assert_eq!(nodes.get_opt("node-1").await?, None);
    let failed = until(&pods, "forgotten", |pod| {
        pod["status"]["phase"] == "Failed" || pod.is_null()
    })
    .await?;
    assert_eq!(begun.elapsed().as_secs(), 40);
    let why = condition(&failed, "DisruptionTarget");
    assert!(
        failed.is_null() || why["message"] == "PodGC: node no longer exists",
        "{failed:#}"
    );
    for name in ["evicted", "forgotten"] {
        until(&pods, name, Value::is_null).await?;
    }
    assert_eq!(machines.names(), ["node-2"]);
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn nodes_are_added_with_what_they_have() -> Result<()> {
    let (cluster, machines, nodes) = cluster(0).await?;
    let pods = pods(&cluster);
    pods.create(&PostParams::default(), &pod("web", json!({})))
        .await?;
    let waiting = until(&pods, "web", |pod| {
        condition(pod, "PodScheduled")["status"] == "False"
    })
    .await?;
    let why = condition(&waiting, "PodScheduled");
    assert_eq!(
        (&why["reason"], &why["message"]),
        (
            &json!("Unschedulable"),
            &json!("no nodes available to schedule pods")
        )
    );

    let gpu = NodeSpec::new("gpu")
        .label("zone", "b")
        .capacity("example.com/gpu", "2")
        .taint("gpu", "", "NoSchedule");
    machines.add(gpu).await?;
    machines.add("plain").await?;
    let ready = until(&pods, "web", is_ready).await?;
    assert_eq!(ready["spec"]["nodeName"], "plain");
    let node = until(&nodes, "gpu", |node| taints(node) == ["gpu:NoSchedule"]).await?;
    assert_eq!(node["metadata"]["labels"]["zone"], "b");
    let wants = json!({
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "containers": [{"name": "web", "image": "cuda", "resources": {"limits": {"example.com/gpu": "2"}}}],
    });
    let ready = made(&pods, &pod("cuda", json!({"spec": wants})), is_ready).await?;
    assert_eq!(ready[ready.len() - 1]["spec"]["nodeName"], "gpu");

    let again = machines.add("plain").await.expect_err("it is there");
    assert_eq!(
        again.to_string(),
        "node `plain` is there already: choose another name, or remove it first"
    );
    let unknown = machines.reboot("nowhere").await.expect_err("it is not there");
    assert!(
        unknown.to_string().starts_with("no machine runs node `nowhere`"),
        "{unknown}"
    );
    cluster.stop().await;
    assert!(machines.reboot("plain").await.is_err());
    Ok(())
}

/// A kubelet does not bring back a node that somebody deleted, before it starts anew.
#[tokio::test(start_paused = true)]
async fn a_deleted_node_stays_away_until_a_reboot() -> Result<()> {
    let (cluster, machines, nodes) = cluster(1).await?;
    nodes.delete("node-1", &DeleteParams::default()).await?;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(nodes.get_opt("node-1").await?, None);
    machines.reboot("node-1").await?;
    until(&nodes, "node-1", |node| is_ready(node) && taints(node).is_empty()).await?;
    cluster.stop().await;
    Ok(())
}
