//! Rounds in which ours and the rivals take turns, and the table that comes of it.

use crate::measure::Measurement;

/// How often each case is measured. Odd, so that there is a median.
const ROUNDS: usize = 5;

/// A contender's name and how it measures itself.
pub(crate) type Contender<'a> = (&'a str, Box<dyn Fn() -> anyhow::Result<Measurement> + 'a>);

/// Measures all contenders on one case, in turns, and prints their lines of the table. The first is ours, and the
/// ratio of each is how many times ours is faster.
pub(crate) fn compare(case: &str, contenders: &[Contender<'_>]) -> anyhow::Result<()> {
    let mut measured = vec![Vec::with_capacity(ROUNDS); contenders.len()];
    for _ in 0..ROUNDS {
        for ((_, measure), measured) in contenders.iter().zip(&mut measured) {
            measured.push(measure()?);
        }
    }
    let ours = median(&measured[0]).nanos;
    for ((name, _), measured) in contenders.iter().zip(&measured) {
        let Measurement { nanos, allocations } = median(measured);
        let least = measured.iter().map(|one| one.nanos).fold(f64::INFINITY, f64::min);
        let most = measured.iter().map(|one| one.nanos).fold(0.0, f64::max);
        println!(
            "| {case:<44} | {name:<18} | {nanos:>9.1} | {:>17} | {:>5.2} | {allocations:>11.3} |",
            format!("{least:.1}–{most:.1}"),
            nanos / ours,
        );
    }
    Ok(())
}

/// The head of the table.
pub(crate) fn print_head() {
    println!(
        "| {:<44} | {:<18} | {:>9} | {:>17} | {:>5} | {:>11} |",
        "case (per operation)", "contender", "median ns", "least–most ns", "ratio", "allocations"
    );
    println!(
        "|{:-<46}|{:-<20}|{:->11}|{:->19}|{:->7}|{:->13}|",
        "", "", ":", ":", ":", ":"
    );
}

/// The measurement with the median time.
fn median(measured: &[Measurement]) -> Measurement {
    let mut sorted = measured.to_vec();
    sorted.sort_unstable_by(|a, b| a.nanos.total_cmp(&b.nanos));
    sorted[sorted.len() / 2]
}
