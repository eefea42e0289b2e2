//! Taking the pods off a node: which of them have to go, and a pass that asks them to.
//!
//! ```text
//!                          ┌ DaemonSet's, mirror, finished, not selected ──► stays
//!   pods of the node ─ plan ┼ the policy spares it (emptyDir, unmanaged) ───► blocker
//!   (listed each pass)      ├ on its way ───────────────────────────────────► waited for; blocker once it is overdue
//!                          └ else ─ pass ─ evict, by uid ─ agreed ──────────► waited for
//!                                            │             └ a budget's no ─► blocker, again in 5 s or later
//!                                            └ 404, another uid ────────────► gone
//! ```
//!
//! [`plan`] is pure. A [`Drainer`] remembers when it may ask about a pod again, and nothing else: what there is to do is
//! found anew by each pass, so that a successor goes on where another one died.

mod budgets;
mod pass;

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use windlass::{
    k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::LabelSelector},
    kube::{
        ResourceExt,
        core::{Selector, SelectorExt},
    },
    part,
};

use crate::span::Span;

pub use pass::{DrainError, Drainer, How};

/// How long after its time a pod that goes is said to be in the way: a busy kubelet needs a moment to tell.
const OVERDUE: Duration = Duration::from_secs(30);

/// How the pods leave a node before it is rebooted.
#[part]
#[serde(default)]
pub struct DrainSpec {
    /// Whether they have to. If not, they are stopped with the node. Default: true.
    pub enabled: bool,
    /// How long it may take. Default: 10m.
    pub timeout: Span,
    /// What happens when they have not gone by then. Default: Abort.
    pub on_timeout: OnTimeout,
    /// How long a pod may take to stop. Default: what the pod says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<u32>,
    /// Only these pods have to go. Default: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    /// These pods stay. Default: none of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignore_selector: Option<LabelSelector>,
    /// Whether pods go that lose files by it. If not, they are in the way. Default: true.
    pub delete_empty_dir: bool,
    /// Whether pods go that nobody makes anew elsewhere. If not, they are in the way. Default: true.
    pub delete_unmanaged: bool,
}

impl Default for DrainSpec {
    fn default() -> Self {
        Self {
            enabled: true,
            timeout: Span::from_mins(10),
            on_timeout: OnTimeout::Abort,
            grace_period_seconds: None,
            pod_selector: None,
            ignore_selector: None,
            delete_empty_dir: true,
            delete_unmanaged: true,
        }
    }
}

/// What happens when a node is not empty in time.
#[part]
#[derive(Copy, Eq, Default)]
pub enum OnTimeout {
    /// The node is given back as it was, and tried again later.
    #[default]
    #[serde(rename = "Abort")]
    Abort,
    /// What is left is deleted without asking the budgets, and the node is rebooted.
    #[serde(rename = "Force")]
    Force,
}

/// What keeps a pod on its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// Which one of that name.
    pub uid: String,
    /// The disruption budget that says no; several that cover the pod, with commas between them.
    pub budget: Option<String>,
    /// What kind of thing it is.
    pub reason: BlockerReason,
    /// What a person reads; the server's words where it has some.
    pub message: String,
}

/// What kind of thing keeps a pod on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockerReason {
    /// A disruption budget allows none now.
    Budget,
    /// More than one budget covers the pod, which the server never evicts.
    SeveralBudgets,
    /// It should have gone by now.
    Overdue,
    /// It has files that would be lost, and the policy spares it.
    EmptyDir,
    /// Nobody would make it anew, and the policy spares it.
    Unmanaged,
    /// The server did not do it, for another reason.
    Refused,
}

impl BlockerReason {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Budget,
        Self::SeveralBudgets,
        Self::Overdue,
        Self::EmptyDir,
        Self::Unmanaged,
        Self::Refused,
    ];
}

impl fmt::Display for BlockerReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Budget => "Budget",
            Self::SeveralBudgets => "SeveralBudgets",
            Self::Overdue => "Overdue",
            Self::EmptyDir => "EmptyDir",
            Self::Unmanaged => "Unmanaged",
            Self::Refused => "Refused",
        })
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod {}/{}: {}", self.namespace, self.pod, self.message)
    }
}

impl Blocker {
    fn of(pod: &Pod, reason: BlockerReason, message: impl Into<String>) -> Self {
        Self {
            namespace: pod.namespace().unwrap_or_default(),
            pod: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            budget: None,
            reason,
            message: message.into(),
        }
    }
}

/// Where a pass has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainProgress {
    /// How many pods still have to go. None: the node is empty.
    pub left: usize,
    /// What is in the way, by namespace and name.
    pub blockers: Vec<Blocker>,
    /// When to pass again, at the latest: a pod that leaves before is a reason too.
    pub next_try: Duration,
}

impl DrainProgress {
    /// Whether every pod that has to go has gone.
    pub fn is_drained(&self) -> bool {
        self.left == 0
    }

