//! A manager that runs beside the case.

use anyhow::Context as _;
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};
use windlass_runtime::{Manager, ManagerError};

use crate::DEADLINE;

/// A manager that runs until it is told to stop. Dropped, it is told to and nobody waits for it.
#[must_use = "it runs until it is stopped"]
pub struct Running {
    stop: oneshot::Sender<()>,
    manager: JoinHandle<Result<(), ManagerError>>,
}

impl Running {
    /// Starts it.
    pub fn start(manager: Manager) -> Self {
        let (stop, stopped) = oneshot::channel();
        let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
        Self { stop, manager }
    }

    /// Tells it to stop, and waits until it has.
    pub async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        let ended = timeout(DEADLINE, self.manager).await;
        Ok(ended.context("the manager does not stop")???)
    }

    /// Ends it wherever it is, as a power cut does.
    pub async fn kill(self) {
        self.manager.abort();
        // It was cancelled, or it ended just before.
        let _ = self.manager.await;
    }
}
