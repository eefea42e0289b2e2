//! The embedded API server against kube-apiserver and etcd: the same client, the same requests, in turns.
//!
//! ```text
//!   this process ── Wire ── HTTPS ──► separate process with the embedded server       (windlass)
//!                ├─ Wire ── HTTPS ──► kube-apiserver + etcd, fsync off                (kube-apiserver)
//!                └─ kube::Client ───► the embedded server in this process, no socket  (windlass in-process)
//! ```
//!
//! ```text
//! cargo run --release -p windlass-bench --bin windlass-bench-server
//! cargo run --release -p windlass-bench --bin windlass-bench-server -- --only creates
//! ```
//!
//! `wire` describes the client, which is the same for both servers with a socket. Each round runs every case once on
//! every server. The lists at the end return the pods that the rounds created. This is a separate program because the
//! other subjects count their allocations: four atomic operations on one cache line per allocation, which take longer
//! on two busy cores than the allocations themselves.

mod applies;
mod contenders;
mod loads;
mod response;
mod rules;
mod transport;
mod webhooks;

use std::{fs, path::PathBuf, time::Duration};

use anyhow::Context;
use clap::Parser;
use tokio::runtime::Runtime;
use windlass_bench::{
    cases::Plan,
    pods,
    report::{Report, Unit, format_number},
    serve,
};

use contenders::Contender;
use loads::Throughput;

/// Number of pods created in each round, one at a time and sixteen at a time. After five rounds these make the lists of
/// 1,000 and 20,000.
const FEW: usize = 200;
const MANY: usize = 4_000;

/// The same allocator as in the `windlass` program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Benchmarks the embedded API server against kube-apiserver and etcd.
#[derive(Parser)]
#[command(name = "windlass-bench-server")]
struct Arguments {
    #[command(flatten)]
    plan: Plan,

    /// Write the results to this file instead of printing a table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    if std::env::args().nth(1).as_deref() == Some(serve::SERVE) {
        return serve::serve();
    }
    let arguments = Arguments::parse();
    // All cores for the server in this process; the client of the others has its own runtime.
    let report = Runtime::new()
        .context("cannot start a runtime")?
        .block_on(bench(&arguments.plan))?;
    match &arguments.json {
        Some(file) => fs::write(file, serde_json::to_string(&report)?)?,
        None => println!("{}", report.table()),
    }
    Ok(())
}

/// A group of cases is always measured as a whole, because later cases list what earlier ones create; one matching
/// title selects it.
async fn bench(plan: &Plan) -> anyhow::Result<Report> {
    let rounds = plan.rounds.get();
    let named = |title: &&str| plan.includes(title) || plan.only.iter().any(|part| part.contains(*title));
    let includes = |titles: &[&str]| titles.iter().any(named);
    let mut report = Report::new("server", contenders::RIVAL);
    if includes(&["starts"]) {
        starts(rounds, &mut report).await?;
    }
    let contenders = contenders::start_all().await?;
    // The lists return what the requests have created.
    if includes(&["creates", "updates", "gets", "lists"]) {
        for round in 0..rounds {
            for contender in &contenders {
                requests(contender, round, &mut report).await?;
            }
        }
        eprintln!("server: requests");
    }
    if includes(&["applies"]) {
        apply_unchanged(rounds, &contenders, &mut report).await?;
        eprintln!("server: applies");
    }
    if includes(&["rules"]) {
        rules::measure(rounds, &contenders, &mut report).await?;
        eprintln!("server: rules");
    }
    if includes(&["webhooks"]) {
        webhooks::measure(rounds, &contenders, &mut report).await?;
        eprintln!("server: webhooks");
    }
    if includes(&["lists"]) {
        lists(rounds, &contenders, &mut report).await?;
        eprintln!("server: lists");
    }
    if includes(&["events"]) {
        fan_out(rounds, &contenders, &mut report).await?;
        eprintln!("server: events");
    }
    for contender in contenders {
        contender.stop().await;
    }
    Ok(report)
}

/// Applies unchanged configurations, as controllers do most of the time. The cost must not grow faster than the size.
async fn apply_unchanged(rounds: usize, contenders: &[Contender], report: &mut Report) -> anyhow::Result<()> {
    for _ in 0..rounds {
        for contender in contenders {
            let load = contender.load();
            for (kilobytes, at_once, times) in [(5, 1, 200), (5, 16, 1_000), (50, 1, 100), (500, 1, 20)] {
                let throughput = load.apply_unchanged(kilobytes, at_once, times).await?;
                let case = format!("applies of the same {kilobytes} KB, {at_once} at a time");
                report.add(&case, contender.name, Unit::PerSecond, throughput.per_second);
            }
            let throughput = load.apply_changed(5, 200).await?;
            report.add(
                "applies of 5 KB with a change, 1 at a time",
                contender.name,
                Unit::PerSecond,
                throughput.per_second,
            );
        }
    }
    Ok(())
}

