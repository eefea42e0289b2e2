//! Runs controllers together: one client, one set of caches, one stop.

use std::{collections::HashSet, future::Future, io};

use kube::{Client, Resource};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use windlass_cache::{Cacheable, Caches, Selection};

use crate::{
    control::{ControllerError, Env, Prepared},
    controller::Controller,
    reconcile::Reconciler,
    stop::{Phase, Stop},
    terms::Terms,
};

/// Runs controllers on one shared set of caches until it is told to stop.
///
/// On stop no new reconcile starts, running ones finish, and every task is gone before `run` returns. A controller
/// that fails stops the others and is the error.
#[must_use = "a manager does nothing until it runs"]
pub struct Manager {
    client: Client,
    selection: Selection,
    controllers: Vec<Prepared>,
}

/// Why a manager could not run, or stopped by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// Logs could not tell them apart.
    #[error("two controllers are named `{0}`: give each its own name")]
    DuplicateName(String),
    /// A controller stopped although nobody asked.
    #[error("controller `{controller}` failed: {cause}")]
    Controller {
        /// Its name.
        controller: String,
        /// What went wrong.
        #[source]
        cause: ControllerError,
    },
    /// A controller's task panicked outside a reconcile; this is a defect of the toolkit.
    #[error("a controller's task panicked: {0}")]
    Panicked(String),
    /// The process cannot listen for SIGTERM and SIGINT.
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
}

impl Manager {
    /// A manager without controllers, for the cluster that the client talks to.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            selection: Selection::all(),
            controllers: Vec::new(),
        }
    }

    /// Adds a controller.
    pub fn controller<K, R: Reconciler>(mut self, controller: Controller<K, R>) -> Self
    where
        K: Cacheable + Resource<DynamicType: Send + Sync>,
    {
        self.controllers.push(controller.into());
        self
    }

    /// Looks at this namespace only; kinds outside namespaces are not affected. For controllers that have rights in
    /// one namespace. Default: all namespaces.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.selection = self.selection.namespace(namespace);
        self
    }

    /// Runs until SIGTERM or SIGINT.
    pub async fn run(self) -> Result<(), ManagerError> {
        let mut terminate = signal(SignalKind::terminate()).map_err(ManagerError::Signals)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(ManagerError::Signals)?;
        self.run_until(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        })
        .await
    }

    /// Runs until `shutdown` completes.
    ///
    /// Dropping the returned future instead ends every task at its next await, running reconciles included.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<(), ManagerError> {
        let mut names = HashSet::new();
        if let Some(twice) = self
            .controllers
            .iter()
            .find(|controller| !names.insert(&controller.name))
        {
            return Err(ManagerError::DuplicateName(twice.name.clone()));
        }
        let caches = Caches::new(self.client);
        let (switch, stop) = Stop::new();
        let mut running = JoinSet::new();
        for Prepared { name, run, .. } in self.controllers {
            let ended = run(Env {
                caches: caches.clone(),
                selection: self.selection.clone(),
                terms: Terms::endless(),
                stop: stop.clone(),
            });
            running.spawn(async move {
                ended.await.map_err(|cause| ManagerError::Controller {
                    controller: name,
                    cause,
                })
            });
        }
        drop(stop);

        let mut outcome = Ok(());
        let mut shutdown = std::pin::pin!(shutdown);
        let mut stopping = false;
        loop {
            let ended = tokio::select! {
                () = &mut shutdown, if !stopping => None,
                ended = running.join_next() => match ended {
                    Some(ended) => Some(ended),
                    // With nothing to run it still waits for the signal, as a process with one would.
                    None if stopping => break,
                    None => { shutdown.as_mut().await; break }
                },
            };
            let failed = match ended {
                None | Some(Ok(Ok(()))) => None,
                Some(Ok(Err(error))) => Some(error),
                Some(Err(panic)) => Some(ManagerError::Panicked(panic.to_string())),
            };
            // The first failure is the cause; later ones may be its consequence.
            if outcome.is_ok()
                && let Some(error) = failed
            {
                outcome = Err(error);
            }
            stopping = true;
            switch.throw(Phase::Finishing);
        }
        caches.close().await;
        outcome
    }
}
