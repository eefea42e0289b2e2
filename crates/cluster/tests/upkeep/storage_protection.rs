//! The protection of claims and volumes in use.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use windlass_suite::Context;

use crate::upkeep::recorded_watch::eventually;

pub(crate) async fn deleted_claim_waits_for_the_pod_that_uses_it(ctx: Context) -> Result<()> {
    let (claims, pods) = (ctx.api::<PersistentVolumeClaim>(), ctx.api::<Pod>());
    service_account(&ctx).await?;
    let created = create(&claims, claim("c")).await?;
    ensure!(created.finalizers() == ["kubernetes.io/pvc-protection"]);
    create(&pods, pod("p", "c", Some("no-such-node"))).await?;

    claims.delete("c", &DeleteParams::default()).await?;
    // A second claim that nothing uses is gone: the controller has seen the first one too.
    create(&claims, claim("unused")).await?;
    claims.delete("unused", &DeleteParams::default()).await?;
    is_gone(&claims, "unused").await?;
    let waiting = claims.get("c").await?;
    ensure!(waiting.metadata.deletion_timestamp.is_some());
    ensure!(waiting.finalizers() == ["kubernetes.io/pvc-protection"]);

    pods.delete("p", &DeleteParams::default().grace_period(0)).await?;
    is_gone(&claims, "c").await
}

pub(crate) async fn deleted_claim_does_not_wait_for_pods_without_a_node(ctx: Context) -> Result<()> {
    let (claims, pods) = (ctx.api::<PersistentVolumeClaim>(), ctx.api::<Pod>());
    service_account(&ctx).await?;
    create(&claims, claim("c")).await?;
    let mut gated = pod("p", "c", None);
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    create(&pods, gated).await?;
    claims.delete("c", &DeleteParams::default()).await?;
    is_gone(&claims, "c").await
}

pub(crate) async fn deleted_volume_waits_until_it_is_not_bound(ctx: Context) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(ctx.client().clone());
    let claims = ctx.api::<PersistentVolumeClaim>();
    let namespace = ctx.namespace();
    let name = format!("{namespace}-v");
    let mut bound = claim("c");
    bound["spec"]["volumeName"] = name.as_str().into();
    bound["spec"]["storageClassName"] = "".into();
    let bound = create(&claims, bound).await?;
    let spec = json!({
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"},
        "claimRef": {"namespace": namespace, "name": "c", "uid": bound.uid()},
    });
    create(&volumes, json!({"metadata": {"name": name}, "spec": spec})).await?;
    // A real cluster binds them by itself.
    let status = |phase: &str| Patch::Merge(json!({"status": {"phase": phase}}));
    volumes
        .patch_status(&name, &PatchParams::default(), &status("Bound"))
        .await?;
    volumes.delete(&name, &DeleteParams::default()).await?;
    let unused = format!("{namespace}-unused");
    let other = json!({
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"},
        "storageClassName": "none",
    });
    create(&volumes, json!({"metadata": {"name": unused}, "spec": other})).await?;
    volumes.delete(&unused, &DeleteParams::default()).await?;
    is_gone(&volumes, &unused).await?;
    ensure!(volumes.get(&name).await?.metadata.deletion_timestamp.is_some());

    claims.delete("c", &DeleteParams::default()).await?;
    is_gone(&claims, "c").await?;
    // A real cluster releases it; it may be gone already.
    let released = volumes
        .patch_status(&name, &PatchParams::default(), &status("Released"))
        .await;
    ensure!(released.is_ok() || volumes.get_opt(&name).await?.is_none());
    is_gone(&volumes, &name).await
}

fn claim(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "none",
    }})
}

fn pod(name: &str, claim: &str, node: Option<&str>) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "nodeName": node,
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
    }})
}

/// Pods need the service account of their namespace.
async fn service_account(ctx: &Context) -> Result<()> {
    let accounts = ctx.api::<ServiceAccount>();
    eventually("the account", async || Ok(accounts.get_opt("default").await?)).await?;
    Ok(())
}

async fn create<K>(api: &Api<K>, object: Value) -> Result<K>
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    Ok(api
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?)
}

async fn is_gone<K>(api: &Api<K>, name: &str) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    eventually("its removal", async || {
        Ok(api.get_opt(name).await?.is_none().then_some(()))
    })
    .await
}
