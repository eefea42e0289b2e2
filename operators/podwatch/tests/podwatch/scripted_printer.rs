//! A scripted printer: it records lines, and can fail, panic or block.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    sync::Arc,
};

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout},
};
use windlass_podwatch::sync::Print;
use windlass_suite::STEP_TIMEOUT;

/// Records lines. Clones share their state.
#[derive(Clone, Default)]
pub(crate) struct ScriptedPrinter(Arc<Inner>);

#[derive(Default)]
struct Inner {
    log: watch::Sender<PrintLog>,
    /// The scripted outcomes of the next lines, by pod name.
    scripts: Mutex<HashMap<String, VecDeque<Attempt>>>,
}

#[derive(Default)]
pub(crate) struct PrintLog {
    /// The printed lines.
    pub(crate) lines: Vec<String>,
    /// The start of each attempt, including failed ones, and its line.
    pub(crate) attempts: Vec<(Instant, String)>,
    /// The pods whose lines are being printed.
    pub(crate) printing: Vec<String>,
    /// Whether two lines of one pod were ever printed concurrently.
    pub(crate) overlapped: bool,
}

/// The scripted outcome of an attempt.
pub(crate) enum Attempt {
    Fail,
    Panic,
    /// Waits until the gate is opened.
    Wait(Gate),
}

#[derive(Clone)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    pub(crate) fn open(&self) {
        self.0.add_permits(1);
    }
}

impl ScriptedPrinter {
    /// Scripts the next attempts for this pod; later ones succeed.
    pub(crate) fn script(&self, pod: &str, acts: impl IntoIterator<Item = Attempt>) {
        self.0
            .scripts
            .lock()
            .entry(pod.to_owned())
            .or_default()
            .extend(acts);
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.log.borrow().lines.clone()
    }

    pub(crate) fn attempts(&self) -> Vec<(Instant, String)> {
        self.0.log.borrow().attempts.clone()
    }

    pub(crate) fn overlapped(&self) -> bool {
        self.0.log.borrow().overlapped
    }

    /// Waits until the condition holds.
    pub(crate) async fn wait(&self, mut holds: impl FnMut(&PrintLog) -> bool) -> anyhow::Result<()> {
        let mut log = self.0.log.subscribe();
        let held = timeout(STEP_TIMEOUT, log.wait_for(|log| holds(log)))
            .await
            .is_ok();
        held.then_some(())
            .with_context(|| format!("timed out; printed so far: {:#?}", self.lines()))
    }

    /// Waits until exactly these lines are printed.
    pub(crate) async fn wait_for_lines(&self, expected: &[&str]) -> anyhow::Result<()> {
        self.wait(|log| log.lines == expected).await
    }
}

/// The name of the pod in a line.
fn pod(line: &str) -> String {
    let line = line.trim_end_matches(" does not exist anymore");
    line.rsplit([' ', '/']).next().unwrap_or_default().to_owned()
}

impl Print for ScriptedPrinter {
    async fn print(&self, line: &str) -> io::Result<()> {
        let pod = pod(line);
        self.0.log.send_modify(|log| {
            log.attempts.push((Instant::now(), line.to_owned()));
            log.printing.push(pod.clone());
            let different: HashSet<_> = log.printing.iter().collect();
            log.overlapped |= different.len() < log.printing.len();
        });
        let act = self.0.scripts.lock().get_mut(&pod).and_then(VecDeque::pop_front);
        let ended = |printed: bool| {
            self.0.log.send_modify(|log| {
                log.printing.retain(|printing| *printing != pod);
                if printed {
                    log.lines.push(line.to_owned());
                }
            });
        };
        match act {
            Some(Attempt::Fail) => {
                ended(false);
                return Err(io::Error::other("scripted failure"));
            }
            Some(Attempt::Panic) => {
                ended(false);
                panic!("scripted panic");
            }
            Some(Attempt::Wait(gate)) => gate.0.acquire().await.expect("never closed").forget(),
            None => {}
        }
        ended(true);
        Ok(())
    }
}
