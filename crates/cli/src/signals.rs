//! SIGINT and SIGTERM.

use std::{future::Future, pin::pin};

use anyhow::bail;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};
use windlass::prelude::Manager;

/// Receives SIGINT and SIGTERM from its creation on, not only while polled: create it before anything that needs cleanup.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal. Cancellation-safe.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Waits for a future. Fails with "stopped {meanwhile}" if a signal comes first.
    pub(crate) async fn unless_stopped<T>(
        &mut self,
        awaited: impl Future<Output = T>,
        meanwhile: &str,
    ) -> anyhow::Result<T> {
        tokio::select! {
            outcome = awaited => Ok(outcome),
            () = self.next() => bail!("stopped {meanwhile}"),
        }
    }

    /// Runs a manager until a signal, then waits for its shutdown; a second signal ends that wait.
    pub(crate) async fn run(&mut self, manager: Manager) -> anyhow::Result<()> {
        let (stop, stopped) = oneshot::channel::<()>();
        let mut running = pin!(manager.run_until(async move {
            // A dropped sender counts as a stop too.
            let _ = stopped.await;
        }));
        tokio::select! {
            outcome = &mut running => return Ok(outcome?),
            () = self.next() => {}
        }
        let _ = stop.send(());
        tokio::select! {
            outcome = &mut running => Ok(outcome?),
            () = self.next() => bail!("stopped without waiting for the controllers: got a second signal"),
        }
    }
}
