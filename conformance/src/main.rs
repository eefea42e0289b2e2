//! Records scenarios on a real control plane, and replays them on the embedded server.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use serde_json::Value;
use windlass_conformance::{
    Scenario,
    compare::{Differences, compare, summary},
    corpus::{self, Shelf},
    normalise, run,
    target::{self, Clients},
};

/// What a real Kubernetes API server answers, and whether the embedded one answers the same.
#[derive(Parser)]
#[command(name = "windlass-conformance")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs scenarios on two real control planes, and stores what they said if it is the same.
    Record {
        /// Only these; a name ending in `-` stands for all that start with it. Default: all, those ahead included.
        names: Vec<String>,
    },
    /// Runs scenarios on the embedded server, and shows where it differs from the recordings.
    Replay {
        /// Only these; a name ending in `-` stands for all that start with it.
        names: Vec<String>,
        /// Those that the embedded server does not pass yet.
        #[arg(long)]
        ahead: bool,
        /// Moves those that pass from `ahead/` to `scenarios/`.
        #[arg(long, requires = "ahead")]
        promote: bool,
        /// How many differences are shown of each scenario.
        #[arg(long, default_value_t = 12)]
        show: usize,
    },
    /// Runs a sample on a real control plane, to prove that the recordings are true.
    Check {
        /// How many scenarios; 0 means all.
        #[arg(long, default_value_t = 0)]
        sample: usize,
        /// Chooses the sample. Default: another one every day.
        #[arg(long)]
        seed: Option<u64>,
    },
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let good = match Arguments::parse().command {
        Command::Record { names } => record(&names).await?,
        Command::Replay {
            names,
            ahead,
            promote,
            show,
        } => {
            let shelf = if ahead { Shelf::Ahead } else { Shelf::Scenarios };
            let passed = replay(&corpus::scenarios(shelf, &names)?, show).await?;
            if promote {
                passed.names.iter().try_for_each(|name| corpus::promote(name))?;
            }
            passed.all
        }
        Command::Check { sample, seed } => check(sample, seed).await?,
    };
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn both_shelves(names: &[String]) -> Result<Vec<Scenario>> {
    let mut all = corpus::scenarios(Shelf::Scenarios, names)?;
    all.extend(corpus::scenarios(Shelf::Ahead, names)?);
    Ok(all)
}

async fn record(names: &[String]) -> Result<bool> {
    let mut scenarios = both_shelves(names)?;
    if scenarios.is_empty() {
        bail!("no scenario is called {names:?}");
    }
    let first = on_real(&scenarios).await?;
    // In the other order, so that nothing depends on what ran before.
    scenarios.reverse();
    let mut second = on_real(&scenarios).await?;
    scenarios.reverse();
    second.reverse();
    let mut good = true;
    for ((scenario, first), second) in scenarios.iter().zip(first).zip(second) {
        match (first, second) {
            (Ok(first), Ok(second)) => {
                let unsteady = compare(&first, &second);
                if unsteady.is_empty() {
                    match corpus::store(&scenario.name, &first) {
                        Ok(()) => println!("{}: {} outcomes", scenario.name, first.len()),
                        Err(error) => {
                            good = false;
                            println!("{error:#}");
                        }
                    }
                } else {
                    good = false;
                    println!("{}: not stored, two runs differ", scenario.name);
                    unsteady
                        .iter()
                        .take(8)
                        .for_each(|difference| println!("{difference}"));
                }
            }
            (Err(error), _) | (_, Err(error)) => {
                good = false;
                println!("{}: {error:#}", scenario.name);
            }
        }
    }
    Ok(good)
}

async fn check(sample: usize, seed: Option<u64>) -> Result<bool> {
    let mut scenarios = both_shelves(&[])?;
    let today = || u64::try_from(jiff::Timestamp::now().as_second() / 86_400).unwrap_or_default();
    let seed = seed.unwrap_or_else(today);
    if sample > 0 {
        fastrand::Rng::with_seed(seed).shuffle(&mut scenarios);
        scenarios.truncate(sample);
    }
    println!("{} scenarios, seed {seed}", scenarios.len());
    let mut good = true;
    for (scenario, outcomes) in scenarios.iter().zip(on_real(&scenarios).await?) {
        let differences = compare(&corpus::load(&scenario.name)?, &outcomes?);
        if differences.is_empty() {
            println!("{}: true", scenario.name);
            continue;
        }
        good = false;
        println!("{}: the real server says something else now", scenario.name);
        for difference in differences {
            println!("{difference}");
        }
    }
    Ok(good)
}

async fn on_real(scenarios: &[Scenario]) -> Result<Vec<Result<Vec<Value>>>> {
    let mut all: Vec<_> = scenarios.iter().map(|_| None).collect();
    for controllers in [false, true] {
        let mut here = scenarios
            .iter()
            .zip(&mut all)
            .filter(|(scenario, _)| scenario.controllers == controllers)
            .peekable();
        if here.peek().is_none() {
            continue;
        }
        let cluster = target::real(controllers).await?;
        let clients = target::clients(&cluster).await?;
        for (scenario, place) in here {
            *place = Some(outcomes(scenario, &clients).await);
        }
        cluster.stop().await;
    }
    Ok(all.into_iter().flatten().collect())
}

/// Which scenarios the embedded server passed.
struct Passed {
    names: Vec<String>,
    all: bool,
}

async fn replay(scenarios: &[Scenario], show: usize) -> Result<Passed> {
    let meant = Differences::read(&corpus::root().join("differences.toml"))?;
    let mut names = Vec::new();
    for scenario in scenarios {
        let name = &scenario.name;
        let expected = match corpus::load(name) {
            Ok(expected) => expected,
            Err(error) => {
                println!("{name}: {error:#}");
                continue;
            }
        };
        let got = match outcomes(scenario, &target::embedded()).await {
            Ok(got) => got,
            Err(error) => {
                println!("{name}: {error:#}");
                continue;
            }
        };
        let (differences, unused) = meant.apply(name, compare(&expected, &got));
        for entry in &unused {
            println!("{name}: excused for nothing: {entry:?}");
        }
        if differences.is_empty() && unused.is_empty() {
            println!("{name}: as recorded, {} steps", expected.len());
            names.push(name.clone());
            continue;
        }
        let summary = summary(&expected, &got, &differences);
        println!(
            "{name}: {} of {} steps differ (- real, + ours)",
            summary.steps,
            expected.len()
        );
        for line in summary.lines.iter().take(show) {
            println!("{line}");
        }
    }
    println!("{} of {} as recorded", names.len(), scenarios.len());
    let all = names.len() == scenarios.len();
    Ok(Passed { names, all })
}

async fn outcomes(scenario: &Scenario, clients: &Clients) -> Result<Vec<Value>> {
    let raw = run::run(scenario, clients).await?;
    Ok(normalise::normalise(scenario, raw))
}
