//! The keys that workers are processing. Each run has a number that stays the same when slots move.

use tokio::time::Instant;

use crate::list::NONE;

#[derive(Default)]
pub(crate) struct Runs {
    runs: Vec<Run>,
    free: Vec<u32>,
}

struct Run {
    /// `NONE` if this number is free.
    slot: u32,
    /// Set only if there are metrics.
    started: Option<Instant>,
}

impl Runs {
    #[inline]
    pub(crate) fn start(&mut self, slot: u32, started: Option<Instant>) -> u32 {
        let run = Run { slot, started };
        if let Some(free) = self.free.pop() {
            self.runs[free as usize] = run;
            return free;
        }
        self.runs.push(run);
        u32::try_from(self.runs.len() - 1).expect("each run has its own slot, and slots are numbered by u32")
    }

    /// Ends a run; returns its slot and when it started.
    #[inline]
    pub(crate) fn end(&mut self, run: u32) -> (u32, Option<Instant>) {
        let ended = &mut self.runs[run as usize];
        self.free.push(run);
        (std::mem::replace(&mut ended.slot, NONE), ended.started.take())
    }

    pub(crate) fn slot(&self, run: u32) -> u32 {
        self.runs[run as usize].slot
    }

    pub(crate) fn renumber(&mut self, run: u32, slot: u32) {
        self.runs[run as usize].slot = slot;
    }

    pub(crate) fn len(&self) -> usize {
        self.runs.len() - self.free.len()
    }

    pub(crate) fn started(&self) -> impl Iterator<Item = Instant> {
        self.runs.iter().filter_map(|run| run.started)
    }
}
