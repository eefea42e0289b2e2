//! Scheduling decisions and messages, by the same table for the embedded scheduler and kube-scheduler.

use crate::cluster_with_nodes;

use std::time::Duration;

use anyhow::{Result, ensure};
use cluster_with_nodes::{condition, pod, pods, start, wait_until};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    scheduling::v1::PriorityClass,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use windlass_cluster::Cluster;
use windlass_suite::{Suite, Target};

pub(crate) fn suite() -> Suite {
    Suite::new("scheduling")
        .case_on(
            Target::Embedded,
            "pods_are_scheduled_or_marked_unschedulable",
            || async {
                let cluster = start(Cluster::embedded().controllers()).await?;
                scheduled_or_unschedulable(cluster).await
            },
        )
        .case_on(
            Target::Real,
            "pods_are_scheduled_or_marked_unschedulable",
            || async { scheduled_or_unschedulable(Cluster::real().scheduler().start().await?).await },
        )
}

async fn node(cluster: &Cluster, name: &str, spec: Value, cpu: &str) -> Result<()> {
    let nodes = Api::<Node>::all(cluster.client());
    let labels = json!({"name": name, "cores": cpu});
    let made: Node =
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": spec}))?;
    nodes.create(&PostParams::default(), &made).await?;
    let amounts = json!({"cpu": cpu, "memory": "4Gi", "ephemeral-storage": "10Gi", "pods": "3", "example.com/gpu": "1"});
    let ready = json!([{"type": "Ready", "status": "True", "reason": "KubeletReady"}]);
    let status = json!({"status": {"capacity": amounts, "allocatable": amounts, "conditions": ready}});
    nodes
        .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await?;
    // Without a node controller, nothing else removes the initial taint of a node.
    let taints = json!({"spec": {"taints": spec["taints"]}});
    nodes
        .patch(name, &PatchParams::default(), &Patch::Merge(taints))
        .await?;
    Ok(())
}

fn with_requests(requests: &Value) -> Value {
    json!({"containers": [{"name": "web", "image": "nginx", "resources": {"requests": requests, "limits": requests}}]})
}

/// A required node affinity on the label `cores`.
fn with_affinity(operator: &str, values: &[&str]) -> Value {
    let terms = json!([{"matchExpressions": [{"key": "cores", "operator": operator, "values": values}]}]);
    let required = json!({"nodeSelectorTerms": terms});
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
}

async fn scheduled_or_unschedulable(cluster: Cluster) -> Result<()> {
    let taint = json!([{"key": "team", "value": "a", "effect": "NoSchedule"}]);
    node(&cluster, "large", json!({}), "4").await?;
    node(
        &cluster,
        "small",
        json!({"taints": [{"key": "slow", "effect": "PreferNoSchedule"}]}),
        "2",
    )
    .await?;
    node(&cluster, "theirs", json!({"taints": taint}), "4").await?;
    node(&cluster, "closed", json!({"unschedulable": true}), "4").await?;

    let calm = json!({"metadata": {"name": "calm"}, "value": 0, "preemptionPolicy": "Never"});
    let classes = Api::<PriorityClass>::all(cluster.client());
    classes
        .create(&PostParams::default(), &serde_json::from_value(calm)?)
        .await?;

    let api = pods(&cluster);
    for (name, spec, expected) in cases() {
        api.create(&PostParams::default(), &pod(name, json!({"spec": spec})))
            .await?;
        let decided = wait_until(&api, name, |pod| !condition(pod, "PodScheduled").is_null()).await?;
        let scheduled = condition(&decided, "PodScheduled");
        let node = decided["spec"]["nodeName"].as_str();
        let found = node.or(scheduled["message"].as_str()).unwrap_or_default();
        ensure!(
            found == expected,
            "{name}:\n  found    {found}\n  expected {expected}"
        );
        if node.is_none() {
            ensure!(
                scheduled["status"] == "False" && scheduled["reason"] == "Unschedulable",
                "{scheduled}"
            );
        }
    }
    full_node_and_gates(&api, &cluster).await?;
    unbound_claims(&api, &cluster).await?;
    cluster.stop().await;
    Ok(())
}

