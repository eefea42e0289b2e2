//! Configuration of a leader election.

use std::{collections::BTreeMap, time::Duration};

/// Jitter of candidates' retries, relative to the retry period: a delay is 1 to 2.2 times the period.
pub(crate) const JITTER: f64 = 1.2;

/// The fraction of a lease that its holder does not use, to tolerate clock drift.
const DRIFT_DIVISOR: u32 = 20;

/// The Lease and the timing of a leader election.
///
/// Defaults: the namespace of the client, 15 s lease duration, 10 s renew deadline, 2 s retry period, stand by after a loss,
/// the host name as identity. Candidates may have different timings: the holder's duration is written into the Lease.
///
/// ```
/// use std::time::Duration;
/// use windlass_runtime::{ElectionConfig, OnLoss};
///
/// let config = ElectionConfig::new("foo-controller")
///     .namespace("foo-system")
///     .lease_duration(Duration::from_secs(30))
///     .renew_deadline(Duration::from_secs(20))
///     .on_loss(OnLoss::Exit);
/// # let _ = config;
/// ```
#[derive(Clone, Debug)]
#[must_use = "a configuration does nothing until an election runs with it"]
pub struct ElectionConfig {
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
    pub(crate) identity: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) on_loss: OnLoss,
    pub(crate) timing: Timing,
}

/// What a process does after it lost the lease without being stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// It stays a candidate, with its caches warm, and may be elected again with a new epoch.
    #[default]
    Standby,
    /// The election ends with [`ElectionError::Lost`](crate::ElectionError::Lost), so that the process can restart.
    Exit,
}

/// Why the configuration of an election is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionConfigError {
    /// The lease has no name.
    #[error("the lease name is empty: set a name that is unique to the controller binary")]
    NoName,
    /// The identity is empty, so candidates could not be distinguished.
    #[error("the identity is empty: omit it to use the host name, or set the pod's name")]
    NoIdentity,
    /// A duration is zero.
    #[error("the {0} must be greater than zero")]
    Zero(&'static str),
    /// The API stores the duration as whole seconds in an `i32`.
    #[error(
        "a lease duration of {lease:?} is too long: the API allows at most {} seconds",
        i32::MAX
    )]
    TooLong {
        /// The lease duration.
        lease: Duration,
    },
    /// A leader could still try to renew after another candidate has taken the lease.
    #[error("the lease duration ({lease:?}) must be greater than the renew deadline ({renew:?})")]
    LeaseTooShort {
        /// The lease duration.
        lease: Duration,
        /// The renew deadline.
        renew: Duration,
    },
    /// A leader would have no time for a second attempt.
    #[error("the renew deadline ({renew:?}) must be greater than 1.2 times the retry period ({retry:?})")]
    DeadlineTooShort {
        /// The renew deadline.
        renew: Duration,
        /// The retry period.
        retry: Duration,
    },
}

impl ElectionConfig {
    /// Uses the Lease of this name: one name per controller binary, the same in all its replicas.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: None,
            identity: host_name(),
            labels: BTreeMap::new(),
            on_loss: OnLoss::default(),
            timing: Timing {
                lease: Duration::from_secs(15),
                renew: Duration::from_secs(10),
                retry: Duration::from_secs(2),
            },
        }
    }

    /// The namespace of the Lease. Default: the client's, which in a cluster is that of the pod.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Identity of this candidate. Default: the host name, which in a cluster is that of the pod.
    ///
    /// A random suffix is added, so that a restarted process is not taken for its predecessor, which may still run.
    pub fn identity(mut self, identity: impl Into<String>) -> Self {
        self.identity = identity.into();
        self
    }

    /// Adds a label to the Lease. Other labels are kept. Default: none.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(name.into(), value.into());
        self
    }

    /// How long other candidates wait for a leader that does not renew. Default: 15 s.
    ///
    /// Fractions of a second are allowed. The API has whole seconds only: `leaseDurationSeconds` is rounded up for candidates
    /// of other toolkits, and the annotation `windlass.dev/lease-duration` has the exact duration for ours.
    pub fn lease_duration(mut self, duration: Duration) -> Self {
        self.timing.lease = duration;
        self
    }

    /// How long a leader tries to renew before it steps down. Default: 10 s.
    ///
    /// Between stepping down and the expiry of the lease, running work can still finish its writes.
    pub fn renew_deadline(mut self, duration: Duration) -> Self {
        self.timing.renew = duration;
        self
    }

    /// Delay between two attempts; candidates wait up to 2.2 times as long, at random. Default: 2 s.
    pub fn retry_period(mut self, duration: Duration) -> Self {
        self.timing.retry = duration;
        self
    }

    /// What happens after a loss. Default: [`OnLoss::Standby`].
    pub fn on_loss(mut self, on_loss: OnLoss) -> Self {
        self.on_loss = on_loss;
        self
    }

    pub(crate) fn check(&self) -> Result<(), ElectionConfigError> {
        if self.name.is_empty() {
            return Err(ElectionConfigError::NoName);
        }
        if self.identity.is_empty() {
            return Err(ElectionConfigError::NoIdentity);
        }
        self.timing.check()
    }
}

