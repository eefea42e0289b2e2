//! Leader election as a state machine without I/O: responses in, requests out.
//!
//! It has no client, no clock and no task. The driver executes the step of [`Elector::next`] and passes the
//! [`LeaseResponse`] to [`Elector::handle_response`] before the next step.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use tokio::time::Instant;

use super::{
    config::{JITTER, Timing, usable_duration},
    record::LeaderElectionRecord,
    status::{Epoch, Leadership},
};

/// A candidate for a lease, leading or not.
pub(crate) struct Elector {
    /// Globally unique: a record with this holder was written by this elector.
    identity: String,
    labels: BTreeMap<String, String>,
    timing: Timing,
    rng: fastrand::Rng,
    phase: Phase,
    /// The lease as it was last read or written.
    observed: Option<ObservedLease>,
    /// The last term that was won. It may outlive `leading`: a leader that stopped renewing has until its expiry to finish.
    grant: Option<Grant>,
    leading: Option<LeaderState>,
    /// The last term in which this elector led.
    last_epoch: Option<Epoch>,
    /// The greatest number of transitions observed or won, so that epochs increase even if the lease is recreated.
    max_transitions: Option<i32>,
    /// The last timestamp written. The next is later even if the wall clock is set back, so that each renewal changes the
    /// record.
    last_stamp: Option<Timestamp>,
    slow_paths: u64,
}

/// Permission to write in a term until an instant.
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

struct LeaderState {
    transitions: i32,
    /// When the last renewal was confirmed.
    renewed: Instant,
    /// When to step down unless a renewal is confirmed before.
    renew_by: Instant,
}

struct ObservedLease {
    /// Its resource version is the precondition of the next update.
    lease: Lease,
    record: LeaderElectionRecord,
    /// When this record was first received: it is at least this old.
    since: Instant,
    /// Whether the lease was deleted since.
    is_deleted: bool,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Step {
    Send(LeaseRequest),
    /// Wait until this instant.
    Wait(Instant),
}

/// A request to the server.
#[derive(Clone, Debug)]
pub(crate) enum LeaseRequest {
    Get,
    /// Creates this lease.
    Create(Box<Lease>),
    /// Replaces the lease, with its resource version as precondition.
    Update(Box<Lease>),
}

/// Result of a request.
#[derive(Debug)]
pub(crate) enum LeaseResponse {
    /// The lease as it was read or written.
    Lease(Box<Lease>),
    /// The lease does not exist.
    Absent,
    /// The lease was written since it was read; nothing was changed.
    Conflict,
    /// The request failed; the server may have processed it.
    Failed,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Waiting(Instant),
    /// The leader's fast path: update without reading first.
    Renew,
    Read,
    /// Write the lease after reading it.
    Claim,
    Pending(PendingRequest),
}

#[derive(Clone, Copy, Debug)]
enum PendingRequest {
    Read,
    /// A write with this elector as holder; `sent` is an instant before it was sent.
    Write {
        sent: Instant,
        transitions: i32,
        is_fast_path: bool,
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
            phase: Phase::Read,
            observed: None,
            grant: None,
            leading: None,
            last_epoch: None,
            max_transitions: None,
            last_stamp: None,
            slow_paths: 0,
        }
    }

    /// Returns the next step. The response to a request must be passed to [`handle_response`](Self::handle_response) before
    /// the next call.
    pub(crate) fn next(&mut self, now: Instant, wall: Timestamp) -> Step {
        if self.step_down_at().is_some_and(|at| now >= at) {
            self.leading = None;
            self.wait_for_retry(now);
        }
        if let Phase::Waiting(until) = self.phase {
            if now < until {
                return Step::Wait(self.step_down_at().map_or(until, |at| at.min(until)));
            }
            self.phase = if self.leading.is_some() {
                Phase::Renew
            } else {
                Phase::Read
            };
        }
        match self.phase {
            Phase::Renew => self.claim(now, wall, true),
            Phase::Claim => self.claim(now, wall, false),
            // A request without a response counts as failed: read again.
            Phase::Read | Phase::Pending(_) | Phase::Waiting(_) => {
                self.phase = Phase::Pending(PendingRequest::Read);
                Step::Send(LeaseRequest::Get)
            }
        }
    }

