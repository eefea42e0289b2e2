//! Cases that ours and the rivals are measured on, each measurement in a process of its own, in turns.
//!
//! In one process that ran from start to end, ours measured up to twice as slow on a busy machine, while the rivals, in
//! fresh ones, did not.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, ensure};

use crate::report::{Report, Unit};

/// What one measurement says, by name: one line of JSON. What a contender cannot tell it leaves out.
pub type Figures = BTreeMap<String, f64>;

/// Something to do for several contenders.
pub struct Case {
    /// What it is in the table.
    pub title: &'static str,
    /// What the contenders' programs know it by.
    pub name: &'static str,
    /// Of what it is about: workers, objects, reconciles in flight.
    pub number: usize,
    /// Who does it, ours first.
    pub contenders: &'static [&'static str],
    /// What is told of it.
    pub lines: &'static [Line],
}

/// One of the figures of a case.
pub struct Line {
    /// What stands behind the case's title; nothing for the figure that the case is about.
    pub what: &'static str,
    /// Its name among the figures.
    pub key: &'static str,
    /// What it counts.
    pub unit: Unit,
}

/// How much is measured, as all programs here are told it.
#[derive(Clone, Debug, clap::Args)]
pub struct Plan {
    /// How often each case is measured; an odd number has a median
    #[arg(long, default_value = "5")]
    pub rounds: NonZeroUsize,

    /// Only the cases with this in their titles; several times: with one of these
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
}

impl Plan {
    /// The rounds, from the first one on.
    pub fn rounds(&self) -> std::ops::Range<usize> {
        0..self.rounds.get()
    }

    /// Whether a case is measured.
    pub fn wants(&self, title: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| title.contains(&**part))
    }
}

/// Measures all contenders on each case, in turns. `command` makes the process that measures one of them once; a contender
/// for which there is none is left out.
pub fn compare(
    report: &mut Report,
    plan: &Plan,
    cases: &[Case],
    mut command: impl FnMut(&Case, &str) -> anyhow::Result<Option<Command>>,
) -> anyhow::Result<()> {
    for case in cases.iter().filter(|case| plan.wants(case.title)) {
        let began = Instant::now();
        for _ in plan.rounds() {
            for contender in case.contenders {
                let Some(mut command) = command(case, contender)? else {
                    continue;
                };
                let figures = measured(&mut command)?;
                for Line { what, key, unit } in case.lines {
                    let Some(figure) = figures.get(*key) else { continue };
                    report.add(&format!("{}{what}", case.title), contender, *unit, *figure);
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

/// Runs a measurement and reads what it says.
fn measured(command: &mut Command) -> anyhow::Result<Figures> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).with_context(|| format!("what {command:?} says"))
}

/// Prints what a measurement found, for whoever started this process.
pub fn tell(figures: &Figures) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(figures)?);
    Ok(())
}

/// The figures, from pairs.
pub fn figures<const N: usize>(pairs: [(&str, f64); N]) -> Figures {
    pairs.map(|(name, figure)| (name.to_owned(), figure)).into()
}
