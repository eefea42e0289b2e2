//! Which calls become requests: a pure function of what was said and when, and of what the server has heard.
//!
//! ```text
//!                 said                said, or its time has come
//!     unknown ───────────► Queued ◄─────────────────────────────── Held
//!        ▲                │ │ ▲ │                                  ▲  ▲
//!        └── gave up ─────┘ │ │ └── wrote, more was said meanwhile ┘  │
//!                     wrote │ │ said                                  │
//!                           ▼ │                                       │
//!                          Settled ────── said, nothing left to spend ┘
//! ```

use std::{collections::hash_map::RandomState, hash::BuildHasher, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    counts::DropReason,
    lru::Lru,
    options::{Budget, Moment, Options},
    series::{Key, Object, Phase, Series, Similar, Type, Write, combined, name},
};

/// All that is remembered of events, within limits.
pub(super) struct Correlator {
    options: Options,
    series: Lru<Arc<Key>, Series>,
    groups: Lru<Arc<Similar>, Group>,
    budgets: Lru<Arc<Spender>, Bucket>,
    /// How many of `series` are [`Phase::Queued`].
    queued: usize,
    /// The last event's; each event has a later one.
    stamp: u64,
    hasher: RandomState,
    /// Everything is due.
    closing: bool,
}

/// What to do about a call.
#[derive(Debug, PartialEq)]
pub(super) enum Decision {
    /// Queue the series: it is to be created.
    Create(Arc<Key>),
    /// Queue the series: its count is this now, and the server shall know.
    Patch {
        /// The series.
        key: Arc<Key>,
        /// How often it was seen.
        count: u32,
    },
    /// Queue the series for later: it is counted, and written when it has ended.
    Hold(Arc<Key>, Duration),
    /// Nothing: it is counted in a series that is queued or held already.
    Counted,
    /// Nothing: it is not kept.
    Drop(DropReason),
}

/// A decision, and the calls that were forgotten for it.
#[derive(Debug, PartialEq)]
pub(super) struct Observed {
    pub(super) decision: Decision,
    /// A series that had to go, and how many of its calls the server will not hear of.
    pub(super) forgotten: Option<(Arc<Key>, u32)>,
}

impl From<Decision> for Observed {
    fn from(decision: Decision) -> Self {
        Self {
            decision,
            forgotten: None,
        }
    }
}

/// What to do about a series whose turn has come.
#[derive(Debug)]
pub(super) enum Due {
    Write(Write),
    Later(Duration),
    Nothing,
}

/// What follows a request that worked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// More came meanwhile, and may be written.
    Again,
    /// More came meanwhile, and is held.
    Later(Duration),
    Nothing,
}

/// Events that differ in their message only.
struct Group {
    /// Hashes of the messages that have a series of their own.
    messages: Vec<u64>,
    seen: Instant,
}

/// What has one allowance of requests.
#[derive(PartialEq, Eq, Hash)]
struct Spender {
    source: Arc<str>,
    object: Arc<Object>,
    kind: Type,
    reason: Option<String>,
}

/// A token bucket as one number: when it will be full.
struct Bucket {
    full: Instant,
}

impl Correlator {
    pub(super) fn new(options: Options) -> Self {
        Self {
            series: Lru::new(options.remembered),
            groups: Lru::new(options.remembered),
            budgets: Lru::new(options.remembered),
            options,
            queued: 0,
            stamp: 0,
            hasher: RandomState::new(),
            closing: false,
        }
    }

    /// Something was said.
    pub(super) fn observe(&mut self, similar: Similar, message: String, now: Moment) -> Observed {
        let similar = Arc::new(similar);
        let (message, combined) = if self.is_one_of_many(&similar, &message, now.instant) {
            (None, Some(combined(&message)))
        } else {
            (Some(message), None)
        };
        let key = Key { similar, message };
        let Some(series) = self.series.get(&key) else {
            return self.observe_new(key, combined, now);
        };
        series.count = series.count.saturating_add(1);
        (series.last, series.seen, series.combined) = (now.time, now.instant, combined);
        match series.phase {
            Phase::Settled | Phase::Held => self.observe_known(Arc::new(key), now.instant).into(),
            Phase::Queued => Decision::Counted.into(),
        }
    }

    fn observe_new(&mut self, key: Key, combined: Option<String>, now: Moment) -> Observed {
        let refused = if self.queued >= self.options.queued {
            Some(DropReason::QueueFull)
        } else if !self.spend(&key.similar, now.instant) {
            Some(DropReason::Spam)
        } else {
            None
        };
        if let Some(reason) = refused {
            return Decision::Drop(reason).into();
        }
        // Nanoseconds, as others name events; a clock that stands still or goes back must not repeat a name.
        let nanos = u64::try_from(now.time.as_nanosecond()).unwrap_or(0);
        self.stamp = nanos.max(self.stamp + 1);
        let series = Series {
            name: name(&key.similar.object.name, self.stamp),
            combined,
            count: 1,
            first: now.time,
            last: now.time,
            seen: now.instant,
            attempted: false,
            written: None,
            phase: Phase::Queued,
        };
        let key = Arc::new(key);
        self.queued += 1;
        let forgotten = self.series.insert(Arc::clone(&key), series);
        let forgotten = forgotten.map(|(key, series)| {
            self.leave(series.phase);
            (key, series.unwritten())
        });
        Observed {
            decision: Decision::Create(key),
            forgotten,
        }
    }

