//! The election as a state machine: what was answered goes in, what to ask next comes out.
//!
//! It knows no client, no wall clock of its own and no task. Whoever drives it does what [`Elector::next`] says, and
//! tells it the [`Answer`]; between the two calls nothing else happens.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use tokio::time::Instant;

use super::{
    config::{JITTER, Timing, usable},
    record::Record,
    status::{Epoch, Leadership},
};

/// A candidate for a lease, leading or not.
pub(crate) struct Elector {
    /// In no other process, now or ever: a record with this holder was written by this elector.
    identity: String,
    labels: BTreeMap<String, String>,
    timing: Timing,
    rng: fastrand::Rng,
    phase: Phase,
    /// The lease as it was last read or written.
    seen: Option<Seen>,
    /// The last term that was won. It may outlive `leading`: who gave up renewing has until then to finish.
    grant: Option<Grant>,
    leading: Option<Leading>,
    /// The last term that this elector led in.
    led: Option<Epoch>,
    /// The greatest number of transitions ever seen or won, so that terms increase even if the lease is made anew.
    transitions: Option<i32>,
    /// The last time that was written; the next is later even if the wall clock is set back, so that each renewal
    /// is seen as a change.
    stamped: Option<Timestamp>,
    slow_paths: u64,
}

/// Until when a term's writes may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) epoch: Epoch,
    pub(crate) valid_until: Instant,
}

impl Grant {
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        now < self.valid_until
    }
}

struct Leading {
    transitions: i32,
    /// When the last renewal was confirmed.
    renewed: Instant,
    /// When to step down unless another renewal is confirmed before.
    renew_by: Instant,
}

struct Seen {
    /// With the version that the next update names.
    lease: Lease,
    record: Record,
    /// When this record was first seen, counted from after it arrived: it is at least this old.
    since: Instant,
    /// Whether the lease was deleted since.
    gone: bool,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Step {
    Ask(Ask),
    /// Nothing, until this instant.
    Wait(Instant),
}

/// A request to the server.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Get,
    /// Creates this lease.
    Create(Box<Lease>),
    /// Replaces the lease, if it still has the version in here.
    Update(Box<Lease>),
}

/// How a request ended.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The lease as it was read or written.
    Lease(Box<Lease>),
    /// There is no such lease.
    Absent,
    /// Somebody else wrote it since it was read; nothing was done.
    Conflict,
    /// The request may or may not have been carried out.
    Failed,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Rest(Instant),
    /// The leader's short cut: update without reading.
    Renew,
    Look,
    /// Write the lease, having looked.
    Claim,
    Asked(Request),
}

#[derive(Clone, Copy, Debug)]
enum Request {
    Look,
    /// A write of our own as holder; `sent` is before it was sent.
    Write {
        sent: Instant,
        transitions: i32,
        is_short_cut: bool,
    },
}

impl Elector {
    pub(crate) fn new(
        identity: String,
        labels: BTreeMap<String, String>,
        timing: Timing,
        rng: fastrand::Rng,
    ) -> Self {
        Self {
            identity,
            labels,
            timing,
            rng,
            phase: Phase::Look,
            seen: None,
            grant: None,
            leading: None,
            led: None,
            transitions: None,
            stamped: None,
            slow_paths: 0,
        }
    }

    /// What to do now. A request is answered by [`answer`](Self::answer) before the next call.
    pub(crate) fn next(&mut self, now: Instant, wall: Timestamp) -> Step {
        if self.step_down_at().is_some_and(|at| now >= at) {
            self.leading = None;
            self.rest(now);
        }
        if let Phase::Rest(until) = self.phase {
            if now < until {
                return Step::Wait(self.step_down_at().map_or(until, |at| at.min(until)));
            }
            self.phase = if self.leading.is_some() {
                Phase::Renew
            } else {
                Phase::Look
            };
        }
        match self.phase {
            Phase::Renew => self.claim(now, wall, true),
            Phase::Claim => self.claim(now, wall, false),
            // An unanswered request is as good as a failed one: look again.
            Phase::Look | Phase::Asked(_) | Phase::Rest(_) => {
                self.phase = Phase::Asked(Request::Look);
                Step::Ask(Ask::Get)
            }
        }
    }

