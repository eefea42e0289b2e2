//! Pods whose ConfigMaps, Secrets or claims are missing wait for them, as on a real node.

use crate::cluster_with_nodes;

use anyhow::Result;
use cluster_with_nodes::{condition, events, is_ready, pod, pods, start, wait_until};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use windlass_cluster::Cluster;

/// Phase, state of the first container, and whether the pod has an address.
fn brief(pod: &Value) -> (&str, &str, bool) {
    let status = &pod["status"];
    let reason = &status["containerStatuses"][0]["state"]["waiting"]["reason"];
    (
        status["phase"].as_str().unwrap_or_default(),
        reason.as_str().unwrap_or_default(),
        status["podIP"].is_string(),
    )
}

/// Creates a pod, and waits until its kubelet reports it.
async fn create(api: &Api<Pod>, name: &str, spec: &Value) -> Result<Value> {
    api.create(&PostParams::default(), &pod(name, json!({"spec": spec})))
        .await?;
    wait_until(api, name, |pod| {
        !pod["status"]["containerStatuses"][0]["state"].is_null()
    })
    .await
}

async fn has_event(cluster: &Cluster, about: &str, reason: &str, message: &str) -> Result<bool> {
    let events = events(cluster, about).await?;
    Ok(events.contains(&(reason.to_owned(), message.to_owned())))
}