    fn observe_known(&mut self, key: Arc<Key>, now: Instant) -> Decision {
        let may = self.queued < self.options.queued && self.spend(&key.similar, now);
        let series = self.series.get(&*key).expect("it was found just now");
        let phase = if may { Phase::Queued } else { Phase::Held };
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

    /// The turn of a series has come: its key was queued, or its delay is over.
    pub(super) fn due(&mut self, key: &Arc<Key>, now: Instant) -> Due {
        let Some(series) = self.series.get(&**key) else {
            return Due::Nothing;
        };
        match series.phase {
            Phase::Settled => Due::Nothing,
            Phase::Queued => Due::Write(series.write(key)),
            Phase::Held => {
                let (_, written) = series.written.expect("what was never written is queued");
                // It has ended, or goes on for so long that the server might let it expire (an hour after a write).
                let ends = series.seen + self.options.finish_after;
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

    /// A request worked: the server knows the series as it was then.
    pub(super) fn wrote(&mut self, write: &Write, now: Instant) -> Next {
        let Some(series) = self.of(write) else {
            return Next::Nothing;
        };
        series.written = Some((write.count, now));
        let more = series.unwritten() > 0;
        let again = more && (self.closing || self.spend(&write.key.similar, now));
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

    /// A request was given up. The next call tries again: with the same object if it is there, else with a new one.
    pub(super) fn gave_up(&mut self, write: &Write) {
        let Some(series) = self.of(write) else { return };
        let exists = series.written.is_some();
        self.settle(write, Phase::Settled);
        if !exists {
            self.series.remove(&*write.key);
        }
    }

    /// From now on everything that is not written is due.
    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    /// How many calls the server has not heard of.
    pub(super) fn unwritten(&self) -> u64 {
        self.series
            .values()
            .map(|series| u64::from(series.unwritten()))
            .sum()
    }

    /// The series that a request was for; another one may have its key since.
    fn of(&mut self, write: &Write) -> Option<&mut Series> {
        self.series
            .get(&*write.key)
            .filter(|series| series.name == write.name)
    }

    fn settle(&mut self, write: &Write, phase: Phase) {
        if let Some(series) = self.of(write) {
            let before = std::mem::replace(&mut series.phase, phase);
            self.leave(before);
            self.queued += usize::from(phase == Phase::Queued);
        }
    }

    fn leave(&mut self, phase: Phase) {
        self.queued -= usize::from(phase == Phase::Queued);
    }

    /// Whether so many different messages of this kind were said lately that this one gets no series of its own.
    /// Those that have one keep it.
    fn is_one_of_many(&mut self, similar: &Arc<Similar>, message: &str, now: Instant) -> bool {
        let hash = self.hasher.hash_one(message);
        match self.groups.get(&**similar) {
            Some(group) if now - group.seen <= self.options.combine_within => {
                group.seen = now;
                if group.messages.contains(&hash) {
                    return false;
                }
                let many = group.messages.len() + 1 >= self.options.combine_from;
                if !many {
                    group.messages.push(hash);
                }
                many
            }
            _ => {
                let group = Group {
                    messages: vec![hash],
                    seen: now,
                };
                self.groups.insert(Arc::clone(similar), group);
                false
            }
        }
    }

    /// Takes one request from the allowance, if it has one.
    fn spend(&mut self, similar: &Similar, now: Instant) -> bool {
        let spender = Spender {
            source: Arc::clone(&similar.source),
            object: Arc::clone(&similar.object),
            kind: similar.kind,
            reason: match self.options.budget {
                Budget::PerObject => None,
                Budget::PerReason => Some(similar.reason.clone()),
            },
        };
        let Options { burst, refill, .. } = self.options;
        match self.budgets.get(&spender) {
            Some(bucket) => bucket.take(burst, refill, now),
            None => {
                let mut bucket = Bucket { full: now };
                let may = bucket.take(burst, refill, now);
                self.budgets.insert(Arc::new(spender), bucket);
                may
            }
        }
    }
}

impl Bucket {
    fn take(&mut self, burst: u32, refill: Duration, now: Instant) -> bool {
        let full = self.full.max(now) + refill;
        let may = full <= now + refill * burst;
        if may {
            self.full = full;
        }
        may
    }
}

#[cfg(test)]
mod tests;
