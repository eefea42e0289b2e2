//! A target in a process of its own, so that an input that ends the process is found and named.

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
    laws::STACK_BYTES,
    targets,
};

/// How long one input may take before the worker gives up. Generous: the machine may be busy, and the build unoptimised.
const HANG: Duration = Duration::from_mins(2);

/// How much address space a worker gets.
const MEMORY_KIB: u32 = 4 * 1024 * 1024;

/// The worker found an input that breaks a law; the report is on its standard output.
const BROKEN: i32 = 1;

/// The worker has been running one input for too long.
const HUNG: i32 = 3;

/// Where the corpora are: a folder for each target.
pub fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Where inputs that break a law are put.
pub fn failures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("failures")
}

/// What to do with a target.
#[derive(Clone, Debug)]
pub struct Job {
    /// One of [`targets::NAMES`], or a planted bug.
    pub target: String,
    /// What chance starts from.
    pub seed: u64,
    /// When to stop.
    pub budget: Budget,
    /// Where inputs with new answers are written; nowhere by default.
    pub keep: Option<PathBuf>,
    /// Where an input that breaks a law is written, usually [`failures`].
    pub failures: PathBuf,
}

/// Runs a target in a process of `program`, which is `windlass-fuzz`. An error says which input breaks which law, and how to
/// run it again.
pub fn supervise(program: &Path, job: &Job) -> anyhow::Result<Summary> {
    let folder = tempfile::tempdir()?;
    let current = folder.path().join("current");
    // A shell, for its limit on memory: an input that wants all of it must end the worker, not the machine.
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
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() {
        return serde_json::from_str(said.trim()).with_context(|| format!("the worker said: {said}"));
    }
    let input = fs::read(&current).unwrap_or_default();
    let file = job
        .failures
        .join(format!("{}-{}", job.target, engine::name(&input)));
    fs::create_dir_all(&job.failures)?;
    fs::write(&file, &input)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let what = match output.status.code() {
        Some(BROKEN) => said.into_owned(),
        Some(HUNG) => format!("one input took more than {} s", HANG.as_secs()),
        _ => format!("the process died ({}): {}", output.status, errors.trim()),
    };
    bail!(
        "target `{}`, seed {}: {what}\nthe input is in {}; run it again with: cargo run -p windlass-fuzz -- --replay {}",
        job.target,
        job.seed,
        file.display(),
        file.display()
    )
}

/// The work of the process that [`supervise`] starts: returns its exit code.
pub fn work(name: &str, plan: Plan) -> anyhow::Result<i32> {
    watch_for_hangs();
    let current = plan.current.clone();
    let name = name.to_owned();
    let result = on_a_small_stack(move || {
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
            println!("{:?} is broken: {}", violation.law, violation.detail);
            Ok(BROKEN)
        }
    }
}

/// Runs one input and says what came of it.
pub fn replay(name: &str, input: Vec<u8>) -> anyhow::Result<String> {
    watch_for_hangs();
    let name = name.to_owned();
    on_a_small_stack(move || {
        crate::laws::record_panics();
        let mut target = targets::make(&name)?;
        match engine::execute(&mut *target, &input) {
            Ok(outcome) => Ok(format!("no law is broken: {outcome:?}")),
            Err(violation) => bail!("{:?} is broken: {}", violation.law, violation.detail),
        }
    })
}

fn on_a_small_stack<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let thread = thread::Builder::new()
        .name("fuzz".to_owned())
        .stack_size(STACK_BYTES);
    match thread.spawn(work)?.join() {
        Ok(result) => result,
        Err(_) => bail!(
            "the fuzzer itself panicked: {}",
            crate::laws::take_panic().unwrap_or_default()
        ),
    }
}

fn watch_for_hangs() {
    thread::spawn(|| {
        let mut last = EXECUTIONS.load(Ordering::Relaxed);
        loop {
            thread::sleep(HANG);
            let now = EXECUTIONS.load(Ordering::Relaxed);
            if now == last {
                std::process::exit(HUNG);
            }
            last = now;
        }
    });
}
