//! Being told to end.

use std::{future::Future, pin::pin};

use anyhow::bail;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};
use windlass::prelude::Manager;

/// SIGINT and SIGTERM. They count from when this is made, not from when it is asked: make it before anything is there to be
/// cleaned up.
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

    /// Returns when the next one has come. Cancellation-safe.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Waits for something, unless a signal comes first; then `meanwhile` says what was not waited for.
    pub(crate) async fn or<T>(
        &mut self,
        awaited: impl Future<Output = T>,
        meanwhile: &str,
    ) -> anyhow::Result<T> {
        tokio::select! {
            outcome = awaited => Ok(outcome),
            () = self.next() => bail!("stopped {meanwhile}"),
        }
    }

    /// Runs a manager until a signal; a second one does not wait for what it still has to finish.
    pub(crate) async fn run(&mut self, manager: Manager) -> anyhow::Result<()> {
        let (stop, stopped) = oneshot::channel::<()>();
        let mut running = pin!(manager.run_until(async move {
            // A dropped sender is a stop as well.
            let _ = stopped.await;
        }));
        tokio::select! {
            outcome = &mut running => return Ok(outcome?),
            () = self.next() => {}
        }
        let _ = stop.send(());
        tokio::select! {
            outcome = &mut running => Ok(outcome?),
            () = self.next() => bail!("a second signal: ended at once"),
        }
    }
}
