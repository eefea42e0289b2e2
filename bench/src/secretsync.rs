//! What it takes secretsync to spread many Secrets to many namespaces, and to keep them there.
//!
//! ```text
//! cargo run --release -p windlass-bench --bin windlass-bench-secretsync
//! cargo run --release -p windlass-bench --bin windlass-bench-secretsync -- 10 100 1000
//! ```
//!
//! Sources, namespaces and unrelated Secrets are the three numbers; without them a thousand, a thousand and a hundred thousand.
//! Everything is in this process on one thread, the API server too, with a paused clock: what is measured is work, and an
//! hour of doing nothing is over when nothing is left to do. There is no rival to run beside it that could: mittwald's
//! replicator and reflector write every copy again on every resync, and keep all Secrets of the cluster in memory.
//!
//! The memory is the operator's own: what the heap loses when it is dropped and the server stays.

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
use windlass_runtime::{Install, Manager, Writer};
use windlass_secretsync::{
    Arguments, SecretSync,
    api::{SOURCE_NAMESPACE, SOURCE_UID, SYNC},
    setup,
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// How much is in each source: a key and a certificate, say.
const BYTES: usize = 512;

/// Nobody who has something to do is silent for so long.
const QUIET: Duration = Duration::from_secs(10);

const STEADY: Duration = Duration::from_hours(1);

fn main() -> anyhow::Result<()> {
    let mut numbers = Vec::new();
    for argument in std::env::args().skip(1) {
        let number = argument.parse::<usize>();
        numbers.push(
            number
                .with_context(|| format!("`{argument}`: give sources, namespaces and unrelated Secrets"))?,
        );
    }
    let [sources, namespaces, unrelated] = match numbers[..] {
        [] => [1_000, 1_000, 100_000],
        [sources, namespaces, unrelated] => [sources, namespaces, unrelated],
        _ => anyhow::bail!("give three numbers: sources, namespaces and unrelated Secrets"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()?;
    runtime.block_on(bench(sources, namespaces, unrelated))
}

async fn bench(sources: usize, namespaces: usize, unrelated: usize) -> anyhow::Result<()> {
    let cluster = Cluster::embedded().start().await?;
    let installer = Writer::new(cluster.client(), "bench");
    Install::new([SecretSync::crd()]).apply().run(&installer).await?;
    fill(&cluster.client(), sources, namespaces, unrelated).await?;
    let copies = sources * namespaces;
    println!("{sources} sources x {namespaces} namespaces = {copies} copies, {unrelated} unrelated Secrets");

    // From nothing to everything.
    let traffic = Arc::new(Traffic::default());
    let began = Instant::now();
    let running = Running::start(&cluster.client(), &traffic).await?;
    traffic.until(|traffic| traffic.created() >= copies).await;
    let took = began.elapsed();
    traffic.quiet(QUIET).await;
    report(
        "all copies are there after",
        format!("{:.1} s", took.as_secs_f64()),
    );
    report(
        "copies a second",
        format!("{:.0}", f(copies) / took.as_secs_f64()),
    );
    report(
        "writes of copies",
        format!(
            "{} ({:.3} each)",
            traffic.copying(),
            f(traffic.copying()) / f(copies)
        ),
    );
    report("other writes", traffic.telling().to_string());
    report("reads", traffic.reads().to_string());

    // Nothing happens.
    let before = traffic.writes();
    let reads = traffic.reads();
    let began = Instant::now();
    tokio::time::sleep(STEADY).await;
    report(
        "an hour in which nothing happens",
        format!(
            "{} writes, {} reads, {:.2} s of work",
            traffic.writes() - before,
            traffic.reads() - reads,
            began.elapsed().as_secs_f64()
        ),
    );
    ensure!(traffic.writes() == before, "it wrote when all was in sync");

    let with = live();
    running.stop().await?;
    let held = with.saturating_sub(live());
    report(
        "memory that it held",
        format!(
            "{:.1} MB ({:.0} bytes a copy)",
            f(held) / 1e6,
            f(held) / f(copies.max(1))
        ),
    );

    // The next one finds everything done.
    let traffic = Arc::new(Traffic::default());
    let began = Instant::now();
    let running = Running::start(&cluster.client(), &traffic).await?;
    traffic.quiet(QUIET).await;
    report(
        "a start when all is there",
        format!(
            "{:.1} s, {} writes",
            began.elapsed().as_secs_f64(),
            traffic.writes()
        ),
    );
    ensure!(traffic.writes() == 0, "it wrote when all was in sync");

    // One source changes.
    let began = Instant::now();
    let (before, all) = (traffic.copying(), namespaces);
    let api = Api::<Secret>::namespaced(cluster.client(), SOURCE_NAMESPACE);
    let patch = kube::api::Patch::Merge(json!({ "stringData": { "key": "changed" } }));
    api.patch("source-0", &kube::api::PatchParams::default(), &patch)
        .await?;
    traffic.until(|traffic| traffic.copying() >= before + all).await;
    report(
        "a change of one source is everywhere after",
        format!("{:.0} ms", began.elapsed().as_secs_f64() * 1e3),
    );
    running.stop().await?;
    let there = count(&cluster.client()).await?;
    ensure!(there == copies, "{there} copies are on the server");
    cluster.stop().await;
    Ok(())
}

/// How many copies are on the server.
async fn count(client: &Client) -> anyhow::Result<usize> {
    let (all, mut count) = (Api::<Secret>::all(client.clone()), 0);
    let mut page = ListParams::default().labels(SOURCE_UID).limit(10_000);
    loop {
        let list = all.list_metadata(&page).await?;
        count += list.items.len();
        match list.metadata.continue_.filter(|more| !more.is_empty()) {
            Some(more) => page = page.continue_token(&more),
            None => return Ok(count),
        }
    }
}

/// What the cluster has before it starts.
async fn fill(client: &Client, sources: usize, namespaces: usize, unrelated: usize) -> anyhow::Result<()> {
    let post = PostParams::default();
    let all = Api::<Namespace>::all(client.clone());
    for (name, annotations) in (0..namespaces)
        .map(|number| (format!("ns-{number}"), json!({ SYNC: "true" })))
        .chain([
            (SOURCE_NAMESPACE.to_owned(), json!({})),
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
    let home = Api::<Secret>::namespaced(client.clone(), SOURCE_NAMESPACE);
    for number in 0..sources {
        let source = secret(format!("source-{number}"), json!({ SYNC: "" }))?;
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

/// The operator at work.
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

/// What the operator asked for.
#[derive(Default)]
struct Traffic {
    reads: AtomicUsize,
    created: AtomicUsize,
    changed: AtomicUsize,
    telling: AtomicUsize,
    moved: Notify,
}

impl Traffic {
    fn client(self: &Arc<Self>, inner: &Client) -> Client {
        let (traffic, inner) = (Arc::clone(self), inner.clone());
        let namespace = inner.default_namespace().to_owned();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (traffic, inner) = (Arc::clone(&traffic), inner.clone());
            async move {
                let count = traffic.count_of(&request);
                let answer = inner.send(request).await;
                count.fetch_add(1, Ordering::Relaxed);
                traffic.moved.notify_one();
                answer
            }
        });
        Client::new(service, namespace)
    }

    fn count_of(&self, request: &Request<Body>) -> &AtomicUsize {
        let path = request.uri().path();
        let copying = path.contains("/secrets") || path.contains("/configmaps");
        match *request.method() {
            Method::GET => &self.reads,
            Method::POST if copying => &self.created,
            _ if copying => &self.changed,
            _ => &self.telling,
        }
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    fn created(&self) -> usize {
        self.created.load(Ordering::Relaxed)
    }

    fn copying(&self) -> usize {
        self.created() + self.changed.load(Ordering::Relaxed)
    }

    fn telling(&self) -> usize {
        self.telling.load(Ordering::Relaxed)
    }

    fn writes(&self) -> usize {
        self.copying() + self.telling()
    }

    async fn until(&self, holds: impl Fn(&Self) -> bool) {
        while !holds(self) {
            self.moved.notified().await;
        }
    }

    /// Returns when nothing was asked for this long.
    async fn quiet(&self, long: Duration) {
        while tokio::time::timeout(long, self.moved.notified()).await.is_ok() {}
    }
}

/// The bytes of the heap that are in use.
fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

fn report(what: &str, figure: impl std::fmt::Display) {
    println!("{what:>44}  {figure}");
}

/// For ratios, which need no more digits than it has.
#[allow(clippy::cast_precision_loss)]
fn f(number: usize) -> f64 {
    number as f64
}
