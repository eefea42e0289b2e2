//! What makes an embedded cluster alive: the controllers, the scheduler and the kubelets of a real one, small.
//!
//! ```text
//!   Cluster ── owns ──► Alive ── runs ──► Manager (one set of caches, one stop)
//!                                            └── controllers of this project's own runtime, one for each job
//! ```
//!
//! Each part is an ordinary controller that talks to the API server as anybody would; none of them knows another. What a
//! watcher sees, in which order, is what a real control plane shows.

pub(crate) mod nodes;
mod settings;
mod upkeep;
mod workloads;

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::{sync::oneshot, task::JoinHandle};
use windlass_apiserver::Logs;
use windlass_runtime::{Clock, Manager, ManagerError};

use self::nodes::Machines;
pub(crate) use self::settings::Settings;

/// The running parts. Dropping it ends them at their next await.
pub(crate) struct Alive {
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<(), ManagerError>>,
    machines: Machines,
}

impl Alive {
    /// Starts everything on the runtime of the caller.
    pub(crate) fn start(client: Client, settings: &Settings, machines: &Machines, logs: &Logs) -> Self {
        // As the server's: it runs with tokio's clock.
        let settings = &Settings {
            clock: Clock::starting_at(Timestamp::now()),
            ..settings.clone()
        };
        let manager = parts(Manager::new(client), settings, machines, logs)
            .grace(Duration::ZERO)
            .quiet();
        let (stop, stopped) = oneshot::channel();
        // A sender that is gone is a stop too.
        let ends = machines.clone();
        let run = Box::pin(manager.run_until(async move { drop(stopped.await) }));
        let running = tokio::spawn(async move {
            let end = run.await;
            ends.close();
            end
        });
        Self {
            stop: Some(stop),
            running,
            machines: machines.clone(),
        }
    }

    /// What its nodes run on.
    pub(crate) fn machines(&self) -> &Machines {
        &self.machines
    }

    /// Ends everything, and returns when nothing is left.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        if let Ok(Err(error)) = (&mut self.running).await {
            tracing::debug!("the cluster's controllers ended: {error}");
        }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.running.abort();
        self.machines.close();
    }
}

/// All parts, each added by its own room.
fn parts(manager: Manager, settings: &Settings, machines: &Machines, logs: &Logs) -> Manager {
    let manager = upkeep::add(manager, settings);
    let manager = workloads::add(manager, settings);
    nodes::add(manager, settings, machines, logs)
}
