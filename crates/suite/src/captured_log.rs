//! Captures the log of the process, for tests that search it.

use std::{
    io::{self, Write},
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;

/// The log of the process since [`CapturedLog::start`], at trace level. All cases share it.
#[derive(Clone, Debug, Default)]
pub struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl CapturedLog {
    /// Starts to capture; later calls return the same log.
    ///
    /// # Panics
    ///
    /// If the process has another global `tracing` subscriber.
    pub fn start() -> Self {
        static LOG: OnceLock<CapturedLog> = OnceLock::new();
        let log = LOG.get_or_init(|| {
            let log = Self::default();
            let writer = log.clone();
            tracing_subscriber::fmt()
                .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
                .with_ansi(false)
                .with_writer(move || writer.clone())
                .init();
            log
        });
        log.clone()
    }

    /// Returns the log so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

impl Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
