//! What is logged, to be searched: for what must stand in it, or must not.

use std::{
    io::{self, Write},
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;

/// Everything that the process has logged since [`Log::begin`], at the most talkative level and by all cases: a process
/// has one log.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Listens from now on; whoever asks again gets the same log.
    ///
    /// # Panics
    ///
    /// If somebody else has set the process' subscriber of `tracing`.
    pub fn begin() -> Self {
        static LOG: OnceLock<Log> = OnceLock::new();
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

    /// All of it.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
