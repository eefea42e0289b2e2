//! What the cases share: pods, the rights that podwatch ships with, and what was logged.

use std::{
    io::{self, Write},
    sync::{Arc, LazyLock, Mutex, OnceLock},
};

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

/// Everything that is logged from now on, by all cases.
pub(crate) fn log() -> Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = Log::default();
        let writer = log.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .init();
        log
    })
    .clone()
}

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
