//! What runs, and how each of it ended.

use std::{
    collections::BTreeMap,
    future::{Future, pending},
};

use tokio::task::{Id, JoinError, JoinSet};

use super::ManagerError;
use crate::worker::panic_message;

/// The tasks of a run, by name.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) tasks: JoinSet<Result<(), ManagerError>>,
    names: BTreeMap<Id, String>,
}

impl Parts {
    pub(super) fn spawn(
        &mut self,
        name: String,
        part: impl Future<Output = Result<(), ManagerError>> + Send + 'static,
    ) {
        let id = self.tasks.spawn(part).id();
        self.names.insert(id, name);
    }

    /// Returns how one of them ended; never if there are none.
    pub(super) async fn ended(&mut self) -> Result<(), ManagerError> {
        match self.tasks.join_next_with_id().await {
            None => pending().await,
            Some(Ok((id, outcome))) => {
                self.names.remove(&id);
                outcome
            }
            Some(Err(error)) => {
                let part = self.names.remove(&error.id()).unwrap_or_default();
                Err(panicked(part, error))
            }
        }
    }

    pub(super) fn left(&self) -> Vec<String> {
        self.names.values().cloned().collect()
    }
}

fn panicked(part: String, error: JoinError) -> ManagerError {
    let message = match error.try_into_panic() {
        Ok(panic) => panic_message(&*panic).to_owned(),
        Err(error) => error.to_string(),
    };
    ManagerError::Panicked { part, message }
}
