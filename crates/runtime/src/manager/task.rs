//! What an author runs beside controllers.

use std::{future::Future, sync::Arc};

use kube::Client;
use windlass_cache::Caches;

use crate::{election::Epoch, error::Error, events::Recorder, source::Boxed, stop::Stop};

/// What a [task](crate::Manager::task) may use.
#[derive(Clone)]
pub struct TaskContext {
    pub(super) client: Client,
    pub(super) caches: Caches,
    pub(super) recorder: Recorder,
    pub(super) epoch: Option<Epoch>,
    pub(super) stop: Stop,
}

impl TaskContext {
    /// The client. What a leader's task writes with it is written only while this process leads.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The caches that the controllers share.
    pub fn caches(&self) -> &Caches {
        &self.caches
    }

    /// Records events.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The term of leadership, for a leader's task under an election.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Returns once the task should end. Cancellation-safe.
    pub async fn stopping(&self) {
        self.stop.clone().requested().await;
    }

    /// Whether the task should end.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_requested()
    }
}

/// Where a task runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Replica,
    Leader,
    /// On every replica, from before the caches are complete until the others have ended.
    Service,
}

pub(super) struct Task {
    pub(super) name: String,
    pub(super) scope: Scope,
    pub(super) start: Arc<dyn Fn(TaskContext) -> Boxed<Result<(), Error>> + Send + Sync>,
}

impl Task {
    pub(super) fn new<F, Fut>(name: String, scope: Scope, task: F) -> Self
    where
        F: Fn(TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Error>> + Send + 'static,
    {
        Self {
            name,
            scope,
            start: Arc::new(move |ctx| Box::pin(task(ctx))),
        }
    }

    pub(super) fn is_service(&self) -> bool {
        self.scope == Scope::Service
    }
}
