//! The sample controller: upstream's and ours on the same server, from Foos to Deployments and statuses.
//!
//! ```text
//!   windlass            ─┐
//!   sample-controller   ─┼─ each in a process of its own, in turns ─► Proxy, which counts ─► server
//!     as shipped        ─┘                                                                    ▲
//!   this process: makes the Foos, says for each new Deployment that it is available, ─────────┘
//!                 and waits until every Foo says so too
//! ```
//!
//! Upstream as it is shipped holds itself back to five requests a second for each of its clients. So it is compared without
//! that limit, and once as it is shipped, with a tenth of the Foos.

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
use windlass_cache::{Cache, Change, Selection};
use windlass_cluster::{Cluster, Real};
use windlass_foo::{Foo, FooSpec};

use crate::rivals::built;

const RIVAL: &str = "sample-controller";
const SHIPPED: &str = "sample-controller as shipped";

/// Where upstream is.
const MODULE: &str = "k8s.io/sample-controller";

/// Longer than anybody takes.
const TOO_LONG: Duration = Duration::from_mins(5);

/// What is still on its way a second after a contender is done, it sends within this time.
const TAIL: usize = 10;

/// Measures both on the embedded server, and on a kube-apiserver where there is one.
pub(crate) fn bench(plan: &Plan) -> anyhow::Result<Report> {
    let ours = built("windlass-foo", "foo")?;
    let rivals = Upstream::build()
        .inspect_err(|reason| eprintln!("without the upstream sample controller: {reason:#}"))
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
        if embedded.iter().any(|comparison| plan.wants(comparison.title)) {
            let cluster = Cluster::embedded().start().await?;
            let stage = Stage::set(&cluster).await?;
            for comparison in embedded.iter().filter(|comparison| plan.wants(comparison.title)) {
                compare(&mut report, comparison, &stage, programs).await?;
            }
            cluster.stop().await;
        }
        if plan.wants(real.title)
            && let Some(cluster) = started(Cluster::real()).await?
        {
            compare(&mut report, &real, &Stage::set(&cluster).await?, programs).await?;
            cluster.stop().await;
        }
        anyhow::Ok(())
    })?;
    Ok(report)
}

/// Who is compared, and on how much.
#[derive(Clone, Copy)]
struct Comparison {
    title: &'static str,
    foos: usize,
    rounds: usize,
    contenders: &'static [&'static str],
}

async fn started(real: Real) -> anyhow::Result<Option<Cluster>> {
    if let Err(reason) = real.available() {
        eprintln!("without a kube-apiserver: {reason}");
        return Ok(None);
    }
    Ok(Some(real.start().await?))
}

async fn compare(
    report: &mut Report,
    comparison: &Comparison,
    stage: &Stage,
    (ours, rivals): (&Path, Option<&Upstream>),
) -> anyhow::Result<()> {
    let Comparison { title, foos, .. } = *comparison;
    for _ in 0..comparison.rounds {
        for contender in comparison.contenders {
            let command = match (*contender, rivals) {
                (OURS, _) => {
                    let mut command = Command::new(ours);
                    command.arg("--kubeconfig").arg(stage.kubeconfig.path());
                    command
                }
                (_, None) => continue,
                (RIVAL, Some(rivals)) => {
                    let mut command = Command::new(&rivals.lifted);
                    command.arg(stage.proxy.url());
                    command
                }
                (_, Some(rivals)) => {
                    let mut command = Command::new(&rivals.shipped);
                    command.args(["-master", &stage.proxy.url()]);
                    command
                }
            };
            let told = timeout(TOO_LONG, stage.round(command, foos)).await;
            let told = told.with_context(|| format!("{contender} does not come to an end"))??;
            report.add(
                &format!("{title}: all statuses right"),
                contender,
                Unit::Seconds,
                told.took,
            );
            report.add(
                &format!("{title}: CPU per Foo"),
                contender,
                Unit::Micros,
                told.cpu,
            );
            report.add(
                &format!("{title}: requests per Foo"),
                contender,
                Unit::Count,
                told.requests,
            );
            report.add(
                &format!("{title}: memory"),
                contender,
                Unit::Megabytes,
                told.memory,
            );
        }
    }
    eprintln!("foo: {title}");
    Ok(())
}

/// What one contender took.
struct Told {
    /// Seconds from the first Foo to the last status.
    took: f64,
    /// Microseconds for each Foo, of the contender's process.
    cpu: f64,
    /// For each Foo.
    requests: f64,
    /// Megabytes in the end.
    memory: f64,
}

