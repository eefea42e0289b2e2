//! Benchmark cases for Windlass and its rivals. Each measurement runs in its own process, and the contenders take
//! turns.
//!
//! In a single long-running process, Windlass measured up to twice as slow on a busy machine, while the rivals, in
//! fresh processes, did not.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, ensure};

use crate::report::{Report, Unit};

/// The values of one measurement, by name: one line of JSON. A contender omits values that it cannot measure.
pub type Measurements = BTreeMap<String, f64>;

/// A case to measure for several contenders.
pub struct Case {
    /// Title in the table.
    pub title: &'static str,
    /// Name for the contenders' programs.
    pub name: &'static str,
    /// The case's parameter: number of workers, objects or reconciles in flight.
    pub number: usize,
    /// The contenders, ours first.
    pub contenders: &'static [&'static str],
    /// The values to report.
    pub values: &'static [ReportedValue],
}

/// A reported value of a case.
pub struct ReportedValue {
    /// Suffix of the case's title; empty for the main value.
    pub suffix: &'static str,
    /// Key in the measurements.
    pub key: &'static str,
    /// Its unit.
    pub unit: Unit,
}

/// Options of a run, shared by all benchmark programs.
#[derive(Clone, Debug, clap::Args)]
pub struct Plan {
    /// Number of measurements per case; odd, so that there is a median
    #[arg(long, default_value = "5")]
    pub rounds: NonZeroUsize,

    /// Measure only cases whose title contains this text; repeat for alternatives
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
}

impl Plan {
    /// Returns the range of rounds.
    pub fn rounds(&self) -> std::ops::Range<usize> {
        0..self.rounds.get()
    }

    /// Whether to measure a case.
    pub fn includes(&self, title: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| title.contains(&**part))
    }
}

/// Measures all contenders on each case, in turns. `command` creates the process for one measurement of a contender, or
/// `None` to skip the contender.
pub fn compare(
    report: &mut Report,
    plan: &Plan,
    cases: &[Case],
    mut command: impl FnMut(&Case, &str) -> anyhow::Result<Option<Command>>,
) -> anyhow::Result<()> {
    for case in cases.iter().filter(|case| plan.includes(case.title)) {
        let began = Instant::now();
        for _ in plan.rounds() {
            for contender in case.contenders {
                let Some(mut command) = command(case, contender)? else {
                    continue;
                };
                let measurements = run_measurement(&mut command)?;
                for ReportedValue { suffix, key, unit } in case.values {
                    let Some(value) = measurements.get(*key) else {
                        continue;
                    };
                    report.add(&format!("{}{suffix}", case.title), contender, *unit, *value);
                }
            }
        }
        eprintln!(
            "{}: {} ({:.0} s)",
            report.subject,
            case.title,
            began.elapsed().as_secs_f64()
        );
    }
    Ok(())
}

/// Runs a measurement and parses its output.
fn run_measurement(command: &mut Command) -> anyhow::Result<Measurements> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).with_context(|| format!("invalid output of {command:?}"))
}

/// Prints a measurement for the parent process.
pub fn print_measurements(measurements: &Measurements) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(measurements)?);
    Ok(())
}

/// Creates measurements from pairs.
pub fn measurements<const N: usize>(pairs: [(&str, f64); N]) -> Measurements {
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}
