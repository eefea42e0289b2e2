//! The stop signal of controllers and tasks: running, then finishing, then ended.

use std::sync::OnceLock;

use tokio::sync::watch;

/// Phase of a shutdown. Phases only advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StopPhase {
    Running,
    /// No new work starts; running work may finish.
    Finishing,
    /// Running work is cancelled at its next await.
    Ended,
}

/// Receives the stop signal. A dropped sender counts as [`Ended`](StopPhase::Ended).
#[derive(Clone)]
pub(crate) struct StopSignal(watch::Receiver<StopPhase>);

/// Sends the stop signal. It cannot be taken back.
#[derive(Clone)]
pub(crate) struct StopSender(watch::Sender<StopPhase>);

impl StopSignal {
    pub(crate) fn new() -> (StopSender, Self) {
        let (switch, stop) = watch::channel(StopPhase::Running);
        (StopSender(switch), Self(stop))
    }

    /// A signal that is never sent.
    pub(crate) fn never() -> Self {
        static RUNNING: OnceLock<watch::Sender<StopPhase>> = OnceLock::new();
        let running = RUNNING.get_or_init(|| watch::Sender::new(StopPhase::Running));
        Self(running.subscribe())
    }

    /// Completes when no new work may start. Cancellation-safe.
    pub(crate) async fn requested(&mut self) {
        self.wait_for_phase(StopPhase::Finishing).await;
    }

    /// Completes when running work must end. Cancellation-safe.
    pub(crate) async fn ended(&mut self) {
        self.wait_for_phase(StopPhase::Ended).await;
    }

    pub(crate) fn is_requested(&self) -> bool {
        *self.0.borrow() >= StopPhase::Finishing
    }

    async fn wait_for_phase(&mut self, phase: StopPhase) {
        // An error means that the sender was dropped.
        let _ = self.0.wait_for(|now| *now >= phase).await;
    }
}

impl StopSender {
    pub(crate) fn advance_to(&self, phase: StopPhase) {
        self.0.send_if_modified(|now| {
            let later = phase > *now;
            *now = phase.max(*now);
            later
        });
    }
}
