//! The cache against client-go's shared informer and kube-rs' reflector, on the same 20,000 diverse pods.
//!
//! `sync` lists over HTTP from one server process, in protobuf for client-go, which is its default, and in JSON for the
//! others. `events` and `get` have no network: ours and kube-rs' read frames of JSON from memory, client-go gets
//! decoded pods, as in its own benchmarks.

mod figures;
mod kube_rs;
mod memory;
mod ours;
mod pods;

use std::{
    io::{BufRead, BufReader, BufWriter, Write},
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::Context;
use figures::Figures;
use tempfile::TempDir;

use crate::{
    lines::{Line, print_head},
    rivals::GoRivals,
};

/// How many pods there are.
pub(crate) const PODS: usize = 20_000;

/// How many update events are sent.
const EVENTS: usize = 100_000;

const ROUNDS: usize = 3;

struct Case {
    name: &'static str,
    lines: &'static [Line<Figures>],
    contenders: &'static [&'static str],
}

const ALL: &[&str] = &["windlass", "client-go", "kube-rs"];

const CASES: [Case; 7] = [
    Case {
        name: "sync",
        lines: &[
            Line {
                title: "retained",
                unit: "bytes per pod",
                of: |figures| figures.retained,
            },
            Line {
                title: "CPU until synced",
                unit: "us per pod",
                of: |figures| figures.sync_cpu,
            },
        ],
        contenders: ALL,
    },
    Case {
        name: "events",
        lines: &[events("updates of all pods in turn, one subscriber")],
        contenders: ALL,
    },
    Case {
        name: "events-of-few",
        lines: &[events("updates of 500 pods in turn, one subscriber")],
        contenders: &["windlass"],
    },
    Case {
        name: "events-10-readers",
        lines: &[events("updates of all pods, 10 readers listing")],
        contenders: ALL,
    },
    Case {
        name: "events-of-few-10-readers",
        lines: &[events("updates of 500 pods, 10 readers listing")],
        contenders: &["windlass"],
    },
    Case {
        name: "get",
        lines: &[get("get, hot")],
        contenders: ALL,
    },
    Case {
        name: "get-cold",
        lines: &[get("get, cold")],
        contenders: &["windlass"],
    },
];

const fn events(title: &'static str) -> Line<Figures> {
    Line {
        title,
        unit: "per second",
        of: |figures| figures.events,
    }
}

const fn get(title: &'static str) -> Line<Figures> {
    Line {
        title,
        unit: "ns",
        of: |figures| figures.get,
    }
}

/// Prints the table.
pub(crate) fn bench() -> anyhow::Result<()> {
    let go = GoRivals::build().context("the rivals and the server are written in Go")?;
    let directory = tempfile::tempdir()?;
    let file = write_pods(&directory)?;
    let server = Server::start(&go, &file)?;
    print_head("cache");
    for Case {
        name,
        lines,
        contenders,
    } in CASES
    {
        let mut measured = vec![Vec::new(); contenders.len()];
        for _ in 0..ROUNDS {
            for (contender, measured) in contenders.iter().zip(&mut measured) {
                let source = if name == "sync" {
                    server.url.as_str()
                } else {
                    &file
                };
                measured.push(measure(&go, contender, name, source)?);
            }
        }
        for line in lines {
            let ours = line.median(&measured[0]);
            for (contender, measured) in contenders.iter().zip(&measured) {
                line.print(contender, measured, ours);
            }
        }
    }
    Ok(())
}

/// Measures one of the two in Rust on one case and prints the result.
pub(crate) fn measure_case(contender: &str, case: &str, source: &str) -> anyhow::Result<()> {
    let figures = match contender {
        "windlass" => ours::measure(case, source)?,
        _ => kube_rs::measure(case, source)?,
    };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

fn measure(go: &GoRivals, contender: &str, case: &str, source: &str) -> anyhow::Result<Figures> {
    let mut command = if contender == "client-go" {
        let mut command = go.command();
        // With the default gate it would ask for a stream first, and be refused.
        command
            .args(["-case", case, "-source", source])
            .env("KUBE_FEATURE_WatchListClient", "false");
        command
    } else {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["measure", "cache", contender, case, source]);
        command
    };
    let output = command.output()?;
    anyhow::ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).with_context(|| format!("what {command:?} says"))
}

fn write_pods(directory: &TempDir) -> anyhow::Result<String> {
    let path = directory.path().join("pods");
    let mut file = BufWriter::new(std::fs::File::create(&path)?);
    for number in 0..PODS {
        serde_json::to_writer(&mut file, &pods::pod(number, 1_000_000))?;
        file.write_all(b"\n")?;
    }
    file.flush()?;
    Ok(path.to_str().context("a path that is text")?.to_owned())
}

/// The server's process; it ends with this.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start(go: &GoRivals, file: impl AsRef<Path>) -> anyhow::Result<Self> {
        let mut command = go.command();
        command.arg("-serve").arg(file.as_ref()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let mut url = String::new();
        let output = process.stdout.take().context("its output")?;
        BufReader::new(output).read_line(&mut url)?;
        let url = url.trim().to_owned();
        Ok(Self { process, url })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// CPU time of this process so far, in seconds: fields 14 and 15 of its `stat`, in hundredths.
fn cpu_seconds() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(") ").context("a name in parentheses")?.1;
    let ticks: Vec<f64> = after_name
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    Ok(ticks.iter().sum::<f64>() / 100.0)
}

/// Bytes that are allocated now.
#[expect(clippy::cast_precision_loss, reason = "a figure for a table")]
fn allocated() -> f64 {
    let stats = crate::ALLOCATOR.stats();
    stats.bytes_allocated as f64 - stats.bytes_deallocated as f64
}

/// A client for the server of `sync`.
fn client(url: &str) -> anyhow::Result<kube::Client> {
    Ok(kube::Client::try_from(kube::Config::new(url.parse()?))?)
}
