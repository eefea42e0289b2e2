//! A manager on a model server, and reconcilers that record their calls.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::{
    future::{Future, Ready, ready},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use tokio::{sync::oneshot, task::JoinHandle};
use windlass_runtime::{
    Action, Context, Controller, Error, Manager, ManagerError, OutcomeCounters, Reconciler, Request,
};

use crate::model::{CONFIG_MAPS, Server};

pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";
pub(crate) const SECRETS: &str = "/api/v1/secrets";

/// The names of the reconciled objects, in order.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;

pub(crate) fn server() -> Server {
    Server::with(&[CONFIG_MAPS, DEPLOYMENTS, SECRETS])
}

/// A reconciler that records each call and then runs `act`.
pub(crate) fn recording<Act, Fut>(log: &Log, act: Act) -> impl Reconciler + use<Act, Fut>
where
    Act: Fn(Request, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Action, Error>> + Send + 'static,
{
    let log = Arc::clone(log);
    move |request: Request, ctx: Context| {
        log.lock().push(request.key.name().to_owned());
        act(request, ctx)
    }
}

pub(crate) fn done(_: Request, _: Context) -> Ready<Result<Action, Error>> {
    ready(Ok(Action::done()))
}

pub(crate) fn controller() -> Controller<ConfigMap> {
    Controller::new("test")
}

/// A manager that runs until stopped.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    manager: JoinHandle<Result<(), ManagerError>>,
}

impl Running {
    pub(crate) fn start(manager: Manager) -> Self {
        let (stop, stopped) = oneshot::channel();
        let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
        Self { stop, manager }
    }

    pub(crate) async fn stop(self) -> Result<(), ManagerError> {
        let _ = self.stop.send(());
        self.manager.await.expect("the manager does not panic")
    }
}

pub(crate) fn run<R: Reconciler>(
    server: &Server,
    controller: Controller<ConfigMap, R>,
) -> (Running, Arc<OutcomeCounters>) {
    let outcomes = controller.outcomes();
    (
        Running::start(Manager::new(server.client()).controller(controller)),
        outcomes,
    )
}

/// Runs all tasks that wait for no timer.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
