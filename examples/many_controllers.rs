//! Several controllers in one manager: they share one client, one watch per kind, one leader election and one shutdown.
//!
//! Each Namespace with the label `example.com/tenant` gets a quota from one controller and a network policy from
//! another. A third, which reads what the others write, marks the Namespace as ready when it has both.
//!
//! ```sh
//! cargo run -p windlass-examples --bin many_controllers -- --embedded   # plays `demo` on an embedded cluster
//! cargo run -p windlass-examples --bin many_controllers                 # runs on the kubeconfig's cluster
//! ```

use std::time::Duration;

use windlass::{
    k8s_openapi::{
        NamespaceResourceScope,
        api::{
            core::v1::{Namespace, ResourceQuota},
            networking::v1::NetworkPolicy,
        },
    },
    kube::api::{Api, PostParams},
    prelude::*,
    runtime::TaskContext,
};
use windlass_examples::{User, example};

const READY_ANNOTATION: &str = "example.com/ready";

/// The same selector for all controllers, so that they share one cache.
fn tenants() -> Watch<Namespace> {
    Watch::new().labels("example.com/tenant")
}

async fn quota(tenant: Arc<Namespace>, _ctx: Context) -> Result<Desired, Error> {
    let quota: ResourceQuota = from_value(json!({
        "metadata": { "namespace": tenant.name_any(), "name": "tenant" },
        "spec": { "hard": { "pods": "10" } },
    }))?;
    Ok(Desired::new().child(quota))
}

async fn isolation(tenant: Arc<Namespace>, _ctx: Context) -> Result<Desired, Error> {
    let policy: NetworkPolicy = from_value(json!({
        "metadata": { "namespace": tenant.name_any(), "name": "tenant" },
        "spec": { "podSelector": {}, "policyTypes": ["Ingress"] },
    }))?;
    Ok(Desired::new().child(policy))
}

async fn readiness(request: Request, ctx: Context) -> Result<Action, Error> {
    let Some(tenant) = ctx.lister::<Namespace>()?.get(&request.key) else {
        return Ok(Action::done());
    };
    let child = ObjectKey::namespaced(tenant.name_any(), "tenant");
    let has_quota = ctx.lister::<ResourceQuota>()?.get(&child).is_some();
    let has_policy = ctx.lister::<NetworkPolicy>()?.get(&child).is_some();
    let is_ready = (has_quota && has_policy).to_string();
    if tenant.annotations().get(READY_ANNOTATION) != Some(&is_ready) {
        let patch = json!({ "metadata": { "annotations": { READY_ANNOTATION: is_ready } } });
        ctx.writer().merge_patch(&*tenant, &patch).await?;
    }
    Ok(Action::done())
}

/// The Namespace of an object, to reconcile when the object changes.
fn namespace_of<K: Resource<Scope = NamespaceResourceScope>>(object: &K) -> Vec<ObjectKey> {
    let namespace = object.meta().namespace.as_deref();
    namespace.map(ObjectKey::cluster_scoped).into_iter().collect()
}

/// Prints the watches that the controllers share. A task runs once the caches have synced.
async fn print_watches(ctx: TaskContext) -> Result<(), Error> {
    for report in ctx.caches().reports() {
        println!("one watch of {}", report.kind.kind);
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    let setup = |manager: Manager| {
        let quotas = Controller::from_watch("quota", tenants())
            .owns::<ResourceQuota>()
            .declare(quota);
        let policies = Controller::from_watch("isolation", tenants())
            .owns::<NetworkPolicy>()
            .declare(isolation);
        let ready = Controller::from_watch("readiness", tenants())
            .watches::<ResourceQuota>(namespace_of)
            .watches::<NetworkPolicy>(namespace_of)
            .reconcile(readiness);
        let manager = manager.controller(quotas).controller(policies).controller(ready);
        manager.task("print-watches", print_watches)
    };
    example("many_controllers", [], setup, demo)
}

async fn demo(user: User) -> Result<(), Error> {
    let namespaces = Api::<Namespace>::all(user.client());
    for (name, labels) in [
        ("shop", json!({ "example.com/tenant": "" })),
        ("other", json!({})),
    ] {
        let namespace = from_value(json!({ "metadata": { "name": name, "labels": labels } }))?;
        namespaces.create(&PostParams::default(), &namespace).await?;
    }
    while namespaces
        .get("shop")
        .await?
        .annotations()
        .get(READY_ANNOTATION)
        .is_none_or(|it| it != "true")
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("shop is ready");
    println!(
        "other has the annotations {:?}",
        namespaces.get("other").await?.annotations()
    );
    Ok(())
}
