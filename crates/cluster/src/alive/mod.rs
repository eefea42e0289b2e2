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
use windlass_runtime::{Clock, Manager};

use self::nodes::{Machines, NodeSpec};
pub(crate) use self::settings::Settings;

/// How long a failed part waits before everything starts again: it may fail at once every time.
const RESTART: Duration = Duration::from_secs(1);

/// The running parts. Dropping it ends them at their next await.
pub(crate) struct Alive {
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
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
        for number in 1..=settings.nodes {
            machines.add(NodeSpec::new(format!("node-{number}")));
        }
        let build = {
            let (settings, machines, logs) = (settings.clone(), machines.clone(), logs.clone());
            move || {
                let manager = Manager::new(client.clone());
                parts(manager, &settings, &machines, &logs)
                    .grace(Duration::ZERO)
                    .quiet()
            }
        };
        // A sender that is gone is a stop too.
        let (stop, stopped) = oneshot::channel();
        let ends = machines.clone();
        let running = tokio::spawn(async move {
            keep_running(build, stopped).await;
            ends.close();
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
        // A panic has been reported.
        let _ = (&mut self.running).await;
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.running.abort();
        self.machines.close();
    }
}

/// Runs everything until it is time to stop. If one part fails, all of them start again and list what there is, as after
/// a restart of a control plane: a defect of one must not leave a cluster in which nothing happens any more.
async fn keep_running(build: impl Fn() -> Manager, mut stopped: oneshot::Receiver<()>) {
    loop {
        let until_stopped = async { drop((&mut stopped).await) };
        let ended = Box::pin(build().run_until(until_stopped)).await;
        if !matches!(stopped.try_recv(), Err(oneshot::error::TryRecvError::Empty)) {
            if let Err(error) = ended {
                tracing::debug!("the cluster's controllers ended: {error}");
            }
            return;
        }
        let why = ended.err().map(|error| error.to_string());
        tracing::error!(
            why,
            "a controller of the embedded cluster ended; all of them start again"
        );
        tokio::select! {
            () = tokio::time::sleep(RESTART) => {}
            _ = &mut stopped => return,
        }
    }
}

/// All parts, each added by its own room.
fn parts(manager: Manager, settings: &Settings, machines: &Machines, logs: &Logs) -> Manager {
    let manager = upkeep::add(manager, settings);
    let manager = workloads::add(manager, settings);
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
    async fn part_that_panics_does_not_end_the_others() {
        let client = Client::new(Server::new(), "default");
        let (runs, beats) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let build = {
            let (runs, beats) = (runs.clone(), beats.clone());
            move || {
                let (runs, beats) = (runs.clone(), beats.clone());
                Manager::new(client.clone())
                    .grace(Duration::ZERO)
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
        let running = tokio::spawn(keep_running(build, stopped));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(runs.load(Ordering::Relaxed), 2);
        assert!(beats.load(Ordering::Relaxed) > 50);
        drop(stop);
        running.await.expect("it ends when it is asked to");
    }
}
