//! What the cases share: pods, and the rights that podwatch ships with.

use std::sync::LazyLock;

use windlass::{
    k8s_openapi::api::core::v1::Pod,
    prelude::{Client, from_value, json},
};
use windlass_podwatch::{Scope, sync};
use windlass_suite::{Context as Case, Running, Shipped, World};

use crate::paper::Paper;

/// The rights that podwatch ships with. All cases note what they use of them.
pub(crate) fn shipped() -> &'static Shipped {
    static SHIPPED: LazyLock<Shipped> =
        LazyLock::new(|| Shipped::read(include_str!("../../rbac.yaml")).expect("a manifest of roles"));
    &SHIPPED
}

/// A world whose controllers have exactly these rights.
pub(crate) async fn world(case: &Case) -> anyhow::Result<World> {
    Ok(World::of(case, &shipped().client(case).await?))
}

pub(crate) fn pod(name: &str) -> Pod {
    from_value(json!({
        "metadata": { "name": name },
        "spec": { "containers": [{ "name": "main", "image": "main" }] },
    }))
    .expect("a pod")
}

/// The pods of the case's namespace.
pub(crate) fn scope(case: &Case) -> Scope {
    Scope {
        namespaces: vec![case.namespace().to_owned()],
        ..Scope::default()
    }
}

/// Starts `syncToStdout` on a paper.
pub(crate) fn start(world: &World, scope: &Scope, paper: &Paper) -> Running {
    start_on(world.wire().client(), scope, paper)
}

pub(crate) fn start_on(client: Client, scope: &Scope, paper: &Paper) -> Running {
    // The scope says the namespaces; a manager of all of them must not change that.
    let manager = windlass::prelude::Manager::new(client);
    Running::start(manager.controller(sync::controller(scope, paper.clone())))
}
