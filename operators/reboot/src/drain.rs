//! Drains nodes: plans which pods have to leave, and evicts them in passes.
//!
//! ```text
//!                           ┌ DaemonSet, mirror, finished, not selected ────► ignored
//!   pods of the node ─ plan ┼ protected by the policy (emptyDir, unmanaged) ► blocker
//!   (listed each pass)      ├ terminating ──────────────────────────────────► waited for; blocker once overdue
//!                           └ else ─ pass ─ evict, by UID ─ accepted ───────► waited for
//!                                            │              └ a PDB refuses ─► blocker, retried after 5 s or more
//!                                            └ 404, another UID ────────────► gone
//! ```
//!
//! [`plan`] is pure. A [`Drainer`] remembers only when it may retry a pod's eviction. Each pass lists the pods again,
//! so that after a crash another process can continue.

mod budgets;
mod drainer;

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use windlass::{
    api::labels::Selector,
    api_type,
    k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::LabelSelector},
    kube::ResourceExt,
};

use crate::go_duration::GoDuration;

pub use drainer::{DrainError, DrainMode, Drainer};

/// How long after its grace period a terminating pod becomes a blocker: a busy kubelet needs a moment to report.
const OVERDUE_AFTER: Duration = Duration::from_secs(30);

/// How a node is drained before its reboot.
#[api_type]
#[serde(default)]
pub struct DrainSpec {
    /// Whether pods are evicted. If not, they stop with the node. Default: true.
    pub enabled: bool,
    /// How long draining may take. Default: 10m.
    pub timeout: GoDuration,
    /// What happens after the timeout. Default: Abort.
    pub on_timeout: OnTimeout,
    /// Grace period for the pods. Default: the pod's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<u32>,
    /// Only these pods are evicted. Default: all pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "windlass::schemas::label_selector", extend("nullable" = true))]
    pub pod_selector: Option<LabelSelector>,
    /// These pods are not evicted. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "windlass::schemas::label_selector", extend("nullable" = true))]
    pub ignore_selector: Option<LabelSelector>,
    /// Whether pods with emptyDir volumes are evicted, which deletes their data. If not, they block the drain.
    /// Default: true.
    pub delete_empty_dir: bool,
    /// Whether pods without a controller are evicted, which nothing recreates. If not, they block the drain. Default:
    /// true.
    pub delete_unmanaged: bool,
}

impl Default for DrainSpec {
    fn default() -> Self {
        Self {
            enabled: true,
            timeout: GoDuration::from_mins(10),
            on_timeout: OnTimeout::Abort,
            grace_period_seconds: None,
            pod_selector: None,
            ignore_selector: None,
            delete_empty_dir: true,
            delete_unmanaged: true,
        }
    }
}

/// What happens when a drain times out.
#[api_type]
#[derive(Copy, Eq, Default)]
pub enum OnTimeout {
    /// The reboot is aborted, the node is uncordoned, and the reboot is retried later.
    #[default]
    #[serde(rename = "Abort")]
    Abort,
    /// The remaining pods are deleted without regard to PodDisruptionBudgets, and the node is rebooted.
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
    /// The pod's UID.
    pub uid: String,
    /// The PodDisruptionBudget that refuses the eviction; several that cover the pod are separated by commas.
    pub budget: Option<String>,
    /// The category.
    pub reason: BlockerReason,
    /// Message for humans; the server's own where there is one.
    pub message: String,
}

/// Why a pod cannot leave its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockerReason {
    /// A PodDisruptionBudget allows no disruption now.
    DisruptionBudget,
    /// Several PodDisruptionBudgets cover the pod; the server never evicts such a pod.
    MultipleBudgets,
    /// The pod is terminating, but past its grace period.
    TerminationOverdue,
    /// The pod has an emptyDir volume, and the policy protects such pods.
    EmptyDir,
    /// The pod has no controller, and the policy protects such pods.
    Unmanaged,
    /// The server refused the eviction for another reason.
    EvictionRefused,
}

impl BlockerReason {
    /// All reasons.
    pub const ALL: [Self; 6] = [
        Self::DisruptionBudget,
        Self::MultipleBudgets,
        Self::TerminationOverdue,
        Self::EmptyDir,
        Self::Unmanaged,
        Self::EvictionRefused,
    ];
}

impl fmt::Display for BlockerReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DisruptionBudget => "DisruptionBudget",
            Self::MultipleBudgets => "MultipleBudgets",
            Self::TerminationOverdue => "TerminationOverdue",
            Self::EmptyDir => "EmptyDir",
            Self::Unmanaged => "Unmanaged",
            Self::EvictionRefused => "EvictionRefused",
        })
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            namespace,
            pod,
            reason,
            message,
            ..
        } = self;
        write!(f, "pod {namespace}/{pod}: {reason}: {message}")
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

/// The result of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainProgress {
    /// How many pods still have to leave. Zero: the node is drained.
    pub remaining: usize,
    /// What blocks the drain, sorted by namespace and name.
    pub blockers: Vec<Blocker>,
    /// When to run the next pass at the latest; a pod that leaves earlier is a reason too.
    pub next_pass: Duration,
}

