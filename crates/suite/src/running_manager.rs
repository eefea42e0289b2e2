//! A manager that runs in the background of a case.

use anyhow::Context as _;
use tokio::{sync::oneshot, task::JoinHandle, time::timeout};
use windlass_runtime::{Manager, ManagerError};

use crate::STEP_TIMEOUT;

/// A manager that runs in the background. Dropping it stops the manager without waiting for its end.
#[must_use = "it runs until it is stopped"]
pub struct RunningManager {
    stop: oneshot::Sender<()>,
    manager: JoinHandle<Result<(), ManagerError>>,
}

impl RunningManager {
    /// Starts the manager.
    pub fn start(manager: Manager) -> Self {
        let (stop, stopped) = oneshot::channel();
        let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
        Self { stop, manager }
    }

    /// Stops the manager gracefully, and waits for its end.
    pub async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        let ended = timeout(STEP_TIMEOUT, self.manager).await;
        Ok(ended.context("the manager does not stop")???)
    }

    /// Aborts the manager, like a power failure.
    pub async fn kill(self) {
        self.manager.abort();
        // The result is cancellation, unless it ended just before.
        let _ = self.manager.await;
    }
}