    /// How the last request ended, as known `now`.
    pub(crate) fn answer(&mut self, now: Instant, answer: Answer) {
        let Phase::Asked(request) = self.phase else {
            return;
        };
        match (request, answer) {
            (Request::Look, Answer::Lease(lease)) => self.found(now, *lease),
            (Request::Look, Answer::Absent) => self.missing(now),
            (
                Request::Write {
                    sent, transitions, ..
                },
                Answer::Lease(lease),
            ) => {
                self.written(now, sent, transitions, *lease);
            }
            (
                Request::Write {
                    is_short_cut: true, ..
                },
                _,
            ) => self.phase = Phase::Look,
            (Request::Look | Request::Write { .. }, _) => self.rest(now),
        }
    }

    /// The lease with nobody as its holder, if it is ours: what to write when this process stops.
    pub(crate) fn released(&mut self, mut lease: Lease, wall: Timestamp) -> Option<Lease> {
        let record = Record::of(&lease);
        if record.holder != self.identity {
            return None;
        }
        let now = Some(self.stamp(wall));
        let released = Record {
            holder: String::new(),
            duration: Some(Duration::from_secs(1)),
            acquired: now,
            renewed: now,
            ..record
        };
        released.write_into(&mut lease, &self.labels);
        Some(lease)
    }

    /// Ends the term at once.
    pub(crate) fn resign(&mut self) {
        self.leading = None;
        self.grant = None;
    }

    pub(crate) fn leadership(&self) -> Leadership {
        match (&self.leading, self.grant) {
            (Some(_), Some(Grant { epoch, valid_until })) => Leadership::Leader { epoch, valid_until },
            _ => {
                let holder = self.seen.as_ref().filter(|seen| !seen.gone);
                let holder = holder.map(|seen| seen.record.holder.clone());
                Leadership::Follower {
                    holder: holder.filter(|holder| !holder.is_empty()),
                }
            }
        }
    }

    pub(crate) fn grant(&self) -> Option<Grant> {
        self.grant
    }

    pub(crate) fn is_leading(&self) -> bool {
        self.leading.is_some()
    }

    /// Whether there was a term of ours, over or not.
    pub(crate) fn has_led(&self) -> bool {
        self.led.is_some()
    }

    /// Whether the lease may be ours: it was asked for at least once.
    pub(crate) fn has_claimed(&self) -> bool {
        self.stamped.is_some()
    }

    /// When the last renewal of the current term was confirmed.
    pub(crate) fn renewed(&self) -> Option<Instant> {
        self.leading.as_ref().map(|leading| leading.renewed)
    }

    /// When a leader steps down unless it renews before; no request needs to be waited for longer.
    pub(crate) fn step_down_at(&self) -> Option<Instant> {
        self.leading.as_ref().map(|leading| leading.renew_by)
    }

    /// How often a leader had to look before it could renew.
    pub(crate) fn slow_paths(&self) -> u64 {
        self.slow_paths
    }

    fn found(&mut self, now: Instant, lease: Lease) {
        let record = Record::of(&lease);
        self.transitions = self.transitions.max(Some(record.transitions));
        let since = match &self.seen {
            Some(seen) if seen.record == record => seen.since,
            _ => now,
        };
        let is_ours = record.holder == self.identity;
        let is_held = is_held(&record, since, now, self.timing.lease);
        self.seen = Some(Seen {
            lease,
            record,
            since,
            gone: false,
        });
        if !is_ours {
            // Somebody else wrote it, so the term is over, whatever the clock says.
            self.resign();
        }
        if is_ours || !is_held {
            self.phase = Phase::Claim;
        } else {
            self.rest(now);
        }
    }

    fn missing(&mut self, now: Instant) {
        let Some(seen) = &mut self.seen else {
            self.phase = Phase::Claim;
            return;
        };
        seen.gone = true;
        // A deleted lease does not stop its holder, which may not know yet.
        let is_ours = seen.record.holder == self.identity;
        if is_ours || !is_held(&seen.record, seen.since, now, self.timing.lease) {
            self.phase = Phase::Claim;
        } else {
            self.rest(now);
        }
    }