impl DrainProgress {
    /// Returns whether every pod that has to leave has left.
    pub fn is_drained(&self) -> bool {
        self.remaining == 0
    }

    /// Returns whether all remaining pods are past their grace period. On a node whose kubelet is down nothing will
    /// report that they stopped; the reboot ends them.
    pub fn is_overdue(&self) -> bool {
        let overdue = self
            .blockers
            .iter()
            .filter(|one| one.reason == BlockerReason::TerminationOverdue);
        self.remaining > 0 && overdue.count() == self.remaining
    }
}

/// A label selector of a policy is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid label selector {field}: use the operators In, NotIn, Exists and DoesNotExist, with values for the first two"
)]
pub struct InvalidSelector {
    field: &'static str,
}

/// What to do with a node's pods.
#[derive(Clone, Debug, Default)]
pub struct DrainPlan {
    /// To be evicted.
    pub evict: Vec<Arc<Pod>>,
    /// Terminating.
    pub terminating: Vec<Arc<Pod>>,
    /// Terminating, and past their grace period.
    pub overdue: Vec<Blocker>,
    /// Protected from eviction by the policy.
    pub protected: Vec<Blocker>,
    /// Number of pods that may stay.
    pub ignored: usize,
}

/// Plans which of the node's pods have to leave, sorted by namespace and name. Pods of other nodes are skipped.
pub fn plan(
    node: &str,
    pods: &[Arc<Pod>],
    options: &DrainSpec,
    now: Timestamp,
) -> Result<DrainPlan, InvalidSelector> {
    let selected = parse_selector("drain.podSelector", options.pod_selector.as_ref())?;
    let ignored = parse_selector("drain.ignoreSelector", options.ignore_selector.as_ref())?;
    let mut plan = DrainPlan::default();
    let mut pods: Vec<_> = pods.iter().filter(|pod| node_name(pod) == Some(node)).collect();
    pods.sort_by_cached_key(|pod| (pod.namespace(), pod.name_any()));
    for pod in pods {
        let matches = |selector: &Selector| selector.matches_map(pod.labels());
        let passed_over = selected.as_ref().is_some_and(|selector| !matches(selector))
            || ignored.as_ref().is_some_and(matches);
        if passed_over || is_ignored(pod) {
            plan.ignored += 1;
            continue;
        }
        if pod.metadata.deletion_timestamp.is_some() {
            match overdue_blocker(pod, now) {
                Some(blocker) => plan.overdue.push(blocker),
                None => plan.terminating.push(Arc::clone(pod)),
            }
        } else if let Some(blocker) = protected_blocker(pod, options) {
            plan.protected.push(blocker);
        } else {
            plan.evict.push(Arc::clone(pod));
        }
    }
    Ok(plan)
}

pub(crate) fn parse_selector(
    field: &'static str,
    selector: Option<&LabelSelector>,
) -> Result<Option<Selector>, InvalidSelector> {
    let read = selector.map(Selector::try_from);
    read.transpose().map_err(|_| InvalidSelector { field })
}

pub(crate) fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())
}

/// Returns whether evicting the pod is pointless: mirror pods and DaemonSet pods would be recreated at once, and a
/// finished pod runs nothing.
fn is_ignored(pod: &Pod) -> bool {
    is_mirror(pod) || is_finished(pod) || controller_kind(pod) == Some("DaemonSet")
}

fn is_mirror(pod: &Pod) -> bool {
    pod.annotations().contains_key("kubernetes.io/config.mirror")
}

pub(crate) fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The kind of the pod's controller, if it has one.
pub(crate) fn controller_kind(pod: &Pod) -> Option<&str> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners
        .find(|owner| owner.controller == Some(true))
        .map(|owner| owner.kind.as_str())
}

/// Returns the blocker if the policy protects the pod from eviction.
fn protected_blocker(pod: &Pod, options: &DrainSpec) -> Option<Blocker> {
    if !options.delete_unmanaged && controller_kind(pod).is_none() {
        let message = "it has no controller that would recreate it: delete it, or set drain.deleteUnmanaged";
        return Some(Blocker::of(pod, BlockerReason::Unmanaged, message));
    }
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    if !options.delete_empty_dir && volumes.any(|volume| volume.empty_dir.is_some()) {
        let message =
            "it has an emptyDir volume, whose data would be lost: delete it, or set drain.deleteEmptyDir";
        return Some(Blocker::of(pod, BlockerReason::EmptyDir, message));
    }
    None
}

/// Returns the blocker if a terminating pod is past its grace period.
fn overdue_blocker(pod: &Pod, now: Timestamp) -> Option<Blocker> {
    let due = pod.metadata.deletion_timestamp.as_ref()?.0;
    let late = now.duration_since(due);
    if late.is_negative() || late.unsigned_abs() < OVERDUE_AFTER {
        return None;
    }
    let why = match pod.finalizers() {
        [] => "the kubelet has not stopped it".to_owned(),
        finalizers => format!("it has finalizers: {}", finalizers.join(", ")),
    };
    Some(Blocker::of(
        pod,
        BlockerReason::TerminationOverdue,
        format!("it should have stopped at {due}; {why}"),
    ))
}

#[cfg(test)]
mod tests;