/// Where the contenders act.
struct Stage {
    client: Client,
    proxy: Proxy,
    /// For the proxy.
    kubeconfig: NamedTempFile,
}

impl Stage {
    async fn set(cluster: &Cluster) -> anyhow::Result<Self> {
        let client = cluster.client();
        let definitions = Api::<v1::CustomResourceDefinition>::all(client.clone());
        definitions.create(&PostParams::default(), &Foo::crd()).await?;
        let foos = Api::<Foo>::namespaced(client.clone(), "default");
        // It is served a moment after it was made.
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

    /// Starts a contender, makes the Foos, and says what it took when all is right.
    async fn round(&self, mut command: Command, many: usize) -> anyhow::Result<Told> {
        let foos = Cache::<Foo>::start(self.client.clone(), &Selection::all());
        let deployments = Cache::<Deployment>::start(self.client.clone(), &Selection::all());
        let (foos, deployments) = (foos.synced(TOO_LONG).await?, deployments.synced(TOO_LONG).await?);
        ensure!(
            foos.is_empty() && deployments.is_empty(),
            "the stage is not empty"
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
        // It is there when it watches both kinds; and then it has a moment to itself.
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
            while seen.len() < many {
                let change = deployments.next().await.context("the Deployments' watch")?;
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
            while seen.len() < many {
                let change = foos.next().await.context("the Foos' watch")?;
                let foo = change.stored().object()?;
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
        let made = stream::iter(0..many).map(|number| make(&api, number));
        let made = made.buffer_unordered(16).try_collect::<Vec<_>>();
        futures::try_join!(made, available, right)?;
        let took = began.elapsed().as_secs_f64();
        // What is still on its way is part of the price: statuses, and events, which come last.
        let mut counts = self.proxy.take_counts();
        for _ in 0..TAIL {
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
        let told = Told {
            took,
            cpu: (processes::cpu_micros(process)? - cpu) / count(many),
            requests: count(requests) / count(many),
            memory: processes::resident_megabytes(process)?,
        };
        drop(contender);
        self.clear().await?;
        Ok(told)
    }

    /// There is no collector: Deployments go as the Foos do.
    async fn clear(&self) -> anyhow::Result<()> {
        let (foreground, all) = (DeleteParams::default(), ListParams::default());
        let foos = Api::<Foo>::namespaced(self.client.clone(), "default");
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), "default");
        foos.delete_collection(&foreground, &all).await?;
        deployments.delete_collection(&foreground, &all).await?;
        Ok(())
    }
}

async fn make(api: &Api<Foo>, number: usize) -> anyhow::Result<()> {
    let spec = FooSpec {
        deployment_name: format!("web-{number}"),
        replicas: Some(1),
    };
    let foo = Foo::new(&format!("foo-{number}"), spec);
    let made = api.create(&PostParams::default(), &foo).await?;
    ensure!(made.uid().is_some(), "it has no UID");
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a figure for a table")]
fn count(number: usize) -> f64 {
    number as f64
}

/// A contender's process; it ends with this.
struct Contender(Child);

impl Drop for Contender {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The upstream sample controller, built from its module.
struct Upstream {
    shipped: PathBuf,
    lifted: PathBuf,
    /// Holds the programs; removed with it.
    _folder: TempDir,
}

impl Upstream {
    fn build() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let (shipped, lifted) = (folder.path().join("shipped"), folder.path().join("lifted"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("rivals/foo");
        go(&source, &["build", "-o", path(&shipped)?, MODULE])?;
        // Go lets nobody replace a file of a module where it keeps it, so the module is copied.
        let module = go(&source, &["list", "-m", "-f", "{{.Dir}}", MODULE])?;
        let copy = folder.path().join("source");
        copy_folder(Path::new(module.trim()), &copy)?;
        let driver = fs::read_to_string(source.join("driver/main.go"))?;
        fs::write(copy.join("main.go"), driver.replace("//go:build ignore", ""))?;
        go(&copy, &["build", "-o", path(&lifted)?, "."])?;
        fs::remove_dir_all(&copy)?;
        Ok(Self {
            shipped,
            lifted,
            _folder: folder,
        })
    }
}

fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path that is text")
}

fn go(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("go");
    let output = command.args(arguments).current_dir(folder).output();
    let output = output.context("there is no Go here to build the rivals with")?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The files of a folder and of those in it; where Go keeps them nobody may write, in the copy one may.
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
