//! Metrics: policies by reason, nodes by phase, each node that is not idle, outcomes, phase durations and drain blockers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use windlass::runtime::metrics::{
    DurationHistogram, Metrics, Reading,
    prometheus_client::metrics::{counter::Counter, family::Family},
};

use crate::{
    drain::{Blocker, BlockerReason},
    progress::ProgressReason,
    state::Phase,
};

/// From a second to two hours: a phase takes seconds, or up to a policy's timeout.
const PHASE_BUCKETS: [f64; 12] = [
    1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0, 7200.0,
];

/// The metrics of a process. Clones share them.
#[derive(Clone)]
pub(crate) struct RebootMetrics(Arc<Inner>);

struct Inner {
    /// By policy. Written by the policy controller.
    policies: Mutex<BTreeMap<String, PolicyFigures>>,
    /// By policy and outcome.
    outcomes: Family<OutcomeLabels, Counter>,
    /// By node. Written by the node controller.
    blockers: Mutex<BTreeMap<String, Vec<Blocker>>>,
    phases: Family<PhaseLabels, DurationHistogram, fn() -> DurationHistogram>,
}

type PhaseLabels = [(&'static str, &'static str); 1];
type OutcomeLabels = [(&'static str, String); 2];

/// What is counted for a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyFigures {
    /// The reason of its condition `Progressing`.
    pub(crate) reason: ProgressReason,
    /// How many of its nodes are in each phase.
    pub(crate) phases: BTreeMap<&'static str, usize>,
    /// Its nodes that are not idle: name, phase and aborted attempts.
    pub(crate) nodes: Vec<(String, &'static str, u32)>,
}

/// How an attempt to reboot a node ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Completed,
    Failed,
    Aborted,
    Cancelled,
}

impl Outcome {
    /// The outcome of a step to this phase; `None` if it is not the last one.
    pub(crate) fn of(next: Option<Phase>, is_completed: bool) -> Option<Self> {
        match next {
            None if is_completed => Some(Self::Completed),
            None => Some(Self::Cancelled),
            Some(Phase::Failed) => Some(Self::Failed),
            Some(Phase::Aborted) => Some(Self::Aborted),
            Some(_) => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::Aborted => "Aborted",
            Self::Cancelled => "Cancelled",
        }
    }
}

impl RebootMetrics {
    /// Creates the metrics and registers them.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let phases = Family::new_with_constructor((|| DurationHistogram::new(&PHASE_BUCKETS)) as fn() -> _);
        for phase in Phase::ALL {
            let _ = phases.get_or_create(&[("phase", phase.name())]);
        }
        let outcomes = Family::<OutcomeLabels, Counter>::default();
        let figures = Self(Arc::new(Inner {
            policies: Mutex::default(),
            outcomes: outcomes.clone(),
            blockers: Mutex::default(),
            phases: phases.clone(),
        }));
        metrics.register(|registry| {
            let help = "Time that nodes spent in a phase of their reboot";
            registry.register("windlass_reboot_phase_duration_seconds", help, phases);
            // The name of a counter gets the suffix `_total`.
            let help = "Attempts to reboot a node that ended, by outcome";
            registry.register("windlass_reboot_attempts", help, outcomes);
        });
        let counted = figures.clone();
        let help = "Nodes by the phase of their reboot";
        metrics.read_gauge("windlass_reboot_nodes", help, move || counted.nodes());
        let counted = figures.clone();
        let help = "1 for each node that is not idle, with the phase of its reboot";
        metrics.read_gauge("windlass_reboot_node_phase", help, move || counted.node_phases());
        let counted = figures.clone();
        let help = "Attempts that were aborted because of the node, for each node that is not idle";
        metrics.read_gauge("windlass_reboot_node_aborts", help, move || counted.node_aborts());
        let counted = figures.clone();
        let help = "1 for each policy, with the reason of its condition Progressing";
        metrics.read_gauge("windlass_reboot_policy_progress", help, move || {
            counted.progress()
        });
        let counted = figures.clone();
        let help = "Pods that block drains, by reason";
        metrics.read_gauge("windlass_reboot_drain_blockers", help, move || counted.blockers());
        figures
    }

    /// Sets the figures of a policy.
    pub(crate) fn set_policy(&self, policy: &str, figures: PolicyFigures) {
        self.0.policies.lock().insert(policy.to_owned(), figures);
    }

    /// Removes the metrics of a deleted policy.
    pub(crate) fn remove_policy(&self, policy: &str) {
        self.0.policies.lock().remove(policy);
    }

    /// Counts the end of an attempt.
    pub(crate) fn count_outcome(&self, policy: &str, outcome: Outcome) {
        let labels = [
            ("policy", policy.to_owned()),
            ("outcome", outcome.name().to_owned()),
        ];
        self.0.outcomes.get_or_create(&labels).inc();
    }

    /// Records how long a node was in a phase.
    pub(crate) fn observe_phase(&self, phase: Phase, after: Duration) {
        let labels = [("phase", phase.name())];
        self.0.phases.get_or_create(&labels).observe(after);
    }

    /// Sets what blocks the drain of a node; empty when the drain is over.
    pub(crate) fn set_blockers(&self, node: &str, by: Vec<Blocker>) {
        let mut blockers = self.0.blockers.lock();
        if by.is_empty() {
            blockers.remove(node);
        } else {
            blockers.insert(node.to_owned(), by);
        }
    }

    /// Returns what blocks the drain of a node.
    pub(crate) fn blockers_of(&self, node: &str) -> Vec<Blocker> {
        self.0.blockers.lock().get(node).cloned().unwrap_or_default()
    }

    #[expect(clippy::cast_precision_loss, reason = "node counts are far below 2^53")]
    fn nodes(&self) -> Vec<Reading<f64>> {
        let mut readings = Vec::new();
        for (policy, figures) in &*self.0.policies.lock() {
            for (phase, number) in &figures.phases {
                let reading = Reading::new(*number as f64).label("policy", policy.as_str());
                readings.push(reading.label("phase", *phase));
            }
        }
        readings
    }

    fn node_phases(&self) -> Vec<Reading<f64>> {
        let policies = self.0.policies.lock();
        let nodes = policies
            .iter()
            .flat_map(|(policy, figures)| figures.nodes.iter().map(move |node| (policy, node)));
        let reading = |(policy, (node, phase, _)): (&String, &(String, &'static str, u32))| {
            let reading = Reading::new(1.0).label("policy", policy.as_str());
            reading.label("node", node.as_str()).label("phase", *phase)
        };
        nodes.map(reading).collect()
    }

    fn node_aborts(&self) -> Vec<Reading<f64>> {
        let policies = self.0.policies.lock();
        let nodes = policies
            .iter()
            .flat_map(|(policy, figures)| figures.nodes.iter().map(move |node| (policy, node)));
        let reading = |(policy, (node, _, aborts)): (&String, &(String, &'static str, u32))| {
            let reading = Reading::new(f64::from(*aborts)).label("policy", policy.as_str());
            reading.label("node", node.as_str())
        };
        nodes.map(reading).collect()
    }

    fn progress(&self) -> Vec<Reading<f64>> {
        let policies = self.0.policies.lock();
        let reading = |(policy, figures): (&String, &PolicyFigures)| {
            let reading = Reading::new(1.0).label("policy", policy.as_str());
            reading.label("reason", figures.reason.to_string())
        };
        policies.iter().map(reading).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "pod counts are far below 2^53")]
    fn blockers(&self) -> Vec<Reading<f64>> {
        let blockers = self.0.blockers.lock();
        let all = BlockerReason::ALL.into_iter();
        let count = |reason| {
            blockers
                .values()
                .flatten()
                .filter(|one| one.reason == reason)
                .count()
        };
        all.map(|reason| Reading::new(count(reason) as f64).label("reason", reason.to_string()))
            .collect()
    }
}
