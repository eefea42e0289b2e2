//! Fixtures: pods, and the rights in podwatch's rbac.yaml.

use std::sync::LazyLock;

use windlass::{
    k8s_openapi::api::core::v1::Pod,
    prelude::{Client, from_value, json},
};
use windlass_podwatch::{Scope, sync};
use windlass_suite::{Context as Case, ManifestRoles, RunningManager, TestEnvironment};

use crate::podwatch::scripted_printer::ScriptedPrinter;

/// The rights in rbac.yaml. Records which of them the cases use.
pub(crate) fn shipped() -> &'static ManifestRoles {
    static SHIPPED: LazyLock<ManifestRoles> =
        LazyLock::new(|| ManifestRoles::parse(include_str!("../../rbac.yaml")).expect("a manifest of roles"));
    &SHIPPED
}

/// An environment whose controllers have exactly the shipped rights.
pub(crate) async fn new_env(case: &Case) -> anyhow::Result<TestEnvironment> {
    Ok(TestEnvironment::with_client(case, &shipped().client(case).await?))
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

/// Starts `syncToStdout` with a scripted printer.
pub(crate) fn start(env: &TestEnvironment, scope: &Scope, printer: &ScriptedPrinter) -> RunningManager {
    start_on(env.proxy().client(), scope, printer)
}

pub(crate) fn start_on(client: Client, scope: &Scope, printer: &ScriptedPrinter) -> RunningManager {
    // A cluster-wide manager: the scope alone must restrict the namespaces.
    let manager = windlass::prelude::Manager::new(client);
    RunningManager::start(manager.controller(sync::controller(scope, printer.clone())))
}
