//! The running controllers and tasks of a manager, by name.

use std::{
    collections::BTreeMap,
    future::{Future, pending},
};

use tokio::task::{Id, JoinError, JoinSet};

use super::ManagerError;
use crate::worker::panic_message;

/// A set of named tasks.
#[derive(Default)]
pub(super) struct TaskSet {
    pub(super) tasks: JoinSet<Result<(), ManagerError>>,
    names: BTreeMap<Id, String>,
}

impl TaskSet {
    pub(super) fn spawn(
        &mut self,
        name: String,
        part: impl Future<Output = Result<(), ManagerError>> + Send + 'static,
    ) {
        let id = self.tasks.spawn(part).id();
        self.names.insert(id, name);
    }

    /// Returns the result of the next task that ends; never completes if there are none.
    pub(super) async fn join_next(&mut self) -> Result<(), ManagerError> {
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

    pub(super) fn remaining(&self) -> Vec<String> {
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
