//! Runs fuzz targets until their budget is spent: `just fuzz`, `just fuzz yaml 10`.

use std::{fs, path::PathBuf, process::ExitCode, sync::Mutex, thread, time::Duration};

use anyhow::Context;
use clap::Parser;
use windlass_fuzz::{
    engine::{Budget, Plan, Summary},
    supervisor::{self, Job},
    targets,
};

/// Fuzzes everything in Windlass that parses untrusted bytes.
#[derive(Parser)]
struct Arguments {
    /// The targets to run [default: all]
    targets: Vec<String>,

    /// Time to run each target, in minutes
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,

    /// Number of inputs to run for each target, instead of a time
    #[arg(long)]
    runs: Option<u64>,

    /// Seed of the random generator [default: a random number, which is printed]
    #[arg(long)]
    seed: Option<u64>,

    /// Number of targets that run in parallel
    #[arg(long, default_value_t = 2)]
    jobs: usize,

    /// Write inputs with new fingerprints to this folder, in a subfolder for each target
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,

    /// Run the input in this file once; the file name must start with the target's name, or the folder must have it
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,

    /// List the targets
    #[arg(long)]
    list: bool,

    #[arg(long, hide = true)]
    worker: Option<String>,

    #[arg(long, hide = true, requires = "worker")]
    current: Option<PathBuf>,

    #[arg(long, hide = true)]
    seconds: Option<u64>,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    if arguments.list {
        for name in targets::NAMES {
            println!("{name}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(file) = &arguments.replay {
        let input = fs::read(file).with_context(|| file.display().to_string())?;
        let path = file.canonicalize()?.display().to_string();
        let target = targets::NAMES
            .iter()
            .filter(|name| path.contains(&format!("/{name}/")) || path.contains(&format!("/{name}-")))
            .max_by_key(|name| name.len())
            .with_context(|| format!("cannot tell the target of {path}: its name must start with the target's name, or its folder must have that name"))?;
        println!("{}", supervisor::replay(target, input)?);
        return Ok(ExitCode::SUCCESS);
    }
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    let budget = match (arguments.runs, arguments.seconds) {
        (Some(runs), _) => Budget::Runs(runs),
        (None, Some(seconds)) => Budget::Time(Duration::from_secs(seconds)),
        (None, None) => Budget::Time(Duration::from_secs_f64(arguments.minutes * 60.0)),
    };
    if let Some(target) = &arguments.worker {
        let plan = Plan {
            seed,
            budget,
            corpus: supervisor::corpus().join(target),
            current: arguments.current.clone().context("--current is missing")?,
            keep: arguments.keep.clone(),
        };
        // Exit instead of returning, which would wait for a hanging thread of the target.
        std::process::exit(supervisor::run_worker(target, plan)?);
    }
    println!("seed {seed}");
    let names: Vec<String> = if arguments.targets.is_empty() {
        targets::NAMES.iter().map(|name| (*name).to_owned()).collect()
    } else {
        arguments.targets.clone()
    };
    let program = std::env::current_exe()?;
    let waiting = Mutex::new(names.into_iter().rev().collect::<Vec<_>>());
    let failed = thread::scope(|scope| {
        let workers: Vec<_> = (0..arguments.jobs.max(1))
            .map(|_| {
                scope.spawn(|| {
                    let mut failed = 0;
                    loop {
                        let Some(target) = waiting.lock().expect("no thread panics while holding it").pop()
                        else {
                            return failed;
                        };
                        let job = Job {
                            target,
                            seed,
                            budget,
                            keep: arguments.keep.clone(),
                            failures: supervisor::failures(),
                        };
                        match supervisor::supervise(&program, &job) {
                            Ok(summary) => println!("{}", summary_line(&job.target, &summary)),
                            Err(error) => {
                                failed += 1;
                                println!("FAILED {error:#}");
                            }
                        }
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or(1))
            .sum::<u32>()
    });
    Ok(ExitCode::from(u8::from(failed > 0)))
}

fn summary_line(target: &str, summary: &Summary) -> String {
    format!(
        "{target:22} {:8} executions in {:6.1} s, {:6} accepted, {:5} fingerprints, corpus {:3}; at most {:5} KB for inputs under 4 KB, {:4} bytes per byte for larger ones",
        summary.executions,
        summary.seconds,
        summary.accepted,
        summary.fingerprints,
        summary.corpus,
        summary.worst_bytes / 1024,
        summary.worst_bytes_per_byte
    )
}
