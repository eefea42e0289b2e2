//! Captures the process's log for the live view, in a bounded buffer.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

use super::model::DemoEvent;

/// The maximum number of lines between two frames; the oldest are dropped.
const MAX_LINES: usize = 100;

/// A buffer of log lines. Clones share it.
#[derive(Clone, Default)]
pub(super) struct LogBuffer(Arc<Mutex<VecDeque<String>>>);

impl LogBuffer {
    /// Captures the process's log, filtered by `RUST_LOG` or else by this level.
    pub(super) fn capture(&self, level: &str) {
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .without_time()
            .with_writer(self.clone())
            .init();
    }

    /// Takes the lines since the last call.
    pub(super) fn take(&self) -> Vec<DemoEvent> {
        let lines = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let messages = lines.into_iter().map(|line| DemoEvent::Message {
            component: "log".to_owned(),
            topic: line.clone(),
            text: line,
        });
        messages.collect()
    }
}

impl io::Write for LogBuffer {
    /// The subscriber writes a whole line at a time.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == MAX_LINES {
            lines.pop_front();
        }
        lines.push_back(String::from_utf8_lossy(line).trim().to_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogBuffer {
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
    fn buffered_lines_are_bounded() {
        let log_buffer = LogBuffer::default();
        for number in 0..MAX_LINES + 5 {
            writeln!(log_buffer.make_writer(), "line {number}").expect("memory");
        }
        let taken = log_buffer.take();
        // `writeln!` with an argument may write several parts; only the bound matters.
        assert_eq!(taken.len(), MAX_LINES);
        assert!(log_buffer.take().is_empty());
    }
}
