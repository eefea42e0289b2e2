//! Log lines about a server that cannot be reached: one when it starts, then at growing intervals, and one when it ends.
//!
//! Many requests fail when a server is away, each of them again and again. All of them report here, and none logs on its
//! own.

use std::{
    error::Error,
    fmt, io,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::watch_error::with_sources;

/// The time from the first line to the second; doubles with each line.
pub(crate) const FIRST_INTERVAL: Duration = Duration::from_secs(10);
pub(crate) const MAX_INTERVAL: Duration = Duration::from_mins(5);

/// Logs the state of the connection to one server; shared by everything that sends requests to it.
///
/// ```text
/// WARN cannot reach the API server server="https://10.0.0.1:6443" error="…: Connection refused" retry_after=0.8
/// WARN still cannot reach the API server server=… error=… retry_after=12.3 failures=31 seconds=10
/// INFO reached the API server again server=… failures=52 seconds=47
/// ```
#[derive(Debug, Default)]
pub struct ConnectionLog {
    server: Option<String>,
    /// Whether there is an outage. Read by every request, without the lock.
    is_down: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// `None` if the server is in reach.
    outage: Option<Outage>,
    /// When the next failure is logged, and the interval after that. Kept after a success, so that a connection that comes
    /// and goes is not logged each time.
    next_line: Option<(Instant, Duration)>,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    failures: u64,
    is_logged: bool,
}

impl ConnectionLog {
    /// Creates the log of a server. `server` is its URL, for the log lines.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: Some(server.into()),
            ..Self::default()
        }
    }

    /// Reports a request that got no response, and the time after which it is sent again, if that is known.
    pub fn failed(&self, error: &str, retry_after: Option<Duration>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        self.is_down.store(true, Ordering::Relaxed);
        let (due, interval) = match state.next_line {
            // A long time after the last outage, the next one is a new one.
            Some((due, _)) if now.saturating_duration_since(due) > MAX_INTERVAL => (now, FIRST_INTERVAL),
            Some(next) => next,
            None => (now, FIRST_INTERVAL),
        };
        let outage = state.outage.get_or_insert(Outage {
            since: now,
            failures: 0,
            is_logged: false,
        });
        outage.failures += 1;
        if now < due {
            tracing::debug!(server = self.server, error, "cannot reach the API server");
            return;
        }
        let was_logged = std::mem::replace(&mut outage.is_logged, true);
        let (failures, seconds) = (outage.failures, outage.since.elapsed().as_secs());
        state.next_line = Some((now + interval, (interval * 2).min(MAX_INTERVAL)));
        let server = self.server.as_deref();
        // In milliseconds: more digits are noise.
        let retry_after = retry_after.map(|delay| (delay.as_secs_f64() * 1000.0).round() / 1000.0);
        if was_logged {
            tracing::warn!(
                server,
                error,
                retry_after,
                failures,
                seconds,
                "still cannot reach the API server"
            );
        } else {
            tracing::warn!(server, error, retry_after, "cannot reach the API server");
        }
    }

    /// Reports a response of the server, whatever it says.
    pub fn succeeded(&self) {
        if !self.is_down.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        self.is_down.store(false, Ordering::Relaxed);
        if let Some(outage) = state.outage.take().filter(|outage| outage.is_logged) {
            let (failures, seconds) = (outage.failures, outage.since.elapsed().as_secs());
            tracing::info!(
                server = self.server,
                failures,
                seconds,
                "reached the API server again"
            );
        }
    }

    /// Like [`failed`](Self::failed) for an error of a client. Returns false, and does nothing, if it is not about the
    /// connection.
    pub fn record(&self, error: &(dyn Error + 'static), retry_after: Option<Duration>) -> bool {
        let is_connection_error = is_connection_error(error);
        if is_connection_error {
            self.failed(&with_sources(error), retry_after);
        }
        is_connection_error
    }
}

impl fmt::Display for ConnectionLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.server.as_deref().unwrap_or("the API server"))
    }
}

/// Whether a request got no response because of its connection. Who sent it need not log that: [`ConnectionLog`] does.
pub fn is_connection_error(error: &(dyn Error + 'static)) -> bool {
    let mut sources = std::iter::successors(Some(error), |&error| error.source());
    sources.any(|error| error.is::<io::Error>() || error.is::<hyper::Error>())
}
