//! Runs a target in its own process, so that an input that kills the process is identified.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::Ordering,
    thread,
    time::Duration,
};

use anyhow::{Context, bail};

use crate::{
    engine::{self, Budget, EXECUTIONS, Failure, Plan, Summary},
    invariants::STACK_BYTES,
    targets,
};

/// How long one input may take before the worker exits. Generous for busy machines and unoptimised builds.
const INPUT_TIMEOUT: Duration = Duration::from_mins(2);

/// Limit of a worker's address space.
const MEMORY_KIB: u32 = 4 * 1024 * 1024;

/// Exit code: an input violates an invariant; the report is on standard output.
const EXIT_VIOLATION: i32 = 1;

/// Exit code: one input took too long.
const EXIT_HUNG: i32 = 3;

/// Returns the folder of the corpora, with a subfolder for each target.
pub fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Returns the folder for inputs that violate an invariant.
pub fn failures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("failures")
}

/// A target to run, with its options.
#[derive(Clone, Debug)]
pub struct Job {
    /// One of [`targets::NAMES`], or a planted bug.
    pub target: String,
    /// Seed of the random generator.
    pub seed: u64,
    /// When to stop.
    pub budget: Budget,
    /// Folder for inputs with new fingerprints; they are not written by default.
    pub keep: Option<PathBuf>,
    /// Folder for an input that violates an invariant, usually [`failures`].
    pub failures: PathBuf,
}

/// Runs a target in a process of `program`, which is `windlass-fuzz`. The error names the input, the invariant it
/// violates, and the command to replay it.
pub fn supervise(program: &Path, job: &Job) -> anyhow::Result<Summary> {
    let folder = tempfile::tempdir()?;
    let current = folder.path().join("current");
    // The shell sets a memory limit: an input that exhausts memory must kill the worker, not the machine.
    let mut command = Command::new("sh");
    let limited = format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"");
    command.arg("-c").arg(limited).arg(program);
    command.args(["--worker", &job.target, "--seed", &job.seed.to_string()]);
    command.arg("--current").arg(&current);
    match job.budget {
        Budget::Runs(runs) => command.args(["--runs", &runs.to_string()]),
        Budget::Time(time) => command.args(["--seconds", &time.as_secs().to_string()]),
    };
    if let Some(keep) = &job.keep {
        command.arg("--keep").arg(keep.join(&job.target));
    }
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("cannot start the worker")?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return serde_json::from_str(stdout.trim())
            .with_context(|| format!("unexpected output of the worker: {stdout}"));
    }
    let input = fs::read(&current).unwrap_or_default();
    let file = job
        .failures
        .join(format!("{}-{}", job.target, engine::file_name(&input)));
    fs::create_dir_all(&job.failures)?;
    fs::write(&file, &input)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let what = match output.status.code() {
        Some(EXIT_VIOLATION) => stdout.into_owned(),
        Some(EXIT_HUNG) => format!("one input took more than {} s", INPUT_TIMEOUT.as_secs()),
        _ => format!("the process died ({}): {}", output.status, errors.trim()),
    };
    bail!(
        "target `{}`, seed {}: {what}\nthe input is in {}; replay it with: cargo run -p windlass-fuzz -- --replay {}",
        job.target,
        job.seed,
        file.display(),
        file.display()
    )
}

/// Runs a target inside the process that [`supervise`] starts. Returns its exit code.
pub fn run_worker(name: &str, plan: Plan) -> anyhow::Result<i32> {
    watch_for_hangs();
    let current = plan.current.clone();
    let name = name.to_owned();
    let result = with_small_stack(move || {
        let mut target = targets::make(&name)?;
        anyhow::Ok(engine::run(&mut *target, &plan)?)
    })?;
    match result {
        Ok(summary) => {
            println!("{}", serde_json::to_string(&summary)?);
            Ok(0)
        }
        Err(Failure { input, violation }) => {
            fs::write(current, &input)?;
            println!("{:?} is violated: {}", violation.invariant, violation.detail);
            Ok(EXIT_VIOLATION)
        }
    }
}

/// Runs one input and describes the outcome.
pub fn replay(name: &str, input: Vec<u8>) -> anyhow::Result<String> {
    watch_for_hangs();
    let name = name.to_owned();
    with_small_stack(move || {
        crate::invariants::record_panics();
        let mut target = targets::make(&name)?;
        match engine::execute(&mut *target, &input) {
            Ok(outcome) => Ok(format!("no invariant is violated: {outcome:?}")),
            Err(violation) => bail!("{:?} is violated: {}", violation.invariant, violation.detail),
        }
    })
}

fn with_small_stack<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let thread = thread::Builder::new()
        .name("fuzz".to_owned())
        .stack_size(STACK_BYTES);
    match thread.spawn(work)?.join() {
        Ok(result) => result,
        Err(_) => bail!(
            "the fuzzer itself panicked: {}",
            crate::invariants::take_panic().unwrap_or_default()
        ),
    }
}

fn watch_for_hangs() {
    thread::spawn(|| {
        let mut last = EXECUTIONS.load(Ordering::Relaxed);
        loop {
            thread::sleep(INPUT_TIMEOUT);
            let now = EXECUTIONS.load(Ordering::Relaxed);
            if now == last {
                std::process::exit(EXIT_HUNG);
            }
            last = now;
        }
    });
}