/// The three durations of an election.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(crate) lease: Duration,
    pub(crate) renew: Duration,
    pub(crate) retry: Duration,
}

impl Timing {
    fn check(&self) -> Result<(), ElectionConfigError> {
        let Self { lease, renew, retry } = *self;
        let named = [
            (lease, "lease duration"),
            (renew, "renew deadline"),
            (retry, "retry period"),
        ];
        if let Some((_, name)) = named.into_iter().find(|(duration, _)| duration.is_zero()) {
            return Err(ElectionConfigError::Zero(name));
        }
        if lease.as_secs() >= i32::MAX.unsigned_abs().into() {
            return Err(ElectionConfigError::TooLong { lease });
        }
        if lease <= renew {
            return Err(ElectionConfigError::LeaseTooShort { lease, renew });
        }
        if renew <= retry.mul_f64(JITTER) {
            return Err(ElectionConfigError::DeadlineTooShort { renew, retry });
        }
        Ok(())
    }

    /// Timeout of one lease request: half the renew deadline, so that there is time for a second one, but at least a second
    /// if the deadline is longer than that.
    pub(crate) fn request_timeout(&self) -> Duration {
        let (half, second) = (self.renew / 2, Duration::from_secs(1));
        if self.renew > second {
            half.max(second)
        } else {
            half
        }
    }
}

/// How long a holder uses a lease of this duration.
pub(crate) fn usable_duration(lease: Duration) -> Duration {
    lease / DRIFT_DIVISOR * (DRIFT_DIVISOR - 1)
}

/// The host name of this process.
fn host_name() -> String {
    std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "windlass".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn invalid_configurations_have_specific_errors() {
        let config = || ElectionConfig::new("lease").identity("me");
        let (lease, renew, retry) = (SECOND * 15, SECOND * 10, SECOND * 2);
        assert_eq!(config().check(), Ok(()));
        let cases = [
            (ElectionConfig::new(""), ElectionConfigError::NoName),
            (config().identity(""), ElectionConfigError::NoIdentity),
            (
                config().lease_duration(Duration::ZERO),
                ElectionConfigError::Zero("lease duration"),
            ),
            (
                config().renew_deadline(Duration::ZERO),
                ElectionConfigError::Zero("renew deadline"),
            ),
            (
                config().retry_period(Duration::ZERO),
                ElectionConfigError::Zero("retry period"),
            ),
            (
                config().renew_deadline(lease),
                ElectionConfigError::LeaseTooShort { lease, renew: lease },
            ),
            (
                config().retry_period(renew),
                ElectionConfigError::DeadlineTooShort { renew, retry: renew },
            ),
            (
                config().renew_deadline(SECOND * 12 / 5),
                ElectionConfigError::DeadlineTooShort {
                    renew: SECOND * 12 / 5,
                    retry,
                },
            ),
            (
                config().lease_duration(Duration::MAX),
                ElectionConfigError::TooLong { lease: Duration::MAX },
            ),
        ];
        for (config, expected) in cases {
            assert_eq!(config.check(), Err(expected));
        }
    }

    #[test]
    fn request_timeout_is_half_the_renew_deadline_but_at_least_a_second() {
        for (renew, expected) in [(10_000, 5000), (1500, 1000), (1000, 500), (200, 100)] {
            let timing = Timing {
                renew: Duration::from_millis(renew),
                ..ElectionConfig::new("lease").timing
            };
            assert_eq!(timing.request_timeout(), Duration::from_millis(expected));
        }
    }
}
