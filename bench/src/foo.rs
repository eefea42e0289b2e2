//! The sample controller: upstream's and ours on the same server, from Foos to Deployments and statuses.
//!
//! ```text
//!   windlass            ─┐
//!   sample-controller   ─┼─ each in its own process, in turns ──► Proxy, counts requests ─► server
//!     as shipped        ─┘                                                                    ▲
//!   this process: creates the Foos, marks each new Deployment as available, ──────────────────┘
//!                 and waits until every Foo's status shows it
//! ```
//!
//! As shipped, upstream limits each of its clients to five requests per second. So it is compared without that limit,
//! and once as shipped, with a tenth of the Foos.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::{api::apps::v1::Deployment, apiextensions_apiserver::pkg::apis::apiextensions::v1};
use kube::{
    Api, Client, CustomResourceExt, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tempfile::{NamedTempFile, TempDir};
use tokio::{runtime::Runtime, time::timeout};
use windlass_bench::{
    cases::Plan,
    processes,
    proxy::Proxy,
    report::{OURS, Report, Unit},
};
use windlass_cache::{Cache, Change, WatchScope};
use windlass_cluster::{Cluster, Real};
use windlass_foo::{Foo, FooSpec};

use windlass_bench::rivals::build_program;

const RIVAL: &str = "sample-controller";
const SHIPPED: &str = "sample-controller as shipped";

/// Go module of the upstream controller.
const MODULE: &str = "k8s.io/sample-controller";

/// Limit for one contender, longer than any takes.
const ROUND_TIMEOUT: Duration = Duration::from_mins(5);

/// Seconds to wait for requests that a contender sends after it is done.
const TAIL_SECONDS: usize = 10;

/// Measures both on the embedded server, and on a kube-apiserver if available.
pub(crate) fn bench(plan: &Plan) -> anyhow::Result<Report> {
    let ours = build_program("windlass-foo", "foo")?;
    let rivals = Upstream::build()
        .inspect_err(|reason| eprintln!("skipping the upstream sample controller: {reason:#}"))
        .ok();
    let mut report = Report::new("foo", RIVAL);
    Runtime::new()?.block_on(async {
        let embedded = [
            Comparison {
                title: "1,000 Foos on the embedded server",
                foos: 1_000,
                rounds: plan.rounds.get(),
                contenders: &[OURS, RIVAL],
            },
            Comparison {
                title: "100 Foos on the embedded server, upstream at the pace it is shipped with, once",
                foos: 100,
                rounds: 1,
                contenders: &[OURS, SHIPPED],
            },
        ];
        let real = Comparison {
            title: "1,000 Foos on kube-apiserver",
            ..embedded[0]
        };
        let programs = (ours.as_path(), rivals.as_ref());
        if embedded.iter().any(|comparison| plan.includes(comparison.title)) {
            let cluster = Cluster::embedded().start().await?;
            let server = PreparedServer::prepare(&cluster).await?;
            for comparison in embedded
                .iter()
                .filter(|comparison| plan.includes(comparison.title))
            {
                compare(&mut report, comparison, &server, programs).await?;
            }
            cluster.stop().await;
        }
        if plan.includes(real.title)
            && let Some(cluster) = start_real(Cluster::real()).await?
        {
            compare(
                &mut report,
                &real,
                &PreparedServer::prepare(&cluster).await?,
                programs,
            )
            .await?;
            cluster.stop().await;
        }
        anyhow::Ok(())
    })?;
    Ok(report)
}

/// A comparison: contenders and workload.
#[derive(Clone, Copy)]
struct Comparison {
    title: &'static str,
    foos: usize,
    rounds: usize,
    contenders: &'static [&'static str],
}

async fn start_real(real: Real) -> anyhow::Result<Option<Cluster>> {
    if let Err(reason) = real.available() {
        eprintln!("skipping kube-apiserver: {reason}");
        return Ok(None);
    }
    Ok(Some(real.start().await?))
}

