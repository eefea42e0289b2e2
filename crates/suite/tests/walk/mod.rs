//! A kubectl tour through an embedded cluster with nodes, as a new user takes it. The output is that of a real cluster.

use crate::kubectl::command::Kubectl;
use anyhow::{Result, ensure};
use windlass_cluster::Cluster;
use windlass_suite::{Suite, Target};

pub(crate) fn suite() -> Suite {
    Suite::new("kubectl-walk")
        .requires(windlass_cluster::matching_kubectl())
        .case_on(Target::Embedded, "kubectl_tour_through_an_embedded_cluster", walk)
        .case_on(
            Target::Embedded,
            "unschedulable_pod_and_stuck_namespace_are_reported",
            faults,
        )
}

async fn start_cluster(nodes: usize) -> Result<(Cluster, Kubectl)> {
    let cluster = Cluster::embedded().nodes(nodes).start().await?;
    let kubectl = Kubectl::for_cluster(&cluster, "default")?;
    Ok((cluster, kubectl))
}

async fn walk() -> Result<()> {
    let (cluster, kubectl) = start_cluster(3).await?;
    let nodes = kubectl.ok("get nodes --no-headers").await?;
    ensure!(
        nodes.lines().count() == 3 && nodes.lines().all(|line| line.contains(" Ready ")),
        "{nodes}"
    );
    let services = kubectl.ok("get services --no-headers").await?;
    ensure!(
        services.starts_with("kubernetes ")
            && services.contains(" 443/TCP ")
            && services.lines().count() == 1,
        "{services}"
    );

    kubectl
        .ok("create deployment web --image=nginx --replicas=3")
        .await?;
    let status = kubectl.ok("rollout status deployment/web --timeout=60s").await?;
    ensure!(
        status.ends_with("deployment \"web\" successfully rolled out\n"),
        "{status}"
    );
    let first = kubectl.ok("get replicasets -o name").await?;

    kubectl.ok("set image deployment/web nginx=nginx:2").await?;
    kubectl.ok("rollout status deployment/web --timeout=60s").await?;
    let history = kubectl.ok("rollout history deployment/web").await?;
    ensure!(history.contains("\n1 ") && history.contains("\n2 "), "{history}");
    kubectl.ok("rollout undo deployment/web").await?;
    kubectl.ok("rollout status deployment/web --timeout=60s").await?;
    let image = kubectl
        .ok("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}")
        .await?;
    ensure!(image == "nginx", "{image}");
    let running = kubectl
        .ok("get replicasets -o jsonpath={.items[?(@.status.replicas==3)].metadata.name}")
        .await?;
    ensure!(
        first.trim().ends_with(&running),
        "the old ReplicaSet is used again: {first} {running}"
    );
    kubectl.ok("rollout restart deployment/web").await?;
    kubectl.ok("rollout status deployment/web --timeout=60s").await?;

    kubectl.ok("scale deployment/web --replicas=5").await?;
    kubectl
        .ok("wait --for=jsonpath={.status.readyReplicas}=5 deployment/web --timeout=60s")
        .await?;

    kubectl.ok("cordon node-1").await?;
    let nodes = kubectl.ok("get nodes node-1 --no-headers").await?;
    ensure!(nodes.contains("Ready,SchedulingDisabled"), "{nodes}");
    let drained = kubectl
        .ok("drain node-1 --ignore-daemonsets --timeout=60s")
        .await?;
    ensure!(drained.ends_with("node/node-1 drained\n"), "{drained}");
    kubectl
        .ok("wait --for=jsonpath={.status.readyReplicas}=5 deployment/web --timeout=60s")
        .await?;
    let on_it = kubectl
        .ok("get pods --field-selector=spec.nodeName=node-1 -o name")
        .await?;
    ensure!(on_it.is_empty(), "{on_it}");
    kubectl.ok("uncordon node-1").await?;

    let events = kubectl.ok("get events").await?;
    for reason in [
        "ScalingReplicaSet",
        "SuccessfulCreate",
        "Scheduled",
        "Pulled",
        "Started",
        "Killing",
    ] {
        ensure!(events.contains(reason), "no {reason}:\n{events}");
    }
    let logs = kubectl.ok("logs deployment/web").await?;
    ensure!(!logs.is_empty());

    kubectl.ok("create namespace shop").await?;
    kubectl
        .ok("create deployment inner --image=nginx --namespace=shop")
        .await?;
    kubectl
        .ok("rollout status deployment/inner --namespace=shop --timeout=60s")
        .await?;
    let deleted = kubectl.ok("delete namespace shop --timeout=60s").await?;
    ensure!(deleted.contains("namespace \"shop\" deleted"), "{deleted}");

    kubectl
        .ok("delete deployment web --cascade=foreground --timeout=60s")
        .await?;
    let left = kubectl.ok("get replicasets,pods -o name").await?;
    ensure!(left.is_empty(), "{left}");
    cluster.stop().await;
    Ok(())
}

async fn faults() -> Result<()> {
    let (cluster, kubectl) = start_cluster(1).await?;
    // An unschedulable pod.
    kubectl
        .ok("run large --image=nginx --overrides={\"spec\":{\"nodeSelector\":{\"disk\":\"gold\"}}}")
        .await?;
    kubectl
        .ok("wait --for=condition=PodScheduled=False pod/large --timeout=60s")
        .await?;
    let why = kubectl.ok("describe pod large").await?;
    ensure!(
        why.contains("FailedScheduling") && why.contains("0/1 nodes are available"),
        "{why}"
    );

    // A namespace that cannot be deleted shows why.
    kubectl.ok("create namespace stuck").await?;
    let held = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"held","namespace":"stuck","finalizers":["example.com/hold"]}}"#;
    kubectl
        .ok_with_input("create -f - --namespace=stuck", held)
        .await?;
    kubectl.ok("delete namespace stuck --wait=false").await?;
    kubectl
        .ok("wait --for=condition=NamespaceFinalizersRemaining namespace/stuck --timeout=60s")
        .await?;
    let why = kubectl
        .ok("get namespace stuck -o jsonpath={.status.conditions}")
        .await?;
    ensure!(why.contains("example.com/hold in 1 resource instances"), "{why}");
    kubectl
        .ok("patch configmap held --namespace=stuck --type=merge -p {\"metadata\":{\"finalizers\":null}}")
        .await?;
    kubectl
        .ok("wait --for=delete namespace/stuck --timeout=60s")
        .await?;
    cluster.stop().await;
    Ok(())
}
