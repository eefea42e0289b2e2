//! Leader election: of two replicas, only the one that holds the Lease reconciles; the other takes over when it stops.
//!
//! Both replicas run in this process, on an embedded cluster, to show the handover. In a program with `launch`, the flag
//! `--leader-elect` is all it takes.
//!
//! ```sh
//! cargo run -p windlass-examples --bin leader_election
//! ```

use std::time::Duration;

use tokio::{sync::oneshot, task::JoinHandle};
use windlass::{
    k8s_openapi::api::core::v1::ConfigMap,
    prelude::*,
    runtime::{ElectionConfig, ManagerError},
};
use windlass_cluster::Cluster;
use windlass_examples::User;

const HANDLED_BY: &str = "example.com/handled-by";

/// One replica of the program.
struct Replica {
    stop: oneshot::Sender<()>,
    manager: JoinHandle<Result<(), ManagerError>>,
}

impl Replica {
    fn start(client: Client, name: &'static str) -> Self {
        // Shorter than the defaults, so that the demo does not take long.
        let election = ElectionConfig::new("handler")
            .namespace("default")
            .identity(name)
            .lease_duration(Duration::from_secs(3))
            .renew_deadline(Duration::from_secs(2))
            .retry_period(Duration::from_millis(100));
        let watch = Watch::<ConfigMap>::new().labels("example.com/task");
        let handler = Controller::from_watch("handler", watch)
            .reconcile(move |request, ctx| handle(request, ctx, name));
        let manager = Manager::new(client).controller(handler).elect(election);
        let (stop, stopped) = oneshot::channel();
        let manager = tokio::spawn(manager.run_until(async { drop(stopped.await) }));
        Self { stop, manager }
    }

    /// Stops gracefully: running reconciles finish, then the Lease is released, so the other replica need not wait for it
    /// to expire.
    async fn stop(self) -> Result<(), Error> {
        drop(self.stop);
        Ok(self.manager.await??)
    }
}

/// Marks a task as handled. A new leader is called for every task again, and finds the handled ones done.
async fn handle(request: Request, ctx: Context, replica: &'static str) -> Result<Action, Error> {
    if let Some(task) = ctx.lister::<ConfigMap>()?.get(&request.key)
        && !task.annotations().contains_key(HANDLED_BY)
    {
        let patch = json!({ "metadata": { "annotations": { HANDLED_BY: replica } } });
        // Rejected if this process is no longer the leader.
        ctx.writer().merge_patch(&*task, &patch).await?;
    }
    Ok(Action::done())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let cluster = Cluster::embedded().start().await?;
    let user = User::new(cluster.client());
    let first = Replica::start(cluster.client(), "replica-1");
    run_task(&user, "one").await?;
    let second = Replica::start(cluster.client(), "replica-2");
    run_task(&user, "two").await?;
    first.stop().await?;
    println!("replica-1 has stopped");
    run_task(&user, "three").await?;
    second.stop().await?;
    cluster.stop().await;
    Ok(())
}

/// Creates a task, and waits until it is handled.
async fn run_task(user: &User, name: &str) -> Result<(), Error> {
    let task = json!({ "metadata": { "name": name, "labels": { "example.com/task": "" } } });
    user.create::<ConfigMap>(task).await?;
    let is_handled = |task: &ConfigMap| task.annotations().contains_key(HANDLED_BY);
    let task = user.wait_for(name, is_handled).await?;
    println!("task {name} was handled by {}", task.annotations()[HANDLED_BY]);
    Ok(())
}
