//! Measures how many changes a second podwatch reports to a file and to a webhook, and how much memory it takes when a
//! sink does not answer.
//!
//! ```text
//! cargo run --release -p windlass-bench --bin windlass-bench-podwatch
//! cargo run --release -p windlass-bench --bin windlass-bench-podwatch -- 5000
//! ```
//!
//! The argument is the number of changes per case; default: 30,000. The API server, the clients that make the changes, podwatch
//! and the webhook's receiver are all in this process and share its cores, so the rates are lower bounds. Each case has a new
//! cluster. The time is that from the first change until the sink has accepted the last notice; "written" is the rate at
//! which the changes were made, which podwatch cannot exceed.
//!
//! The memory is podwatch's own: what is freed when it is dropped while the server stays. Without a bound it would grow
//! with the number of changes.

use std::{
    alloc::System,
    convert::Infallible,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    core::ApiResource,
};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::{net::TcpListener, sync::oneshot};
use windlass_cluster::Cluster;
use windlass_podwatch::{
    Kind, NoticeOptions, Scope,
    delivery::{Hub, SinkStats},
    journal::Journal,
    sinks::SinkSpec,
    watch,
};
use windlass_runtime::{Clock, Manager};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The objects that are changed in turns.
const OBJECTS: usize = 100;

/// The number of requests that are made at a time.
const CLIENTS: usize = 16;

/// Size of the data of each object.
const BYTES: usize = 512;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let changes = match std::env::args().nth(1) {
        None => 30_000,
        Some(number) => number
            .parse()
            .with_context(|| format!("invalid number `{number}`: usage: CHANGES"))?,
    };
    println!("{changes} changes in each case");
    let folder = tempfile::tempdir()?;
    let file = |name: &str| format!("file:{}", folder.path().join(name).display());
    let state = folder.path().join("state");

    Case::new("new objects to a file", &file("new"), Load::Create)
        .run(changes)
        .await?;
    Case::new(
        "new objects to a file, with --state",
        &file("state-lines"),
        Load::Create,
    )
    .state(&state)
    .run(changes)
    .await?;
    Case::new(
        "every change of 100 objects to a file",
        &file("every"),
        Load::Update,
    )
    .run(changes)
    .await?;

    let good = Receiver::start(Answers::Accept).await?;
    let sink = good.sink();
    Case::new("every change of 100 objects to a webhook", &sink, Load::Update)
        .run(changes)
        .await?;
    let all = Case::new("new objects to a webhook", &sink, Load::Create)
        .run(changes)
        .await?;
    let flaky = Receiver::start(Answers::FailEverySeventh).await?;
    let some = Case::new(
        "the same, every seventh request fails",
        &flaky.sink(),
        Load::Create,
    )
    .run(changes)
    .await?;
    report("ratio of the last two", format!("{:.2}", some / all));

    let silent = Receiver::start(Answers::Never).await?;
    let once = memory(&silent.sink(), changes).await?;
    let thrice = memory(&silent.sink(), 3 * changes).await?;
    report(
        "memory with a webhook that never answers",
        format!("{once:.1} MB after {changes} changes"),
    );
    report("", format!("{thrice:.1} MB after {}", 3 * changes));
    report("ratio", format!("{:.2}", thrice / once));
    Ok(())
}

/// What happens to the objects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Each change creates an object.
    Create,
    /// Each change updates one of [`OBJECTS`] objects, and podwatch reports every change.
    Update,
}

struct Case<'a> {
    title: &'a str,
    sink: &'a str,
    load: Load,
    state: Option<&'a Path>,
}

impl<'a> Case<'a> {
    fn new(title: &'a str, sink: &'a str, load: Load) -> Self {
        Self {
            title,
            sink,
            load,
            state: None,
        }
    }

    fn state(mut self, state: &'a Path) -> Self {
        self.state = Some(state);
        self
    }

    /// Returns the number of changes per second.
    async fn run(self, changes: usize) -> anyhow::Result<f64> {
        let cluster = Cluster::embedded().start().await?;
        let objects = if self.load == Load::Update { OBJECTS } else { 1 };
        create(&cluster.client(), 0..objects).await?;
        let journal = self.state.map(Journal::open).transpose()?;
        let running = Running::start(&cluster.client(), self.sink, self.load, journal)?;
        running
            .wait_until(|stats| stats.delivered >= as_u64(objects))
            .await;

        let began = Instant::now();
        match self.load {
            Load::Create => create(&cluster.client(), objects..objects + changes).await?,
            Load::Update => update(&cluster.client(), changes).await?,
        }
        let written = began.elapsed();
        // A notice beyond the queue is delivered later; one that was coalesced is not.
        running
            .wait_until(|stats| stats.delivered + stats.coalesced >= as_u64(objects + changes))
            .await;
        let rate = as_f64(changes) / began.elapsed().as_secs_f64();
        let stats = running.stats();
        running.stop().await?;
        ensure!(
            stats.dropped_retries == 0 && stats.rejected == 0,
            "notices were given up: {stats:?}"
        );
        report(
            self.title,
            format!(
                "{rate:.0}/s (written at {:.0}/s; {} coalesced, {} beyond the queue, {} retries)",
                as_f64(changes) / written.as_secs_f64(),
                stats.coalesced,
                stats.dropped_full,
                stats.retried,
            ),
        );
        Ok(rate)
    }
}

