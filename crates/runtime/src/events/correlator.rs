//! Decides which recorded events become requests, without I/O: from the calls, their times, and what was written.
//!
//! ```text
//!               recorded              recorded, or its delay has passed
//!     unknown ───────────► Queued ◄─────────────────────────────── Held
//!        ▲                │ │ ▲ │                                  ▲  ▲
//!        └── gave up ─────┘ │ │ └─ written, recorded meanwhile ────┘  │
//!                   written │ │ recorded                              │
//!                           ▼ │                                       │
//!                          Settled ─────── recorded, rate limited ────┘
//! ```

use std::{collections::hash_map::RandomState, hash::BuildHasher, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    counts::DropReason,
    lru::Lru,
    options::{Budget, Moment, RecorderOptions},
    series::{AggregateKey, EventType, Phase, RegardingObject, Series, SeriesKey, Write, combined, name},
};

/// The series, aggregates and rate limits of events, within memory limits.
pub(super) struct Correlator {
    options: RecorderOptions,
    series: Lru<Arc<SeriesKey>, Series>,
    aggregates: Lru<Arc<AggregateKey>, Aggregate>,
    budgets: Lru<Arc<BudgetKey>, Bucket>,
    /// How many of `series` are [`Phase::Queued`].
    queued: usize,
    /// Stamp of the last event's name; strictly increasing.
    stamp: u64,
    hasher: RandomState,
    /// The writer is stopping, so every series is due.
    closing: bool,
}

/// What to do with a recorded event.
#[derive(Debug, PartialEq)]
pub(super) enum Decision {
    /// Queue the series, to create its event.
    Create(Arc<SeriesKey>),
    /// Queue the series, to patch its event with the new count.
    Patch {
        /// The series.
        key: Arc<SeriesKey>,
        /// The new count.
        count: u32,
    },
    /// Queue the series with a delay: it is counted now and written when it has ended.
    Hold(Arc<SeriesKey>, Duration),
    /// Nothing: it is counted in a series that is already queued or held.
    Counted,
    /// Nothing: the event is dropped.
    Drop(DropReason),
}

/// A decision, and the series that was evicted for it.
#[derive(Debug, PartialEq)]
pub(super) struct Observation {
    pub(super) decision: Decision,
    /// The evicted series, and how many of its calls were never written.
    pub(super) forgotten: Option<(Arc<SeriesKey>, u32)>,
}

impl From<Decision> for Observation {
    fn from(decision: Decision) -> Self {
        Self {
            decision,
            forgotten: None,
        }
    }
}

/// How the event of a series is named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Naming {
    /// Differently in each process.
    #[default]
    Unique,
    /// The same in each process, so that an event that exists is found.
    Stable,
}

/// What to do with a series that was taken from the queue.
#[derive(Debug)]
pub(super) enum Due {
    Write(Write),
    Later(Duration),
    Nothing,
}

/// What to do after a successful request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Events were recorded meanwhile and may be written.
    Again,
    /// Events were recorded meanwhile and are held.
    Later(Duration),
    Nothing,
}

/// Events that differ only in their message.
struct Aggregate {
    /// Hashes of the messages that have a series of their own.
    messages: Vec<u64>,
    seen: Instant,
}

/// Key of one rate limit.
#[derive(PartialEq, Eq, Hash)]
struct BudgetKey {
    source: Arc<str>,
    object: Arc<RegardingObject>,
    kind: EventType,
    reason: Option<String>,
}

/// A token bucket, stored as the time at which it will be full.
struct Bucket {
    full: Instant,
}

impl Correlator {
    pub(super) fn new(options: RecorderOptions) -> Self {
        Self {
            series: Lru::new(options.max_series),
            aggregates: Lru::new(options.max_series),
            budgets: Lru::new(options.max_series),
            options,
            queued: 0,
            stamp: 0,
            hasher: RandomState::new(),
            closing: false,
        }
    }

