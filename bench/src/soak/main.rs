//! Soak test: mixed load on the embedded server over a real socket for half an hour, without and with a hostile client.
//! Checks the server's memory, the watches, and the latency of the other clients.
//!
//! ```text
//!   workers ──► server (in its own process) ──────► watchers
//!      │ acknowledged                                │ observed
//!      └──────────────────► model ◄──────────────────┘
//! ```

mod endpoint;
mod hostile;
mod latency;
mod load;
mod model;
mod run;
mod watch;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;
use windlass_bench::serve;

use run::{Outcome, Plan};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Maximum growth of memory from the first minute to the end.
const MAX_MEMORY_GROWTH: f64 = 1.10;

/// Memory is checked only in runs of at least this length: before, the bounded event history is still filling.
const MIN_CHECKED_RUN: Duration = Duration::from_mins(5);

/// Soak test of the embedded API server: mixed load of many clients over HTTPS, watches that stall, connections that
/// die, and a hostile client.
///
/// Runs twice by default, without and with the hostile client, and prints both side by side. Fails if the server dies,
/// if a watch event is lost, reordered or wrong, if a well-behaved client gets an error without an attack, or if the
/// server's memory at the end is more than 10 % above that of the first minute.
#[derive(Parser)]
#[command(name = "windlass-soak")]
struct Arguments {
    /// Duration of each run, in minutes
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,

    /// Number of clients; a fifth of them watch
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(8..=5_000))]
    clients: u16,

    /// Requests per second of all clients together
    #[arg(long, default_value_t = 400.0)]
    rate: f64,

    /// Run only with the hostile client
    #[arg(long, conflicts_with = "no_hostile")]
    hostile: bool,

    /// Run only without the hostile client
    #[arg(long)]
    no_hostile: bool,

    /// Seed of the random generator [default: a random number, which is printed]
    #[arg(long)]
    seed: Option<u64>,

    /// Write the outcomes as JSON to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Kill the server after this many seconds, to test this program
    #[arg(long, hide = true)]
    kill_after: Option<f64>,
}

fn main() -> anyhow::Result<ExitCode> {
    if std::env::args().nth(1).as_deref() == Some(serve::SERVE) {
        serve::serve()?;
        return Ok(ExitCode::SUCCESS);
    }
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let runs: &[bool] = match (arguments.hostile, arguments.no_hostile) {
        (true, _) => &[true],
        (_, true) => &[false],
        _ => &[false, true],
    };
    let runtime = tokio::runtime::Runtime::new()?;
    let mut outcomes = Vec::new();
    for is_hostile in runs {
        let plan = Plan {
            time: Duration::from_secs_f64(arguments.minutes * 60.0),
            clients: arguments.clients.into(),
            rate: arguments.rate.max(1.0),
            seed,
            is_hostile: *is_hostile,
            kill_after: arguments.kill_after.map(Duration::from_secs_f64),
        };
        eprintln!(
            "{} the hostile client:",
            if *is_hostile { "with" } else { "without" }
        );
        outcomes.push(runtime.block_on(run::run(&plan))?);
    }
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_vec_pretty(&outcomes)?)?;
    }
    print(&outcomes);
    let faults: Vec<String> = outcomes.iter().flat_map(faults).collect();
    for fault in &faults {
        println!("FAULT {fault}");
    }
    println!(
        "{}",
        if faults.is_empty() {
            "verdict: good"
        } else {
            "verdict: bad"
        }
    );
    Ok(ExitCode::from(u8::from(!faults.is_empty())))
}

/// Returns what failed in a run.
fn faults(outcome: &Outcome) -> Vec<String> {
    let run = name(outcome);
    let mut faults = Vec::new();
    if let Some(died) = &outcome.died {
        faults.push(format!("{run}: the server died: {died}"));
    }
    if !outcome.violations.is_empty() {
        let first = outcome
            .violations
            .iter()
            .take(5)
            .cloned()
            .collect::<Vec<_>>()
            .join("; ");
        faults.push(format!(
            "{run}: {} wrong watch events, the first: {first}",
            outcome.violations.len()
        ));
    }
    if !outcome.hostile && outcome.died.is_none() && !outcome.unexpected.is_empty() {
        faults.push(format!(
            "{run}: well-behaved clients got unexpected responses: {:?}",
            outcome.unexpected
        ));
    }
    if outcome.latency.requests == 0 || (outcome.watch_events == 0 && outcome.died.is_none()) {
        faults.push(format!("{run}: no requests or watch events"));
    }
    let growth = outcome.memory_end_mb / outcome.memory_first_mb.max(f64::MIN_POSITIVE);
    if outcome.seconds >= MIN_CHECKED_RUN.as_secs_f64() && growth > MAX_MEMORY_GROWTH {
        faults.push(format!(
            "{run}: memory grew from {:.0} to {:.0} MB",
            outcome.memory_first_mb, outcome.memory_end_mb
        ));
    }
    faults
}

fn name(outcome: &Outcome) -> &'static str {
    if outcome.hostile { "hostile" } else { "calm" }
}

/// A row of the table: title and value.
type Row = (&'static str, fn(&Outcome) -> f64);

/// Both runs side by side, with a ratio.
fn print(outcomes: &[Outcome]) {
    let rows: [Row; 12] = [
        ("requests", |outcome| as_f64(outcome.latency.requests)),
        ("latency p50, ms", |outcome| outcome.latency.p50_ms),
        ("latency p99, ms", |outcome| outcome.latency.p99_ms),
        ("latency p99.9, ms", |outcome| outcome.latency.p999_ms),
        ("latency max, ms", |outcome| outcome.latency.max_ms),
        ("/livez p99, ms", |outcome| outcome.livez.p99_ms),
        ("/livez max, ms", |outcome| outcome.livez.max_ms),
        ("memory first minute, MB", |outcome| outcome.memory_first_mb),
        ("memory end, MB", |outcome| outcome.memory_end_mb),
        ("memory peak, MB", |outcome| outcome.memory_peak_mb),
        ("watch events", |outcome| as_f64(outcome.watch_events)),
        ("relists", |outcome| as_f64(outcome.relists)),
    ];
    print!("{:26}", "");
    for outcome in outcomes {
        print!("{:>14}", name(outcome));
    }
    println!("{}", if outcomes.len() == 2 { "         ratio" } else { "" });
    for (what, figure) in rows {
        print!("{what:26}");
        for outcome in outcomes {
            print!("{:14.1}", figure(outcome));
        }
        match outcomes {
            [calm, hostile] if figure(calm) > 0.0 => println!("{:14.2}", figure(hostile) / figure(calm)),
            _ => println!(),
        }
    }
    for outcome in outcomes {
        if !outcome.unexpected.is_empty() {
            println!(
                "{}: well-behaved clients got unexpected responses: {:?}",
                name(outcome),
                outcome.unexpected
            );
        }
        for (attack, responses) in &outcome.attacks {
            println!("{attack:40} {responses:?}");
        }
    }
    if outcomes
        .iter()
        .any(|outcome| outcome.seconds < MIN_CHECKED_RUN.as_secs_f64())
    {
        println!(
            "memory growth is not checked: the run is shorter than {} minutes",
            MIN_CHECKED_RUN.as_secs() / 60
        );
    }
}

#[expect(clippy::cast_precision_loss, reason = "far less than 2^52")]
fn as_f64(count: u64) -> f64 {
    count as f64
}