/// The memory of podwatch in megabytes after this many changes that its sink did not accept.
async fn memory(sink: &str, changes: usize) -> anyhow::Result<f64> {
    let cluster = Cluster::embedded().start().await?;
    create(&cluster.client(), 0..OBJECTS).await?;
    let running = Running::start(&cluster.client(), sink, Load::Update, None)?;
    running.wait_until(|stats| stats.queued == OBJECTS).await;
    update(&cluster.client(), changes).await?;
    // Until it has processed all of them.
    let mut before = None;
    while before != Some(running.stats().coalesced) {
        before = Some(running.stats().coalesced);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let with = allocated_bytes();
    running.stop().await?;
    Ok(as_f64(with.saturating_sub(allocated_bytes())) / 1e6)
}

/// The running podwatch.
struct Running {
    hub: Arc<Hub>,
    stop: oneshot::Sender<()>,
    manager: tokio::task::JoinHandle<Result<(), windlass_runtime::ManagerError>>,
}

impl Running {
    fn start(client: &Client, sink: &str, load: Load, journal: Option<Journal>) -> anyhow::Result<Self> {
        let every_change = load == Load::Update;
        let mut sink: SinkSpec = sink.parse()?;
        if every_change {
            sink = sink.with_every_change();
        }
        let options = NoticeOptions {
            every_change,
            ..NoticeOptions::default()
        };
        // A sink that never answers must not delay the end.
        let hub = Hub::open(&[sink], journal, Clock::system(), None)?.flush_timeout(Duration::ZERO);
        let hub = Arc::new(hub);
        let kinds = vec![Kind {
            resource: ApiResource::erase::<ConfigMap>(&()),
            namespaced: true,
            installed: true,
        }];
        let scope = Scope {
            labels: Some("bench".to_owned()),
            ..Scope::default()
        };
        let manager = watch(Manager::new(client.clone()).quiet(), kinds, &scope, options, &hub);
        let (stop, stopped) = oneshot::channel();
        let manager = tokio::spawn(manager.run_until(async move { drop(stopped.await) }));
        Ok(Self { hub, stop, manager })
    }

    fn stats(&self) -> SinkStats {
        self.hub.stats()[0].1
    }

    async fn wait_until(&self, holds: impl Fn(&SinkStats) -> bool) {
        while !holds(&self.stats()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn stop(self) -> anyhow::Result<()> {
        drop((self.stop, self.hub));
        Ok(self.manager.await??)
    }
}

/// Creates objects, several at a time.
async fn create(client: &Client, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
    let api = Api::<ConfigMap>::default_namespaced(client.clone());
    stream::iter(numbers)
        .map(|number| {
            let api = api.clone();
            async move {
                let object = json!({
                    "metadata": { "name": format!("object-{number}"), "labels": { "bench": "" } },
                    "data": { "content": "x".repeat(BYTES), "number": "0" },
                });
                let object = serde_json::from_value(object)?;
                api.create(&PostParams::default(), &object).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(CLIENTS)
        .try_collect()
        .await
}

/// Changes the objects in turns.
async fn update(client: &Client, changes: usize) -> anyhow::Result<()> {
    let api = Api::<ConfigMap>::default_namespaced(client.clone());
    stream::iter(0..changes)
        .map(|number| {
            let api = api.clone();
            async move {
                let patch = Patch::Merge(json!({ "data": { "number": (number + 1).to_string() } }));
                let name = format!("object-{}", number % OBJECTS);
                api.patch(&name, &PatchParams::default(), &patch).await?;
                anyhow::Ok(())
            }
        })
        .buffer_unordered(CLIENTS)
        .try_collect()
        .await
}

/// How a receiver answers.
#[derive(Clone, Copy)]
enum Answers {
    Accept,
    FailEverySeventh,
    Never,
}

/// A receiver of webhooks on a port of this machine.
struct Receiver {
    port: u16,
    server: tokio::task::JoinHandle<()>,
}

impl Receiver {
    async fn start(answers: Answers) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let requests = Arc::new(AtomicUsize::new(0));
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let requests = Arc::clone(&requests);
                let service = service_fn(move |request: Request<Incoming>| {
                    let number = requests.fetch_add(1, Ordering::Relaxed);
                    async move { Ok::<_, Infallible>(answer(request, answers, number).await) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(Self { port, server })
    }

    fn sink(&self) -> String {
        format!("webhook:http://127.0.0.1:{},rate=1000000/s", self.port)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(request: Request<Incoming>, answers: Answers, number: usize) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    if request.into_body().collect().await.is_err() {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    match answers {
        Answers::FailEverySeventh if number.is_multiple_of(7) => {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        Answers::Accept | Answers::FailEverySeventh => {}
        Answers::Never => std::future::pending().await,
    }
    response
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

fn as_u64(number: usize) -> u64 {
    number as u64
}
