//! The one-way switch from running over finishing to ended.

use tokio::sync::watch;

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Running,
    /// Nothing new starts; what runs may finish.
    Finishing,
    /// What still runs is dropped at its next await.
    Ended,
}

/// Sees when it is time to stop. A switch that is gone counts as thrown to the end.
#[derive(Clone)]
pub(crate) struct Stop(watch::Receiver<Phase>);

/// Throws the switch; it never goes back.
#[derive(Clone)]
pub(crate) struct Switch(watch::Sender<Phase>);

impl Stop {
    pub(crate) fn new() -> (Switch, Self) {
        let (switch, stop) = watch::channel(Phase::Running);
        (Switch(switch), Self(stop))
    }

    /// Returns once nothing new may start. Cancellation-safe.
    pub(crate) async fn requested(&mut self) {
        self.reached(Phase::Finishing).await;
    }

    /// Returns once what runs must end. Cancellation-safe.
    pub(crate) async fn ended(&mut self) {
        self.reached(Phase::Ended).await;
    }

    pub(crate) fn is_requested(&self) -> bool {
        *self.0.borrow() >= Phase::Finishing
    }

    async fn reached(&mut self, phase: Phase) {
        // An error means that the switch is gone.
        let _ = self.0.wait_for(|now| *now >= phase).await;
    }
}

impl Switch {
    pub(crate) fn throw(&self, phase: Phase) {
        self.0.send_if_modified(|now| {
            let later = phase > *now;
            *now = phase.max(*now);
            later
        });
    }
}
