//! Tasks and services that run beside controllers.

use std::{future::Future, sync::Arc};

use kube::Client;
use windlass_cache::{CacheSet, WatchScope};

use crate::{election::Epoch, error::Error, events::Recorder, source::BoxFuture, stop::StopSignal};

/// Gives a [task](crate::Manager::task) its client, caches and event recorder.
#[derive(Clone)]
pub struct TaskContext {
    pub(super) client: Client,
    pub(super) caches: CacheSet,
    pub(super) scope: WatchScope,
    pub(super) recorder: Recorder,
    pub(super) epoch: Option<Epoch>,
    pub(super) stop: StopSignal,
    /// The manager's stop, which comes first for a service.
    pub(super) manager_stop: StopSignal,
    pub(super) installs: bool,
    pub(super) server_url: Option<Arc<str>>,
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

    /// The scope of the controllers' watches: the manager's [namespaces](crate::Manager::namespaces). What reads caches of
    /// the same scope shares their watches.
    pub fn scope(&self) -> &WatchScope {
        &self.scope
    }

    /// Returns the event recorder.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The term of leadership, for a leader task with leader election.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Whether CRDs are installed at the start: `--install`. What else a program has to install, such as the registration of
    /// webhooks, is installed then too.
    pub fn installs(&self) -> bool {
        self.installs
    }

    /// The [URL of the server](crate::Manager::server_url), if the manager knows it.
    pub fn server_url(&self) -> Option<&str> {
        self.server_url.as_deref()
    }

    /// Completes when the task should end. Cancellation-safe.
    pub async fn stopping(&self) {
        self.stop.clone().requested().await;
    }

    /// Completes when the manager begins to stop. A [service](crate::Manager::service) goes on until
    /// [`stopping`](Self::stopping), which comes after the end of the controllers; for other tasks both are the same.
    pub fn manager_stopping(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stop = self.manager_stop.clone();
        async move { stop.requested().await }
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
    pub(super) start: StartFn,
}

/// Starts a task. A task that is not the leader's is started once.
pub(super) type StartFn = Box<dyn FnMut(TaskContext) -> BoxFuture<Result<(), Error>> + Send>;

impl Task {
    /// A task that runs once on every replica: [`TaskScope::Replica`] or [`TaskScope::Service`].
    pub(super) fn once<F, Fut>(name: String, scope: TaskScope, task: F) -> Self
    where
        F: FnOnce(TaskContext) -> Fut + Send + 'static,
        Fut: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let mut task = Some(task);
        Self {
            name,
            scope,
            start: Box::new(move |ctx| match task.take() {
                Some(task) => Box::pin(task(ctx)),
                // It has one term, which does not end.
                None => Box::pin(async { Ok(()) }),
            }),
        }
    }

    /// A task that runs in each term of leadership.
    pub(super) fn each_term<F, Fut>(name: String, task: F) -> Self
    where
        F: Fn(TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Error>> + Send + 'static,
    {
        Self {
            name,
            scope: TaskScope::Leader,
            start: Box::new(move |ctx| Box::pin(task(ctx))),
        }
    }

    pub(super) fn is_service(&self) -> bool {
        self.scope == TaskScope::Service
    }
}
