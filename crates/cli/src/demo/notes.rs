//! The process's own log while a screen is in its way: lines are kept for the screen's log, at most so many at a time.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

use super::model::Happening;

/// Lines that wait for the next frame; of more the oldest are dropped.
const WAITING: usize = 100;

/// Where log lines wait. Clones are the same place.
#[derive(Clone, Default)]
pub(super) struct Notes(Arc<Mutex<VecDeque<String>>>);

impl Notes {
    /// Takes the whole process's log: what `RUST_LOG` lets through, or what is from this level on.
    pub(super) fn log(&self, level: &str) {
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .without_time()
            .with_writer(self.clone())
            .init();
    }

    /// All that came since the last call.
    pub(super) fn take(&self) -> Vec<Happening> {
        let lines = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let said = lines.into_iter().map(|line| Happening::Said {
            who: "log".to_owned(),
            topic: line.clone(),
            text: line,
        });
        said.collect()
    }
}

impl io::Write for Notes {
    /// The subscriber writes a whole line at a time.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == WAITING {
            lines.pop_front();
        }
        lines.push_back(String::from_utf8_lossy(line).trim().to_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Notes {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn lines_wait_for_the_screen_and_are_bounded() {
        let notes = Notes::default();
        for number in 0..WAITING + 5 {
            writeln!(notes.make_writer(), "line {number}").expect("memory");
        }
        let taken = notes.take();
        // `writeln!` with an argument writes its parts one by one; what counts is the bound.
        assert_eq!(taken.len(), WAITING);
        assert!(notes.take().is_empty());
    }
}
