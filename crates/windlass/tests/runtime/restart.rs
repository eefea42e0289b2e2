//! A restarted controller.

use std::time::Duration;

use windlass::{
    k8s_openapi::api::{
        apps::v1::Deployment,
        core::v1::{ConfigMap, Event, Service},
        networking::v1::Ingress,
    },
    kube::api::{Patch, PatchParams},
    prelude::*,
};
use windlass_suite::{Context as Case, RunningManager, TestEnvironment, install_crds};

use crate::runtime::{
    fixture::until,
    shop::{Shop, ShopSpec, all_shown},
};

/// Children with empty lists and maps, which the server drops, and objects that it fills with defaults.
async fn desired(shop: Arc<Shop>, _: Context) -> Result<Desired, Error> {
    let name = shop.name_any();
    let labels = json!({ "app": name });
    let container = json!({
        "name": "web", "image": "nginx", "args": [], "command": [], "env": [], "envFrom": [], "volumeMounts": [],
        "ports": [{ "containerPort": 80 }], "resources": { "limits": {}, "requests": {} }, "securityContext": {},
    });
    let pod = json!({
        "containers": [container], "initContainers": [], "imagePullSecrets": [], "nodeSelector": {}, "tolerations": [],
        "volumes": [{ "name": "scratch", "emptyDir": {} }], "securityContext": { "sysctls": [] }, "hostAliases": [],
        "affinity": {}, "topologySpreadConstraints": [],
    });
    let deployment: Deployment = from_value(json!({
        "metadata": { "name": name, "annotations": {}, "finalizers": [], "labels": {} },
        "spec": {
            "selector": { "matchLabels": labels, "matchExpressions": [] },
            "strategy": {},
            "template": { "metadata": { "labels": labels, "annotations": {} }, "spec": pod },
        },
    }))?;
    let service: Service = from_value(json!({
        "metadata": { "name": name, "annotations": {}, "labels": {} },
        "spec": {
            "selector": labels, "ports": [{ "port": 80 }], "externalIPs": [], "loadBalancerSourceRanges": [],
            "sessionAffinityConfig": {},
        },
        "status": { "loadBalancer": { "ingress": [] }, "conditions": [] },
    }))?;
    let backend = json!({ "service": { "name": name, "port": { "number": 80 } } });
    let path = json!({ "path": "/", "pathType": "Prefix", "backend": backend });
    let ingress: Ingress = from_value(json!({
        "metadata": { "name": name, "labels": {} },
        "spec": { "rules": [{ "http": { "paths": [path] } }], "tls": [] },
    }))?;
    let config: ConfigMap = from_value(json!({
        "metadata": { "name": name, "labels": {} }, "data": {}, "binaryData": {},
    }))?;
    let desired = Desired::new()
        .child(deployment)
        .child(service)
        .child(ingress)
        .child(config);
    Ok(desired
        .status(json!({ "note": "open", "conditions": [] }))
        .event("Synced", "all children are applied"))
}

fn controller() -> Controller<Shop, impl Reconciler> {
    Controller::<Shop>::new("full")
        .owns::<Deployment>()
        .owns::<Service>()
        .owns::<Ingress>()
        .owns::<ConfigMap>()
        .declare(desired)
}

pub(crate) async fn unchanged_restart_writes_nothing_and_posts_no_event(case: Case) -> anyhow::Result<()> {
    install_crds(&case, [Shop::crd()]).await?;
    let env = TestEnvironment::new(&case);
    let shop = env.create(Shop::new("corner", ShopSpec { size: 1 })).await?;
    let running = RunningManager::start(env.manager().controller(controller()));
    env.wait_for::<Shop>("corner", |shop| all_shown(shop) == ["Ready True Reconciled"])
        .await?;
    env.wait_for_event(&shop, |event: &Event| event.reason.as_deref() == Some("Synced"))
        .await?;
    env.proxy().wait_until_idle(Duration::from_millis(500)).await;
    running.stop().await?;
    env.proxy().clear();
    let counted = controller();
    let outcomes = counted.outcomes();
    let running = RunningManager::start(env.manager().controller(counted));
    until(|| outcomes.done() >= 1).await?;
    env.proxy().wait_until_idle(Duration::from_millis(500)).await;
    let writes: Vec<_> = env.proxy().writes().iter().map(ToString::to_string).collect();
    assert_eq!(writes, [""; 0]);

    // A change is announced.
    env.patch::<Shop>("corner", json!({ "spec": { "size": 2 } }))
        .await?;
    env.proxy()
        .wait_until_sent(|sent| sent.is_write() && sent.resource() == "events")
        .await?;
    running.stop().await
}

/// Another manager's condition in the same list.
pub(crate) async fn conditions_of_others_are_no_reason_to_write(case: Case) -> anyhow::Result<()> {
    install_crds(&case, [Shop::crd()]).await?;
    let env = TestEnvironment::new(&case);
    env.create(Shop::new("corner", ShopSpec { size: 1 })).await?;
    let running = RunningManager::start(env.manager().controller(controller()));
    env.wait_for::<Shop>("corner", |shop| all_shown(shop) == ["Ready True Reconciled"])
        .await?;
    env.proxy().wait_until_idle(Duration::from_millis(500)).await;
    running.stop().await?;
    let theirs = json!({
        "apiVersion": "suite.windlass.dev/v1", "kind": "Shop",
        "status": { "conditions": [{
            "type": "Theirs", "status": "True", "reason": "Yes", "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z",
        }] },
    });
    let parameters = PatchParams::apply("others");
    let patch = Patch::Apply(&theirs);
    case.api::<Shop>()
        .patch_status("corner", &parameters, &patch)
        .await?;
    env.proxy().clear();
    let counted = controller();
    let outcomes = counted.outcomes();
    let running = RunningManager::start(env.manager().controller(counted));
    until(|| outcomes.done() >= 1).await?;
    env.proxy().wait_until_idle(Duration::from_millis(500)).await;
    let writes: Vec<_> = env.proxy().writes().iter().map(ToString::to_string).collect();
    assert_eq!(writes, [""; 0]);
    let shop = env.get::<Shop>("corner").await?;
    assert_eq!(all_shown(&shop), ["Ready True Reconciled", "Theirs True Yes"]);
    running.stop().await
}
