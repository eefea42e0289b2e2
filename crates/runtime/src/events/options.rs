//! Options of the event recorder and writer.

use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::time::Instant;
use windlass_clock::Clock;

use super::{recorder::Recorder, writer::EventWriter};

/// Rate limits, aggregation and memory limits of a [`Recorder`] and its [`EventWriter`]. The defaults are client-go's.
#[derive(Clone, Debug)]
#[must_use = "call `channel` to create a recorder"]
pub struct RecorderOptions {
    pub(super) burst: u32,
    pub(super) refill: Duration,
    pub(super) budget: Budget,
    pub(super) combine_from: usize,
    pub(super) combine_within: Duration,
    pub(super) max_series: usize,
    pub(super) max_queued: usize,
    pub(super) finish_after: Duration,
    pub(super) refresh_after: Duration,
    pub(super) flush_timeout: Duration,
    pub(super) clock: Clock,
}

/// Which events share one rate limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Budget {
    /// All events of one source, one type (normal or warning) and one object. The default.
    #[default]
    PerObject,
    /// The same, separately for each reason: for sources whose reasons must not starve each other.
    PerReason,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self {
            burst: 25,
            refill: Duration::from_mins(5),
            budget: Budget::PerObject,
            combine_from: 10,
            combine_within: Duration::from_mins(10),
            max_series: 4096,
            max_queued: 1000,
            finish_after: Duration::from_mins(6),
            refresh_after: Duration::from_mins(30),
            flush_timeout: Duration::from_secs(5),
            clock: Clock::system(),
        }
    }
}

impl RecorderOptions {
    /// Burst of requests that one [`Budget`] allows, and the time after which it allows one more; at most a year. Default:
    /// 25, 5 minutes.
    pub fn burst(mut self, burst: u32, refill: Duration) -> Self {
        // A year for each of 2³² requests still fits into an `Instant`.
        (self.burst, self.refill) = (burst, refill.min(Duration::from_hours(365 * 24)));
        self
    }

    /// Which events share one rate limit. Default: [`Budget::PerObject`].
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Aggregates messages with one reason about one object into one event, from the given number of different messages on.
    /// Resets after the given time without such a message. Default: 10, 10 minutes.
    pub fn combine(mut self, from: usize, within: Duration) -> Self {
        (self.combine_from, self.combine_within) = (from, within);
        self
    }

    /// Maximum number of series kept in memory; the least recently used is evicted. Default: 4096.
    pub fn max_series(mut self, series: usize) -> Self {
        self.max_series = series;
        self
    }

    /// Maximum number of series that wait to be written, including retries. Default: 1000.
    pub fn max_queued(mut self, series: usize) -> Self {
        self.max_queued = series;
        self
    }

    /// How long the writer may take on stop to write pending events. Default: 5 seconds.
    pub fn flush_timeout(mut self, limit: Duration) -> Self {
        self.flush_timeout = limit;
        self
    }

    /// Sets the clock of the timestamps. Default: [`Clock::system`].
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Returns a recorder and its writer; see [`channel`](super::channel).
    pub fn channel(self, client: Client, source: impl Into<String>) -> (Recorder, EventWriter) {
        let flush_within = self.flush_timeout;
        let recorder = Recorder::new(self, &source.into());
        let writer = EventWriter::new(client, Arc::clone(recorder.shared()), flush_within);
        (recorder, writer)
    }
}

/// One moment on two clocks: the monotonic one for waits, and the wall clock for timestamps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) instant: Instant,
    pub(super) time: Timestamp,
}

impl Moment {
    pub(super) fn now(clock: Clock) -> Self {
        Self {
            instant: Instant::now(),
            time: clock.precise_now(),
        }
    }
}
