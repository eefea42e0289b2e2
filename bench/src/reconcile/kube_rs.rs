//! The cases for kube-rs' controller.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, bail};
use futures::{StreamExt, future::ready};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use kube_runtime::{
    Controller,
    controller::{Action, Config},
    reflector::ObjectRef,
    watcher,
};
use windlass_bench::cases::Measurements;
use windlass_cluster::Cluster;

use super::{
    ALONE, FEW, MANY, NAMESPACE,
    cluster::{client, create_objects},
    in_flight::InFlight,
    latency::{self, CHANGING, WriteTimes},
    object_name,
    rounds::{Rounds, wait_until_idle},
    single_object::SingleObject,
};

/// It has no background work after the first reconciles.
const SETTLING: Duration = Duration::ZERO;

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

/// Creates a controller; 0 workers means one per object.
fn controller(client: &Client, namespace: &str, workers: usize) -> anyhow::Result<Controller<ConfigMap>> {
    let configs = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let config = Config::default().concurrency(workers.try_into().context("invalid number of workers")?);
    Ok(Controller::new(configs, watcher::Config::default()).with_config(config))
}

fn run<Fut>(
    controller: Controller<ConfigMap>,
    mut reconcile: impl FnMut(Arc<ConfigMap>) -> Fut + Send + 'static,
) where
    Fut: Future<Output = ()> + Send + 'static,
{
    run_again(controller, Action::await_change(), move |config| {
        reconcile(config)
    });
}

/// Runs a controller; `then` is the action returned by each reconcile.
fn run_again<Fut>(
    controller: Controller<ConfigMap>,
    then: Action,
    mut reconcile: impl FnMut(Arc<ConfigMap>) -> Fut + Send + 'static,
) where
    Fut: Future<Output = ()> + Send + 'static,
{
    let reconciled = controller.run(
        move |config, _| {
            let (reconciling, then) = (reconcile(config), then.clone());
            async move {
                reconciling.await;
                Ok::<_, Infallible>(then)
            }
        },
        |_, _, _| Action::requeue(Duration::from_secs(1)),
        Arc::new(()),
    );
    tokio::spawn(reconciled.for_each(|_| ready(())));
}

/// Creates a controller that reconciles the first `objects` objects when a round starts.
fn triggered(
    client: &Client,
    rounds: &Arc<Rounds>,
    workers: usize,
    objects: usize,
) -> anyhow::Result<Controller<ConfigMap>> {
    let refs: Vec<_> = (0..objects)
        .map(|number| ObjectRef::<ConfigMap>::new(&object_name(number)).within(NAMESPACE))
        .collect();
    let rounds = Arc::clone(rounds);
    let secrets = Api::<Secret>::namespaced(client.clone(), NAMESPACE);
    let map = move |secret: Secret| {
        if rounds.is_started_by(&secret) {
            refs.clone()
        } else {
            Vec::new()
        }
    };
    Ok(controller(client, NAMESPACE, workers)?.watches(secrets, watcher::Config::default(), map))
}

async fn noop(client: Client, workers: usize, objects: usize) -> anyhow::Result<Measurements> {
    let rounds = Rounds::new(objects, SETTLING);
    let counted = Arc::clone(&rounds);
    run(triggered(&client, &rounds, workers, objects)?, move |_| {
        counted.reconciled();
        ready(())
    });
    rounds.measure(&client).await
}

async fn write(client: Client, workers: usize, objects: usize) -> anyhow::Result<Measurements> {
    let rounds = Rounds::new(objects, SETTLING);
    let counted = Arc::clone(&rounds);
    let configs = Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE);
    run(triggered(&client, &rounds, workers, objects)?, move |config| {
        let (counted, configs) = (Arc::clone(&counted), configs.clone());
        async move {
            if let Some(mark) = counted.mark(&config) {
                let patch = Patch::Merge(mark);
                let (name, how) = (config.name_any(), PatchParams::default());
                let written = configs.patch(&name, &how, &patch).await;
                written.expect("no other writer");
                counted.reconciled();
            }
        }
    });
    rounds.measure(&client).await
}

async fn noop_alone(client: Client) -> anyhow::Result<Measurements> {
    let single_object = SingleObject::new();
    let (counted, at_once) = (Arc::clone(&single_object), Action::requeue(Duration::ZERO));
    run_again(controller(&client, ALONE, 1)?, at_once, move |_| {
        counted.reconciled();
        ready(())
    });
    single_object.measure().await
}

async fn write_alone(client: Client) -> anyhow::Result<Measurements> {
    let single_object = SingleObject::new();
    let counted = Arc::clone(&single_object);
    let configs = Api::<ConfigMap>::namespaced(client.clone(), ALONE);
    run(controller(&client, ALONE, 1)?, move |config| {
        let (counted, configs) = (Arc::clone(&counted), configs.clone());
        async move {
            let (name, how) = (config.name_any(), PatchParams::default());
            let written = configs.patch(&name, &how, &Patch::Merge(counted.mark())).await;
            written.expect("no other writer");
            counted.reconciled();
        }
    });
    single_object.measure().await
}

async fn wake(client: Client, in_flight: usize) -> anyhow::Result<Measurements> {
    let (tracker, starts) = InFlight::new(in_flight, SETTLING);
    let shared = Arc::clone(&tracker);
    run(controller(&client, NAMESPACE, 0)?, move |config| {
        let tracker = Arc::clone(&shared);
        async move { tracker.reconcile(&config.name_any()).await }
    });
    tracker.measure(&client, starts).await
}

async fn in_process(per_second: usize) -> anyhow::Result<Measurements> {
    let cluster = Cluster::embedded().start().await?;
    create_objects(&cluster.client(), NAMESPACE, CHANGING).await?;
    let (stamps, measured) = WriteTimes::new();
    let counted = Arc::new(AtomicUsize::new(0));
    let (stamped, count) = (stamps.clone(), Arc::clone(&counted));
    run(controller(&cluster.client(), NAMESPACE, 1)?, move |config| {
        stamped.reconciled(&config.name_any());
        count.fetch_add(1, Ordering::Relaxed);
        ready(())
    });
    wait_until_idle(&counted, CHANGING, SETTLING).await?;
    latency::measure(cluster.client(), per_second, stamps, measured).await
}