async fn compare(
    report: &mut Report,
    comparison: &Comparison,
    server: &PreparedServer,
    (ours, rivals): (&Path, Option<&Upstream>),
) -> anyhow::Result<()> {
    let Comparison { title, foos, .. } = *comparison;
    for _ in 0..comparison.rounds {
        for contender in comparison.contenders {
            let command = match (*contender, rivals) {
                (OURS, _) => {
                    let mut command = Command::new(ours);
                    command.arg("--kubeconfig").arg(server.kubeconfig.path());
                    command
                }
                (_, None) => continue,
                (RIVAL, Some(rivals)) => {
                    let mut command = Command::new(&rivals.unlimited);
                    command.arg(server.proxy.url());
                    command
                }
                (_, Some(rivals)) => {
                    let mut command = Command::new(&rivals.shipped);
                    command.args(["-master", &server.proxy.url()]);
                    command
                }
            };
            let measurement = timeout(ROUND_TIMEOUT, server.round(command, foos)).await;
            let measurement = measurement.with_context(|| format!("{contender} timed out"))??;
            report.add(
                &format!("{title}: all statuses right"),
                contender,
                Unit::Seconds,
                measurement.took,
            );
            report.add(
                &format!("{title}: CPU per Foo"),
                contender,
                Unit::Micros,
                measurement.cpu,
            );
            report.add(
                &format!("{title}: requests per Foo"),
                contender,
                Unit::Count,
                measurement.requests,
            );
            report.add(
                &format!("{title}: memory"),
                contender,
                Unit::Megabytes,
                measurement.memory,
            );
        }
    }
    eprintln!("foo: {title}");
    Ok(())
}

/// Measurement of one contender.
struct Measurement {
    /// Seconds from the first Foo to the last status.
    took: f64,
    /// CPU microseconds per Foo of the contender's process.
    cpu: f64,
    /// Requests per Foo.
    requests: f64,
    /// Megabytes at the end.
    memory: f64,
}

/// A prepared server for the contenders.
struct PreparedServer {
    client: Client,
    proxy: Proxy,
    /// Kubeconfig that points to the proxy.
    kubeconfig: NamedTempFile,
}

impl PreparedServer {
    async fn prepare(cluster: &Cluster) -> anyhow::Result<Self> {
        let client = cluster.client();
        let definitions = Api::<v1::CustomResourceDefinition>::all(client.clone());
        definitions.create(&PostParams::default(), &Foo::crd()).await?;
        let foos = Api::<Foo>::namespaced(client.clone(), "default");
        // The CRD is served a moment after its creation.
        while foos.list(&ListParams::default()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let proxy = Proxy::open(client.clone()).await?;
        let kubeconfig = NamedTempFile::new()?;
        let cluster = json!({ "name": "bench", "cluster": { "server": proxy.url() } });
        let context = json!({ "name": "bench", "context": { "cluster": "bench", "user": "nobody" } });
        let user = json!({ "name": "nobody", "user": {} });
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [cluster],
            "users": [user],
            "contexts": [context],
            "current-context": "bench",
        });
        fs::write(kubeconfig.path(), config.to_string())?;
        Ok(Self {
            client,
            proxy,
            kubeconfig,
        })
    }

    /// Starts a contender, creates the Foos, and returns its cost once all statuses are right.
    async fn round(&self, mut command: Command, foos_count: usize) -> anyhow::Result<Measurement> {
        let foos = Cache::<Foo>::start(self.client.clone(), &WatchScope::all());
        let deployments = Cache::<Deployment>::start(self.client.clone(), &WatchScope::all());
        let (foos, deployments) = (
            foos.synced(ROUND_TIMEOUT).await?,
            deployments.synced(ROUND_TIMEOUT).await?,
        );
        ensure!(
            foos.is_empty() && deployments.is_empty(),
            "objects of an earlier round are left"
        );
        let (mut foos, mut deployments) = (foos.subscribe(), deployments.subscribe());
        self.proxy.take_counts();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let contender = Contender(command.spawn().with_context(|| format!("{command:?}"))?);
        let process = contender.0.id();
        let mut watches = 0;
        // The contender is ready when it watches both kinds; then give it a moment.
        while watches < 2 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let counts = self.proxy.take_counts();
            let of_watches = counts.iter().filter(|(what, _)| what.starts_with("WATCH"));
            watches += of_watches.map(|(_, times)| times).sum::<usize>();
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.proxy.take_counts();
        let (cpu, began) = (processes::cpu_micros(process)?, Instant::now());
        let available = async {
            let api = Api::<Deployment>::namespaced(self.client.clone(), "default");
            let status = json!({ "status": { "replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "updatedReplicas": 1 } });
            let mut seen = HashSet::new();
            while seen.len() < foos_count {
                let change = deployments
                    .next()
                    .await
                    .context("the watch of Deployments ended")?;
                if !matches!(change, Change::Deleted { .. }) && seen.insert(change.key().clone()) {
                    let patch = Patch::Merge(&status);
                    api.patch_status(change.key().name(), &PatchParams::default(), &patch)
                        .await?;
                }
            }
            anyhow::Ok(())
        };
        let right = async {
            let mut seen = HashSet::new();
            while seen.len() < foos_count {
                let change = foos.next().await.context("the watch of Foos ended")?;
                let foo = change.latest().object()?;
                if foo
                    .status
                    .as_ref()
                    .is_some_and(|status| status.available_replicas == 1)
                {
                    seen.insert(change.key().clone());
                }
            }
            anyhow::Ok(())
        };
        let api = Api::<Foo>::namespaced(self.client.clone(), "default");
        let created = stream::iter(0..foos_count).map(|number| create_foo(&api, number));
        let created = created.buffer_unordered(16).try_collect::<Vec<_>>();
        futures::try_join!(created, available, right)?;
        let took = began.elapsed().as_secs_f64();
        // Later requests are part of the cost: statuses, and events, which come last.
        let mut counts = self.proxy.take_counts();
        for _ in 0..TAIL_SECONDS {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let more = self.proxy.take_counts();
            let is_quiet = more.is_empty();
            for (what, times) in more {
                *counts.entry(what).or_default() += times;
            }
            if is_quiet {
                break;
            }
        }
        eprintln!("foo: {counts:?}");
        let requests: usize = counts.values().sum();
        let measurement = Measurement {
            took,
            cpu: (processes::cpu_micros(process)? - cpu) / count(foos_count),
            requests: count(requests) / count(foos_count),
            memory: processes::resident_megabytes(process)?,
        };
        drop(contender);
        self.clear().await?;
        Ok(measurement)
    }

    /// Deletes Foos and Deployments; there is no garbage collector.
    async fn clear(&self) -> anyhow::Result<()> {
        let (foreground, all) = (DeleteParams::default(), ListParams::default());
        let foos = Api::<Foo>::namespaced(self.client.clone(), "default");
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), "default");
        foos.delete_collection(&foreground, &all).await?;
        deployments.delete_collection(&foreground, &all).await?;
        Ok(())
    }
}

