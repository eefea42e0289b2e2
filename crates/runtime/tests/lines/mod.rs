//! The log of a test's thread, where all of its tasks run. Only for binaries whose tests set the log subscriber.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::{io, sync::Arc};

use parking_lot::Mutex;
use tracing::subscriber::DefaultGuard;

#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Records the log until the guard is dropped.
    pub(crate) fn start() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    /// The lines that contain this.
    pub(crate) fn with(&self, words: &str) -> Vec<String> {
        select(&self.0.lock(), words)
    }

    /// Takes the log, and returns the lines of this level.
    pub(crate) fn take(&self, level: &str) -> Vec<String> {
        select(&std::mem::take(&mut *self.0.lock()), level)
    }
}

fn select(log: &[u8], words: &str) -> Vec<String> {
    let text = str::from_utf8(log).expect("text");
    let lines = text.lines().filter(|line| line.contains(words));
    lines.map(str::to_owned).collect()
}
