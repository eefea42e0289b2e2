//! One pass over a node's pods: list, plan, evict.
//!
//! ```text
//!   Drainer ── attempts: node → pod UID → earliest retry, last result
//!      pass: list (live) ─► plan ─► evict due pods, 10 at a time ─► progress
//! ```
//!
//! The drainer owns `attempts`; for each node it keeps the pods of the last pass.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::time::Instant;
use windlass::{
    k8s_openapi::api::core::v1::Pod,
    kube::{
        self, Api, ResourceExt,
        api::{DeleteParams, ListParams},
    },
    prelude::ObjectKey,
    runtime::{Clock, DeleteOutcome, EvictOutcome, WriteError, WriteErrorKind, Writer},
};

use super::{Blocker, BlockerReason, DrainPlan, DrainProgress, DrainSpec, InvalidSelector, budgets, plan};

/// Minimum delay between two evictions of a pod; `kubectl drain` waits as long.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(5);

/// How long attempts are kept after their last use.
const ATTEMPT_TTL: Duration = Duration::from_mins(10);

/// Maximum number of concurrent evictions on a node.
const MAX_CONCURRENT_EVICTIONS: usize = 10;

/// How a pass removes pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainMode {
    /// Evicts them, respecting PodDisruptionBudgets.
    Evict,
    /// Deletes them, ignoring PodDisruptionBudgets. Pods that the policy protects and pods past their grace period
    /// stay and are not waited for.
    Force,
}

