//! Leadership status, for the rest of the process.
//!
//! Only the election's driver writes it.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

/// Number of a term of leadership. Each leader of a lease has a greater one than all before it.
///
/// It is the Lease's `leaseTransitions`. Use it as a fencing token for systems outside Kubernetes: store it with each write,
/// and reject writes with a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether this process leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// It does not lead.
    Follower {
        /// The current lease holder, if known.
        holder: Option<String>,
    },
    /// It leads.
    Leader {
        /// The current term.
        epoch: Epoch,
        /// When the term ends unless the lease is renewed.
        valid_until: Instant,
    },
}

impl Leadership {
    /// The current term, if this process leads.
    pub fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::Follower { .. } => None,
            Self::Leader { epoch, .. } => Some(*epoch),
        }
    }
}

/// Handle to the status of an election: for health checks, metrics and work that waits for leadership. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ElectionStatus(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The name of the lease.
    name: String,
    identity: String,
    lease: Duration,
    leadership: watch::Sender<Leadership>,
    /// When the last renewal was confirmed.
    renewed: Mutex<Option<Instant>>,
    slow_paths: AtomicU64,
}

/// A leader that neither renewed its lease nor stepped down in time, from [`ElectionStatus::check`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stale leader: this process leads by lease `{lease}` but last renewed it {since:?} ago")]
pub struct StaleLeader {
    lease: String,
    since: Duration,
}

impl ElectionStatus {
    pub(crate) fn new(name: String, identity: String, lease: Duration) -> Self {
        Self(Arc::new(Shared {
            name,
            identity,
            lease,
            leadership: watch::Sender::new(Leadership::Follower { holder: None }),
            renewed: Mutex::default(),
            slow_paths: AtomicU64::new(0),
        }))
    }

    /// The name of the lease: the label `name` of the metrics.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The identity of this process in the lease.
    pub fn identity(&self) -> &str {
        &self.0.identity
    }

    /// Returns the current leadership.
    pub fn leadership(&self) -> Leadership {
        self.0.leadership.borrow().clone()
    }

    /// Whether this process leads: the gauge `leader_election_master_status`.
    pub fn is_leader(&self) -> bool {
        self.0.leadership.borrow().epoch().is_some()
    }

    /// How often a leader had to read its lease before it could renew it: the counter `leader_election_slowpath_total`.
    pub fn slow_paths(&self) -> u64 {
        self.0.slow_paths.load(Ordering::Relaxed)
    }

    /// Completes when the current term is not `known`: with the new term, or `None` if this process does not lead any more.
    /// Cancellation-safe.
    ///
    /// ```no_run
    /// # async fn run(status: windlass_runtime::ElectionStatus) {
    /// let mut term = None;
    /// loop {
    ///     term = status.changed_from(term).await;
    ///     match term {
    ///         Some(epoch) => println!("leading in term {epoch}"),
    ///         None => println!("following"),
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn changed_from(&self, known: Option<Epoch>) -> Option<Epoch> {
        let mut leadership = self.subscribe();
        let changed = leadership.wait_for(|now| now.epoch() != known).await;
        changed.expect("this handle holds the sender").epoch()
    }

    /// Returns a channel with the current leadership, which changes with every renewal.
    pub fn subscribe(&self) -> watch::Receiver<Leadership> {
        self.0.leadership.subscribe()
    }

    /// Health check: fails if this process is the leader although its last renewal is longer ago than the lease duration and
    /// `tolerance`. That happens only if the election is not polled any more, so a restart helps.
    pub fn check(&self, tolerance: Duration) -> Result<(), StaleLeader> {
        let Some(renewed) = self.renewed().filter(|_| self.is_leader()) else {
            return Ok(());
        };
        let since = renewed.elapsed();
        if since > self.0.lease + tolerance {
            return Err(StaleLeader {
                lease: self.0.name.clone(),
                since,
            });
        }
        Ok(())
    }

    pub(crate) fn publish(&self, leadership: Leadership, renewed: Option<Instant>) {
        *self.renewed_slot() = renewed;
        self.0.leadership.send_if_modified(|now| {
            let changed = *now != leadership;
            *now = leadership;
            changed
        });
    }

    fn renewed(&self) -> Option<Instant> {
        *self.renewed_slot()
    }

    fn renewed_slot(&self) -> MutexGuard<'_, Option<Instant>> {
        // A poisoned lock is harmless: an `Instant` cannot be half written.
        self.0.renewed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count_slow_paths(&self, total: u64) {
        self.0.slow_paths.store(total, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn health_check_fails_only_for_a_leader_past_its_lease() {
        let follower = Leadership::Follower { holder: None };
        let leader = Leadership::Leader {
            epoch: Epoch(1),
            valid_until: Instant::now(),
        };
        let cases = [
            (&follower, 60, true),
            (&leader, 1, true),
            (&leader, 15, true),
            (&leader, 25, true),
            (&leader, 26, false),
        ];
        for (leadership, age, healthy) in cases {
            let status = ElectionStatus::new("lease".to_owned(), "me".to_owned(), SECOND * 15);
            status.publish(leadership.clone(), Some(Instant::now()));
            tokio::time::advance(SECOND * age).await;
            let checked = status.check(SECOND * 10);
            assert_eq!(checked.is_ok(), healthy, "{leadership:?} after {age} s");
        }
    }
}
