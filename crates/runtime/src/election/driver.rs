//! Runs an election: does what the elector asks, and publishes what follows.

use std::{future::Future, time::Duration};

use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{Api, Client, api::PostParams};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use uuid::Uuid;

use super::{
    config::{ElectionConfig, ElectionConfigError, OnLoss, Timing},
    elector::{Answer, Ask, Elector, Grant, Step},
    fence::Fence,
    status::{ElectionStatus, Leadership},
};

/// How long to wait before a release is tried again that met another writer.
const RELEASE_PAUSE: Duration = Duration::from_millis(10);

/// A candidate for the leadership of one lease.
///
/// It does nothing until [`run_until`](Self::run_until) is awaited, which belongs to whoever runs the leader's work.
/// [`status`](Self::status) and [`fence`](Self::fence) are the handles for the rest of the process.
#[must_use = "an election does nothing until it runs"]
pub struct Election {
    leases: Leases,
    on_loss: OnLoss,
    timing: Timing,
    elector: Elector,
    status: ElectionStatus,
    grant: watch::Sender<Option<Grant>>,
    fence: Fence,
}

/// Why an election ended by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError {
    /// This process led and does so no longer; only with [`OnLoss::Exit`].
    #[error("leader election lost: lease `{lease}` could not be renewed in time or has another holder")]
    Lost {
        /// Its `namespace/name`.
        lease: String,
    },
}

impl Election {
    /// A candidate that reaches its lease through this client, which must not be behind the election's own fence.
    ///
    /// The client needs the rights to get, create and update `leases.coordination.k8s.io` in the lease's namespace.
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
            leases: Leases {
                api: Api::namespaced(client, &namespace),
                namespace,
                name,
            },
            on_loss,
            timing,
            grant,
            fence,
        })
    }

    /// Who leads, health and counters.
    pub fn status(&self) -> ElectionStatus {
        self.status.clone()
    }

    /// The fence that is open while this process holds the lease.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Competes for the lease and keeps it.
    ///
    /// From `stopping` on a candidate does not come to lead any more, and if it never led, the call returns at once.
    /// A leader goes on renewing until `ended`, by which the caller says that the leader's work is over (it is awaited
    /// from then on), closes the fence and releases the lease, so that the next leader need not wait for it to run
    /// out. The release is tried for the renew deadline at most.
    ///
    /// Dropping the returned future instead releases nothing; the fence closes by itself when the lease ends.
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
                // Work of a term that was lost may still run: nothing is released before its end.
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

    /// One request, or one wait.
    async fn step(&mut self) {
        let (now, was_leading) = (Instant::now(), self.elector.is_leading());
        let step = self.elector.next(now, Timestamp::now());
        self.publish();
        let ask = match step {
            // The caller wants to know of a loss at once.
            Step::Wait(_) if was_leading && !self.elector.is_leading() => return,
            Step::Wait(until) => return sleep_until(until).await,
            Step::Ask(ask) => ask,
        };
        let patience = now + self.timing.request_timeout();
        let until = self
            .elector
            .step_down_at()
            .map_or(patience, |at| at.min(patience));
        let answer = match timeout_at(until, self.leases.ask(ask)).await {
            Ok(answer) => answer,
            Err(_) => {
                tracing::warn!(lease = %self.leases, "a request for the lease took too long");
                Answer::Failed
            }
        };
        self.elector.answer(Instant::now(), answer);
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
                tracing::info!(lease = %self.leases, %epoch, "became the leader");
            }
            (Leadership::Leader { epoch, .. }, Leadership::Follower { holder }) => {
                tracing::info!(lease = %self.leases, %epoch, ?holder, "is not the leader any more");
            }
            (Leadership::Follower { holder: before }, Leadership::Follower { holder: Some(holder) })
                if before.as_ref() != Some(holder) =>
            {
                tracing::info!(lease = %self.leases, holder, "follows a leader");
            }
            _ => {}
        }
        self.status.publish(after, self.elector.renewed());
    }

    /// Gives the lease back, if it may be ours.
    async fn release(&mut self) {
        self.elector.resign();
        self.publish();
        if !self.elector.has_claimed() {
            return;
        }
        let deadline = Instant::now() + self.timing.renew;
        // What has passed the fence may still be carried out, so nobody else should write yet.
        if timeout_at(deadline, self.fence.idle()).await.is_err() {
            tracing::warn!(lease = %self.leases, "not released, because writes are still on their way: it runs out");
            return;
        }
        loop {
            match timeout_at(deadline, self.try_release()).await {
                Ok(Released::Yes) => break,
                Ok(Released::Again(pause)) => sleep(pause).await,
                Err(_) => {
                    tracing::warn!(lease = %self.leases, "could not be released in time: it runs out");
                    break;
                }
            }
        }
    }

    async fn try_release(&mut self) -> Released {
        let patience = self.timing.request_timeout();
        let failed = Released::Again(self.timing.retry);
        let lease = match timeout(patience, self.leases.ask(Ask::Get)).await {
            Ok(Answer::Lease(lease)) => lease,
            Ok(Answer::Absent) => return Released::Yes,
            Ok(Answer::Conflict | Answer::Failed) | Err(_) => return failed,
        };
        let Some(released) = self.elector.released(*lease, Timestamp::now()) else {
            return Released::Yes;
        };
        match timeout(patience, self.leases.ask(Ask::Update(Box::new(released)))).await {
            Ok(Answer::Lease(_)) => {
                tracing::info!(lease = %self.leases, "released");
                Released::Yes
            }
            // Somebody wrote in between, perhaps a renewal of ours that was long on its way.
            Ok(Answer::Conflict) => Released::Again(RELEASE_PAUSE),
            Ok(Answer::Absent | Answer::Failed) | Err(_) => failed,
        }
    }
}

impl Drop for Election {
    fn drop(&mut self) {
        // Who is not run any more renews nothing. The fence needs no help: it goes by the clock.
        self.status.publish(Leadership::Follower { holder: None }, None);
    }
}

enum Released {
    /// It is not ours any more.
    Yes,
    Again(Duration),
}

/// The one lease that an election is about.
struct Leases {
    api: Api<Lease>,
    namespace: String,
    name: String,
}

impl std::fmt::Display for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl Leases {
    async fn ask(&self, ask: Ask) -> Answer {
        let params = PostParams::default();
        let is_read = matches!(ask, Ask::Get);
        let answer = match ask {
            Ask::Get => self.api.get(&self.name).await,
            Ask::Create(mut lease) => {
                lease.metadata.name = Some(self.name.clone());
                self.api.create(&params, &lease).await
            }
            Ask::Update(lease) => self.api.replace(&self.name, &params, &lease).await,
        };
        let error = match answer {
            Ok(lease) => return Answer::Lease(Box::new(lease)),
            Err(error) => error,
        };
        match &error {
            kube::Error::Api(status) if status.code == 404 && is_read => return Answer::Absent,
            kube::Error::Api(status) if status.code == 409 => {
                tracing::debug!(lease = %self, %error, "somebody else wrote the lease");
                return Answer::Conflict;
            }
            kube::Error::Api(status) if status.code == 403 => tracing::warn!(
                lease = %self, %error,
                "may not use the lease: allow get, create and update of leases.coordination.k8s.io"
            ),
            _ => tracing::warn!(lease = %self, %error, "could not read or write the lease"),
        }
        Answer::Failed
    }
}
