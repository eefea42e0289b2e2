//! Faults of simulated machines as the API shows them: missing heartbeats, reboots, removal.

use crate::cluster_with_nodes;

use std::time::Duration;

use anyhow::{Context as _, Result};
use cluster_with_nodes::{
    condition, create_and_watch, events, is_ready, pod, pod_with_script, pods, start, wait_until, watch_until,
};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{DeleteParams, EvictParams, Patch, PatchParams, PostParams},
};
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
async fn reboot_updates_the_node_and_restarts_its_pods() -> Result<()> {
    let (cluster, machines, nodes) = cluster(1).await?;
    let pods = pods(&cluster);
    let policies = [("always", "Always"), ("never", "Never")];
    for (name, policy) in policies {
        create_and_watch(
            &pods,
            &pod(name, json!({"spec": {"restartPolicy": policy}})),
            is_ready,
        )
        .await?;
    }
    let before = wait_until(&nodes, "node-1", is_ready).await?;
    let version = before["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    machines.reboot("node-1").await?;

    let seen = watch_until(&nodes, "node-1", &version, |node| {
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
    let restarted = wait_until(&pods, "always", |pod| {
        is_ready(pod) && pod["status"]["containerStatuses"][0]["restartCount"] == 1
    });
    let restarted = restarted.await?;
    let last = &restarted["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!(
        (&last["exitCode"], &last["reason"]),
        (&json!(255), &json!("Unknown"))
    );
    let ended = wait_until(&pods, "never", |pod| pod["status"]["phase"] == "Failed").await?;
    assert_eq!(ended["status"]["containerStatuses"][0]["restartCount"], 0);

    let events = events(&cluster, "node-1").await?;
    let text = format!("Node node-1 has been rebooted, boot id: {boot_id}");
    assert!(events.contains(&("Rebooted".to_owned(), text)), "{events:?}");
    let clean = wait_until(&nodes, "node-1", |node| taints(node).is_empty()).await?;
    assert!(is_ready(&clean));
    cluster.stop().await;
    Ok(())
}

/// [`windlass_cluster::Machine::reboot`] reboots the machine, unless it hangs.
#[tokio::test(start_paused = true)]
async fn agent_reboots_its_own_machine() -> Result<()> {
    let (cluster, machines, nodes) = cluster(2).await?;
    let before = wait_until(&nodes, "node-2", is_ready).await?;
    let machine = machines.machine("node-2")?;
    let hook: Box<dyn Fn() + Send + Sync> = Box::new(move || machine.reboot());
    hook();
    let back = wait_until(&nodes, "node-2", |node| {
        is_ready(node) && boot_id(node) != boot_id(&before)
    })
    .await?;

    machines.hang("node-2")?;
    hook();
    let silent = wait_until(&nodes, "node-2", |node| {
        condition(node, "Ready")["status"] == "Unknown"
    })
    .await?;
    assert_eq!(boot_id(&silent), boot_id(&back));
    machines.reboot("node-2").await?;
    wait_until(&nodes, "node-2", |node| {
        is_ready(node) && boot_id(node) != boot_id(&back)
    })
    .await?;
    cluster.stop().await;
    Ok(())
}

/// Requests a reboot with the annotation, as a program in another process does.
async fn request_reboot(nodes: &Api<Node>, name: &str, boot: &str) -> Result<()> {
    let annotation = json!({"metadata": {"annotations": {simulation::REBOOT_ANNOTATION: boot}}});
    nodes
        .patch(name, &PatchParams::default(), &Patch::Merge(annotation))
        .await?;
    Ok(())
}

fn has_reboot_request(node: &Value) -> bool {
    !node["metadata"]["annotations"][simulation::REBOOT_ANNOTATION].is_null()
}

#[tokio::test(start_paused = true)]
async fn reboot_annotation_reboots_the_node_once() -> Result<()> {
    let (cluster, machines, nodes) = cluster(1).await?;
    let first = wait_until(&nodes, "node-1", is_ready).await?;
    let machine = &first["metadata"]["annotations"][simulation::MACHINE_ANNOTATION];
    assert_eq!(
        machine, &first["status"]["nodeInfo"]["machineID"],
        "the annotation marks a simulated node"
    );

    request_reboot(&nodes, "node-1", &boot_id(&first)).await?;
    let second = wait_until(&nodes, "node-1", |node| {
        is_ready(node) && boot_id(node) != boot_id(&first)
    })
    .await?;
    assert!(!has_reboot_request(&second), "{}", second["metadata"]);

    // A repeated request names a boot that has ended already.
    request_reboot(&nodes, "node-1", &boot_id(&first)).await?;
    let third = wait_until(&nodes, "node-1", |node| !has_reboot_request(node)).await?;
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(machines.machine("node-1")?.boot_id(), boot_id(&third));
    assert_eq!(boot_id(&third), boot_id(&second));
    let events = events(&cluster, "node-1").await?;
    let reboots = events.iter().filter(|(reason, _)| reason == "Rebooted").count();
    let stale = events
        .iter()
        .filter(|(reason, _)| reason == "StaleRebootRequest")
        .count();
    assert_eq!((reboots, stale), (1, 1), "{events:?}");
    cluster.stop().await;
    Ok(())
}

async fn set_behavior(nodes: &Api<Node>, name: &str, behavior: Option<&str>) -> Result<()> {
    let annotation = json!({"metadata": {"annotations": {simulation::REBOOT_BEHAVIOR_ANNOTATION: behavior}}});
    nodes
        .patch(name, &PatchParams::default(), &Patch::Merge(annotation))
        .await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn reboot_behavior_makes_reboots_go_wrong_until_it_is_removed() -> Result<()> {
    let (cluster, machines, nodes) = cluster(1).await?;
    let first = wait_until(&nodes, "node-1", is_ready).await?;
    // It stays off.
    set_behavior(&nodes, "node-1", Some("never-return")).await?;
    request_reboot(&nodes, "node-1", &boot_id(&first)).await?;
    wait_until(&nodes, "node-1", |node| !is_ready(node)).await?;
    tokio::time::sleep(Duration::from_hours(2)).await;
    assert_eq!(machines.machine("node-1")?.boot_id(), boot_id(&first));
    set_behavior(&nodes, "node-1", None).await?;
    let returned = |before: &Value| {
        let before = boot_id(before);
        move |node: &Value| is_ready(node) && boot_id(node) != before
    };
    let second = wait_until(&nodes, "node-1", returned(&first)).await?;
    // It is off for long.
    set_behavior(&nodes, "node-1", Some("return-after=20m")).await?;
    let begin = Instant::now();
    request_reboot(&nodes, "node-1", &boot_id(&second)).await?;
    let third = wait_until(&nodes, "node-1", returned(&second)).await?;
    let minutes = begin.elapsed().as_secs() / 60;
    assert!((20..22).contains(&minutes), "{minutes} minutes");
    // It flaps, but only after the reboot.
    set_behavior(&nodes, "node-1", Some("flap")).await?;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(is_ready(&wait_until(&nodes, "node-1", |_| true).await?));
    request_reboot(&nodes, "node-1", &boot_id(&third)).await?;
    let fourth = wait_until(&nodes, "node-1", returned(&third)).await?;
    for _ in 0..3 {
        wait_until(&nodes, "node-1", |node| !is_ready(node)).await?;
        wait_until(&nodes, "node-1", is_ready).await?;
    }
    // An invalid value is reported.
    set_behavior(&nodes, "node-1", Some("explode")).await?;
    request_reboot(&nodes, "node-1", &boot_id(&fourth)).await?;
    wait_until(&nodes, "node-1", returned(&fourth)).await?;
    let events = events(&cluster, "node-1").await?;
    assert!(
        events.iter().any(|(reason, _)| reason == "InvalidRebootBehavior"),
        "{events:?}"
    );
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn hung_or_disconnected_machine_reboots_after_restore() -> Result<()> {
    for fault in [Nodes::hang, Nodes::disconnect] {
        let (cluster, machines, nodes) = cluster(1).await?;
        let before = wait_until(&nodes, "node-1", is_ready).await?;
        fault(&machines, "node-1")?;
        request_reboot(&nodes, "node-1", &boot_id(&before)).await?;
        tokio::time::sleep(Duration::from_mins(5)).await;
        let now = wait_until(&nodes, "node-1", |_| true).await?;
        assert!(
            has_reboot_request(&now) && boot_id(&now) == boot_id(&before),
            "{now:#}"
        );
        assert_eq!(machines.machine("node-1")?.boot_id(), boot_id(&before));

        machines.restore("node-1")?;
        wait_until(&nodes, "node-1", |node| {
            is_ready(node) && boot_id(node) != boot_id(&before) && !has_reboot_request(node)
        })
        .await?;
        cluster.stop().await;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn unreachable_node_is_tainted_and_its_pods_are_evicted() -> Result<()> {
    for fault in [Nodes::hang, Nodes::disconnect] {
        let (cluster, machines, nodes) = cluster(2).await?;
        let pods = pods(&cluster);
        let here = json!({"nodeName": "node-1"});
        let stays = json!({"nodeName": "node-1", "tolerations": [{"operator": "Exists"}]});
        for (name, spec) in [("leaves", &here), ("stays", &stays)] {
            create_and_watch(&pods, &pod(name, json!({"spec": spec})), is_ready).await?;
        }
        let begun = Instant::now();
        fault(&machines, "node-1")?;
        let lost = wait_until(&nodes, "node-1", |node| {
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
        wait_until(&nodes, "node-1", |node| taints(node) == expected).await?;
        wait_until(&pods, "stays", |pod| condition(pod, "Ready")["status"] == "False").await?;
        assert!(is_ready(&wait_until(&nodes, "node-2", |_| true).await?));

        let tainted = Instant::now();
        let leaving = wait_until(&pods, "leaves", |pod| {
            !pod["metadata"]["deletionTimestamp"].is_null()
        })
        .await?;
        assert_eq!(tainted.elapsed().as_secs(), 300);
        assert_eq!(
            condition(&leaving, "DisruptionTarget")["reason"],
            "DeletionByTaintManager"
        );
        // No kubelet can terminate it.
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert!(pods.get_opt("leaves").await?.is_some());

        machines.restore("node-1")?;
        wait_until(&nodes, "node-1", |node| is_ready(node) && taints(node).is_empty()).await?;
        wait_until(&pods, "leaves", Value::is_null).await?;
        let back = wait_until(&pods, "stays", is_ready).await?;
        assert_eq!(back["status"]["containerStatuses"][0]["restartCount"], 0);
        let events = events(&cluster, "stays").await?;
        assert!(
            events.contains(&("NodeNotReady".to_owned(), "Node is not ready".to_owned())),
            "{events:?}"
        );
        cluster.stop().await;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn node_that_returns_in_time_keeps_its_pods() -> Result<()> {
    let (cluster, machines, nodes) = cluster(1).await?;
    let pods = pods(&cluster);
    create_and_watch(&pods, &pod("web", json!({})), is_ready).await?;
    machines.disconnect("node-1")?;
    wait_until(&pods, "web", |pod| !is_ready(pod)).await?;
    tokio::time::sleep(Duration::from_mins(4)).await;
    machines.restore("node-1")?;
    wait_until(&nodes, "node-1", |node| is_ready(node) && taints(node).is_empty()).await?;
    wait_until(&pods, "web", is_ready).await?;
    tokio::time::sleep(Duration::from_mins(10)).await;
    let web = pods.get("web").await?;
    assert_eq!(web.metadata.deletion_timestamp, None);
    let events = events(&cluster, "web").await?;
    let text = "Cancelling deletion of Pod default/web".to_owned();
    assert!(
        events.contains(&("TaintManagerEviction".to_owned(), text)),
        "{events:?}"
    );
    cluster.stop().await;
    Ok(())
}

/// The pods of a removed node stay terminating until the pod garbage collector deletes them.
#[tokio::test(start_paused = true)]
async fn pods_of_a_removed_node_are_garbage_collected_during_a_drain() -> Result<()> {
    let (cluster, machines, nodes) = cluster(2).await?;
    let pods = pods(&cluster);
    let here = json!({"nodeName": "node-1"});
    for name in ["evicted", "forgotten"] {
        create_and_watch(&pods, &pod_with_script(name, "ignores-term", &here), is_ready).await?;
    }
    pods.evict("evicted", &EvictParams::default()).await?;
    let begun = Instant::now();
    machines.remove("node-1").await?;
    assert_eq!(nodes.get_opt("node-1").await?, None);
    let failed = wait_until(&pods, "forgotten", |pod| {
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
        wait_until(&pods, name, Value::is_null).await?;
    }
    assert_eq!(machines.names(), ["node-2"]);
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn added_nodes_have_labels_taints_and_capacity() -> Result<()> {
    let (cluster, machines, nodes) = cluster(0).await?;
    let pods = pods(&cluster);
    pods.create(&PostParams::default(), &pod("web", json!({})))
        .await?;
    let waiting = wait_until(&pods, "web", |pod| {
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
    let ready = wait_until(&pods, "web", is_ready).await?;
    assert_eq!(ready["spec"]["nodeName"], "plain");
    let node = wait_until(&nodes, "gpu", |node| taints(node) == ["gpu:NoSchedule"]).await?;
    assert_eq!(node["metadata"]["labels"]["zone"], "b");
    let wants = json!({
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "containers": [{"name": "web", "image": "cuda", "resources": {"limits": {"example.com/gpu": "2"}}}],
    });
    let ready = create_and_watch(&pods, &pod("cuda", json!({"spec": wants})), is_ready).await?;
    assert_eq!(ready[ready.len() - 1]["spec"]["nodeName"], "gpu");

    let again = machines.add("plain").await.expect_err("the name is taken");
    assert_eq!(
        again.to_string(),
        "node `plain` already exists: choose another name, or remove it first"
    );
    let unknown = machines.reboot("nowhere").await.expect_err("no such node");
    assert!(
        unknown.to_string().starts_with("no machine runs node `nowhere`"),
        "{unknown}"
    );
    cluster.stop().await;
    assert!(machines.reboot("plain").await.is_err());
    Ok(())
}

/// A kubelet registers its node once after each start, so a deleted node stays deleted until then.
#[tokio::test(start_paused = true)]
async fn deleted_node_registers_again_only_after_a_reboot() -> Result<()> {
    let (cluster, machines, nodes) = cluster(1).await?;
    nodes.delete("node-1", &DeleteParams::default()).await?;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(nodes.get_opt("node-1").await?, None);
    machines.reboot("node-1").await?;
    wait_until(&nodes, "node-1", |node| is_ready(node) && taints(node).is_empty()).await?;
    cluster.stop().await;
    Ok(())
}