    /// Handles a recorded event.
    pub(super) fn observe(
        &mut self,
        similar: AggregateKey,
        message: String,
        naming: Naming,
        now: Moment,
    ) -> Observation {
        let aggregate = Arc::new(similar);
        let (message, combined) = if self.is_aggregated(&aggregate, &message, now.instant) {
            (None, Some(combined(&message)))
        } else {
            (Some(message), None)
        };
        let key = SeriesKey { aggregate, message };
        let Some(series) = self.series.get(&key) else {
            return self.observe_new(key, combined, naming, now);
        };
        series.count = series.count.saturating_add(1);
        (series.last, series.last_instant, series.combined) = (now.time, now.instant, combined);
        match series.phase {
            Phase::Settled | Phase::Held => self.observe_known(Arc::new(key), now.instant).into(),
            Phase::Queued => Decision::Counted.into(),
        }
    }

    fn observe_new(
        &mut self,
        key: SeriesKey,
        combined: Option<String>,
        naming: Naming,
        now: Moment,
    ) -> Observation {
        let refused = if self.queued >= self.options.max_queued {
            Some(DropReason::QueueFull)
        } else if !self.take_token(&key.aggregate, now.instant) {
            Some(DropReason::Spam)
        } else {
            None
        };
        if let Some(reason) = refused {
            return Decision::Drop(reason).into();
        }
        let stamp = match naming {
            Naming::Stable => key.stable_stamp(),
            Naming::Unique => {
                // Nanoseconds, like client-go's event names; a clock that stops or goes back must not repeat a name.
                let nanos = u64::try_from(now.time.as_nanosecond()).unwrap_or(0);
                self.stamp = nanos.max(self.stamp + 1);
                self.stamp
            }
        };
        let series = Series {
            name: name(&key.aggregate.object.name, stamp),
            naming,
            is_adopted: false,
            combined,
            count: 1,
            first: now.time,
            last: now.time,
            last_instant: now.instant,
            attempted: false,
            written: None,
            phase: Phase::Queued,
        };
        let key = Arc::new(key);
        self.queued += 1;
        let forgotten = self.series.insert(Arc::clone(&key), series);
        let forgotten = forgotten.map(|(key, series)| {
            self.leave_phase(series.phase);
            (key, series.unwritten())
        });
        Observation {
            decision: Decision::Create(key),
            forgotten,
        }
    }

    fn observe_known(&mut self, key: Arc<SeriesKey>, now: Instant) -> Decision {
        let is_allowed = self.queued < self.options.max_queued && self.take_token(&key.aggregate, now);
        let series = self.series.get(&*key).expect("the caller has found the series");
        let phase = if is_allowed { Phase::Queued } else { Phase::Held };
        match (std::mem::replace(&mut series.phase, phase), phase) {
            (_, Phase::Queued) => {
                let count = series.count;
                self.queued += 1;
                Decision::Patch { key, count }
            }
            (Phase::Held, _) => Decision::Counted,
            _ => Decision::Hold(key, self.options.finish_after),
        }
    }

    /// Decides what to do with a series whose key was taken from the queue.
    pub(super) fn due(&mut self, key: &Arc<SeriesKey>, now: Instant) -> Due {
        let Some(series) = self.series.get(&**key) else {
            return Due::Nothing;
        };
        match series.phase {
            Phase::Settled => Due::Nothing,
            Phase::Queued => Due::Write(series.write(key)),
            Phase::Held => {
                let (_, written) = series
                    .written
                    .expect("a series that was never written is queued, not held");
                // It has ended, or has continued for so long that the event might expire (an hour after a write).
                let ends = series.last_instant + self.options.finish_after;
                let wait = ends.min(written + self.options.refresh_after) - now;
                if wait > Duration::ZERO && !self.closing {
                    return Due::Later(wait);
                }
                series.phase = Phase::Queued;
                self.queued += 1;
                Due::Write(series.write(key))
            }
        }
    }

