//! Records scenarios on a real control plane, and replays them on the embedded server.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use serde_json::Value;
use windlass_conformance::{
    Scenario,
    compare::{IntentionalDifferences, compare, summary},
    corpus::{self, ScenarioFolder},
    normalise, run,
    target::{self, Clients},
};

/// Records responses of a real Kubernetes API server and compares the embedded one with them.
#[derive(Parser)]
#[command(name = "windlass-conformance")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run scenarios on two real control planes, and store the outcomes if they are equal.
    Record {
        /// Names of scenarios; a name that ends in `-` matches as a prefix. Default: all, including pending ones.
        names: Vec<String>,
    },
    /// Run scenarios on the embedded server, and show the differences from the recordings.
    Replay {
        /// Names of scenarios; a name that ends in `-` matches as a prefix. Default: all.
        names: Vec<String>,
        /// Run the pending scenarios, which the embedded server does not pass yet.
        #[arg(long)]
        pending: bool,
        /// Move scenarios that pass from `pending/` to `scenarios/`.
        #[arg(long, requires = "pending")]
        promote: bool,
        /// Maximum number of differences to show for each scenario.
        #[arg(long, default_value_t = 12)]
        show: usize,
    },
    /// Run a sample on a real control plane, to check that the recordings are still correct.
    Check {
        /// Number of scenarios; 0 means all.
        #[arg(long, default_value_t = 0)]
        sample: usize,
        /// Seed for choosing the sample. Default: a different one every day.
        #[arg(long)]
        seed: Option<u64>,
    },
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let succeeded = match Arguments::parse().command {
        Command::Record { names } => record(&names).await?,
        Command::Replay {
            names,
            pending,
            promote,
            show,
        } => {
            let folder = if pending {
                ScenarioFolder::Pending
            } else {
                ScenarioFolder::Scenarios
            };
            let passed = replay(&corpus::scenarios(folder, &names)?, show).await?;
            if promote {
                passed.names.iter().try_for_each(|name| corpus::promote(name))?;
            }
            passed.all
        }
        Command::Check { sample, seed } => check(sample, seed).await?,
    };
    Ok(if succeeded {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn all_scenarios(names: &[String]) -> Result<Vec<Scenario>> {
    let mut all = corpus::scenarios(ScenarioFolder::Scenarios, names)?;
    all.extend(corpus::scenarios(ScenarioFolder::Pending, names)?);
    Ok(all)
}

async fn record(names: &[String]) -> Result<bool> {
    let mut scenarios = all_scenarios(names)?;
    if scenarios.is_empty() {
        bail!("no scenario matches {names:?}");
    }
    let first = run_on_real(&scenarios).await?;
    // Reverse the order, to detect dependencies between scenarios.
    scenarios.reverse();
    let mut second = run_on_real(&scenarios).await?;
    scenarios.reverse();
    second.reverse();
    let mut succeeded = true;
    for ((scenario, first), second) in scenarios.iter().zip(first).zip(second) {
        match (first, second) {
            (Ok(first), Ok(second)) => {
                let differences = compare(&first, &second);
                if differences.is_empty() {
                    match corpus::store(&scenario.name, &first) {
                        Ok(()) => println!("{}: {} outcomes", scenario.name, first.len()),
                        Err(error) => {
                            succeeded = false;
                            println!("{error:#}");
                        }
                    }
                } else {
                    succeeded = false;
                    println!("{}: not stored, because two runs differ", scenario.name);
                    differences
                        .iter()
                        .take(8)
                        .for_each(|difference| println!("{difference}"));
                }
            }
            (Err(error), _) | (_, Err(error)) => {
                succeeded = false;
                println!("{}: {error:#}", scenario.name);
            }
        }
    }
    Ok(succeeded)
}

async fn check(sample: usize, seed: Option<u64>) -> Result<bool> {
    let mut scenarios = all_scenarios(&[])?;
    let today = || u64::try_from(jiff::Timestamp::now().as_second() / 86_400).unwrap_or_default();
    let seed = seed.unwrap_or_else(today);
    if sample > 0 {
        fastrand::Rng::with_seed(seed).shuffle(&mut scenarios);
        scenarios.truncate(sample);
    }
    println!("{} scenarios, seed {seed}", scenarios.len());
    let mut succeeded = true;
    for (scenario, outcomes) in scenarios.iter().zip(run_on_real(&scenarios).await?) {
        let differences = compare(&corpus::load(&scenario.name)?, &outcomes?);
        if differences.is_empty() {
            println!("{}: ok", scenario.name);
            continue;
        }
        succeeded = false;
        println!("{}: the real server differs from the recording", scenario.name);
        for difference in differences {
            println!("{difference}");
        }
    }
    Ok(succeeded)
}

async fn run_on_real(scenarios: &[Scenario]) -> Result<Vec<Result<Vec<Value>>>> {
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
        for (scenario, slot) in here {
            *slot = Some(outcomes(scenario, &clients).await);
        }
        cluster.stop().await;
    }
    Ok(all.into_iter().flatten().collect())
}

/// Scenarios that the embedded server passed.
struct ReplayResult {
    names: Vec<String>,
    all: bool,
}

async fn replay(scenarios: &[Scenario], show: usize) -> Result<ReplayResult> {
    let intentional = IntentionalDifferences::read(&corpus::root().join("differences.toml"))?;
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
        let (differences, unused) = intentional.apply(name, compare(&expected, &got));
        for entry in &unused {
            println!("{name}: entry in differences.toml matches no difference: {entry:?}");
        }
        if differences.is_empty() && unused.is_empty() {
            println!("{name}: ok, {} steps", expected.len());
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
    println!(
        "{} of {} scenarios match their recordings",
        names.len(),
        scenarios.len()
    );
    let all = names.len() == scenarios.len();
    Ok(ReplayResult { names, all })
}

async fn outcomes(scenario: &Scenario, clients: &Clients) -> Result<Vec<Value>> {
    let raw = run::run(scenario, clients).await?;
    Ok(normalise::normalise(scenario, raw))
}
