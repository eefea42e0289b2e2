//! The `RebootPolicy` resource: which nodes may reboot when, how many at a time, and which have a slot.
//!
//! Slots are granted only in the status of a policy. A grant replaces the whole status, conditional on the resource
//! version that was read, so of two concurrent writers one has to start over.

use std::fmt;

use serde::{Deserialize, Serialize};
use windlass::{
    k8s_openapi::apimachinery::pkg::{
        apis::meta::v1::{Condition, LabelSelector, Time},
        util::intstr::IntOrString,
    },
    schemars::JsonSchema,
};

use crate::{
    alerts::AlertSpec,
    drain::DrainSpec,
    go_duration::GoDuration,
    health_check::HealthCheckSpec,
    hooks::HookSpec,
    window::{ExclusionSpec, WindowSpec},
};

/// The policy for nodes that no other policy selects. It is created when it is first needed.
pub const DEFAULT_POLICY: &str = "default";

/// How nodes are rebooted. All fields are optional.
#[windlass::resource(group = "reboot.windlass.dev", version = "v1alpha1")]
#[kube(
    kind = "RebootPolicy",
    plural = "rebootpolicies",
    status = "RebootPolicyStatus",
    shortname = "rbp",
    derive = "Default"
)]
#[kube(printcolumn = r#"{"name": "Nodes", "type": "integer", "jsonPath": ".status.nodes"}"#)]
#[kube(printcolumn = r#"{"name": "Requested", "type": "integer", "jsonPath": ".status.requested"}"#)]
#[kube(printcolumn = r#"{"name": "Rebooting", "type": "integer", "jsonPath": ".status.rebooting"}"#)]
#[kube(printcolumn = r#"{"name": "Failed", "type": "integer", "jsonPath": ".status.failed"}"#)]
#[kube(printcolumn = r#"{"name": "Unavailable", "type": "integer", "jsonPath": ".status.unavailable"}"#)]
#[kube(printcolumn = r#"{"name": "Max", "type": "integer", "jsonPath": ".status.maxUnavailable"}"#)]
#[kube(printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#)]
#[kube(printcolumn = r#"{"name": "Window", "type": "string", "jsonPath": ".status.window", "priority": 1}"#)]
#[kube(
    printcolumn = r#"{"name": "Message", "type": "string", "jsonPath": ".status.message", "priority": 1}"#
)]
#[kube(printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#)]
#[derive(Default)]
#[serde(default)]
pub struct RebootPolicySpec {
    /// Which nodes. Empty: all nodes. Any policy takes precedence over the one named `default`; of several others,
    /// the first by name applies.
    #[schemars(schema_with = "windlass::schemas::label_selector")]
    pub node_selector: LabelSelector,
    /// How many of the nodes may be unavailable: a number, or a percentage that is rounded down, but to at least one
    /// unless it is `0%`. Nodes that are not Ready count, whatever the reason. Default: 1.
    #[schemars(schema_with = "windlass::schemas::int_or_string")]
    pub max_unavailable: Option<IntOrString>,
    /// An additional limit for nodes that share the value of a label.
    pub per_topology: Option<PerTopology>,
    /// When nodes may be rebooted. Empty: always.
    pub windows: Vec<WindowSpec>,
    /// When nodes may not be rebooted, even inside a window.
    pub exclusions: Vec<ExclusionSpec>,
    /// How pods are evicted before the reboot.
    pub drain: DrainSpec,
    /// Which nodes are rebooted first.
    pub order: OrderSpec,
    /// The reboot itself.
    pub reboot: RebootSpec,
    /// What a node must fulfil after its reboot to be healthy.
    pub health_check: HealthCheckSpec,
    /// How long a node has to stay healthy before its slot is released.
    pub soak: GoDuration,
    /// No further node is rebooted once this many nodes have failed. Default: 1.
    #[schemars(range(min = 1))]
    pub failure_budget: Option<u32>,
    /// How long to wait before an aborted node is tried again. It doubles while attempts of the node fail, up to an
    /// hour. Default: 5m.
    pub backoff: Option<GoDuration>,
    /// Jobs that run before the drain and after the reboot.
    pub hooks: HookSpec,
    /// Starts no new reboots while alerts fire. Default: alerts are not looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alerts: Option<AlertSpec>,
    /// Starts no new reboots, and aborts those that are not yet armed.
    pub paused: bool,
    /// Changes nothing; `status.plan` shows what would be rebooted.
    pub dry_run: bool,
}

/// A limit for nodes that share the value of a label.
#[windlass::api_type]
pub struct PerTopology {
    /// The label, for example `topology.kubernetes.io/zone`. Nodes without it are counted together.
    pub key: String,
    /// How many of them may be unavailable: a number or a percentage. Default: 1.
    #[serde(default)]
    #[schemars(schema_with = "windlass::schemas::int_or_string")]
    pub max_unavailable: Option<IntOrString>,
}