    /// Handles a successful request: the server has the series as of `write`.
    pub(super) fn on_written(&mut self, write: &Write, now: Instant) -> Next {
        let Some(series) = self.series_of(write) else {
            return Next::Nothing;
        };
        series.written = Some((write.count, now));
        let more = series.unwritten() > 0;
        let again = more && (self.closing || self.take_token(&write.key.aggregate, now));
        let phase = match (more, again) {
            (false, _) => Phase::Settled,
            (true, true) => Phase::Queued,
            (true, false) => Phase::Held,
        };
        self.settle(write, phase);
        match phase {
            Phase::Settled => Next::Nothing,
            Phase::Queued => Next::Again,
            Phase::Held => Next::Later(self.options.finish_after),
        }
    }

    /// Handles a create that found the event of an earlier process.
    pub(super) fn on_found(&mut self, write: &Write, now: Instant) -> Next {
        if let Some(series) = self.series_of(write) {
            series.is_adopted = true;
        }
        self.on_written(write, now)
    }

    /// Handles a request that was given up. The next event tries again, with the same event object if it exists.
    pub(super) fn on_given_up(&mut self, write: &Write) {
        let Some(series) = self.series_of(write) else {
            return;
        };
        let exists = series.written.is_some();
        self.settle(write, Phase::Settled);
        if !exists {
            self.series.remove(&*write.key);
        }
    }

    /// Makes every unwritten series due.
    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    /// Number of events that are not on the server.
    pub(super) fn unwritten(&self) -> u64 {
        self.series
            .values()
            .map(|series| u64::from(series.unwritten()))
            .sum()
    }

    /// The series of a request, unless a newer series has its key.
    fn series_of(&mut self, write: &Write) -> Option<&mut Series> {
        self.series
            .get(&*write.key)
            .filter(|series| series.name == write.name)
    }

    fn settle(&mut self, write: &Write, phase: Phase) {
        if let Some(series) = self.series_of(write) {
            let before = std::mem::replace(&mut series.phase, phase);
            self.leave_phase(before);
            self.queued += usize::from(phase == Phase::Queued);
        }
    }

    fn leave_phase(&mut self, phase: Phase) {
        self.queued -= usize::from(phase == Phase::Queued);
    }

    /// Whether so many different messages were recorded lately that this one is aggregated. Messages with a series of their
    /// own keep it.
    fn is_aggregated(&mut self, similar: &Arc<AggregateKey>, message: &str, now: Instant) -> bool {
        let hash = self.hasher.hash_one(message);
        match self.aggregates.get(&**similar) {
            Some(group) if now - group.seen <= self.options.combine_within => {
                group.seen = now;
                if group.messages.contains(&hash) {
                    return false;
                }
                let is_aggregated = group.messages.len() + 1 >= self.options.combine_from;
                if !is_aggregated {
                    group.messages.push(hash);
                }
                is_aggregated
            }
            _ => {
                let group = Aggregate {
                    messages: vec![hash],
                    seen: now,
                };
                self.aggregates.insert(Arc::clone(similar), group);
                false
            }
        }
    }

    /// Takes a token from the rate limit. Returns whether there was one.
    fn take_token(&mut self, similar: &AggregateKey, now: Instant) -> bool {
        let spender = BudgetKey {
            source: Arc::clone(&similar.source),
            object: Arc::clone(&similar.object),
            kind: similar.kind,
            reason: match self.options.budget {
                Budget::PerObject => None,
                Budget::PerReason => Some(similar.reason.clone()),
            },
        };
        let RecorderOptions { burst, refill, .. } = self.options;
        match self.budgets.get(&spender) {
            Some(bucket) => bucket.take(burst, refill, now),
            None => {
                let mut bucket = Bucket { full: now };
                let is_allowed = bucket.take(burst, refill, now);
                self.budgets.insert(Arc::new(spender), bucket);
                is_allowed
            }
        }
    }
}

impl Bucket {
    fn take(&mut self, burst: u32, refill: Duration, now: Instant) -> bool {
        let full = self.full.max(now) + refill;
        let is_allowed = full <= now + refill * burst;
        if is_allowed {
            self.full = full;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests;
