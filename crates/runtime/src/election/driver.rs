//! Runs an election: sends the elector's requests, and publishes the result.

use std::{future::Future, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, api::PostParams};
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use uuid::Uuid;
use windlass_api::status::StatusClass;
use windlass_cache::is_connection_error;
use windlass_clock::Clock;

use super::{
    config::{ElectionConfig, ElectionConfigError, OnLoss, Timing},
    elector::{Elector, Grant, LeaseRequest, LeaseResponse, Step},
    fence::Fence,
    status::{ElectionStatus, Leadership},
};
use crate::{error::message, repeats::Repeats};

/// Delay before a release is retried after a conflict.
const RELEASE_PAUSE: Duration = Duration::from_millis(10);

/// A candidate for leadership by one Lease.
///
/// It does nothing until [`run_until`](Self::run_until) is awaited, beside the leader's work. [`status`](Self::status) and
/// [`fence`](Self::fence) are the handles for the rest of the process.
#[must_use = "an election does nothing until it runs"]
pub struct Election {
    leases: LeaseClient,
    on_loss: OnLoss,
    timing: Timing,
    elector: Elector,
    status: ElectionStatus,
    grant: watch::Sender<Option<Grant>>,
    fence: Fence,
}

/// Why an election failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError {
    /// This process has lost leadership; only with [`OnLoss::Exit`].
    #[error("leader election lost: lease `{lease}` could not be renewed in time or has another holder")]
    Lost {
        /// `namespace/name` of the Lease.
        lease: String,
    },
}

impl Election {
    /// Creates a candidate. The client must not be behind the election's own fence.
    ///
    /// The client needs `get`, `create` and `update` on `leases.coordination.k8s.io` in the Lease's namespace.
    pub fn new(client: Client, config: ElectionConfig) -> Result<Self, ElectionConfigError> {
        config.check()?;
        let ElectionConfig {
            name,
            namespace,
            identity,
            labels,
            on_loss,
            timing,
        } = config;
        let identity = format!("{identity}_{}", Uuid::new_v4());
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let (grant, fence) = Fence::new();
        Ok(Self {
            status: ElectionStatus::new(name.clone(), identity.clone(), timing.lease),
            elector: Elector::new(identity, labels, timing, fastrand::Rng::new()),
            leases: LeaseClient {
                api: Api::namespaced(client, &namespace),
                namespace,
                name,
                repeats: Mutex::default(),
            },
            on_loss,
            timing,
            grant,
            fence,
        })
    }

    /// The namespace and the name of the Lease.
    pub(crate) fn lease(&self) -> (&str, &str) {
        (&self.leases.namespace, &self.leases.name)
    }

    /// Returns a handle to the current leader, the health check and the counters.
    pub fn status(&self) -> ElectionStatus {
        self.status.clone()
    }

