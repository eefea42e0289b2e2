//! Who leads, as the rest of the process sees it.
//!
//! The driver of the election is the only writer; everybody else has a handle that reads.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

/// The number of a term of leadership: each leader of a lease has a greater one than all before it.
///
/// It is the Lease's `leaseTransitions`. A reconciler may store it with what it writes to systems outside of
/// Kubernetes, and have them refuse a smaller one.
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
    /// It does not.
    Follower {
        /// Who does, as far as is known.
        holder: Option<String>,
    },
    /// It does.
    Leader {
        /// Its term.
        epoch: Epoch,
        /// When the term ends unless it is renewed before.
        valid_until: Instant,
    },
}

impl Leadership {
    /// The term that this process leads in, if it leads.
    pub fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::Follower { .. } => None,
            Self::Leader { epoch, .. } => Some(*epoch),
        }
    }
}

/// An election seen from outside: for health checks, metrics and whoever waits to lead. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ElectionStatus(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The name of the lease.
    name: String,
    identity: String,
    lease: Duration,
    leadership: watch::Sender<Leadership>,
    /// When this process last learnt that it holds the lease.
    renewed: Mutex<Option<Instant>>,
    slow_paths: AtomicU64,
}

/// A leader that neither renewed nor stepped down for too long, from [`ElectionStatus::check`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process still counts as the leader of lease `{lease}` although it last renewed it {since:?} ago"
)]
pub struct Overdue {
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

    /// What this process calls itself in the lease.
    pub fn identity(&self) -> &str {
        &self.0.identity
    }

    /// Who leads now.
    pub fn leadership(&self) -> Leadership {
        self.0.leadership.borrow().clone()
    }

    /// Whether this process leads: the gauge `leader_election_master_status`.
    pub fn is_leader(&self) -> bool {
        self.0.leadership.borrow().epoch().is_some()
    }

    /// How often a leader had to read its lease again before it could renew it: the counter
    /// `leader_election_slowpath_total`.
    pub fn slow_paths(&self) -> u64 {
        self.0.slow_paths.load(Ordering::Relaxed)
    }

    /// Returns the new term once this process leads in another one than `known`, or `None` once it leads no longer.
    /// Cancellation-safe.
    ///
    /// ```no_run
    /// # async fn run(status: windlass_runtime::ElectionStatus) {
    /// let mut term = None;
    /// loop {
    ///     term = status.changed_from(term).await;
    ///     match term {
    ///         Some(epoch) => println!("leads in term {epoch}"),
    ///         None => println!("follows"),
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn changed_from(&self, known: Option<Epoch>) -> Option<Epoch> {
        let mut leadership = self.subscribe();
        let changed = leadership.wait_for(|now| now.epoch() != known).await;
        changed.expect("this handle keeps the sender").epoch()
    }

    /// A channel that has the current leadership and is told of each change, renewals included.
    pub fn subscribe(&self) -> watch::Receiver<Leadership> {
        self.0.leadership.subscribe()
    }

    /// A health check: fails if this process still counts as the leader later than the lease duration and `tolerance`
    /// after its last renewal. That happens only if the election is not run any more, so a restart is the remedy.
    pub fn check(&self, tolerance: Duration) -> Result<(), Overdue> {
        let Some(renewed) = self.renewed().filter(|_| self.is_leader()) else {
            return Ok(());
        };
        let since = renewed.elapsed();
        if since > self.0.lease + tolerance {
            return Err(Overdue {
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
        // An instant cannot be half written.
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

    /// 119: only a process that still counts as leader long after its lease is unhealthy.
    #[tokio::test(start_paused = true)]
    async fn only_a_leader_long_past_its_lease_is_unhealthy() {
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
