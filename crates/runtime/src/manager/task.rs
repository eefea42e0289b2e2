//! Tasks and services that run beside controllers.

use std::{future::Future, sync::Arc};

use kube::Client;
use windlass_cache::CacheSet;

use crate::{election::Epoch, error::Error, events::Recorder, source::BoxFuture, stop::StopSignal};

/// Gives a [task](crate::Manager::task) its client, caches and event recorder.
#[derive(Clone)]
pub struct TaskContext {
    pub(super) client: Client,
    pub(super) caches: CacheSet,
    pub(super) recorder: Recorder,
    pub(super) epoch: Option<Epoch>,
    pub(super) stop: StopSignal,
}

impl TaskContext {
    /// Returns the client. In a leader task it writes only while this process leads.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the caches shared with the controllers.
    pub fn caches(&self) -> &CacheSet {
        &self.caches
    }

    /// Returns the event recorder.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The term of leadership, for a leader task with leader election.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Completes when the task should end. Cancellation-safe.
    pub async fn stopping(&self) {
        self.stop.clone().requested().await;
    }

    /// Whether the task should end.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_requested()
    }
}

/// Where and when a task runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskScope {
    Replica,
    Leader,
    /// On every replica, from before the caches have synced until controllers and tasks have ended.
    Service,
}

pub(super) struct Task {
    pub(super) name: String,
    pub(super) scope: TaskScope,
    pub(super) start: Arc<dyn Fn(TaskContext) -> BoxFuture<Result<(), Error>> + Send + Sync>,
}

impl Task {
    pub(super) fn new<F, Fut>(name: String, scope: TaskScope, task: F) -> Self
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
        self.scope == TaskScope::Service
    }
}