    /// Handles the response to the last request, received `now`.
    pub(crate) fn handle_response(&mut self, now: Instant, answer: LeaseResponse) {
        let Phase::Pending(request) = self.phase else {
            return;
        };
        match (request, answer) {
            (PendingRequest::Read, LeaseResponse::Lease(lease)) => self.on_lease_read(now, *lease),
            (PendingRequest::Read, LeaseResponse::Absent) => self.on_lease_missing(now),
            (
                PendingRequest::Write {
                    sent, transitions, ..
                },
                LeaseResponse::Lease(lease),
            ) => {
                self.on_lease_written(now, sent, transitions, *lease);
            }
            (
                PendingRequest::Write {
                    is_fast_path: true, ..
                },
                _,
            ) => self.phase = Phase::Read,
            (PendingRequest::Read | PendingRequest::Write { .. }, _) => self.wait_for_retry(now),
        }
    }

    /// The lease without a holder, to write when this process stops; `None` if the lease has another holder.
    pub(crate) fn released_lease(&mut self, mut lease: Lease, wall: Timestamp) -> Option<Lease> {
        let record = LeaderElectionRecord::from_lease(&lease);
        if record.holder != self.identity {
            return None;
        }
        let now = Some(self.stamp(wall));
        let released = LeaderElectionRecord {
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
                let holder = self.observed.as_ref().filter(|seen| !seen.is_deleted);
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

    /// Whether this elector leads or has led.
    pub(crate) fn has_led(&self) -> bool {
        self.last_epoch.is_some()
    }

    /// Whether this elector may hold the lease, because it has tried to write it.
    pub(crate) fn has_claimed(&self) -> bool {
        self.last_stamp.is_some()
    }

    /// When the last renewal of the current term was confirmed.
    pub(crate) fn renewed(&self) -> Option<Instant> {
        self.leading.as_ref().map(|leading| leading.renewed)
    }

    /// When a leader steps down unless it renews before; the limit of every request's timeout.
    pub(crate) fn step_down_at(&self) -> Option<Instant> {
        self.leading.as_ref().map(|leading| leading.renew_by)
    }

    /// How often a leader had to read the lease before it could renew.
    pub(crate) fn slow_paths(&self) -> u64 {
        self.slow_paths
    }

    fn on_lease_read(&mut self, now: Instant, lease: Lease) {
        let record = LeaderElectionRecord::from_lease(&lease);
        self.max_transitions = self.max_transitions.max(Some(record.transitions));
        let since = match &self.observed {
            Some(seen) if seen.record == record => seen.since,
            _ => now,
        };
        let is_ours = record.holder == self.identity;
        let is_held = is_held(&record, since, now, self.timing.lease);
        self.observed = Some(ObservedLease {
            lease,
            record,
            since,
            is_deleted: false,
        });
        if !is_ours {
            // Another holder wrote it, so the term is over, whatever the clock says.
            self.resign();
        }
        if is_ours || !is_held {
            self.phase = Phase::Claim;
        } else {
            self.wait_for_retry(now);
        }
    }

    fn on_lease_missing(&mut self, now: Instant) {
        let Some(seen) = &mut self.observed else {
            self.phase = Phase::Claim;
            return;
        };
        seen.is_deleted = true;
        // A deleted lease does not stop its holder, which may not know yet.
        let is_ours = seen.record.holder == self.identity;
        if is_ours || !is_held(&seen.record, seen.since, now, self.timing.lease) {
            self.phase = Phase::Claim;
        } else {
            self.wait_for_retry(now);
        }
    }

    /// Writes the lease with this elector as its holder: a renewal for a leader, otherwise a new term.
    fn claim(&mut self, now: Instant, wall: Timestamp, is_fast_path: bool) -> Step {
        let Some(transitions) = self.next_transitions() else {
            tracing::error!("leaseTransitions of the lease is at its maximum: delete the lease");
            self.wait_for_retry(now);
            return Step::Wait(now + self.timing.retry);
        };
        if self.leading.is_some() && !is_fast_path {
            self.slow_paths += 1;
        }
        let stamp = self.stamp(wall);
        let seen = self.observed.as_ref();
        let ours = seen.filter(|seen| seen.record.holder == self.identity);
        // `acquireTime` does not change within a term.
        let acquired = ours
            .filter(|seen| seen.record.transitions == transitions)
            .and_then(|seen| seen.record.acquired);
        let record = LeaderElectionRecord {
            holder: self.identity.clone(),
            duration: Some(self.timing.lease),
            transitions,
            acquired: acquired.or(Some(stamp)),
            renewed: Some(stamp),
        };
        self.phase = Phase::Pending(PendingRequest::Write {
            sent: now,
            transitions,
            is_fast_path,
        });
        if let Some(seen) = seen.filter(|seen| !seen.is_deleted) {
            let mut lease = seen.lease.clone();
            record.write_into(&mut lease, &self.labels);
            Step::Send(LeaseRequest::Update(Box::new(lease)))
        } else {
            let mut lease = Lease::default();
            record.write_into(&mut lease, &self.labels);
            Step::Send(LeaseRequest::Create(Box::new(lease)))
        }
    }

    fn next_transitions(&self) -> Option<i32> {
        if let Some(leading) = &self.leading {
            return Some(leading.transitions);
        }
        let ours = self.observed.as_ref().map(|seen| &seen.record);
        let ours = ours.filter(|record| record.holder == self.identity);
        let has_led = |record: &LeaderElectionRecord| self.last_epoch >= Some(epoch(record.transitions));
        match (ours, self.max_transitions) {
            // An earlier write took the lease but its response was lost: that term begins now.
            (Some(record), _) if !has_led(record) => Some(record.transitions),
            (_, Some(transitions)) => transitions.checked_add(1),
            (_, None) => Some(0),
        }
    }

    fn on_lease_written(&mut self, now: Instant, sent: Instant, transitions: i32, lease: Lease) {
        let record = LeaderElectionRecord::from_lease(&lease);
        self.max_transitions = self.max_transitions.max(Some(record.transitions));
        let is_as_requested = record.holder == self.identity && record.transitions == transitions;
        // An admission webhook may have shortened the requested duration.
        let duration = record
            .duration
            .map_or(self.timing.lease, |duration| duration.min(self.timing.lease));
        self.observed = Some(ObservedLease {
            lease,
            record,
            since: now,
            is_deleted: false,
        });
        let grant = Grant {
            epoch: epoch(transitions),
            valid_until: sent + usable_duration(duration),
        };
        if !is_as_requested || !grant.is_open(now) {
            // Changed by an admission webhook, or already expired.
            self.wait_for_retry(now);
            return;
        }
        let next = now + self.timing.retry;
        self.grant = Some(grant);
        self.last_epoch = Some(grant.epoch);
        self.leading = Some(LeaderState {
            transitions,
            renewed: now,
            renew_by: grant.valid_until.min(next + self.timing.renew),
        });
        self.phase = Phase::Waiting(next);
    }

    /// Waits for the next attempt; candidates wait with jitter, so that they do not all retry at once.
    fn wait_for_retry(&mut self, now: Instant) {
        let jitter = if self.leading.is_some() {
            0.0
        } else {
            self.rng.f64() * JITTER
        };
        self.phase = Phase::Waiting(now + self.timing.retry.mul_f64(1.0 + jitter));
    }

    fn stamp(&mut self, wall: Timestamp) -> Timestamp {
        let micros = wall.as_microsecond();
        let later = self
            .last_stamp
            .map_or(micros, |last| micros.max(last.as_microsecond() + 1));
        let stamp = Timestamp::from_microsecond(later).unwrap_or(wall);
        self.last_stamp = Some(stamp);
        stamp
    }
}

/// Whether a record that was first observed at `since` has not expired. Its own duration counts; without one, ours does.
fn is_held(record: &LeaderElectionRecord, since: Instant, now: Instant, ours: Duration) -> bool {
    !record.holder.is_empty() && now < since + record.duration.unwrap_or(ours)
}

fn epoch(transitions: i32) -> Epoch {
    Epoch(u64::from(transitions.unsigned_abs()))
}
