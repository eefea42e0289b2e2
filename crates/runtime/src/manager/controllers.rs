//! The controllers of a manager, for whoever wants to see what they do.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::future::join_all;

use crate::{board::Board, control::Prepared, serving::ControllerStatus};

/// The controllers of a [`Manager`](super::Manager), from [`Manager::controllers`](super::Manager::controllers). Clones are
/// cheap, and one outlives the manager: it says then what was last.
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
pub struct Controllers(Arc<BTreeMap<String, Arc<Board>>>);

impl Controllers {
    pub(super) fn of(controllers: &[Prepared]) -> Self {
        let boards = controllers
            .iter()
            .map(|controller| (controller.name.clone(), Arc::clone(&controller.board)));
        Self(Arc::new(boards.collect()))
    }

    /// Each of them at this moment, by name.
    pub fn status(&self) -> Vec<ControllerStatus> {
        self.0.iter().map(|(name, board)| board.status(name)).collect()
    }

    /// Returns when the caches of all of them are complete. Cancellation-safe.
    pub async fn ready(&self) {
        join_all(self.0.values().map(|board| board.ready())).await;
    }

    /// Why each of those that are not ready is not.
    pub(super) fn unready(&self) -> Vec<String> {
        self.0
            .iter()
            .filter_map(|(name, board)| board.unready(name))
            .collect()
    }
}

impl fmt::Debug for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}