/// Which nodes are rebooted first: workers before the control plane, then by zone, then by name. The controller's own
/// node is last.
#[windlass::api_type]
#[serde(default)]
pub struct OrderSpec {
    /// Control-plane nodes wait until no other node has to be rebooted. Default: true.
    pub control_plane_last: bool,
    /// Finishes one zone before the next. Default: true.
    pub by_zone: bool,
}

impl Default for OrderSpec {
    fn default() -> Self {
        Self {
            control_plane_last: true,
            by_zone: true,
        }
    }
}

/// The reboot itself.
#[windlass::api_type]
#[serde(default)]
pub struct RebootSpec {
    /// How long the node may take to report a new boot ID. Default: 30m, which is enough for servers that check
    /// their memory and initialize their controllers at every boot. A node that is later still counts as rebooted.
    pub timeout: GoDuration,
}

impl Default for RebootSpec {
    fn default() -> Self {
        Self {
            timeout: GoDuration::from_mins(30),
        }
    }
}

/// Observed state of a policy: granted slots and progress.
#[windlass::api_type]
#[derive(Default)]
#[serde(default)]
pub struct RebootPolicyStatus {
    /// The nodes that may be rebooted now.
    pub granted: Vec<Grant>,
    /// The highest epoch that was ever granted.
    pub epoch: u64,
    /// The generation that this status describes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of nodes of this policy.
    pub nodes: u32,
    /// Number of nodes that request a reboot and have no slot.
    pub requested: u32,
    /// Number of nodes being rebooted, not counting failed ones.
    pub rebooting: u32,
    /// Number of failed nodes.
    pub failed: u32,
    /// Number of nodes that are not Ready or have a slot.
    pub unavailable: u32,
    /// Number of nodes that may be unavailable.
    pub max_unavailable: u32,
    /// Summary of the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<PolicyPhase>,
    /// Whether a maintenance window is open, and until when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// What the policy is waiting for, for humans: failed nodes, nodes being rebooted and what they wait for, resting
    /// nodes, and why the others have no slot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// `Ready`, `Progressing`, `Paused`, `Degraded`, `Overlap` and `AlertsIgnored`.
    #[schemars(schema_with = "windlass::schemas::conditions")]
    pub conditions: Vec<Condition>,
    /// What keeps pods on nodes that are being drained; the first few.
    pub blockers: Vec<BlockerStatus>,
    /// In a dry run: the order in which nodes would be rebooted; the first few.
    pub plan: Vec<PlannedReboot>,
}

/// A slot: this node may be unavailable.
#[windlass::api_type]
pub struct Grant {
    /// The node's name.
    pub node: String,
    /// The node's UID.
    pub uid: String,
    /// Number of the grant; it increases with every grant.
    pub epoch: u64,
    /// When the slot was granted.
    #[schemars(schema_with = "windlass::schemas::time")]
    pub granted_at: Time,
    /// The node's boot ID at that time, if its kubelet had reported one: a slot is for one reboot.
    #[serde(default, rename = "bootID", skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
}

/// Summary of a policy's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "windlass::schemars")]
pub enum PolicyPhase {
    /// No reboot is requested.
    Idle,
    /// Nodes are being rebooted.
    Rolling,
    /// Reboots are requested, and none may start now; or nodes have failed.
    Waiting,
    /// No reboot starts: the policy is paused or invalid, or too many nodes have failed.
    Paused,
    /// Dry run: reboots are only planned.
    DryRun,
}

impl PolicyPhase {
    /// All phases.
    pub const ALL: [Self; 5] = [
        Self::Idle,
        Self::Rolling,
        Self::Waiting,
        Self::Paused,
        Self::DryRun,
    ];
}

impl fmt::Display for PolicyPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "Idle",
            Self::Rolling => "Rolling",
            Self::Waiting => "Waiting",
            Self::Paused => "Paused",
            Self::DryRun => "DryRun",
        })
    }
}

/// What keeps a pod on its node.
#[windlass::api_type]
pub struct BlockerStatus {
    /// The node's name.
    pub node: String,
    /// The pod, as `namespace/name`.
    pub pod: String,
    /// The PodDisruptionBudget, if one is the cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// The category: `DisruptionBudget`, `MultipleBudgets`, `TerminationOverdue`, `EmptyDir`, `Unmanaged` or `EvictionRefused`.
    #[serde(default)]
    pub reason: String,
    /// The details, as the server reported them where it did.
    pub message: String,
}

/// A node that would be rebooted.
#[windlass::api_type]
pub struct PlannedReboot {
    /// The node's name.
    pub node: String,
    /// Nodes with the same number are rebooted together; the first batch is 1.
    pub batch: u32,
}
