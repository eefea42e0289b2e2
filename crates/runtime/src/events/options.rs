//! How much is said, and how patiently.

use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tokio::time::Instant;

use super::{recorder::Recorder, writer::Writer};

/// How much a [`Recorder`] says and how patient its [`Writer`] is. The defaults are client-go's and fit most.
#[derive(Clone, Debug)]
#[must_use = "nothing is recorded before `channel`"]
pub struct Options {
    pub(super) burst: u32,
    pub(super) refill: Duration,
    pub(super) budget: Budget,
    pub(super) combine_from: usize,
    pub(super) combine_within: Duration,
    pub(super) remembered: usize,
    pub(super) queued: usize,
    pub(super) finish_after: Duration,
    pub(super) refresh_after: Duration,
    pub(super) flush_within: Duration,
    epoch: Option<Timestamp>,
}

/// What shares one allowance of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Budget {
    /// All that one source says of one type (normal or warning) about one object; the default.
    #[default]
    PerObject,
    /// The same, apart for each reason: for sources with a few reasons that must not starve each other.
    PerReason,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            burst: 25,
            refill: Duration::from_mins(5),
            budget: Budget::PerObject,
            combine_from: 10,
            combine_within: Duration::from_mins(10),
            remembered: 4096,
            queued: 1000,
            finish_after: Duration::from_mins(6),
            refresh_after: Duration::from_mins(30),
            flush_within: Duration::from_secs(5),
            epoch: None,
        }
    }
}

impl Options {
    /// How many requests one [`Budget`] allows at once, and after how long it allows one more; at most a year.
    /// Default: 25, 5 minutes.
    pub fn burst(mut self, burst: u32, refill: Duration) -> Self {
        // A year for each of 2³² requests is a moment that an `Instant` can hold.
        (self.burst, self.refill) = (burst, refill.min(Duration::from_hours(365 * 24)));
        self
    }

    /// What shares one allowance of requests. Default: [`Budget::PerObject`].
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// From which different message of one reason about one object on they become one event, and how long a reason
    /// must be silent for that to start afresh. Default: the tenth, 10 minutes.
    pub fn combine(mut self, from: usize, within: Duration) -> Self {
        (self.combine_from, self.combine_within) = (from, within);
        self
    }

    /// How many series are remembered; the ones that were not heard of for longest are forgotten. Default: 4096.
    pub fn remembered(mut self, series: usize) -> Self {
        self.remembered = series;
        self
    }

    /// How many series may wait to be written, those that are retried included. Default: 1000.
    pub fn queued(mut self, series: usize) -> Self {
        self.queued = series;
        self
    }

    /// How long the writer may take on stop to write what is left. Default: 5 seconds.
    pub fn flush_within(mut self, limit: Duration) -> Self {
        self.flush_within = limit;
        self
    }

    /// Makes timestamps start here and go on as tokio's clock does, for simulated time. Default: the system's clock.
    pub fn epoch(mut self, epoch: Timestamp) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// A recorder and its writer; see [`channel`](super::channel).
    pub fn channel(self, client: Client, source: impl Into<String>) -> (Recorder, Writer) {
        let flush_within = self.flush_within;
        let recorder = Recorder::new(self, &source.into());
        let writer = Writer::new(client, Arc::clone(recorder.shared()), flush_within);
        (recorder, writer)
    }

    pub(super) fn clock(&self) -> Clock {
        match self.epoch {
            Some(epoch) => Clock::Simulated {
                epoch,
                started: Instant::now(),
            },
            None => Clock::System,
        }
    }
}

/// Where timestamps come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clock {
    System,
    Simulated { epoch: Timestamp, started: Instant },
}

/// One moment as the two clocks see it: waits are measured by one, people read the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) instant: Instant,
    pub(super) time: Timestamp,
}

impl Clock {
    pub(super) fn now(self) -> Moment {
        let instant = Instant::now();
        let time = match self {
            Self::System => Timestamp::now(),
            Self::Simulated { epoch, started } => epoch + (instant - started),
        };
        Moment { instant, time }
    }
}