    /// Returns the fence, which is open while this process holds the lease.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Acquires the lease and renews it.
    ///
    /// After `stopping` completes, a candidate does not become leader any more, and returns at once if it has never led. A
    /// leader keeps renewing until `ended` completes, which means that the leader's work is over; `ended` is polled only
    /// after `stopping`. Then it closes the fence and releases the lease, so that the next leader need not wait for its
    /// expiry. The release is retried for at most the renew deadline.
    ///
    /// Dropping the returned future instead does not release the lease; the fence closes when the lease expires.
    pub async fn run_until(
        mut self,
        stopping: impl Future<Output = ()>,
        ended: impl Future<Output = ()>,
    ) -> Result<(), ElectionError> {
        let (mut stopping, mut ended) = (std::pin::pin!(stopping), std::pin::pin!(ended));
        let mut is_stopping = false;
        'running: loop {
            let was_leading = self.elector.is_leading();
            if is_stopping && !was_leading {
                // Work of a lost term may still run: the lease is not released before it ends.
                if self.elector.has_led() {
                    ended.await;
                }
                break;
            }
            {
                let mut step = std::pin::pin!(self.step());
                loop {
                    tokio::select! {
                        biased;
                        () = &mut stopping, if !is_stopping => {
                            is_stopping = true;
                            if !was_leading {
                                continue 'running;
                            }
                        }
                        () = &mut ended, if is_stopping => break 'running,
                        () = &mut step => break,
                    }
                }
            }
            if was_leading && !self.elector.is_leading() && self.on_loss == OnLoss::Exit {
                return Err(ElectionError::Lost {
                    lease: self.leases.to_string(),
                });
            }
        }
        self.release().await;
        Ok(())
    }

    /// Sends one request, or waits once.
    async fn step(&mut self) {
        let (now, was_leading) = (Instant::now(), self.elector.is_leading());
        let step = self.elector.next(now, Clock::system().precise_now());
        self.publish();
        let ask = match step {
            // Returns at once, so that the caller handles the loss of leadership.
            Step::Wait(_) if was_leading && !self.elector.is_leading() => return,
            Step::Wait(until) => return sleep_until(until).await,
            Step::Send(ask) => ask,
        };
        let deadline = now + self.timing.request_timeout();
        let until = self
            .elector
            .step_down_at()
            .map_or(deadline, |at| at.min(deadline));
        let answer = match timeout_at(until, self.leases.send(ask)).await {
            Ok(answer) => answer,
            Err(_) => {
                tracing::warn!(lease = %self.leases, "lease request timed out");
                LeaseResponse::Failed
            }
        };
        self.elector.handle_response(Instant::now(), answer);
        self.publish();
    }

    fn publish(&self) {
        let grant = self.elector.grant();
        self.grant.send_if_modified(|open| {
            let changed = *open != grant;
            *open = grant;
            changed
        });
        self.status.count_slow_paths(self.elector.slow_paths());
        let (before, after) = (self.status.leadership(), self.elector.leadership());
        match (&before, &after) {
            (Leadership::Follower { .. }, Leadership::Leader { epoch, .. }) => {
                tracing::info!(lease = %self.leases, epoch = epoch.0, "became the leader");
            }
            (Leadership::Leader { epoch, .. }, Leadership::Follower { holder }) => {
                tracing::info!(lease = %self.leases, epoch = epoch.0, holder, "lost leadership");
            }
            (Leadership::Follower { holder: before }, Leadership::Follower { holder: Some(holder) })
                if before.as_ref() != Some(holder) =>
            {
                tracing::info!(lease = %self.leases, holder, "following a new leader");
            }
            _ => {}
        }
        self.status.publish(after, self.elector.renewed());
    }

    /// Releases the lease, if this process may hold it.
    async fn release(&mut self) {
        self.elector.resign();
        self.publish();
        if !self.elector.has_claimed() {
            return;
        }
        let deadline = Instant::now() + self.timing.renew;
        // The server may still process writes that have passed the fence, so no other process should write yet.
        if timeout_at(deadline, self.fence.idle()).await.is_err() {
            tracing::warn!(lease = %self.leases, "lease not released because writes are in flight; it will expire");
            return;
        }
        loop {
            match timeout_at(deadline, self.try_release()).await {
                Ok(ReleaseResult::Done) => break,
                Ok(ReleaseResult::Retry(pause)) => sleep(pause).await,
                Err(_) => {
                    tracing::warn!(lease = %self.leases, "lease not released in time; it will expire");
                    break;
                }
            }
        }
    }

    async fn try_release(&mut self) -> ReleaseResult {
        let request_timeout = self.timing.request_timeout();
        let failed = ReleaseResult::Retry(self.timing.retry);
        let lease = match timeout(request_timeout, self.leases.send(LeaseRequest::Get)).await {
            Ok(LeaseResponse::Lease(lease)) => lease,
            Ok(LeaseResponse::Absent) => return ReleaseResult::Done,
            Ok(LeaseResponse::Conflict | LeaseResponse::Failed) | Err(_) => return failed,
        };
        let Some(released) = self.elector.released_lease(*lease, Clock::system().precise_now()) else {
            return ReleaseResult::Done;
        };
        match timeout(
            request_timeout,
            self.leases.send(LeaseRequest::Update(Box::new(released))),
        )
        .await
        {
            Ok(LeaseResponse::Lease(_)) => {
                tracing::info!(lease = %self.leases, "released the lease");
                ReleaseResult::Done
            }
            // Perhaps a delayed renewal of this process.
            Ok(LeaseResponse::Conflict) => ReleaseResult::Retry(RELEASE_PAUSE),
            Ok(LeaseResponse::Absent | LeaseResponse::Failed) | Err(_) => failed,
        }
    }
}

impl Drop for Election {
    fn drop(&mut self) {
        // A dropped election does not renew. The fence closes by the clock.
        self.status.publish(Leadership::Follower { holder: None }, None);
    }
}

enum ReleaseResult {
    /// This process does not hold the lease any more.
    Done,
    Retry(Duration),
}

/// The client for the election's Lease.
struct LeaseClient {
    api: Api<Lease>,
    namespace: String,
    name: String,
    /// Of failed requests: the lease is tried again every few seconds.
    repeats: Mutex<Repeats>,
}

impl std::fmt::Display for LeaseClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl LeaseClient {
    async fn send(&self, ask: LeaseRequest) -> LeaseResponse {
        let params = PostParams::default();
        let is_read = matches!(ask, LeaseRequest::Get);
        let answer = match ask {
            LeaseRequest::Get => self.api.get(&self.name).await,
            LeaseRequest::Create(mut lease) => {
                lease.metadata.name = Some(self.name.clone());
                self.api.create(&params, &lease).await
            }
            LeaseRequest::Update(lease) => self.api.replace(&self.name, &params, &lease).await,
        };
        let error = match answer {
            Ok(lease) => {
                self.repeats.lock().solved();
                return LeaseResponse::Lease(Box::new(lease));
            }
            Err(error) => error,
        };
        match StatusClass::of_error(&error).unwrap_or(StatusClass::Other) {
            StatusClass::NotFound if is_read => return LeaseResponse::Absent,
            StatusClass::Conflict | StatusClass::AlreadyExists | StatusClass::UidMismatch => {
                tracing::debug!(lease = %self, error = message(&error), "conflict on the lease");
                return LeaseResponse::Conflict;
            }
            // The connection's log has the first, and an earlier line the second.
            _ if is_connection_error(&error) || !self.repeats.lock().is_due() => {
                tracing::debug!(lease = %self, error = message(&error), "cannot read or write the lease");
            }
            StatusClass::Forbidden => tracing::warn!(
                lease = %self, error = message(&error),
                "access to the lease is forbidden: grant get, create and update on leases.coordination.k8s.io"
            ),
            _ => tracing::warn!(lease = %self, error = message(&error), "cannot read or write the lease"),
        }
        LeaseResponse::Failed
    }
}
