//! The fuzzing loop: replays the corpus, then mutates known inputs until the budget is spent or an invariant is
//! violated.

use std::{
    collections::HashSet,
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::{
    invariants::{self, Invariant, Violation},
    mutate,
};

/// The largest generated input. The server's own limit is 3 MiB; superlinear growth shows long before that.
const MAX_INPUT: usize = 64 * 1024;

/// How deep values are nested: a little deeper than kube-apiserver accepts.
const MAX_NESTING: usize = 10_500;

/// How many inputs are kept in memory for mutation.
const MAX_POPULATION: usize = 8_192;

/// Up to this many seeds are all run unchanged; of more, only a random selection is.
const FEW_SEEDS: usize = 100;

/// How many attempts are made to shorten an input that violates an invariant.
const MAX_SHORTEN_ATTEMPTS: usize = 400;

/// Executions since the start, for the watchdog.
pub static EXECUTIONS: AtomicU64 = AtomicU64::new(0);

/// A parser of untrusted bytes.
pub trait Target {
    /// Returns the inputs that mutation starts from: valid ones, and some that are known to be rejected.
    fn seeds(&mut self) -> Vec<Vec<u8>>;

    /// Mutates an input, possibly with parts of `donor`.
    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        mutate::bytes::mutate(input, donor, rng)
    }

    /// Parses the input and checks the invariants.
    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation>;
}

/// Result of an input that violates no invariant.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Whether the input was accepted; what it stored was then read back.
    pub accepted: bool,
    /// The response without names and numbers. An input with a new fingerprint is kept and mutated further.
    pub fingerprint: String,
    /// Bytes allocated while the input was parsed.
    pub allocated: usize,
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub enum Budget {
    /// After this number of executions, not counting the corpus.
    Runs(u64),
    /// After this time.
    Time(Duration),
}

/// Options for running a target.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of the random generator: the same seed and number of runs give the same inputs.
    pub seed: u64,
    /// When to stop.
    pub budget: Budget,
    /// Files that are replayed first, in the order of their names.
    pub corpus: PathBuf,
    /// File to which each input is written before it runs, so that an input that kills the process is known.
    pub current: PathBuf,
    /// Folder for inputs with new fingerprints; they are not written by default.
    pub keep: Option<PathBuf>,
}

/// Statistics of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// How many files of the corpus were replayed.
    pub corpus: u64,
    /// How many inputs were run, the corpus included.
    pub executions: u64,
    /// How many of them were accepted, and then read back.
    pub accepted: u64,
    /// Number of different fingerprints.
    pub fingerprints: u64,
    /// The most bytes allocated per byte of input, for inputs of at least 4 KiB.
    pub worst_bytes_per_byte: u64,
    /// The most bytes allocated for a shorter input.
    pub worst_bytes: u64,
    /// Time spent, in seconds.
    pub seconds: f64,
}

/// An input that violates an invariant.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The input, shortened.
    pub input: Vec<u8>,
    /// The violation.
    pub violation: Violation,
}

/// Runs a target. `Ok(Err(_))` is an input that violates an invariant.
pub fn run(target: &mut dyn Target, plan: &Plan) -> io::Result<Result<Summary, Failure>> {
    invariants::record_panics();
    let mut run = Run {
        target,
        current: &plan.current,
        summary: Summary::default(),
        fingerprints: HashSet::new(),
        started: Instant::now(),
    };
    let mut population = run.target.seeds();
    for (_, input) in read_files(&plan.corpus)? {
        run.summary.corpus += 1;
        if let Err(failure) = run.run_input(&input)? {
            return Ok(Err(failure));
        }
        population.push(input);
    }
    if population.len() <= FEW_SEEDS {
        for seed in population.clone() {
            if let Err(failure) = run.run_input(&seed)? {
                return Ok(Err(failure));
            }
        }
    }
    let known = population.len();
    let mut rng = Rng::with_seed(plan.seed);
    let mut runs = 0;
    while match plan.budget {
        Budget::Runs(budget) => runs < budget,
        Budget::Time(budget) => run.started.elapsed() < budget,
    } {
        runs += 1;
        let Some(input) = next_input(run.target, &population, known, &mut rng) else {
            continue;
        };
        match run.run_input(&input)? {
            Err(failure) => return Ok(Err(failure)),
            Ok(false) => {}
            Ok(true) => {
                if let Some(folder) = &plan.keep {
                    fs::create_dir_all(folder)?;
                    fs::write(folder.join(file_name(&input)), &input)?;
                }
                if population.len() < MAX_POPULATION {
                    population.push(input);
                }
            }
        }
    }
    run.summary.fingerprints = run.fingerprints.len() as u64;
    run.summary.seconds = run.started.elapsed().as_secs_f64();
    Ok(Ok(run.summary))
}

