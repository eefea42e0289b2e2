//! `RebootPolicy`: which nodes may reboot when, how many at a time, and the ledger of those that do.
//!
//! The status of a policy is the one place where slots are given out: whoever gives one writes the whole status under the
//! version that it has read, so that of two who try one has to look again.

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
    after::AfterSpec,
    drain::DrainSpec,
    span::Span,
    window::{Exclusion, WindowSpec},
};

/// The policy for nodes that no other one selects. It is created when it is first needed.
pub const DEFAULT_POLICY: &str = "default";

/// How nodes are rebooted. Everything can be left out.
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
#[kube(
    printcolumn = r#"{"name": "Message", "type": "string", "jsonPath": ".status.message", "priority": 1}"#
)]
#[kube(printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#)]
#[derive(Default)]
#[serde(default)]
pub struct RebootPolicySpec {
    /// Which nodes. Empty, or left out: all of them. A policy of any name beats the one named `default`; of two others, the
    /// first by name has the node.
    pub node_selector: LabelSelector,
    /// How many of them may be unavailable, a number or a percentage that is rounded down, to one at least unless it is `0%`.
    /// Nodes that are not Ready count, whatever the reason. Left out: 1.
    pub max_unavailable: Option<IntOrString>,
    /// The same again for the nodes that share the value of a label.
    pub per_topology: Option<PerTopology>,
    /// When nodes may be rebooted. None: always.
    pub windows: Vec<WindowSpec>,
    /// When they may not, whatever the windows say.
    pub exclusions: Vec<Exclusion>,
    /// How their pods leave them before.
    pub drain: DrainSpec,
    /// Which of them comes first.
    pub order: OrderSpec,
    /// The reboot itself.
    pub reboot: RebootSpec,
    /// What has to be true of a node after its reboot.
    pub after: AfterSpec,
    /// How long a node has to stay good before the next one is let go.
    pub soak: Span,
    /// How many nodes have to fail until no other one is let go. Left out: 1.
    #[schemars(range(min = 1))]
    pub failure_budget: Option<u32>,
    /// How long a node rests after it was let go without a reboot. Left out: 5m.
    pub backoff: Option<Span>,
    /// Nothing new begins, and what is not yet armed is undone.
    pub paused: bool,
    /// Nothing happens but that `status.plan` says what would.
    pub dry_run: bool,
}

/// A limit for the nodes that share the value of a label.
#[windlass::part]
pub struct PerTopology {
    /// The label, for example `topology.kubernetes.io/zone`. Nodes without it are counted together.
    pub key: String,
    /// How many of them may be unavailable, a number or a percentage. Left out: 1.
    pub max_unavailable: Option<IntOrString>,
}

/// Which node comes first: workers before the control plane, then by zone, then by name; the controller's own is the last.
#[windlass::part]
#[serde(default)]
pub struct OrderSpec {
    /// Nodes of the control plane wait until no other one is to be rebooted. Left out: true.
    pub control_plane_last: bool,
    /// One zone after the other. Left out: true.
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
#[windlass::part]
#[serde(default)]
pub struct RebootSpec {
    /// How long it may take until the node reports another boot ID. Left out: 15m.
    pub timeout: Span,
}

impl Default for RebootSpec {
    fn default() -> Self {
        Self {
            timeout: Span::from_mins(15),
        }
    }
}

/// Which nodes have a slot, and how far it is.
#[windlass::part]
#[derive(Default)]
#[serde(default)]
pub struct RebootPolicyStatus {
    /// The ledger: the nodes that may be rebooted now.
    pub granted: Vec<Grant>,
    /// The greatest epoch that was ever given to a grant.
    pub epoch: u64,
    /// The generation that this is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many nodes it is for.
    pub nodes: u32,
    /// How many of them are asked to reboot and have no slot.
    pub requested: u32,
    /// How many are on their way, those that have failed left out.
    pub rebooting: u32,
    /// How many have failed.
    pub failed: u32,
    /// How many are not Ready, or have a slot.
    pub unavailable: u32,
    /// How many may be.
    pub max_unavailable: u32,
    /// All of it in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<PolicyPhase>,
    /// What it waits for, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// `Ready`, `Paused`, `Degraded` and `Overlap`.
    pub conditions: Vec<Condition>,
    /// What keeps pods on nodes that are to be drained; the first few.
    pub blockers: Vec<BlockerStatus>,
    /// In a dry run: which nodes would be rebooted in which order; the first few.
    pub plan: Vec<Planned>,
}

/// A slot: this node may be unavailable.
#[windlass::part]
pub struct Grant {
    /// The node.
    pub node: String,
    /// Which one of that name.
    pub uid: String,
    /// Which grant; each has a greater one.
    pub epoch: u64,
    /// When it was given.
    pub at: Time,
    /// The boot that the node was in, if its kubelet told: a slot is for one reboot.
    #[serde(default, rename = "bootID", skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
}

/// How a policy is, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "windlass::schemars")]
pub enum PolicyPhase {
    /// Nobody asks for anything.
    Idle,
    /// Nodes are on their way.
    Rolling,
    /// Nodes are asked to reboot, and none may go now.
    Waiting,
    /// Nothing new begins: somebody said so, or too many nodes have failed.
    Paused,
    /// Nothing happens: it only plans.
    DryRun,
}

impl PolicyPhase {
    /// All of them.
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
#[windlass::part]
pub struct BlockerStatus {
    /// The node.
    pub node: String,
    /// The pod, as `namespace/name`.
    pub pod: String,
    /// The disruption budget, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// Why, in the server's words.
    pub message: String,
}

/// A node that would be rebooted.
#[windlass::part]
pub struct Planned {
    /// The node.
    pub node: String,
    /// With which others; the first batch is 1.
    pub batch: u32,
}
