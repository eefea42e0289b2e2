//! Mixed load on the embedded server over a real socket for half an hour, with and without a hostile client: what happens to its
//! memory, to watches, and to the latency of everybody else.
//!
//! ```text
//!   workers ──► server (a process of its own) ──► watchers
//!      │ acknowledged                                │ seen
//!      └──────────────────► model ◄──────────────────┘
//! ```

mod hostile;
mod latency;
mod load;
mod model;
mod run;
mod watch;
mod wire;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;
use windlass_bench::serve;

use run::{Outcome, Plan};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The most that memory may grow from the first minute to the end.
const GROWTH: f64 = 1.10;

/// Shorter runs are not judged by their memory: the history of events, which is bounded, is still filling.
const JUDGED: Duration = Duration::from_mins(5);

/// Soaks the embedded API server: mixed load of many clients over HTTPS, watches that stall, connections that die, and one hostile client.
///
/// Runs twice by default, without and with the hostile client, and prints both side by side. Fails if the server dies, if a watch event is
/// lost, reordered or wrong, if a client that behaves is refused without an attack, or if the server's memory at the end is more than 10 % above
/// that of the first minute.
#[derive(Parser)]
#[command(name = "windlass-soak")]
struct Arguments {
    /// How long each run takes
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,

    /// How many clients there are; a fifth of them watch
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(8..=5_000))]
    clients: u16,

    /// How many requests per second all clients make together
    #[arg(long, default_value_t = 400.0)]
    rate: f64,

    /// Runs only with the hostile client
    #[arg(long, conflicts_with = "no_hostile")]
    hostile: bool,

    /// Runs only without the hostile client
    #[arg(long)]
    no_hostile: bool,

    /// What chance starts from [default: a random number, which is printed]
    #[arg(long)]
    seed: Option<u64>,

    /// Writes the outcomes as JSON into this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Kills the server after so many seconds, for a test of this program
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

/// What is wrong with a run.
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
            "{run}: {} watch events are wrong: {first}",
            outcome.violations.len()
        ));
    }
    if !outcome.hostile && outcome.died.is_none() && !outcome.surprises.is_empty() {
        faults.push(format!("{run}: clients that behave got {:?}", outcome.surprises));
    }
    if outcome.latency.requests == 0 || (outcome.watch_events == 0 && outcome.died.is_none()) {
        faults.push(format!("{run}: nothing happened"));
    }
    let growth = outcome.memory_end_mb / outcome.memory_first_mb.max(f64::MIN_POSITIVE);
    if outcome.seconds >= JUDGED.as_secs_f64() && growth > GROWTH {
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

/// A line of the table: what it is, and where it comes from.
type Row = (&'static str, fn(&Outcome) -> f64);

/// Both runs side by side, with a ratio.
fn print(outcomes: &[Outcome]) {
    let rows: [Row; 12] = [
        ("requests", |outcome| precise(outcome.latency.requests)),
        ("latency p50, ms", |outcome| outcome.latency.p50_ms),
        ("latency p99, ms", |outcome| outcome.latency.p99_ms),
        ("latency p99.9, ms", |outcome| outcome.latency.p999_ms),
        ("latency max, ms", |outcome| outcome.latency.max_ms),
        ("/livez p99, ms", |outcome| outcome.livez.p99_ms),
        ("/livez max, ms", |outcome| outcome.livez.max_ms),
        ("memory first minute, MB", |outcome| outcome.memory_first_mb),
        ("memory end, MB", |outcome| outcome.memory_end_mb),
        ("memory peak, MB", |outcome| outcome.memory_peak_mb),
        ("watch events", |outcome| precise(outcome.watch_events)),
        ("relists", |outcome| precise(outcome.relists)),
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
        if !outcome.surprises.is_empty() {
            println!(
                "{}: clients that behave got {:?}",
                name(outcome),
                outcome.surprises
            );
        }
        for (attack, answers) in &outcome.attacks {
            println!("{attack:40} {answers:?}");
        }
    }
    if outcomes
        .iter()
        .any(|outcome| outcome.seconds < JUDGED.as_secs_f64())
    {
        println!(
            "memory is not judged: the run is shorter than {} minutes",
            JUDGED.as_secs() / 60
        );
    }
}

#[expect(clippy::cast_precision_loss, reason = "far less than 2^52")]
fn precise(count: u64) -> f64 {
    count as f64
}