/// Measures the time from process start to a served `/readyz`, and the memory.
async fn starts(rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    for _ in 0..rounds {
        for start in contenders::STARTS {
            let Some((contender, took)) = start().await? else {
                continue;
            };
            let name = contender.name;
            report.add("start to /readyz", name, Unit::Millis, millis(took));
            if let Some(inside) = contender.reported_start {
                report.add("start inside that process", name, Unit::Millis, millis(inside));
            }
            if !contender.processes.is_empty() {
                report.add("memory when ready", name, Unit::Megabytes, contender.megabytes()?);
            }
            contender.stop().await;
        }
    }
    Ok(())
}

async fn requests(contender: &Contender, round: usize, report: &mut Report) -> anyhow::Result<()> {
    let load = contender.load();
    let few = pods::names(round, FEW);
    let many = pods::names(round, MANY);
    let small = pods::names(round, 1_000);
    let some = &many[..1_000];
    let mut cpu = contender.cpu_micros();
    // Updates first read the objects, which is not part of the measurement.
    let mut note = |case: &str, count: usize, throughput: Throughput| {
        report.add(case, contender.name, Unit::PerSecond, throughput.per_second);
        let now = contender.cpu_micros();
        let before = std::mem::replace(&mut cpu, now);
        if let Some((now, before)) = now.zip(before).filter(|_| !case.starts_with("updates")) {
            #[expect(clippy::cast_precision_loss, reason = "far below the 52 bits of a float")]
            let each = (now - before) / count as f64;
            report.add(&format!("{case}: CPU each"), contender.name, Unit::Micros, each);
        }
        // The CPU clock ticks a hundred times per second: too coarse for a few requests.
        if let Some(client) = throughput
            .client_cpu_micros
            .filter(|_| count >= 1_000 && now.is_some())
        {
            let case = format!("{case}: CPU of the client");
            report.add(&case, contender.name, Unit::Micros, client);
        }
    };
    let throughput = load.create("few", &few, 1).await?;
    note("creates, 1 at a time (6 KB pods)", FEW, throughput);
    let throughput = load.create("many", &many, 16).await?;
    note("creates, 16 at a time (6 KB pods)", MANY, throughput);
    let throughput = load.create_small("small", &small, 16).await?;
    note(
        "creates, 16 at a time (small config maps)",
        small.len(),
        throughput,
    );
    let throughput = load.update("few", &few, 1).await?;
    note("updates, 1 at a time", FEW, throughput);
    let throughput = load.update("many", some, 16).await?;
    note("updates, 16 at a time", some.len(), throughput);
    let throughput = load.get("few", &few, 1).await?;
    note("gets, 1 at a time", FEW, throughput);
    let throughput = load.get("many", some, 16).await?;
    note("gets, 16 at a time", some.len(), throughput);
    Ok(())
}

async fn lists(rounds: usize, contenders: &[Contender], report: &mut Report) -> anyhow::Result<()> {
    for round in 0..rounds {
        for contender in contenders {
            let load = contender.load();
            for (namespace, title, expected) in [
                ("few", list_of(rounds * FEW), rounds * FEW),
                ("many", list_of(rounds * MANY), rounds * MANY),
            ] {
                contender.reset_peak();
                let before = contender.megabytes().unwrap_or(0.0);
                let took = load.list(namespace, expected).await?;
                report.add(&title, contender.name, Unit::Millis, millis(took));
                if let Some(peak) = contender.peak_megabytes() {
                    let title = format!("{title}: memory on top at the peak");
                    report.add(&title, contender.name, Unit::Megabytes, (peak - before).max(0.0));
                }
            }
            if round == 0 && !contender.processes.is_empty() {
                let megabytes = contender.megabytes()?;
                report.add(
                    "memory with all these pods",
                    contender.name,
                    Unit::Megabytes,
                    megabytes,
                );
            }
        }
    }
    Ok(())
}

/// Measures one writer with an increasing number of watchers.
async fn fan_out(rounds: usize, contenders: &[Contender], report: &mut Report) -> anyhow::Result<()> {
    for round in 0..rounds {
        for contender in contenders {
            for (watchers, events) in [(1, 500), (100, 100), (1_000, 20)] {
                let load = contender.load();
                let namespace = format!("watch-{watchers}-{round}");
                let measured = load
                    .fan_out(&namespace, watchers, events, || contender.megabytes().ok())
                    .await?;
                let title = format!("events to {watchers} watchers");
                report.add(
                    &title,
                    contender.name,
                    Unit::PerSecond,
                    measured.delivered_per_second,
                );
                if watchers == 1_000
                    && let Some(memory) = measured.memory
                {
                    let title = "memory per watcher, of 1,000";
                    report.add(title, contender.name, Unit::Kilobytes, memory * 1024.0 / 1_000.0);
                }
            }
        }
    }
    Ok(())
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[expect(clippy::cast_precision_loss, reason = "far below the 52 bits of a float")]
fn list_of(pods: usize) -> String {
    format!("list of {} pods", format_number(pods as f64))
}