/// A pass failed.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// A selector of the policy is invalid.
    #[error(transparent)]
    Selector(#[from] InvalidSelector),
    /// The pods cannot be listed.
    #[error("cannot list the pods of node {node}")]
    List {
        /// The node.
        node: String,
        /// The cause.
        #[source]
        source: kube::Error,
    },
    /// An eviction failed with an unknown result.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Drains nodes in passes.
///
/// It needs the rights to list pods and PodDisruptionBudgets, to create `pods/eviction`, and to delete pods for
/// policies that force drains.
pub struct Drainer {
    writer: Writer,
    clock: Clock,
    /// The pod of this process.
    own_pod: Option<ObjectKey>,
    attempts: Mutex<HashMap<String, Attempts>>,
}

/// By the pod's UID.
type Attempts = HashMap<String, Attempt>;

#[derive(Clone)]
struct Attempt {
    not_before: Instant,
    /// The result of the last eviction, if it was refused.
    blocker: Option<Blocker>,
}

impl Attempt {
    fn is_due(&self, now: Instant, how: DrainMode) -> bool {
        let budget = |blocker: &Blocker| {
            matches!(
                blocker.reason,
                BlockerReason::DisruptionBudget | BlockerReason::MultipleBudgets
            )
        };
        // Budgets do not matter to deletions.
        self.not_before <= now || how == DrainMode::Force && self.blocker.as_ref().is_some_and(budget)
    }
}

impl Drainer {
    /// Evicts with this writer. With a [dry-run](Writer::dry_run) writer, a pass reports what would block a drain.
    pub fn new(writer: Writer, clock: Clock) -> Self {
        Self {
            writer,
            clock,
            own_pod: None,
            attempts: Mutex::default(),
        }
    }

    /// Excludes the pod of this process, which stops with its node: on a single-node cluster nothing else could
    /// continue. Default: no pod is excluded.
    #[must_use]
    pub fn exclude_pod(mut self, own: Option<ObjectKey>) -> Self {
        self.own_pod = own;
        self
    }

    /// Runs one pass over the node's pods.
    ///
    /// A pod's eviction is attempted at most every five seconds, or less often if the server asks for it, however
    /// often this is called. Passes of one node must not overlap. If a pass is cancelled, evictions under way may or
    /// may not have taken place; the next pass finds out.
    pub async fn pass(
        &self,
        node: &str,
        options: &DrainSpec,
        how: DrainMode,
    ) -> Result<DrainProgress, DrainError> {
        let pods = self.pods(node).await?;
        let plan = plan(node, &pods, options, self.clock.now())?;
        let mut tries = self.attempts_for(node, &plan);
        let now = Instant::now();
        let due = |pod: &&Arc<Pod>| tries.get(&uid(pod)).is_none_or(|last| last.is_due(now, how));
        let due: Vec<_> = plan.evict.iter().filter(due).cloned().collect();
        // Stored before the requests are sent: a cancelled pass counts as an attempt too.
        for pod in &due {
            let asked = Attempt {
                not_before: now + MIN_RETRY_DELAY,
                blocker: None,
            };
            tries.insert(uid(pod), asked);
        }
        self.store_attempts(node, tries.clone());

        let asked = due
            .into_iter()
            .map(|pod| async move { (uid(&pod), self.evict(&pod, options, how).await) });
        let mut asked = stream::iter(asked).buffered(MAX_CONCURRENT_EVICTIONS);
        let mut failed = None;
        let mut gone = 0;
        while let Some((uid, answer)) = asked.next().await {
            match answer {
                Ok(EvictionResult::Accepted) => {}
                Ok(EvictionResult::Gone) => gone += 1,
                Ok(EvictionResult::Blocked(blocker, wait)) => {
                    let last = tries.get_mut(&uid).expect("stored above");
                    last.not_before = Instant::now() + wait.max(MIN_RETRY_DELAY);
                    last.blocker = Some(blocker);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        drop(asked);
        let progress = progress(&plan, &tries, gone, how);
        self.store_attempts(node, tries);
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(progress),
        }
    }

    /// Forgets the attempts of a node that is drained or no longer drained.
    pub fn forget(&self, node: &str) {
        self.attempts.lock().remove(node);
    }

    async fn pods(&self, node: &str) -> Result<Vec<Arc<Pod>>, DrainError> {
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let listed = Api::<Pod>::all(self.writer.client().clone()).list(&of_node).await;
        let listed = listed.map_err(|source| DrainError::List {
            node: node.to_owned(),
            source,
        })?;
        let others = listed
            .items
            .into_iter()
            .filter(|pod| self.own_pod.as_ref() != Some(&ObjectKey::of(pod)));
        Ok(others.map(Arc::new).collect())
    }

    async fn evict(
        &self,
        pod: &Arc<Pod>,
        options: &DrainSpec,
        how: DrainMode,
    ) -> Result<EvictionResult, WriteError> {
        let delete = DeleteParams {
            grace_period_seconds: options.grace_period_seconds,
            ..DeleteParams::default()
        };
        let answer = match how {
            DrainMode::Evict => self.writer.evict(pod, &delete).await,
            DrainMode::Force => self
                .writer
                .delete_with(&**pod, &delete)
                .await
                .map(|deleted| match deleted {
                    DeleteOutcome::Pending(_) => EvictOutcome::Accepted,
                    DeleteOutcome::Deleted | DeleteOutcome::AlreadyGone => EvictOutcome::AlreadyGone,
                }),
        };
        match answer {
            Ok(EvictOutcome::Accepted) => Ok(EvictionResult::Accepted),
            Ok(EvictOutcome::AlreadyGone) => Ok(EvictionResult::Gone),
            Ok(EvictOutcome::Blocked {
                budget: Some(budget),
                message,
                retry_after,
            }) => {
                let mut blocker = Blocker::of(pod, BlockerReason::DisruptionBudget, message);
                blocker.budget = Some(budget);
                Ok(EvictionResult::Blocked(
                    blocker,
                    retry_after.unwrap_or(MIN_RETRY_DELAY),
                ))
            }
            Ok(EvictOutcome::Blocked {
                budget: None,
                message,
                retry_after,
            }) => {
                let blocker = self.multiple_budgets_blocker(pod, message).await;
                Ok(EvictionResult::Blocked(
                    blocker,
                    retry_after.unwrap_or(MIN_RETRY_DELAY),
                ))
            }
            // An error for one pod must not stop the others.
            Err(error) if matches!(error.kind(), WriteErrorKind::Server(_)) => {
                let blocker = Blocker::of(pod, BlockerReason::EvictionRefused, error.to_string());
                Ok(EvictionResult::Blocked(
                    blocker,
                    error.retry_after().unwrap_or(MIN_RETRY_DELAY),
                ))
            }
            Err(error) => Err(error),
        }
    }

    /// Finds the names of the budgets, which the server does not report.
    async fn multiple_budgets_blocker(&self, pod: &Pod, message: String) -> Blocker {
        let names = budgets::covering(self.writer.client(), pod).await;
        let names = names
            .inspect_err(|error| tracing::debug!(%error, "cannot list the PodDisruptionBudgets of a pod"));
        let names = names.unwrap_or_default().join(",");
        let mut blocker = Blocker::of(pod, BlockerReason::MultipleBudgets, message);
        if !names.is_empty() {
            blocker.message = format!("{} Covered by: {names}.", blocker.message);
            blocker.budget = Some(names);
        }
        blocker
    }

    /// Returns the attempts of the pods that are to be evicted, and drops all others.
    fn attempts_for(&self, node: &str, plan: &DrainPlan) -> Attempts {
        let mut tries = self.attempts.lock().get(node).cloned().unwrap_or_default();
        tries.retain(|known, _| {
            plan.evict
                .iter()
                .any(|pod| pod.metadata.uid.as_ref() == Some(known))
        });
        tries
    }

    fn store_attempts(&self, node: &str, tries: Attempts) {
        store(&mut self.attempts.lock(), node, tries, Instant::now());
    }
}

enum EvictionResult {
    Accepted,
    Gone,
    Blocked(Blocker, Duration),
}

fn progress(plan: &DrainPlan, tries: &Attempts, gone: usize, how: DrainMode) -> DrainProgress {
    let blocked = tries.values().filter_map(|last| last.blocker.clone());
    let mut blockers: Vec<_> = plan
        .overdue
        .iter()
        .chain(&plan.protected)
        .cloned()
        .chain(blocked)
        .collect();
    blockers.sort_by(|a, b| (&a.namespace, &a.pod).cmp(&(&b.namespace, &b.pod)));
    let going = plan.evict.len() + plan.terminating.len() - gone;
    let left = match how {
        DrainMode::Evict => going + plan.overdue.len() + plan.protected.len(),
        DrainMode::Force => going,
    };
    // If every remaining pod was refused, there is nothing to do before the first retry.
    let blocked = tries.values().filter(|last| last.blocker.is_some()).count();
    let next = tries.values().map(|last| last.not_before).min();
    let wait = next.map(|next| next.saturating_duration_since(Instant::now()));
    DrainProgress {
        remaining: left,
        blockers,
        next_pass: wait.filter(|_| blocked == left).unwrap_or(MIN_RETRY_DELAY),
    }
}

fn uid(pod: &Pod) -> String {
    pod.uid().unwrap_or_default()
}

/// Stores the attempts of a node, and drops old ones of other nodes: their drains are over, or the nodes are gone.
fn store(all: &mut HashMap<String, Attempts>, node: &str, tries: Attempts, now: Instant) {
    all.retain(|_, tries| tries.values().any(|last| last.not_before + ATTEMPT_TTL > now));
    if tries.is_empty() {
        all.remove(node);
    } else {
        all.insert(node.to_owned(), tries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn attempts_of_deleted_nodes_are_dropped() {
        let one = |not_before| {
            let last = Attempt {
                not_before,
                blocker: None,
            };
            Attempts::from([("uid".to_owned(), last)])
        };
        let (mut all, begin) = (HashMap::new(), Instant::now());
        for second in 0..3600 {
            let now = begin + Duration::from_secs(second);
            store(
                &mut all,
                &format!("node-{second}"),
                one(now + MIN_RETRY_DELAY),
                now,
            );
        }
        assert_eq!(
            all.len(),
            605,
            "ten minutes of attempts, and those that are still to be retried"
        );
        let now = begin + Duration::from_hours(2);
        store(&mut all, "node", one(now + MIN_RETRY_DELAY), now);
        assert_eq!(all.len(), 1);
        store(&mut all, "node", Attempts::new(), now);
        assert!(all.is_empty());
    }
}
