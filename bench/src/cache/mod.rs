//! The cache against client-go's shared informer and kube-rs' reflector, on the same diverse pods.
//!
//! `sync` lists over HTTP from one server process with prepared responses, in protobuf and in JSON, so that only the
//! clients are measured; and once more from a kube-apiserver, if available. The other cases have no network: our cache
//! and kube-rs read JSON frames from memory, client-go gets decoded pods, as in its own benchmarks.

mod kube_rs;
mod memory;
mod ours;
mod pods;
mod real;

use std::{
    collections::{HashMap, hash_map::Entry},
    io::{BufRead, BufReader, BufWriter, Write},
    path::Path,
    process::{Child, Stdio},
};

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use tempfile::TempDir;
use windlass_bench::{
    cases::{Case, Measurements, Plan, ReportedValue, compare, measurements},
    processes,
    report::{OURS, Report, Unit},
};

use windlass_bench::rivals::{GoRivals, own_command};

/// Number of update events.
const EVENTS: usize = 100_000;

const RIVAL: &str = "client-go";
const FULL: &str = "windlass full";
const JSON: &str = "client-go JSON";
/// client-go's store instead of its typed lister, with keys formatted in advance.
const STORE: &str = "client-go store";
const KUBE_RS: &str = "kube-rs";

const ALL: &[&str] = &[OURS, RIVAL, KUBE_RS];
const SYNCS: &[&str] = &[OURS, FULL, RIVAL, JSON, KUBE_RS];

/// Number of pods in cases that do not vary it.
const PODS: usize = 20_000;

const SYNC: &str = "sync";
const SYNC_REAL: &str = "sync-real";

const CASES: [Case; 11] = [
    sync(SYNC, "sync of 20,000 pods", PODS),
    sync(SYNC, "sync of 100,000 pods", 100_000),
    sync(SYNC_REAL, "sync of 20,000 pods from kube-apiserver", PODS),
    events("events", "updates of all pods in turn, one subscriber", ALL),
    events(
        "events-of-few",
        "updates of 500 pods in turn, one subscriber",
        ALL,
    ),
    events(
        "events-10-readers",
        "updates of all pods, 10 readers listing",
        ALL,
    ),
    events(
        "events-of-few-10-readers",
        "updates of 500 pods, 10 readers listing",
        ALL,
    ),
    reads("get", "get, hot", &[OURS, RIVAL, STORE, KUBE_RS]),
    reads("get-cold", "get, cold", &[OURS]),
    reads("index", "12 pods by an index, hot", &[OURS, RIVAL]),
    reads("list", "1,000 pods of a namespace, hot", ALL),
];

const fn sync(name: &'static str, title: &'static str, number: usize) -> Case {
    Case {
        title,
        name,
        number,
        contenders: SYNCS,
        values: &[
            ReportedValue {
                suffix: ": until synced",
                key: "wall",
                unit: Unit::Millis,
            },
            ReportedValue {
                suffix: ": CPU per pod",
                key: "cpu",
                unit: Unit::Micros,
            },
            ReportedValue {
                suffix: ": retained per pod",
                key: "retained",
                unit: Unit::Bytes,
            },
            ReportedValue {
                suffix: ": memory at the peak",
                key: "peak",
                unit: Unit::Megabytes,
            },
        ],
    }
}

const fn events(name: &'static str, title: &'static str, contenders: &'static [&'static str]) -> Case {
    Case {
        title,
        name,
        number: PODS,
        contenders,
        values: &[ReportedValue {
            suffix: "",
            key: "events",
            unit: Unit::PerSecond,
        }],
    }
}

const fn reads(name: &'static str, title: &'static str, contenders: &'static [&'static str]) -> Case {
    Case {
        title,
        name,
        number: PODS,
        contenders,
        values: &[ReportedValue {
            suffix: "",
            key: "nanos",
            unit: Unit::Nanos,
        }],
    }
}

