//! SIGINT, SIGTERM and SIGHUP.

use std::{fs, future::Future, pin::pin};

use anyhow::bail;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};
use windlass::prelude::Manager;

/// Receives SIGINT, SIGTERM and SIGHUP from its creation on, not only while polled: create it before anything that needs
/// cleanup.
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Sent when the terminal closes. `None` if it is ignored, because `nohup` should keep its meaning.
    hangup: Option<Signal>,
}

impl Signals {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let hangup = SignalKind::hangup();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: if is_ignored(&status, hangup) {
                None
            } else {
                Some(signal(hangup)?)
            },
        })
    }

    /// Waits for the next signal. Cancellation-safe.
    pub(crate) async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => drop(hangup.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = hangup => {}
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

/// Whether the process ignores a signal, according to its `/proc/self/status`. Where there is none, it does not.
fn is_ignored(status: &str, kind: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (kind.as_raw_value() - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let status = "Name:\twindlass\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, SignalKind::hangup()));
        assert!(!is_ignored(status, SignalKind::interrupt()));
        assert!(!is_ignored("", SignalKind::hangup()));
    }
}
