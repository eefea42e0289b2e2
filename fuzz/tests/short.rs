//! A short run of every target, and a check that planted violations of each invariant are found.
//!
//! The seed is fixed, so that runs are repeatable. `WINDLASS_FUZZ_SEED` sets another seed, `WINDLASS_FUZZ_RUNS` the
//! number of runs per target. The long run is `just fuzz`.

use std::{path::Path, process::ExitCode};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use windlass_fuzz::{
    engine::Budget,
    supervisor::{self, Job},
    targets::{self, drop_in, planted},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_windlass-fuzz");

/// Seed of the random generator, unless the environment sets one.
const SEED: u64 = 20;

fn main() -> ExitCode {
    let mut trials: Vec<Trial> = targets::NAMES
        .iter()
        .map(|name| {
            Trial::ignorable_test(
                format!("{}_holds_invariants", name.replace('-', "_")),
                move || {
                    // `cargo test --workspace` builds it; testing this package alone does not.
                    if *name == "drop-in" && drop_in::program().is_none() {
                        return Ok(Completion::ignored_with("the program `windlass` was not built"));
                    }
                    holds_invariants(name).map(|()| Completion::Completed)
                },
            )
        })
        .collect();
    for (name, report) in planted::NAMES {
        trials.push(Trial::test(
            format!("{}_is_found", name.replace('-', "_")),
            move || is_found(name, report),
        ));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Number of runs; fewer if one input causes many requests.
fn runs(target: &str) -> u64 {
    match target {
        // Each run has its own server.
        "requests" => 400,
        "selectors" | "list-parameters" | "tokens" | "field-paths" | "texts" => 1_000,
        // Each run starts a process.
        "drop-in" => 20,
        _ => 200,
    }
}

fn holds_invariants(target: &str) -> Result<(), Failed> {
    let job = Job {
        target: target.to_owned(),
        seed: number("WINDLASS_FUZZ_SEED").unwrap_or(SEED),
        budget: Budget::Runs(number("WINDLASS_FUZZ_RUNS").unwrap_or_else(|| runs(target))),
        keep: None,
        failures: supervisor::failures(),
    };
    let summary = supervisor::supervise(Path::new(PROGRAM), &job).map_err(|error| format!("{error:#}"))?;
    if summary.accepted == 0 || summary.fingerprints < 3 {
        return Err(format!(
            "seed {}: too few inputs were accepted or differed: {summary:?}",
            job.seed
        )
        .into());
    }
    Ok(())
}

fn is_found(target: &str, report: &str) -> Result<(), Failed> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let job = Job {
        target: target.to_owned(),
        seed: SEED,
        budget: Budget::Runs(100_000),
        keep: None,
        failures: folder.path().to_owned(),
    };
    match supervisor::supervise(Path::new(PROGRAM), &job) {
        Ok(summary) => Err(format!("the planted bug was not found: {summary:?}").into()),
        Err(error) if format!("{error:#}").contains(report) => Ok(()),
        Err(error) => Err(format!("found, but the report does not contain `{report}`: {error:#}").into()),
    }
}
