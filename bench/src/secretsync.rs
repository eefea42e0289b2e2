//! Measures how secretsync copies many Secrets to many namespaces and keeps them in sync.
//!
//! ```text
//! cargo run --release -p windlass-bench --bin windlass-bench-secretsync
//! cargo run --release -p windlass-bench --bin windlass-bench-secretsync -- 10 100 1000
//! ```
//!
//! The arguments are the numbers of sources, namespaces and unrelated Secrets; default: 1,000, 1,000 and 100,000.
//! Everything runs in this process on one thread, including the API server, with a paused clock: only work is measured,
//! and an idle hour ends as soon as no work is left. No rival could run this: mittwald's replicator and reflector write
//! every copy again on every resync, and keep all Secrets of the cluster in memory.
//!
//! The memory is the operator's own: what is freed when it is dropped while the server stays.

use std::{
    alloc::System,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use http::{Method, Request};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Client, CustomResourceExt as _,
    api::{ListParams, PostParams},
    client::Body,
};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::sync::{Notify, oneshot};
use windlass_cluster::Cluster;
use windlass_runtime::{CrdInstaller, Manager, Writer};
use windlass_secretsync::{
    Arguments, SecretSync,
    api::{DEFAULT_SOURCE_NAMESPACE, SOURCE_UID_LABEL, SYNC_ANNOTATION},
    setup,
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Size of each source, such as a key and a certificate.
const BYTES: usize = 512;

/// An operator without requests for this long is idle.
const IDLE_TIME: Duration = Duration::from_secs(10);

const IDLE_HOUR: Duration = Duration::from_hours(1);

fn main() -> anyhow::Result<()> {
    let mut numbers = Vec::new();
    for argument in std::env::args().skip(1) {
        let number = argument.parse::<usize>();
        numbers.push(
            number.with_context(|| {
                format!("invalid number `{argument}`: usage: SOURCES NAMESPACES UNRELATED")
            })?,
        );
    }
    let [sources, namespaces, unrelated] = match numbers[..] {
        [] => [1_000, 1_000, 100_000],
        [sources, namespaces, unrelated] => [sources, namespaces, unrelated],
        _ => anyhow::bail!("expected three numbers: SOURCES NAMESPACES UNRELATED"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()?;
    runtime.block_on(bench(sources, namespaces, unrelated))
}

#[expect(clippy::too_many_lines, reason = "the phases of one run, in their order")]
async fn bench(sources: usize, namespaces: usize, unrelated: usize) -> anyhow::Result<()> {
    let cluster = Cluster::embedded().start().await?;
    let installer = Writer::new(cluster.client(), "bench");
    CrdInstaller::new([SecretSync::crd()])
        .apply()
        .run(&installer)
        .await?;
    fill(&cluster.client(), sources, namespaces, unrelated).await?;
    let copies = sources * namespaces;
    println!("{sources} sources x {namespaces} namespaces = {copies} copies, {unrelated} unrelated Secrets");

    // Create all copies.
    let traffic = Arc::new(Traffic::default());
    let began = Instant::now();
    let running = Running::start(&cluster.client(), &traffic).await?;
    traffic.wait_until(|traffic| traffic.created() >= copies).await;
    let took = began.elapsed();
    traffic.wait_until_idle(IDLE_TIME).await;
    report(
        "time until all copies exist",
        format!("{:.1} s", took.as_secs_f64()),
    );
    report(
        "copies per second",
        format!("{:.0}", as_f64(copies) / took.as_secs_f64()),
    );
    report(
        "writes of copies",
        format!(
            "{} ({:.3} each)",
            traffic.copy_writes(),
            as_f64(traffic.copy_writes()) / as_f64(copies)
        ),
    );
    report(
        "other writes",
        format!("{}, and {} of events", traffic.other_writes(), traffic.events()),
    );
    report("reads", traffic.reads().to_string());

    // Idle for an hour.
    let before = traffic.writes();
    let reads = traffic.reads();
    let began = Instant::now();
    tokio::time::sleep(IDLE_HOUR).await;
    report(
        "an idle hour",
        format!(
            "{} writes, {} reads, {:.2} s of work",
            traffic.writes() - before,
            traffic.reads() - reads,
            began.elapsed().as_secs_f64()
        ),
    );
    ensure!(
        traffic.writes() == before,
        "the operator wrote although everything was in sync"
    );

    let with = allocated_bytes();
    running.stop().await?;
    let held = with.saturating_sub(allocated_bytes());
    report(
        "memory of the operator",
        format!(
            "{:.1} MB ({:.0} bytes per copy)",
            as_f64(held) / 1e6,
            as_f64(held) / as_f64(copies.max(1))
        ),
    );

    // Restart with everything in sync.
    let traffic = Arc::new(Traffic::default());
    let began = Instant::now();
    let running = Running::start(&cluster.client(), &traffic).await?;
    traffic.wait_until_idle(IDLE_TIME).await;
    report(
        "restart with everything in sync",
        format!(
            "{:.1} s, {} writes, {} reads",
            began.elapsed().as_secs_f64(),
            traffic.writes(),
            traffic.reads()
        ),
    );
    ensure!(
        traffic.writes() == 0,
        "the operator wrote although everything was in sync"
    );

    // Change all sources, one after the other.
    let began = Instant::now();
    let (writes, reads, events) = (traffic.copy_writes(), traffic.reads(), traffic.events());
    let api = Api::<Secret>::namespaced(cluster.client(), DEFAULT_SOURCE_NAMESPACE);
    let patch = kube::api::Patch::Merge(json!({ "stringData": { "key": "changed" } }));
    for number in 0..sources {
        let name = format!("source-{number}");
        api.patch(&name, &kube::api::PatchParams::default(), &patch)
            .await?;
    }
    traffic
        .wait_until(|traffic| traffic.copy_writes() >= writes + copies)
        .await;
    let took = began.elapsed();
    traffic.wait_until_idle(IDLE_TIME).await;
    report(
        "update of all copies",
        format!(
            "{:.1} s, {} writes of copies, {} reads ({:.3} requests each), {} of events",
            took.as_secs_f64(),
            traffic.copy_writes() - writes,
            traffic.reads() - reads,
            as_f64(traffic.copy_writes() - writes + traffic.reads() - reads) / as_f64(copies.max(1)),
            traffic.events() - events,
        ),
    );
    let with = allocated_bytes();
    running.stop().await?;
    report(
        "memory of the operator after the update",
        format!("{:.1} MB", as_f64(with.saturating_sub(allocated_bytes())) / 1e6),
    );
    let there = count(&cluster.client()).await?;
    ensure!(
        there == copies,
        "the server has {there} copies instead of {copies}"
    );
    cluster.stop().await;
    Ok(())
}

/// Returns the number of copies on the server.
async fn count(client: &Client) -> anyhow::Result<usize> {
    let (all, mut count) = (Api::<Secret>::all(client.clone()), 0);
    let mut page = ListParams::default().labels(SOURCE_UID_LABEL).limit(10_000);
    loop {
        let list = all.list_metadata(&page).await?;
        count += list.items.len();
        match list.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => page = page.continue_token(&more),
            None => return Ok(count),
        }
    }
}

/// Creates the objects that exist before the operator starts.
async fn fill(client: &Client, sources: usize, namespaces: usize, unrelated: usize) -> anyhow::Result<()> {
    let post = PostParams::default();
    let all = Api::<Namespace>::all(client.clone());
    for (name, annotations) in (0..namespaces)
        .map(|number| (format!("ns-{number}"), json!({ SYNC_ANNOTATION: "true" })))
        .chain([
            (DEFAULT_SOURCE_NAMESPACE.to_owned(), json!({})),
            ("others".to_owned(), json!({})),
        ])
    {
        let namespace = json!({ "metadata": { "name": name, "annotations": annotations } });
        all.create(&post, &serde_json::from_value(namespace)?).await?;
    }
    let secret = |name: String, annotations: serde_json::Value| {
        let secret = json!({
            "metadata": { "name": name, "annotations": annotations },
            "stringData": { "key": "k".repeat(BYTES) },
        });
        serde_json::from_value::<Secret>(secret)
    };
    let home = Api::<Secret>::namespaced(client.clone(), DEFAULT_SOURCE_NAMESPACE);
    for number in 0..sources {
        let source = secret(format!("source-{number}"), json!({ SYNC_ANNOTATION: "" }))?;
        home.create(&post, &source).await?;
    }
    let others = Api::<Secret>::namespaced(client.clone(), "others");
    for number in 0..unrelated {
        others
            .create(&post, &secret(format!("other-{number}"), json!({}))?)
            .await?;
    }
    Ok(())
}

/// The running operator.
struct Running {
    stop: oneshot::Sender<()>,
    manager: tokio::task::JoinHandle<Result<(), windlass_runtime::ManagerError>>,
}

impl Running {
    async fn start(client: &Client, traffic: &Arc<Traffic>) -> anyhow::Result<Self> {
        let client = traffic.client(client);
        let manager = Manager::new(client.clone()).quiet();
        let manager = setup(manager, &client, &[], &Arguments::default()).await?;
        let (stop, stopped) = oneshot::channel();
        let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
        Ok(Self { stop, manager })
    }

    async fn stop(self) -> anyhow::Result<()> {
        drop(self.stop);
        Ok(self.manager.await??)
    }
}

/// Counts the operator's requests.
#[derive(Default)]
struct Traffic {
    reads: AtomicUsize,
    created: AtomicUsize,
    changed: AtomicUsize,
    other_writes: AtomicUsize,
    events: AtomicUsize,
    requested: Notify,
}

impl Traffic {
    fn client(self: &Arc<Self>, inner: &Client) -> Client {
        let (traffic, inner) = (Arc::clone(self), inner.clone());
        let namespace = inner.default_namespace().to_owned();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (traffic, inner) = (Arc::clone(&traffic), inner.clone());
            async move {
                let count = traffic.count_of(&request);
                let response = inner.send(request).await;
                count.fetch_add(1, Ordering::Relaxed);
                traffic.requested.notify_one();
                response
            }
        });
        Client::new(service, namespace)
    }

    fn count_of(&self, request: &Request<Body>) -> &AtomicUsize {
        let has = |name: &str| request.uri().path().split('/').any(|part| part == name);
        let copy_writes = has("secrets") || has("configmaps");
        match *request.method() {
            Method::GET => &self.reads,
            _ if has("events") => &self.events,
            Method::POST if copy_writes => &self.created,
            _ if copy_writes => &self.changed,
            _ => &self.other_writes,
        }
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    fn created(&self) -> usize {
        self.created.load(Ordering::Relaxed)
    }

    fn copy_writes(&self) -> usize {
        self.created() + self.changed.load(Ordering::Relaxed)
    }

    fn other_writes(&self) -> usize {
        self.other_writes.load(Ordering::Relaxed)
    }

    fn events(&self) -> usize {
        self.events.load(Ordering::Relaxed)
    }

    /// All writes except events.
    fn writes(&self) -> usize {
        self.copy_writes() + self.other_writes()
    }

    async fn wait_until(&self, holds: impl Fn(&Self) -> bool) {
        while !holds(self) {
            self.requested.notified().await;
        }
    }

    /// Waits until there was no request for this long.
    async fn wait_until_idle(&self, long: Duration) {
        while tokio::time::timeout(long, self.requested.notified())
            .await
            .is_ok()
        {}
    }
}

/// Returns the allocated bytes of the heap.
fn allocated_bytes() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

fn report(what: &str, value: impl std::fmt::Display) {
    println!("{what:>44}  {value}");
}

/// Converts to `f64` for ratios, where its precision suffices.
#[allow(clippy::cast_precision_loss)]
fn as_f64(number: usize) -> f64 {
    number as f64
}
