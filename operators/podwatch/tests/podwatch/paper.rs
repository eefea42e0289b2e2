//! What is printed, in the hands of a test: it can fail, panic, or make the printer wait.

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
use windlass_suite::DEADLINE;

/// Takes lines. Clones are the same paper.
#[derive(Clone, Default)]
pub(crate) struct Paper(Arc<Inner>);

#[derive(Default)]
struct Inner {
    sheet: watch::Sender<Sheet>,
    /// What happens next to lines about a pod of this name.
    plans: Mutex<HashMap<String, VecDeque<Act>>>,
}

#[derive(Default)]
pub(crate) struct Sheet {
    /// What was printed.
    pub(crate) lines: Vec<String>,
    /// When each attempt began, also of those that failed.
    pub(crate) attempts: Vec<(Instant, String)>,
    /// About whom a line is being printed now.
    pub(crate) printing: Vec<String>,
    /// Whether two lines were ever about the same pod at the same time.
    pub(crate) clashed: bool,
}

/// What happens to an attempt.
pub(crate) enum Act {
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

impl Paper {
    /// What happens to the next attempts to print about this pod; those after them work.
    pub(crate) fn plan(&self, pod: &str, acts: impl IntoIterator<Item = Act>) {
        self.0
            .plans
            .lock()
            .entry(pod.to_owned())
            .or_default()
            .extend(acts);
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.sheet.borrow().lines.clone()
    }

    pub(crate) fn attempts(&self) -> Vec<(Instant, String)> {
        self.0.sheet.borrow().attempts.clone()
    }

    pub(crate) fn clashed(&self) -> bool {
        self.0.sheet.borrow().clashed
    }

    /// Waits until this holds.
    pub(crate) async fn wait(&self, mut holds: impl FnMut(&Sheet) -> bool) -> anyhow::Result<()> {
        let mut sheet = self.0.sheet.subscribe();
        let held = timeout(DEADLINE, sheet.wait_for(|sheet| holds(sheet)))
            .await
            .is_ok();
        held.then_some(())
            .with_context(|| format!("it never came so far: {:#?}", self.lines()))
    }

    /// Waits until exactly these lines were printed.
    pub(crate) async fn reads(&self, expected: &[&str]) -> anyhow::Result<()> {
        self.wait(|sheet| sheet.lines == expected).await
    }
}

/// About whom a line is.
fn pod(line: &str) -> String {
    let line = line.trim_end_matches(" does not exist anymore");
    line.rsplit([' ', '/']).next().unwrap_or_default().to_owned()
}

impl Print for Paper {
    async fn print(&self, line: &str) -> io::Result<()> {
        let pod = pod(line);
        self.0.sheet.send_modify(|sheet| {
            sheet.attempts.push((Instant::now(), line.to_owned()));
            sheet.printing.push(pod.clone());
            let different: HashSet<_> = sheet.printing.iter().collect();
            sheet.clashed |= different.len() < sheet.printing.len();
        });
        let act = self.0.plans.lock().get_mut(&pod).and_then(VecDeque::pop_front);
        let ended = |printed: bool| {
            self.0.sheet.send_modify(|sheet| {
                sheet.printing.retain(|printing| *printing != pod);
                if printed {
                    sheet.lines.push(line.to_owned());
                }
            });
        };
        match act {
            Some(Act::Fail) => {
                ended(false);
                return Err(io::Error::other("the paper is out"));
            }
            Some(Act::Panic) => {
                ended(false);
                panic!("the paper is on fire");
            }
            Some(Act::Wait(gate)) => gate.0.acquire().await.expect("nobody closes it").forget(),
            None => {}
        }
        ended(true);
        Ok(())
    }
}
