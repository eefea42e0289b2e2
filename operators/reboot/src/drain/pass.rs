//! One pass over a node's pods: list, plan, evict what may be asked about.
//!
//! ```text
//!   Drainer ── tries: node → pod's uid → not before, and what was said the last time
//!      pass: list (live) ─► plan ─► those that are due, ten at a time ─► writer.evict ─► progress
//! ```
//!
//! The drainer owns `tries`; a node's are those of pods that were there in its last pass.

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
    runtime::{Clock, Deleted, Evicted, WriteError, WriteErrorKind, Writer},
};

use super::{BadSelector, Blocker, BlockerReason, DrainPlan, DrainProgress, DrainSpec, budgets, plan};

/// How long a pod is let be after it was asked about, at least: what `kubectl drain` waits.
const AGAIN: Duration = Duration::from_secs(5);

/// What was said so long ago decides nothing any more.
const FORGOTTEN: Duration = Duration::from_mins(10);

/// How many evictions of a node are asked for at a time.
const AT_A_TIME: usize = 10;

/// What a pass does about pods that have to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Asks the disruption budgets.
    Evict,
    /// Deletes without asking. Pods that the policy spares stay, and are not waited for; neither are those whose time
    /// was over and that are still there.
    Force,
}

/// A pass did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// The policy cannot be followed.
    #[error(transparent)]
    Selector(#[from] BadSelector),
    /// The pods are not known.
    #[error("cannot list the pods of node {node}")]
    List {
        /// Whose.
        node: String,
        /// Why.
        #[source]
        source: kube::Error,
    },
    /// Whether a pod was evicted is not known.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Drains nodes, each of its passes a little further.
///
/// It needs the rights to list pods and budgets, to create `pods/eviction`, and to delete pods where a policy forces.
pub struct Drainer {
    writer: Writer,
    clock: Clock,
    /// By namespace and name.
    own: Option<ObjectKey>,
    tries: Mutex<HashMap<String, Tries>>,
}

/// By the pod's uid.
type Tries = HashMap<String, Try>;

#[derive(Clone)]
struct Try {
    not_before: Instant,
    /// What was said the last time, until it may be asked about again.
    blocker: Option<Blocker>,
}

impl Try {
    fn is_due(&self, now: Instant, how: How) -> bool {
        let budget = |blocker: &Blocker| {
            matches!(
                blocker.reason,
                BlockerReason::Budget | BlockerReason::SeveralBudgets
            )
        };
        // A budget's no is none where it is not asked.
        self.not_before <= now || how == How::Force && self.blocker.as_ref().is_some_and(budget)
    }
}

impl Drainer {
    /// Evicts with this writer. With one that [stores nothing](Writer::dry_run), a pass tells what would be in the way.
    pub fn new(writer: Writer, clock: Clock) -> Self {
        Self {
            writer,
            clock,
            own: None,
            tries: Mutex::default(),
        }
    }

    /// The pod in which this runs stays, and goes down with its node: on a cluster of one node nobody would be left to go on.
    /// Default: all pods go.
    #[must_use]
    pub fn sparing(mut self, own: Option<ObjectKey>) -> Self {
        self.own = own;
        self
    }

    /// One pass over the node's pods.
    ///
    /// A pod is asked about once in five seconds at most, and more seldom if the server says so, however often this is
    /// called. Passes of one node must not overlap. If it is cancelled, requests under way may or may not have been
    /// carried out; the next pass finds out.
    pub async fn pass(&self, node: &str, options: &DrainSpec, how: How) -> Result<DrainProgress, DrainError> {
        let pods = self.pods(node).await?;
        let plan = plan(node, &pods, options, self.clock.now())?;
        let mut tries = self.known(node, &plan);
        let now = Instant::now();
        let due = |pod: &&Arc<Pod>| tries.get(&uid(pod)).is_none_or(|last| last.is_due(now, how));
        let due: Vec<_> = plan.evict.iter().filter(due).cloned().collect();
        // Noted before it is sent: whoever is cancelled on the way has asked too.
        for pod in &due {
            let asked = Try {
                not_before: now + AGAIN,
                blocker: None,
            };
            tries.insert(uid(pod), asked);
        }
        self.note(node, tries.clone());

        let asked = due
            .into_iter()
            .map(|pod| async move { (uid(&pod), self.ask(&pod, options, how).await) });
        let mut asked = stream::iter(asked).buffered(AT_A_TIME);
        let mut failed = None;
        let mut gone = 0;
        while let Some((uid, answer)) = asked.next().await {
            match answer {
                Ok(Answer::Goes) => {}
                Ok(Answer::Gone) => gone += 1,
                Ok(Answer::Blocked(blocker, wait)) => {
                    let last = tries.get_mut(&uid).expect("noted above");
                    last.not_before = Instant::now() + wait.max(AGAIN);
                    last.blocker = Some(blocker);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        drop(asked);
        let progress = progress(&plan, &tries, gone, how);
        self.note(node, tries);
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(progress),
        }
    }

    /// Forgets what was said about the node's pods; for when it is drained or given back.
    pub fn forget(&self, node: &str) {
        self.tries.lock().remove(node);
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
            .filter(|pod| self.own.as_ref() != Some(&ObjectKey::of(pod)));
        Ok(others.map(Arc::new).collect())
    }

    async fn ask(&self, pod: &Arc<Pod>, options: &DrainSpec, how: How) -> Result<Answer, WriteError> {
        let delete = DeleteParams {
            grace_period_seconds: options.grace_period_seconds,
            ..DeleteParams::default()
        };
        let answer = match how {
            How::Evict => self.writer.evict(pod, &delete).await,
            How::Force => self
                .writer
                .delete_with(&**pod, &delete)
                .await
                .map(|deleted| match deleted {
                    Deleted::Pending(_) => Evicted::Agreed,
                    Deleted::Now | Deleted::Before => Evicted::Before,
                }),
        };
        match answer {
            Ok(Evicted::Agreed) => Ok(Answer::Goes),
            Ok(Evicted::Before) => Ok(Answer::Gone),
            Ok(Evicted::Blocked {
                budget: Some(budget),
                message,
                retry_after,
            }) => {
                let mut blocker = Blocker::of(pod, BlockerReason::Budget, message);
                blocker.budget = Some(budget);
                Ok(Answer::Blocked(blocker, retry_after.unwrap_or(AGAIN)))
            }
            Ok(Evicted::Blocked {
                budget: None,
                message,
                retry_after,
            }) => {
                let blocker = self.several(pod, message).await;
                Ok(Answer::Blocked(blocker, retry_after.unwrap_or(AGAIN)))
            }
            // An answer about this pod is no reason to leave the others.
            Err(error) if matches!(error.kind(), WriteErrorKind::Server(_)) => {
                let blocker = Blocker::of(pod, BlockerReason::Refused, error.to_string());
                Ok(Answer::Blocked(blocker, error.retry_after().unwrap_or(AGAIN)))
            }
            Err(error) => Err(error),
        }
    }

    /// Names the budgets that the server did not.
    async fn several(&self, pod: &Pod, message: String) -> Blocker {
        let names = budgets::covering(self.writer.client(), pod).await;
        let names = names.inspect_err(|error| tracing::debug!(%error, "the budgets of a pod are not known"));
        let names = names.unwrap_or_default().join(",");
        let mut blocker = Blocker::of(pod, BlockerReason::SeveralBudgets, message);
        if !names.is_empty() {
            blocker.message = format!("{} These cover it: {names}.", blocker.message);
            blocker.budget = Some(names);
        }
        blocker
    }

    /// What is known about the pods that are to be evicted. What is known about others is of no use any more.
    fn known(&self, node: &str, plan: &DrainPlan) -> Tries {
        let mut tries = self.tries.lock().get(node).cloned().unwrap_or_default();
        tries.retain(|known, _| {
            plan.evict
                .iter()
                .any(|pod| pod.metadata.uid.as_ref() == Some(known))
        });
        tries
    }

    fn note(&self, node: &str, tries: Tries) {
        keep(&mut self.tries.lock(), node, tries, Instant::now());
    }
}

/// What became of a pod that was asked about.
enum Answer {
    Goes,
    Gone,
    Blocked(Blocker, Duration),
}

fn progress(plan: &DrainPlan, tries: &Tries, gone: usize, how: How) -> DrainProgress {
    let said = tries.values().filter_map(|last| last.blocker.clone());
    let mut blockers: Vec<_> = plan
        .overdue
        .iter()
        .chain(&plan.spared)
        .cloned()
        .chain(said)
        .collect();
    blockers.sort_by(|a, b| (&a.namespace, &a.pod).cmp(&(&b.namespace, &b.pod)));
    let going = plan.evict.len() + plan.wait.len() - gone;
    let left = match how {
        How::Evict => going + plan.overdue.len() + plan.spared.len(),
        How::Force => going,
    };
    // Where all that is left was asked about and said no, there is nothing to see before one may be asked again.
    let blocked = tries.values().filter(|last| last.blocker.is_some()).count();
    let next = tries.values().map(|last| last.not_before).min();
    let wait = next.map(|next| next.saturating_duration_since(Instant::now()));
    DrainProgress {
        left,
        blockers,
        next_try: wait.filter(|_| blocked == left).unwrap_or(AGAIN),
    }
}

fn uid(pod: &Pod) -> String {
    pod.uid().unwrap_or_default()
}

/// Keeps what is known about the node's pods, and no longer what was said long ago about those of others: their drains are
/// over, or the nodes are gone.
fn keep(all: &mut HashMap<String, Tries>, node: &str, tries: Tries, now: Instant) {
    all.retain(|_, tries| tries.values().any(|last| last.not_before + FORGOTTEN > now));
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
    async fn what_is_remembered_about_nodes_that_are_gone_is_forgotten() {
        let one = |not_before| {
            let last = Try {
                not_before,
                blocker: None,
            };
            Tries::from([("uid".to_owned(), last)])
        };
        let (mut all, begin) = (HashMap::new(), Instant::now());
        for second in 0..3600 {
            let now = begin + Duration::from_secs(second);
            keep(&mut all, &format!("node-{second}"), one(now + AGAIN), now);
        }
        assert_eq!(
            all.len(),
            605,
            "ten minutes of them, and those that are to be asked again"
        );
        let now = begin + Duration::from_hours(2);
        keep(&mut all, "node", one(now + AGAIN), now);
        assert_eq!(all.len(), 1);
        keep(&mut all, "node", Tries::new(), now);
        assert!(all.is_empty());
    }
}
