//! The cases for our controller.

use std::{
    future::pending,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::bail;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use windlass_bench::cases::Measurements;
use windlass_cluster::Cluster;
use windlass_runtime::{Action, Context, Controller, Error, Manager, ObjectKey, Reconciler, Request};

use super::{
    ALONE, FEW, MANY, NAMESPACE,
    cluster::{client, create_objects},
    in_flight::InFlight,
    latency::{self, CHANGING, WriteTimes},
    object_name,
    rounds::{Rounds, wait_until_idle},
    single_object::SingleObject,
};

/// Our cache packs objects a second or two after they arrive. Until then it has background work, and reads are cheaper
/// than later.
const SETTLING: Duration = Duration::from_millis(1_750);

pub(super) async fn measure(case: &str, number: usize, cluster: &str) -> anyhow::Result<Measurements> {
    match case {
        "noop" => noop(client(cluster).await?, number, MANY).await,
        "noop-few" => noop(client(cluster).await?, number, FEW).await,
        "noop-alone" => noop_alone(client(cluster).await?).await,
        "write" => write(client(cluster).await?, number, MANY).await,
        "write-few" => write(client(cluster).await?, number, FEW).await,
        "write-alone" => write_alone(client(cluster).await?).await,
        "wake" => wake(client(cluster).await?, number).await,
        "latency" => in_process(number).await,
        _ => bail!("unknown case `{case}`"),
    }
}

fn controller(workers: usize) -> Controller<ConfigMap> {
    let workers = NonZeroUsize::new(workers).unwrap_or(NonZeroUsize::MIN);
    Controller::<ConfigMap>::new("bench").concurrency(workers)
}

/// Creates a controller that reconciles the first `objects` objects when a round starts.
fn triggered(rounds: &Arc<Rounds>, workers: usize, objects: usize) -> Controller<ConfigMap> {
    let keys: Vec<_> = (0..objects)
        .map(|number| ObjectKey::namespaced(NAMESPACE, object_name(number)))
        .collect();
    let rounds = Arc::clone(rounds);
    controller(workers).watches::<Secret>(move |secret| {
        if rounds.is_started_by(secret) {
            keys.clone()
        } else {
            Vec::new()
        }
    })
}

fn run(client: Client, namespace: &str, controller: Controller<ConfigMap, impl Reconciler>) {
    let manager = Manager::new(client).namespace(namespace).controller(controller);
    tokio::spawn(manager.run_until(pending()));
}

async fn noop(client: Client, workers: usize, objects: usize) -> anyhow::Result<Measurements> {
    let rounds = Rounds::new(objects, SETTLING);
    let counted = Arc::clone(&rounds);
    let controller = triggered(&rounds, workers, objects).reconcile(move |request: Request, ctx: Context| {
        let counted = Arc::clone(&counted);
        async move {
            let found = ctx.lister::<ConfigMap>()?.get(&request.key);
            counted.reconciled();
            found.map(|_| Action::done()).ok_or(Error::from("it is gone"))
        }
    });
    run(client.clone(), NAMESPACE, controller);
    rounds.measure(&client).await
}

async fn write(client: Client, workers: usize, objects: usize) -> anyhow::Result<Measurements> {
    let rounds = Rounds::new(objects, SETTLING);
    let counted = Arc::clone(&rounds);
    let controller = triggered(&rounds, workers, objects).reconcile(move |request: Request, ctx: Context| {
        let counted = Arc::clone(&counted);
        async move {
            let Some(config) = ctx.lister::<ConfigMap>()?.get(&request.key) else {
                return Err(Error::from("it is gone"));
            };
            if let Some(mark) = counted.mark(&config) {
                ctx.writer().merge_patch(&*config, &mark).await?;
                counted.reconciled();
            }
            Ok(Action::done())
        }
    });
    run(client.clone(), NAMESPACE, controller);
    rounds.measure(&client).await
}

async fn noop_alone(client: Client) -> anyhow::Result<Measurements> {
    let single_object = SingleObject::new();
    let counted = Arc::clone(&single_object);
    let controller = controller(1).reconcile(move |request: Request, ctx: Context| {
        let counted = Arc::clone(&counted);
        async move {
            let found = ctx.lister::<ConfigMap>()?.get(&request.key);
            counted.reconciled();
            found
                .map(|_| Action::requeue_after(Duration::ZERO))
                .ok_or(Error::from("it is gone"))
        }
    });
    run(client, ALONE, controller);
    single_object.measure().await
}

async fn write_alone(client: Client) -> anyhow::Result<Measurements> {
    let single_object = SingleObject::new();
    let counted = Arc::clone(&single_object);
    let controller = controller(1).reconcile(move |request: Request, ctx: Context| {
        let counted = Arc::clone(&counted);
        async move {
            let Some(config) = ctx.lister::<ConfigMap>()?.get(&request.key) else {
                return Err(Error::from("it is gone"));
            };
            ctx.writer().merge_patch(&*config, &counted.mark()).await?;
            counted.reconciled();
            Ok(Action::done())
        }
    });
    run(client, ALONE, controller);
    single_object.measure().await
}

async fn wake(client: Client, in_flight: usize) -> anyhow::Result<Measurements> {
    let (tracker, starts) = InFlight::new(in_flight, SETTLING);
    let shared = Arc::clone(&tracker);
    let controller = controller(in_flight + 1).reconcile(move |request: Request, _: Context| {
        let tracker = Arc::clone(&shared);
        async move {
            tracker.reconcile(request.key.name()).await;
            Ok(Action::done())
        }
    });
    run(client.clone(), NAMESPACE, controller);
    tracker.measure(&client, starts).await
}

async fn in_process(per_second: usize) -> anyhow::Result<Measurements> {
    let cluster = Cluster::embedded().start().await?;
    create_objects(&cluster.client(), NAMESPACE, CHANGING).await?;
    let (stamps, measured) = WriteTimes::new();
    let counted = Arc::new(AtomicUsize::new(0));
    let (stamped, count) = (stamps.clone(), Arc::clone(&counted));
    let controller = controller(1).reconcile(move |request: Request, _: Context| {
        stamped.reconciled(request.key.name());
        count.fetch_add(1, Ordering::Relaxed);
        async { Ok(Action::done()) }
    });
    run(cluster.client(), NAMESPACE, controller);
    wait_until_idle(&counted, CHANGING, SETTLING).await?;
    latency::measure(cluster.client(), per_second, stamps, measured).await
}