/// Pods in creation order, each with its node or its scheduling message.
fn cases() -> Vec<(&'static str, Value, &'static str)> {
    let all = json!([{"operator": "Exists"}]);
    let by_name = |name: &str, tolerations: &Value| {
        let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]);
        let required = json!({"nodeSelectorTerms": terms});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        json!({"affinity": affinity, "tolerations": tolerations})
    };
    let never = {
        let mut spec = with_requests(&json!({"cpu": "3"}));
        spec["priorityClassName"] = "calm".into();
        spec["nodeSelector"] = json!({"name": "small"});
        spec
    };
    let small_share = {
        let mut spec = with_requests(&json!({"cpu": "1"}));
        spec["affinity"] = with_affinity("Lt", &["3"])["affinity"].take();
        spec
    };
    vec![
        ("plain", json!({}), "large"),
        ("by-label", json!({"nodeSelector": {"name": "small"}}), "small"),
        ("by-affinity", small_share, "small"),
        (
            "tolerant",
            json!({"nodeSelector": {"name": "theirs"}, "tolerations": [
                {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"},
            ]}),
            "theirs",
        ),
        ("for-closed", by_name("closed", &all), "closed"),
        (
            "other-label",
            json!({"nodeSelector": {"name": "nowhere"}}),
            "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 node(s) didn't \
             match Pod's node affinity/selector. no new claims to deallocate, preemption: 0/4 nodes are available: 4 Preemption is not helpful for \
             scheduling.",
        ),
        (
            "other-affinity",
            with_affinity("NotIn", &["2", "4"]),
            "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 node(s) didn't \
             match Pod's node affinity/selector. no new claims to deallocate, preemption: 0/4 nodes are available: 4 Preemption is not helpful for \
             scheduling.",
        ),
        (
            "by-name",
            by_name("closed", &json!([])),
            "0/4 nodes are available: 1 node(s) were unschedulable, 3 node(s) didn't satisfy plugin(s) [NodeAffinity]. no new claims to deallocate, \
             preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling.",
        ),
        (
            "greedy",
            with_requests(&json!({"cpu": "100", "memory": "100Gi"})),
            "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 Insufficient \
             cpu, 2 Insufficient memory. no new claims to deallocate, preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling.",
        ),
        (
            "gpu",
            with_requests(&json!({"cpu": "2", "example.com/gpu": "1"})),
            "large",
        ),
        (
            "gpu-again",
            with_requests(&json!({"cpu": "1500m", "example.com/gpu": "1"})),
            "0/4 nodes are available: 1 Insufficient cpu, 1 Insufficient example.com/gpu, 1 node(s) had untolerated \
             taint(s), 1 node(s) were unschedulable. no new claims to deallocate, preemption: 0/4 nodes are available: 2 No preemption victims found \
             for incoming pod, 2 Preemption is not helpful for scheduling.",
        ),
        (
            "never-preempts",
            never,
            "0/4 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) \
             had untolerated taint(s), 1 node(s) were unschedulable. no new claims to deallocate, preemption: not eligible due to \
             preemptionPolicy=Never.",
        ),
        (
            "port",
            json!({"nodeSelector": {"name": "small"}, "containers": [
                {"name": "web", "image": "nginx", "ports": [{"containerPort": 80, "hostPort": 80}]},
            ]}),
            "small",
        ),
    ]
}

/// The node `small` has its maximum of three pods. A pending pod is scheduled when one is deleted or its gate is removed.
async fn full_node_and_gates(api: &Api<Pod>, cluster: &Cluster) -> Result<()> {
    let here = json!({"nodeSelector": {"name": "small"}});
    let events = cluster_with_nodes::events(cluster, "other-label").await?;
    ensure!(
        events
            .iter()
            .any(|(reason, text)| reason == "FailedScheduling" && text.starts_with("0/4 ")),
        "{events:?}"
    );
    api.create(&PostParams::default(), &pod("fourth", json!({"spec": here})))
        .await?;
    let waiting = wait_until(api, "fourth", |pod| !condition(pod, "PodScheduled").is_null()).await?;
    let found = &condition(&waiting, "PodScheduled")["message"];
    let expected = "0/4 nodes are available: 1 Too many pods, 1 node(s) didn't match Pod's node affinity/selector, 1 \
                    node(s) had untolerated taint(s), 1 node(s) were unschedulable. no new claims to deallocate, preemption: 0/4 nodes are \
                    available: 1 No preemption victims found for incoming pod, 3 Preemption is not helpful for \
                    scheduling.";
    ensure!(*found == expected, "\n  found    {found}\n  expected {expected}");

    api.delete("by-label", &DeleteParams::default().grace_period(0))
        .await?;
    let placed = tokio::time::timeout(
        Duration::from_secs(30),
        wait_until(api, "fourth", |pod| !pod["spec"]["nodeName"].is_null()),
    );
    ensure!(placed.await??["spec"]["nodeName"] == "small");

    // A scheduling gate holds a pod back until it is removed.
    let gated =
        json!({"schedulingGates": [{"name": "example.com/later"}], "nodeSelector": {"name": "large"}});
    api.create(&PostParams::default(), &pod("gated", json!({"spec": gated})))
        .await?;
    let held = wait_until(api, "gated", |pod| !condition(pod, "PodScheduled").is_null()).await?;
    ensure!(
        condition(&held, "PodScheduled")["reason"] == "SchedulingGated",
        "{held:#}"
    );
    let open = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
    api.patch("gated", &PatchParams::default(), &open).await?;
    let placed = tokio::time::timeout(
        Duration::from_secs(30),
        wait_until(api, "gated", |pod| !pod["spec"]["nodeName"].is_null()),
    );
    ensure!(placed.await??["spec"]["nodeName"] == "large");
    Ok(())
}