    /// Writes the lease with us as its holder: a renewal if we lead, a new term if not.
    fn claim(&mut self, now: Instant, wall: Timestamp, is_short_cut: bool) -> Step {
        let Some(transitions) = self.next_transitions() else {
            tracing::error!("the lease counts no further transitions: delete it");
            self.rest(now);
            return Step::Wait(now + self.timing.retry);
        };
        if self.leading.is_some() && !is_short_cut {
            self.slow_paths += 1;
        }
        let stamp = self.stamp(wall);
        let seen = self.seen.as_ref();
        let ours = seen.filter(|seen| seen.record.holder == self.identity);
        // A holder that stays for the same term keeps the time at which it came.
        let acquired = ours
            .filter(|seen| seen.record.transitions == transitions)
            .and_then(|seen| seen.record.acquired);
        let record = Record {
            holder: self.identity.clone(),
            duration: Some(self.timing.lease),
            transitions,
            acquired: acquired.or(Some(stamp)),
            renewed: Some(stamp),
        };
        self.phase = Phase::Asked(Request::Write {
            sent: now,
            transitions,
            is_short_cut,
        });
        if let Some(seen) = seen.filter(|seen| !seen.gone) {
            let mut lease = seen.lease.clone();
            record.write_into(&mut lease, &self.labels);
            Step::Ask(Ask::Update(Box::new(lease)))
        } else {
            let mut lease = Lease::default();
            record.write_into(&mut lease, &self.labels);
            Step::Ask(Ask::Create(Box::new(lease)))
        }
    }

    fn next_transitions(&self) -> Option<i32> {
        if let Some(leading) = &self.leading {
            return Some(leading.transitions);
        }
        let ours = self.seen.as_ref().map(|seen| &seen.record);
        let ours = ours.filter(|record| record.holder == self.identity);
        let has_led = |record: &Record| self.led >= Some(epoch(record.transitions));
        match (ours, self.transitions) {
            // We took it and never heard of it: that is the term that begins now.
            (Some(record), _) if !has_led(record) => Some(record.transitions),
            (_, Some(transitions)) => transitions.checked_add(1),
            (_, None) => Some(0),
        }
    }

    fn written(&mut self, now: Instant, sent: Instant, transitions: i32, lease: Lease) {
        let record = Record::of(&lease);
        self.transitions = self.transitions.max(Some(record.transitions));
        let is_as_asked = record.holder == self.identity && record.transitions == transitions;
        // An admission webhook may have shortened what we asked for.
        let lasts = record
            .duration
            .map_or(self.timing.lease, |duration| duration.min(self.timing.lease));
        self.seen = Some(Seen {
            lease,
            record,
            since: now,
            gone: false,
        });
        let grant = Grant {
            epoch: epoch(transitions),
            valid_until: sent + usable(lasts),
        };
        if !is_as_asked || !grant.is_open(now) {
            // Changed on its way, or too old to be of use.
            self.rest(now);
            return;
        }
        let next = now + self.timing.retry;
        self.grant = Some(grant);
        self.led = Some(grant.epoch);
        self.leading = Some(Leading {
            transitions,
            renewed: now,
            renew_by: grant.valid_until.min(next + self.timing.renew),
        });
        self.phase = Phase::Rest(next);
    }

    /// Waits for the next attempt: candidates at random, so that they do not come all at once.
    fn rest(&mut self, now: Instant) {
        let spread = if self.leading.is_some() {
            0.0
        } else {
            self.rng.f64() * JITTER
        };
        self.phase = Phase::Rest(now + self.timing.retry.mul_f64(1.0 + spread));
    }

    fn stamp(&mut self, wall: Timestamp) -> Timestamp {
        let micros = wall.as_microsecond();
        let later = self
            .stamped
            .map_or(micros, |last| micros.max(last.as_microsecond() + 1));
        let stamp = Timestamp::from_microsecond(later).unwrap_or(wall);
        self.stamped = Some(stamp);
        stamp
    }
}

/// Whether a record that was first seen at `since` still binds others. Its own duration counts; a holder that states
/// none is given ours.
fn is_held(record: &Record, since: Instant, now: Instant, ours: Duration) -> bool {
    !record.holder.is_empty() && now < since + record.duration.unwrap_or(ours)
}

fn epoch(transitions: i32) -> Epoch {
    Epoch(u64::from(transitions.unsigned_abs()))
}