    /// Whether all that is left are pods whose time is over: they were asked to go, and nobody says that they did. On a node
    /// whose kubelet is silent nobody will, and the reboot ends them.
    pub fn is_overdue(&self) -> bool {
        let overdue = self
            .blockers
            .iter()
            .filter(|one| one.reason == BlockerReason::Overdue);
        self.left > 0 && overdue.count() == self.left
    }
}

/// A label selector of a policy cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{field} is not a label selector: use the operators In, NotIn, Exists and DoesNotExist, with values for the first two"
)]
pub struct BadSelector {
    field: &'static str,
}

/// What is to be done about a node's pods.
#[derive(Clone, Debug, Default)]
pub struct DrainPlan {
    /// They are to be evicted.
    pub evict: Vec<Arc<Pod>>,
    /// They are on their way.
    pub wait: Vec<Arc<Pod>>,
    /// They should be gone, and are not.
    pub overdue: Vec<Blocker>,
    /// They should go, and the policy does not let them.
    pub spared: Vec<Blocker>,
    /// They may stay.
    pub stay: usize,
}

/// Which of the node's pods have to go, by namespace and name. Pods of other nodes are passed over.
pub fn plan(
    node: &str,
    pods: &[Arc<Pod>],
    options: &DrainSpec,
    now: Timestamp,
) -> Result<DrainPlan, BadSelector> {
    let selected = selector("drain.podSelector", options.pod_selector.as_ref())?;
    let ignored = selector("drain.ignoreSelector", options.ignore_selector.as_ref())?;
    let mut plan = DrainPlan::default();
    let mut pods: Vec<_> = pods.iter().filter(|pod| node_of(pod) == Some(node)).collect();
    pods.sort_by_cached_key(|pod| (pod.namespace(), pod.name_any()));
    for pod in pods {
        let matches = |selector: &Selector| selector.matches(pod.labels());
        let passed_over = selected.as_ref().is_some_and(|selector| !matches(selector))
            || ignored.as_ref().is_some_and(matches);
        if passed_over || may_stay(pod) {
            plan.stay += 1;
            continue;
        }
        if pod.metadata.deletion_timestamp.is_some() {
            match overdue(pod, now) {
                Some(blocker) => plan.overdue.push(blocker),
                None => plan.wait.push(Arc::clone(pod)),
            }
        } else if let Some(blocker) = spared(pod, options) {
            plan.spared.push(blocker);
        } else {
            plan.evict.push(Arc::clone(pod));
        }
    }
    Ok(plan)
}

pub(crate) fn selector(
    field: &'static str,
    selector: Option<&LabelSelector>,
) -> Result<Option<Selector>, BadSelector> {
    let read = selector.map(|selector| Selector::try_from(selector.clone()));
    read.transpose().map_err(|_| BadSelector { field })
}

pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())
}

/// Whether nothing is won by its going: a kubelet's own pods and a DaemonSet's would be back at once, and one that has
/// finished runs nothing that a reboot could hurt.
fn may_stay(pod: &Pod) -> bool {
    is_mirror(pod) || is_finished(pod) || controller_kind(pod) == Some("DaemonSet")
}

fn is_mirror(pod: &Pod) -> bool {
    pod.annotations().contains_key("kubernetes.io/config.mirror")
}

pub(crate) fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The kind of what keeps the pod there, if anything does.
pub(crate) fn controller_kind(pod: &Pod) -> Option<&str> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners
        .find(|owner| owner.controller == Some(true))
        .map(|owner| owner.kind.as_str())
}

/// Why the policy does not let it be evicted, if it does not.
fn spared(pod: &Pod, options: &DrainSpec) -> Option<Blocker> {
    if !options.delete_unmanaged && controller_kind(pod).is_none() {
        let message = "nothing would make it anew elsewhere: delete it, or set drain.deleteUnmanaged";
        return Some(Blocker::of(pod, BlockerReason::Unmanaged, message));
    }
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    if !options.delete_empty_dir && volumes.any(|volume| volume.empty_dir.is_some()) {
        let message = "it has an emptyDir, whose files would be lost: delete it, or set drain.deleteEmptyDir";
        return Some(Blocker::of(pod, BlockerReason::EmptyDir, message));
    }
    None
}

/// Says so if a pod that goes should be gone.
fn overdue(pod: &Pod, now: Timestamp) -> Option<Blocker> {
    let due = pod.metadata.deletion_timestamp.as_ref()?.0;
    let late = now.duration_since(due);
    if late.is_negative() || late.unsigned_abs() < OVERDUE {
        return None;
    }
    let why = match pod.finalizers() {
        [] => "its kubelet has not stopped it".to_owned(),
        finalizers => format!("it waits for finalizers: {}", finalizers.join(", ")),
    };
    Some(Blocker::of(
        pod,
        BlockerReason::Overdue,
        format!("it should be gone since {due}; {why}"),
    ))
}

#[cfg(test)]
mod tests;