async fn create_foo(api: &Api<Foo>, number: usize) -> anyhow::Result<()> {
    let spec = FooSpec {
        deployment_name: format!("web-{number}"),
        replicas: Some(1),
    };
    let foo = Foo::new(&format!("foo-{number}"), spec);
    let created = api.create(&PostParams::default(), &foo).await?;
    ensure!(created.uid().is_some(), "the created Foo has no UID");
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a figure for a table")]
fn count(number: usize) -> f64 {
    number as f64
}

/// A contender's process, killed on drop.
struct Contender(Child);

impl Drop for Contender {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The upstream sample controller, built from its module.
struct Upstream {
    shipped: PathBuf,
    unlimited: PathBuf,
    /// Folder with the programs, removed on drop.
    _folder: TempDir,
}

impl Upstream {
    fn build() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let (shipped, unlimited) = (folder.path().join("shipped"), folder.path().join("lifted"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("rivals/foo");
        go(&source, &["build", "-o", path(&shipped)?, MODULE])?;
        // Files in Go's module cache are read-only, so copy the module.
        let module = go(&source, &["list", "-m", "-f", "{{.Dir}}", MODULE])?;
        let copy = folder.path().join("source");
        copy_folder(Path::new(module.trim()), &copy)?;
        let driver = fs::read_to_string(source.join("driver/main.go"))?;
        fs::write(copy.join("main.go"), driver.replace("//go:build ignore", ""))?;
        go(&copy, &["build", "-o", path(&unlimited)?, "."])?;
        fs::remove_dir_all(&copy)?;
        Ok(Self {
            shipped,
            unlimited,
            _folder: folder,
        })
    }
}

fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("the path is not UTF-8")
}

fn go(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("go");
    let output = command.args(arguments).current_dir(folder).output();
    let output = output.context("cannot run Go to build the rivals: install it")?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Copies a folder recursively, without the read-only permissions of Go's module cache.
fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::write(target, fs::read(entry.path())?)?;
        }
    }
    Ok(())
}