/// A pod gets no node before its claims are bound.
async fn unbound_claims(api: &Api<Pod>, cluster: &Cluster) -> Result<()> {
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(cluster.client());
    let volumes = Api::<PersistentVolume>::all(cluster.client());
    let size = json!({"storage": "1Gi"});
    let volume = json!({"metadata": {"name": "pv"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": size, "hostPath": {"path": "/data"},
        "claimRef": {"namespace": "default", "name": "data"},
    }});
    volumes
        .create(&PostParams::default(), &serde_json::from_value(volume)?)
        .await?;
    for (name, volume) in [("data", "pv"), ("gone", "nowhere")] {
        let claim = json!({"metadata": {"name": name, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": size}, "volumeName": volume,
        }});
        claims
            .create(&PostParams::default(), &serde_json::from_value(claim)?)
            .await?;
    }
    let free = json!({"metadata": {"name": "free"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": size}}});
    claims
        .create(&PostParams::default(), &serde_json::from_value(free)?)
        .await?;
    let set_phase = async |name: &str, phase: &str| {
        let phase = Patch::Merge(json!({"status": {"phase": phase}}));
        claims.patch_status(name, &PatchParams::default(), &phase).await
    };
    set_phase("gone", "Lost").await?;
    set_phase("data", "Bound").await?;
    let with = |source: Value| {
        let mut volume = json!({"name": "v"});
        let fields = volume.as_object_mut().expect("an object");
        fields.extend(source.as_object().expect("an object").clone());
        json!({"nodeSelector": {"name": "theirs"}, "tolerations": [{"operator": "Exists"}], "volumes": [volume]})
    };
    let claim = |name: &str| with(json!({"persistentVolumeClaim": {"claimName": name}}));
    let template = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": size}}});
    for (name, spec, expected) in [
        ("bound", claim("data"), "theirs"),
        (
            "unbound",
            claim("free"),
            "0/4 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found",
        ),
        (
            "unknown",
            claim("nope"),
            "0/4 nodes are available: persistentvolumeclaim \"nope\" not found. not found",
        ),
        (
            "lost",
            claim("gone"),
            "0/4 nodes are available: persistentvolumeclaim \"gone\" bound to non-existent persistentvolume \"nowhere\". not found",
        ),
        (
            "ephemeral",
            with(json!({"ephemeral": {"volumeClaimTemplate": template}})),
            "0/4 nodes are available: waiting for ephemeral volume controller to create the persistentvolumeclaim \
             \"ephemeral-v\". not found",
        ),
    ] {
        api.create(&PostParams::default(), &pod(name, json!({"spec": spec})))
            .await?;
        let decided = wait_until(api, name, |pod| !condition(pod, "PodScheduled").is_null()).await?;
        let node = decided["spec"]["nodeName"].as_str();
        let found = node
            .or(condition(&decided, "PodScheduled")["message"].as_str())
            .unwrap_or_default();
        ensure!(
            found == expected,
            "{name}:\n  found    {found}\n  expected {expected}"
        );
    }
    let late = json!({"metadata": {"name": "nope", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": size}, "volumeName": "pv",
    }});
    claims
        .create(&PostParams::default(), &serde_json::from_value(late)?)
        .await?;
    set_phase("nope", "Bound").await?;
    let placed = tokio::time::timeout(
        Duration::from_secs(30),
        wait_until(api, "unknown", |pod| !pod["spec"]["nodeName"].is_null()),
    );
    ensure!(placed.await??["spec"]["nodeName"] == "theirs");
    Ok(())
}
