//! Metrics: nodes by phase, phase durations, and drain blockers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use windlass::runtime::metrics::{
    DurationHistogram, Metrics, Reading, prometheus_client::metrics::family::Family,
};

use crate::{
    drain::{Blocker, BlockerReason},
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
    /// By policy and phase. Written by the policy controller.
    nodes: Mutex<BTreeMap<String, BTreeMap<&'static str, usize>>>,
    /// By node. Written by the node controller.
    blockers: Mutex<BTreeMap<String, Vec<Blocker>>>,
    phases: Family<PhaseLabels, DurationHistogram, fn() -> DurationHistogram>,
}

type PhaseLabels = [(&'static str, &'static str); 1];

impl RebootMetrics {
    /// Creates the metrics and registers them.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let phases = Family::new_with_constructor((|| DurationHistogram::new(&PHASE_BUCKETS)) as fn() -> _);
        for phase in Phase::ALL {
            let _ = phases.get_or_create(&[("phase", phase.name())]);
        }
        let figures = Self(Arc::new(Inner {
            nodes: Mutex::default(),
            blockers: Mutex::default(),
            phases: phases.clone(),
        }));
        metrics.register(|registry| {
            let help = "Time that nodes spent in a phase of their reboot";
            registry.register("windlass_reboot_phase_duration_seconds", help, phases);
        });
        let counted = figures.clone();
        let help = "Nodes by the phase of their reboot";
        metrics.read_gauge("windlass_reboot_nodes", help, move || counted.nodes());
        let counted = figures.clone();
        let help = "Pods that block drains, by reason";
        metrics.read_gauge("windlass_reboot_drain_blockers", help, move || counted.blockers());
        figures
    }

    /// Sets how many nodes of the policy are in each phase.
    pub(crate) fn set_nodes(&self, policy: &str, phases: BTreeMap<&'static str, usize>) {
        self.0.nodes.lock().insert(policy.to_owned(), phases);
    }

    /// Removes the metrics of a deleted policy.
    pub(crate) fn remove_policy(&self, policy: &str) {
        self.0.nodes.lock().remove(policy);
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
        for (policy, phases) in &*self.0.nodes.lock() {
            for (phase, number) in phases {
                let reading = Reading::new(*number as f64).label("policy", policy.as_str());
                readings.push(reading.label("phase", *phase));
            }
        }
        readings
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