/// Returns a file name for this input, derived from its bytes.
pub fn file_name(input: &[u8]) -> String {
    // FNV-1a is enough for a file name.
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Returns a folder's files, sorted by name; empty if the folder does not exist.
pub fn read_files(folder: &Path) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut paths = match fs::read_dir(folder) {
        Ok(entries) => entries
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<Vec<_>>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    paths.sort();
    paths
        .into_iter()
        .map(|path| fs::read(&path).map(|bytes| (path, bytes)))
        .collect()
}

/// Picks a known input and usually mutates it. Returns `None` if the result is too large.
fn next_input(target: &dyn Target, population: &[Vec<u8>], known: usize, rng: &mut Rng) -> Option<Vec<u8>> {
    // Half of the picks are inputs found in this run, however few there are.
    let pick = |rng: &mut Rng| {
        if population.len() > known && rng.bool() {
            rng.usize(known..population.len())
        } else {
            rng.usize(..known.max(1))
        }
    };
    let mut input = population.get(pick(rng))?.clone();
    // One in sixteen runs unchanged: the invariants hold for recorded inputs too.
    if rng.u8(..16) > 0 {
        for _ in 0..=rng.usize(..3) {
            let donor = population.get(pick(rng))?;
            input = target.mutate(&input, donor, rng);
        }
    }
    if rng.u8(..32) == 0 {
        input = mutate::bytes::deepen(&input, MAX_NESTING, rng);
    }
    (input.len() <= MAX_INPUT).then_some(input)
}

struct Run<'a> {
    target: &'a mut dyn Target,
    current: &'a Path,
    summary: Summary,
    fingerprints: HashSet<String>,
    started: Instant,
}

impl Run<'_> {
    /// Runs an input and returns whether its fingerprint is new.
    fn run_input(&mut self, input: &[u8]) -> io::Result<Result<bool, Failure>> {
        fs::write(self.current, input)?;
        self.summary.executions += 1;
        match execute(self.target, input) {
            Ok(outcome) => {
                self.summary.accepted += u64::from(outcome.accepted);
                if input.len() >= 4096 {
                    let per_byte = (outcome.allocated / input.len()) as u64;
                    self.summary.worst_bytes_per_byte = self.summary.worst_bytes_per_byte.max(per_byte);
                } else {
                    self.summary.worst_bytes = self.summary.worst_bytes.max(outcome.allocated as u64);
                }
                Ok(Ok(self.fingerprints.insert(outcome.fingerprint)))
            }
            Err(violation) => {
                let (input, violation) = shorten(self.target, input.to_vec(), violation, self.current)?;
                Ok(Err(Failure { input, violation }))
            }
        }
    }
}

/// Runs one input; an uncaught panic is a violation too.
pub fn execute(target: &mut dyn Target, input: &[u8]) -> Result<Outcome, Violation> {
    EXECUTIONS.fetch_add(1, Ordering::Relaxed);
    invariants::take_panic();
    let outcome = catch_unwind(AssertUnwindSafe(|| target.run(input)));
    if let Some(panic) = invariants::take_panic() {
        return Err(Invariant::NoPanic.violated(panic));
    }
    outcome.unwrap_or_else(|_| Err(Invariant::NoPanic.violated("a panic without a message")))
}

/// Removes parts of an input as long as it violates the same invariant.
fn shorten(
    target: &mut dyn Target,
    mut input: Vec<u8>,
    mut violation: Violation,
    current: &Path,
) -> io::Result<(Vec<u8>, Violation)> {
    let mut attempts = 0;
    let mut piece = (input.len() / 2).max(1);
    while attempts < MAX_SHORTEN_ATTEMPTS && !input.is_empty() {
        let mut start = 0;
        let before = input.len();
        while start < input.len() && attempts < MAX_SHORTEN_ATTEMPTS {
            attempts += 1;
            let end = (start + piece).min(input.len());
            let shorter = [&input[..start], &input[end..]].concat();
            fs::write(current, &shorter)?;
            match execute(target, &shorter) {
                Err(same) if same.invariant == violation.invariant => {
                    input = shorter;
                    violation = same;
                }
                _ => start = end,
            }
        }
        if piece == 1 && input.len() == before {
            break;
        }
        piece = (piece / 2).max(1);
    }
    Ok((input, violation))
}
