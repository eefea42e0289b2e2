//! The loop: replays the corpus, then mutates what is known, until the budget is spent or a law is broken.

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
    laws::{self, Law, Violation},
    mutate,
};

/// The largest input that is generated. The server's own limit is 3 MiB; growth shows long before that.
const MAX_INPUT: usize = 64 * 1024;

/// How deep a value is made to nest: a little deeper than kube-apiserver takes it.
const DEEPEST: usize = 10_500;

/// How many inputs are kept in memory for mutation.
const MAX_POPULATION: usize = 8_192;

/// So many seeds are all run as they are; of more, chance takes some.
const FEW_SEEDS: usize = 100;

/// How many attempts are made to shorten an input that breaks a law.
const SHORTENINGS: usize = 400;

/// Executions since the start, for the watchdog.
pub static EXECUTIONS: AtomicU64 = AtomicU64::new(0);

/// A reader of bytes from outside.
pub trait Target {
    /// Valid inputs, and inputs that are known to be refused: what mutation starts from.
    fn seeds(&mut self) -> Vec<Vec<u8>>;

    /// Another input, made from one and perhaps parts of a second one.
    fn mutate(&self, input: &[u8], donor: &[u8], rng: &mut Rng) -> Vec<u8> {
        mutate::bytes::mutate(input, donor, rng)
    }

    /// Reads the input and checks the laws.
    fn run(&mut self, input: &[u8]) -> Result<Outcome, Violation>;
}

/// How an input was answered.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Whether it was accepted, so that it had to be readable again.
    pub accepted: bool,
    /// The answer without names and numbers: an input whose answer is new is kept and mutated.
    pub answer: String,
    /// The bytes that were allocated while it was read.
    pub allocated: usize,
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub enum Budget {
    /// After so many executions besides the corpus.
    Runs(u64),
    /// After this time.
    Time(Duration),
}

/// How to run a target.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What chance starts from: the same seed and the same budget of runs give the same inputs.
    pub seed: u64,
    /// When to stop.
    pub budget: Budget,
    /// Files that are replayed first, in the order of their names.
    pub corpus: PathBuf,
    /// Where each input is written before it is run, so that it is known if it ends the process.
    pub current: PathBuf,
    /// Where inputs with new answers are written; nowhere by default.
    pub keep: Option<PathBuf>,
}

/// What a run did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// How many files of the corpus were replayed.
    pub corpus: u64,
    /// How many inputs were run, the corpus included.
    pub executions: u64,
    /// How many of them were accepted, and then read again.
    pub accepted: u64,
    /// How many different answers there were.
    pub answers: u64,
    /// The most bytes that an input made the process allocate for each of its bytes, among inputs of at least 4 KiB.
    pub worst_bytes_per_byte: u64,
    /// The most bytes that a shorter input made the process allocate.
    pub worst_bytes: u64,
    /// Time spent, in seconds.
    pub seconds: f64,
}

/// An input that breaks a law.
#[derive(Clone, Debug)]
pub struct Failure {
    /// As short as it could be made.
    pub input: Vec<u8>,
    /// What it breaks.
    pub violation: Violation,
}

/// Runs a target; `Ok(Err(_))` is an input that breaks a law.
pub fn run(target: &mut dyn Target, plan: &Plan) -> io::Result<Result<Summary, Failure>> {
    laws::record_panics();
    let mut run = Run {
        target,
        current: &plan.current,
        summary: Summary::default(),
        answers: HashSet::new(),
        started: Instant::now(),
    };
    let mut population = run.target.seeds();
    for (_, input) in files(&plan.corpus)? {
        run.summary.corpus += 1;
        if let Err(failure) = run.once(&input)? {
            return Ok(Err(failure));
        }
        population.push(input);
    }
    if population.len() <= FEW_SEEDS {
        for seed in population.clone() {
            if let Err(failure) = run.once(&seed)? {
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
        let Some(input) = next(run.target, &population, known, &mut rng) else {
            continue;
        };
        match run.once(&input)? {
            Err(failure) => return Ok(Err(failure)),
            Ok(false) => {}
            Ok(true) => {
                if let Some(folder) = &plan.keep {
                    fs::create_dir_all(folder)?;
                    fs::write(folder.join(name(&input)), &input)?;
                }
                if population.len() < MAX_POPULATION {
                    population.push(input);
                }
            }
        }
    }
    run.summary.answers = run.answers.len() as u64;
    run.summary.seconds = run.started.elapsed().as_secs_f64();
    Ok(Ok(run.summary))
}

/// A name for a file that holds this input: the same bytes have the same name.
pub fn name(input: &[u8]) -> String {
    // FNV-1a: nothing depends on it but the name.
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// The files of a folder by name; none if there is no such folder.
pub fn files(folder: &Path) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
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

/// An input that is known, or made from what is known. `None` if what came of it is too large.
fn next(target: &dyn Target, population: &[Vec<u8>], known: usize, rng: &mut Rng) -> Option<Vec<u8>> {
    // Inputs that were found come as often as those that were there, however few they are.
    let pick = |rng: &mut Rng| {
        if population.len() > known && rng.bool() {
            rng.usize(known..population.len())
        } else {
            rng.usize(..known.max(1))
        }
    };
    let mut input = population.get(pick(rng))?.clone();
    // One in sixteen is run as it is: recorded inputs have laws to keep too.
    if rng.u8(..16) > 0 {
        for _ in 0..=rng.usize(..3) {
            let donor = population.get(pick(rng))?;
            input = target.mutate(&input, donor, rng);
        }
    }
    if rng.u8(..32) == 0 {
        input = mutate::bytes::deepen(&input, DEEPEST, rng);
    }
    (input.len() <= MAX_INPUT).then_some(input)
}

struct Run<'a> {
    target: &'a mut dyn Target,
    current: &'a Path,
    summary: Summary,
    answers: HashSet<String>,
    started: Instant,
}

impl Run<'_> {
    /// Whether the input's answer is new.
    fn once(&mut self, input: &[u8]) -> io::Result<Result<bool, Failure>> {
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
                Ok(Ok(self.answers.insert(outcome.answer)))
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
    laws::take_panic();
    let outcome = catch_unwind(AssertUnwindSafe(|| target.run(input)));
    if let Some(panic) = laws::take_panic() {
        return Err(Law::NoPanic.broken(panic));
    }
    outcome.unwrap_or_else(|_| Err(Law::NoPanic.broken("a panic without a message")))
}

/// Cuts pieces out of an input as long as it breaks the same law.
fn shorten(
    target: &mut dyn Target,
    mut input: Vec<u8>,
    mut violation: Violation,
    current: &Path,
) -> io::Result<(Vec<u8>, Violation)> {
    let mut attempts = 0;
    let mut piece = (input.len() / 2).max(1);
    while attempts < SHORTENINGS && !input.is_empty() {
        let mut start = 0;
        let before = input.len();
        while start < input.len() && attempts < SHORTENINGS {
            attempts += 1;
            let end = (start + piece).min(input.len());
            let shorter = [&input[..start], &input[end..]].concat();
            fs::write(current, &shorter)?;
            match execute(target, &shorter) {
                Err(same) if same.law == violation.law => {
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
