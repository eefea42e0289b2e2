//! The one-way switch from running to stopping.

use tokio::sync::watch;

/// Sees when it is time to stop. The switch is the sender; one that is gone counts as thrown.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    pub(crate) fn new() -> (watch::Sender<bool>, Self) {
        let (switch, stop) = watch::channel(false);
        (switch, Self(stop))
    }

    /// Returns once it is time to stop. Cancellation-safe.
    pub(crate) async fn requested(&mut self) {
        // An error means that the sender is gone.
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}
