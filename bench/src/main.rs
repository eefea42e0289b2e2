//! Benchmarks Windlass and its rivals on the same cases, in turns, in one run, and prints one table per subject.
//!
//! ```text
//! cargo run --release -p windlass-bench                                # all subjects
//! cargo run --release -p windlass-bench -- queue cache                  # some of them
//! cargo run --release -p windlass-bench -- reconcile --only "no-op"     # some cases
//! cargo run --release -p windlass-bench -- --json run.json --svg run.svg
//! cargo run --release -p windlass-bench -- --from run.json --only sync --svg sync.svg   # draws a part of an earlier run
//! ```
//!
//! A subject is a module that returns a report; to add one, add a variant to `Subject`. The API server has a separate
//! program, `windlass-bench-server`, which this one starts, because this one counts its allocations, and so have webhooks. The embedded
//! cluster, secretsync and podwatch have no rival to run with and use `windlass-bench-cluster`,
//! `windlass-bench-secretsync` and `windlass-bench-podwatch`.
//! Quote only results from an idle machine.

mod access;
mod cache;
mod foo;
mod measure;
mod other_program;
mod queue;
mod reconcile;

use std::{
    alloc::System,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::{Parser, ValueEnum};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use windlass_bench::{
    cases::{Plan, print_measurements},
    chart,
    machine::Machine,
    report::{Report, Run},
    serve,
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Benchmarks Windlass and its rivals on the same cases, in turns, in one run.
#[derive(Parser)]
#[command(name = "windlass-bench")]
struct Arguments {
    /// Subjects to measure [default: all]
    subjects: Vec<Subject>,

    #[command(flatten)]
    plan: Plan,

    /// Write the results of all rounds and the machine's description to this file, after each subject
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Draw a chart of how many times better Windlass is to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Read the results of an earlier run instead of measuring
    #[arg(long, value_name = "FILE", conflicts_with = "subjects")]
    from: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// The work queue against client-go's and controller-runtime's
    Queue,
    /// The cache against client-go's shared informer and kube-rs' reflector
    Cache,
    /// The controller against controller-runtime's and kube-rs'
    Reconcile,
    /// The embedded API server against kube-apiserver and etcd
    Server,
    /// The sample controller against the upstream one, from Foos to Deployments
    Foo,
    /// Admission webhooks against controller-runtime's
    Webhook,
    /// The cost of RBAC on the embedded API server
    Access,
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        // Subjects start this program with these arguments for each measurement.
        ["measure", ref measured @ ..] => measure_one(measured),
        [serve::SERVE] => serve::serve(),
        _ => bench(&Arguments::parse()),
    }
}

fn measure_one(arguments: &[&str]) -> anyhow::Result<()> {
    print_measurements(&match *arguments {
        ["queue", case] => queue::measure_case(case)?,
        ["cache", contender, case, source, pods] => cache::measure_case(contender, case, source, pods)?,
        ["reconcile", contender, case, number, cluster] => {
            reconcile::measure_case(contender, case, number, cluster)?
        }
        _ => bail!("unknown measurement: {arguments:?}"),
    })
}

fn bench(arguments: &Arguments) -> anyhow::Result<()> {
    let plan = &arguments.plan;
    let run = match &arguments.from {
        Some(file) => read(file, plan)?,
        None => measure_all(arguments)?,
    };
    write(arguments.json.as_deref(), &run)?;
    if let Some(file) = &arguments.svg {
        fs::write(file, chart::draw(&run)).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// Reads the selected cases of an earlier run.
fn read(file: &Path, plan: &Plan) -> anyhow::Result<Run> {
    let mut run: Run = serde_json::from_slice(&fs::read(file).with_context(|| file.display().to_string())?)
        .with_context(|| format!("{} is not a file written by --json", file.display()))?;
    for report in &mut run.reports {
        report.keep(|case| plan.includes(case));
    }
    run.reports.retain(|report| !report.cases().is_empty());
    for report in &run.reports {
        print(report);
    }
    Ok(run)
}

fn measure_all(arguments: &Arguments) -> anyhow::Result<Run> {
    let plan = &arguments.plan;
    let mut run = Run {
        machine: Machine::current(),
        reports: Vec::new(),
    };
    println!("{}", run.machine.summary());
    for subject in Subject::value_variants() {
        if !arguments.subjects.is_empty() && !arguments.subjects.contains(subject) {
            continue;
        }
        let report = match subject {
            Subject::Queue => queue::bench(plan),
            Subject::Cache => cache::bench(plan),
            Subject::Reconcile => reconcile::bench(plan),
            Subject::Server => other_program::bench("windlass-bench-server", plan),
            Subject::Webhook => other_program::bench("windlass-bench-webhook", plan),
            Subject::Foo => foo::bench(plan),
            Subject::Access => access::bench(plan),
        }?;
        print(&report);
        run.reports.push(report);
        // All subjects take most of an hour; a failure of a later one must not lose the results of the others.
        write(arguments.json.as_deref(), &run)?;
    }
    Ok(run)
}

fn print(report: &Report) {
    println!("\n## {}\n\n{}", report.subject, report.table());
}

fn write(file: Option<&Path>, run: &Run) -> anyhow::Result<()> {
    let Some(file) = file else { return Ok(()) };
    fs::write(file, serde_json::to_string_pretty(run)?).with_context(|| file.display().to_string())
}
