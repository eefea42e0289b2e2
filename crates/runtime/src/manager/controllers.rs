//! A handle to the status of a manager's controllers.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::future::join_all;
use tokio::sync::SetOnce;

use crate::{
    controller_run::ErasedController, serving::ControllerStatus, start_report::OnBlocked,
    status_tracker::StatusTracker,
};

/// Status of the controllers of a [`Manager`](super::Manager), from [`Manager::controllers`](super::Manager::controllers).
/// Clones are cheap. It may outlive the manager, and then returns the last status.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use windlass_runtime::{Action, Controller, Manager, serving::ControllerState};
///
/// # fn example(client: kube::Client) {
/// let settings = Controller::<ConfigMap>::new("settings").reconcile(|_, _| async { Ok(Action::done()) });
/// let manager = Manager::new(client).controller(settings);
/// let controllers = manager.controllers();
/// assert_eq!(controllers.status()[0].state, ControllerState::Starting);
/// # }
/// ```
#[derive(Clone)]
pub struct Controllers {
    trackers: Arc<BTreeMap<String, Arc<StatusTracker>>>,
    installed: Arc<SetOnce<()>>,
}

impl Controllers {
    /// `installed` is set when what the manager installs is served.
    pub(super) fn new(controllers: &[ErasedController], installed: Arc<SetOnce<()>>) -> Self {
        let trackers = controllers
            .iter()
            .map(|controller| (controller.name.clone(), Arc::clone(&controller.tracker)));
        Self {
            trackers: Arc::new(trackers.collect()),
            installed,
        }
    }

    /// Current status of each controller, sorted by name.
    pub fn status(&self) -> Vec<ControllerStatus> {
        self.trackers
            .iter()
            .map(|(name, board)| board.status(name))
            .collect()
    }

    /// Completes when the CRDs that the manager installs are served, and the caches of all controllers have synced.
    /// Cancellation-safe.
    pub async fn ready(&self) {
        self.installed.wait().await;
        join_all(self.trackers.values().map(|board| board.ready())).await;
    }

    /// Completes when the controllers that can start have synced their caches.
    pub(super) async fn started(&self, policy: OnBlocked) {
        match policy {
            OnBlocked::Continue => {
                join_all(self.trackers.values().map(|board| board.ready_or_blocked())).await;
            }
            OnBlocked::Wait | OnBlocked::Fail => self.ready().await,
        }
    }

    pub(super) fn set_installed(&self) {
        self.installed.set(()).expect("a manager runs once");
    }

    pub(super) fn trackers(&self) -> Arc<BTreeMap<String, Arc<StatusTracker>>> {
        Arc::clone(&self.trackers)
    }

    /// One reason for each controller that is not ready.
    pub(super) fn not_ready_reasons(&self) -> Vec<String> {
        self.trackers
            .iter()
            .filter_map(|(name, board)| board.not_ready_reason(name))
            .collect()
    }
}

impl fmt::Debug for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.trackers.keys()).finish()
    }
}
