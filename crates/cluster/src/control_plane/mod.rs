//! The control plane of an embedded cluster: small versions of the Kubernetes controllers, scheduler and kubelets.
//!
//! ```text
//!   Cluster ── owns ──► EmbeddedControlPlane ── runs ──► Manager (one set of caches, one stop)
//!                                                           └── windlass-runtime controllers
//! ```
//!
//! Each one is an ordinary controller that uses only the API; none depends on another. A watcher sees the same events in
//! the same order as on a real control plane.

pub(crate) mod limitations;
pub(crate) mod nodes;
mod pod_claims;
mod settings;
mod upkeep;
mod workloads;

use std::time::Duration;

use kube::Client;
use tokio::{sync::oneshot, task::JoinHandle};
use windlass_apiserver::Logs;
use windlass_runtime::Manager;

use self::nodes::{Machines, NodeSpec};
pub(crate) use self::settings::Settings;

/// The delay before all controllers restart after one failed, so that one that always fails does not spin.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// The running controllers. Dropping it cancels them at their next await.
pub(crate) struct EmbeddedControlPlane {
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
    machines: Machines,
}

impl EmbeddedControlPlane {
    /// Starts all controllers on the caller's tokio runtime.
    pub(crate) fn start(client: Client, settings: &Settings, machines: &Machines, logs: &Logs) -> Self {
        for number in 1..=settings.nodes {
            machines.add(NodeSpec::new(format!("node-{number}")));
        }
        let build = {
            let (settings, machines, logs) = (settings.clone(), machines.clone(), logs.clone());
            move || {
                let manager = Manager::new(client.clone());
                add_controllers(manager, &settings, &machines, &logs)
                    .grace_period(Duration::ZERO)
                    .quiet()
            }
        };
        // Dropping the sender stops too.
        let (stop, stopped) = oneshot::channel();
        let ends = machines.clone();
        let running = tokio::spawn(async move {
            run_until_stopped(build, stopped).await;
            ends.close();
        });
        Self {
            stop: Some(stop),
            running,
            machines: machines.clone(),
        }
    }

    /// The simulated machines behind its nodes.
    pub(crate) fn machines(&self) -> &Machines {
        &self.machines
    }

    /// Stops all controllers, and returns when they have ended.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        // The panic hook has reported a panic already.
        let _ = (&mut self.running).await;
    }
}

impl Drop for EmbeddedControlPlane {
    fn drop(&mut self) {
        self.running.abort();
        self.machines.close();
    }
}

/// Runs the controllers until stopped. If one fails, all of them restart and relist, as when a control plane restarts:
/// a bug in one must not leave a cluster without controllers.
async fn run_until_stopped(build: impl Fn() -> Manager, mut stopped: oneshot::Receiver<()>) {
    loop {
        let until_stopped = async { drop((&mut stopped).await) };
        let ended = Box::pin(build().run_until(until_stopped)).await;
        if !matches!(stopped.try_recv(), Err(oneshot::error::TryRecvError::Empty)) {
            if let Err(error) = ended {
                tracing::debug!("the controllers of the embedded cluster ended: {error}");
            }
            return;
        }
        let why = ended.err().map(|error| error.to_string());
        tracing::error!(
            why,
            "a controller of the embedded cluster ended; restarting all of them"
        );
        tokio::select! {
            () = tokio::time::sleep(RESTART_DELAY) => {}
            _ = &mut stopped => return,
        }
    }
}

fn add_controllers(manager: Manager, settings: &Settings, machines: &Machines, logs: &Logs) -> Manager {
    let manager = upkeep::add(manager, settings);
    let manager = workloads::add(manager);
    nodes::add(manager, settings, machines, logs)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use windlass_apiserver::Server;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn panic_in_one_controller_restarts_all() {
        let client = Client::new(Server::new(), "default");
        let (runs, beats) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let build = {
            let (runs, beats) = (runs.clone(), beats.clone());
            move || {
                let (runs, beats) = (runs.clone(), beats.clone());
                Manager::new(client.clone())
                    .grace_period(Duration::ZERO)
                    .quiet()
                    .task("faulty", move |_| {
                        let run = runs.fetch_add(1, Ordering::Relaxed);
                        async move {
                            assert_ne!(run, 0, "a defect");
                            std::future::pending().await
                        }
                    })
                    .task("steady", move |_| {
                        let beats = beats.clone();
                        async move {
                            loop {
                                tokio::time::sleep(Duration::from_millis(100)).await;
                                beats.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    })
            }
        };
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(run_until_stopped(build, stopped));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(runs.load(Ordering::Relaxed), 2);
        assert!(beats.load(Ordering::Relaxed) > 50);
        drop(stop);
        running.await.expect("ends when stopped");
    }
}