/// Measures all cases. The server with prepared responses is written in Go, as the rivals are.
pub(crate) fn bench(plan: &Plan) -> anyhow::Result<Report> {
    let go = GoRivals::build().context("cannot build the rivals and the server, which are written in Go")?;
    let directory = tempfile::tempdir()?;
    let mut files = HashMap::new();
    let mut server: Option<Server> = None;
    let mut real: Option<Option<real::Pods>> = None;
    let mut report = Report::new("cache", RIVAL);
    compare(&mut report, plan, &CASES, |case, contender| {
        let number = case.number;
        let file = match files.entry(number) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(write_pods(&directory, number)?),
        };
        let source = match case.name {
            SYNC => {
                if server.as_ref().is_none_or(|server| server.pods != number) {
                    // One server at a time, because each holds all its pods twice.
                    drop(server.take());
                    server = Some(Server::start(&go, &*file, number)?);
                }
                server.as_ref().context("no server was started")?.url.clone()
            }
            SYNC_REAL => {
                drop(server.take());
                if real.is_none() {
                    real = Some(real::Pods::serve(number)?);
                }
                match real.as_ref().and_then(Option::as_ref) {
                    Some(pods) => pods.url(),
                    None => return Ok(None),
                }
            }
            _ => {
                drop((server.take(), real.take()));
                file.clone()
            }
        };
        let mut command = match contender {
            RIVAL | JSON | STORE => {
                let mut command = go.command();
                command.args(["-rival", contender, "-case", case.name, "-source", &source]);
                // With the default feature gate it would request a watch list first, which the server rejects.
                command.env(
                    "KUBE_FEATURE_WatchListClient",
                    (case.name == SYNC_REAL).to_string(),
                );
                command
            }
            _ => {
                let mut command = own_command()?;
                command.args(["cache", contender, case.name, &source, &number.to_string()]);
                command
            }
        };
        command.env("NO_PROXY", "127.0.0.1");
        Ok(Some(command))
    })?;
    Ok(report)
}

/// Measures a Rust contender on one case.
pub(crate) fn measure_case(
    contender: &str,
    case: &str,
    source: &str,
    pods: &str,
) -> anyhow::Result<Measurements> {
    let pods = pods.parse().context("invalid number of pods")?;
    match contender {
        KUBE_RS => kube_rs::measure(case, source, pods),
        _ => ours::measure(contender == FULL, case, source, pods),
    }
}

/// Returns the cost of a sync: wall and CPU time until synced, and the memory afterwards.
fn synced(pods: usize, wall: f64, cpu: f64, retained: f64) -> anyhow::Result<Measurements> {
    #[expect(clippy::cast_precision_loss, reason = "a figure for a table")]
    let count = pods as f64;
    let peak = processes::peak_megabytes(std::process::id())?;
    Ok(measurements([
        ("wall", wall * 1e3),
        ("cpu", cpu * 1e6 / count),
        ("retained", retained / count),
        ("peak", peak),
    ]))
}

/// Returns the length of the pod's node name, so that the reading cases use each pod.
fn node_name_length(pod: &Pod) -> usize {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.node_name.as_ref())
        .map_or(0, String::len)
}

/// Returns the average time of an operation.
#[expect(clippy::cast_precision_loss, reason = "a figure for a table")]
fn average_nanos(began: std::time::Instant, count: usize) -> Measurements {
    measurements([("nanos", began.elapsed().as_secs_f64() * 1e9 / count as f64)])
}

#[expect(clippy::cast_precision_loss, reason = "a figure for a table")]
fn events_per_second(began: std::time::Instant, events: usize) -> Measurements {
    measurements([("events", events as f64 / began.elapsed().as_secs_f64())])
}

fn write_pods(directory: &TempDir, number: usize) -> anyhow::Result<String> {
    let path = directory.path().join(format!("{number}-pods"));
    let mut file = BufWriter::new(std::fs::File::create(&path)?);
    for number in 0..number {
        serde_json::to_writer(&mut file, &pods::pod(number, 1_000_000))?;
        file.write_all(b"\n")?;
    }
    file.flush()?;
    Ok(path.to_str().context("the path is not UTF-8")?.to_owned())
}

/// The server process, killed on drop.
struct Server {
    process: Child,
    url: String,
    /// Number of pods.
    pods: usize,
}

impl Server {
    fn start(go: &GoRivals, file: impl AsRef<Path>, pods: usize) -> anyhow::Result<Self> {
        let mut command = go.command();
        command.arg("-serve").arg(file.as_ref()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let mut url = String::new();
        let output = process.stdout.take().context("the server has no stdout")?;
        BufReader::new(output).read_line(&mut url)?;
        let url = url.trim().to_owned();
        Ok(Self { process, url, pods })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the CPU time of this process in seconds.
fn cpu_seconds() -> anyhow::Result<f64> {
    Ok(processes::cpu_micros(std::process::id())? / 1e6)
}

/// Returns the bytes currently allocated.
#[expect(clippy::cast_precision_loss, reason = "a figure for a table")]
fn allocated() -> f64 {
    let stats = crate::ALLOCATOR.stats();
    stats.bytes_allocated as f64 - stats.bytes_deallocated as f64
}

/// Creates a client for the server of `sync`.
fn client(url: &str) -> anyhow::Result<kube::Client> {
    Ok(kube::Client::try_from(kube::Config::new(url.parse()?))?)
}