#[tokio::test(start_paused = true)]
async fn pod_waits_for_the_objects_of_its_volumes() -> Result<()> {
    let cluster = start(Cluster::embedded().nodes(1)).await?;
    let api = pods(&cluster);
    let maps = Api::<ConfigMap>::default_namespaced(cluster.client());
    let secrets = Api::<Secret>::default_namespaced(cluster.client());
    let map = |name: &str, data: Value| -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).expect("a ConfigMap")
    };
    for (name, volume, message) in [
        (
            "map",
            json!({"name": "v", "configMap": {"name": "config"}}),
            "MountVolume.SetUp failed for volume \"v\" : configmap \"config\" not found",
        ),
        (
            "secret",
            json!({"name": "v", "secret": {"secretName": "password"}}),
            "MountVolume.SetUp failed for volume \"v\" : secret \"password\" not found",
        ),
        (
            "projected",
            json!({"name": "v", "projected": {"sources": [{"secret": {"name": "password"}}]}}),
            "MountVolume.SetUp failed for volume \"v\" : secret \"password\" not found",
        ),
    ] {
        let waiting = create(&api, name, &json!({"volumes": [volume]})).await?;
        assert_eq!(brief(&waiting), ("Pending", "ContainerCreating", false), "{name}");
        assert_eq!(
            condition(&waiting, "PodReadyToStartContainers")["status"],
            "False",
            "{name}"
        );
        assert!(has_event(&cluster, name, "FailedMount", message).await?, "{name}");
    }
    maps.create(&PostParams::default(), &map("config", json!({"a": "b"})))
        .await?;
    wait_until(&api, "map", is_ready).await?;
    let password = serde_json::from_value(json!({"metadata": {"name": "password"}}))?;
    secrets.create(&PostParams::default(), &password).await?;
    wait_until(&api, "secret", is_ready).await?;
    wait_until(&api, "projected", is_ready).await?;

    let keyed = json!({"name": "v", "configMap": {"name": "config", "items": [{"key": "c", "path": "c"}]}});
    let waiting = create(&api, "keyed", &json!({"volumes": [keyed]})).await?;
    assert_eq!(brief(&waiting), ("Pending", "ContainerCreating", false));
    let message =
        "MountVolume.SetUp failed for volume \"v\" : configmap references non-existent config key: c";
    assert!(has_event(&cluster, "keyed", "FailedMount", message).await?);
    // A pod that waits can be deleted.
    api.delete("keyed", &DeleteParams::default()).await?;
    wait_until(&api, "keyed", Value::is_null).await?;
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn container_waits_for_the_objects_of_its_environment() -> Result<()> {
    let cluster = start(Cluster::embedded().nodes(1)).await?;
    let api = pods(&cluster);
    let container = |fields: Value| {
        let mut container = json!({"name": "web", "image": "nginx"});
        let all = container.as_object_mut().expect("an object");
        all.extend(fields.as_object().expect("an object").clone());
        json!({"containers": [container]})
    };
    let value = |source: Value| json!({"env": [{"name": "A", "valueFrom": source}]});
    for (name, fields, message) in [
        (
            "all",
            json!({"envFrom": [{"configMapRef": {"name": "config"}}]}),
            "configmap \"config\" not found",
        ),
        (
            "one",
            value(json!({"configMapKeyRef": {"name": "config", "key": "a"}})),
            "configmap \"config\" not found",
        ),
        (
            "secret",
            value(json!({"secretKeyRef": {"name": "password", "key": "a"}})),
            "secret \"password\" not found",
        ),
    ] {
        create(&api, name, &container(fields)).await?;
        let waiting = wait_until(&api, name, |pod| brief(pod).1 == "CreateContainerConfigError").await?;
        assert_eq!(
            brief(&waiting),
            ("Pending", "CreateContainerConfigError", true),
            "{name}"
        );
        let state = &waiting["status"]["containerStatuses"][0]["state"]["waiting"];
        assert_eq!(state["message"], message, "{name}");
        assert!(
            has_event(&cluster, name, "Failed", &format!("Error: {message}")).await?,
            "{name}"
        );
    }
    let maps = Api::<ConfigMap>::default_namespaced(cluster.client());
    let config = serde_json::from_value(json!({"metadata": {"name": "config"}, "data": {"b": "c"}}))?;
    maps.create(&PostParams::default(), &config).await?;
    wait_until(&api, "all", is_ready).await?;
    wait_until(&api, "one", |pod| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"]
            == "couldn't find key a in ConfigMap default/config"
    })
    .await?;
    let key = Patch::Merge(json!({"data": {"a": "b"}}));
    maps.patch("config", &PatchParams::default(), &key).await?;
    wait_until(&api, "one", is_ready).await?;
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn optional_references_do_not_hold_a_pod_back() -> Result<()> {
    let cluster = start(Cluster::embedded().nodes(1)).await?;
    let api = pods(&cluster);
    let spec = json!({
        "containers": [{"name": "web", "image": "nginx", "envFrom": [{"secretRef": {"name": "no", "optional": true}}], "env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "no", "key": "a", "optional": true}}},
        ]}],
        "volumes": [
            {"name": "a", "configMap": {"name": "no", "optional": true}},
            {"name": "b", "secret": {"secretName": "no", "optional": true}},
            {"name": "c", "emptyDir": {}},
        ],
    });
    api.create(&PostParams::default(), &pod("web", json!({"spec": spec})))
        .await?;
    wait_until(&api, "web", is_ready).await?;
    let events = events(&cluster, "web").await?;
    assert!(
        events
            .iter()
            .all(|(reason, _)| reason != "FailedMount" && reason != "Failed"),
        "{events:?}"
    );
    cluster.stop().await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn pod_with_an_unbound_claim_does_not_run() -> Result<()> {
    let cluster = start(Cluster::embedded().nodes(1)).await?;
    let api = pods(&cluster);
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(cluster.client());
    let claim = json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    claims
        .create(&PostParams::default(), &serde_json::from_value(claim)?)
        .await?;
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    api.create(
        &PostParams::default(),
        &pod("scheduled", json!({"spec": {"volumes": volumes}})),
    )
    .await?;
    let waiting = wait_until(&api, "scheduled", |pod| !condition(pod, "PodScheduled").is_null()).await?;
    assert_eq!(condition(&waiting, "PodScheduled")["reason"], "Unschedulable");
    // A pod that names its node is not scheduled: its kubelet waits.
    let waiting = create(&api, "placed", &json!({"volumes": volumes, "nodeName": "node-1"})).await?;
    assert_eq!(brief(&waiting), ("Pending", "ContainerCreating", false));
    let message = "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process \
                   volumes=[v]: error processing PVC default/data: PVC is not bound";
    assert!(has_event(&cluster, "placed", "FailedMount", message).await?);
    let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    claims
        .patch_status("data", &PatchParams::default(), &bound)
        .await?;
    wait_until(&api, "scheduled", is_ready).await?;
    wait_until(&api, "placed", is_ready).await?;
    cluster.stop().await;
    Ok(())
}
