//! What is counted: nodes by phase, how long phases take, and what is in the way of drains.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use windlass::runtime::metrics::{
    DurationHistogram, Metrics, Reading, prometheus_client::metrics::family::Family,
};

use crate::{
    drain::{Blocker, BlockerReason},
    state::Phase,
};

/// From a second to two hours: a phase is a matter of seconds, or of a policy's timeout.
const BUCKETS: [f64; 12] = [
    1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0, 7200.0,
];

/// The figures of a process. Clones are the same.
#[derive(Clone)]
pub(crate) struct Figures(Arc<Inner>);

struct Inner {
    /// By policy and phase. Owned by the controller of policies.
    nodes: Mutex<BTreeMap<String, BTreeMap<&'static str, usize>>>,
    /// By node. Owned by the controller of nodes.
    blockers: Mutex<BTreeMap<String, Vec<Blocker>>>,
    phases: Family<PhaseLabels, DurationHistogram, fn() -> DurationHistogram>,
}

type PhaseLabels = [(&'static str, &'static str); 1];

impl Figures {
    /// Shows them among these.
    pub(crate) fn register(metrics: &Metrics) -> Self {
        let phases = Family::new_with_constructor((|| DurationHistogram::new(&BUCKETS)) as fn() -> _);
        for phase in Phase::ALL {
            let _ = phases.get_or_create(&[("phase", phase.name())]);
        }
        let figures = Self(Arc::new(Inner {
            nodes: Mutex::default(),
            blockers: Mutex::default(),
            phases: phases.clone(),
        }));
        metrics.register(|registry| {
            let help = "How long nodes were in a phase of their reboot";
            registry.register("windlass_reboot_phase_seconds", help, phases);
        });
        let counted = figures.clone();
        let help = "Nodes by the phase of their reboot";
        metrics.read_gauge("windlass_reboot_nodes", help, move || counted.nodes());
        let counted = figures.clone();
        let help = "Pods that are in the way of drains, by reason";
        metrics.read_gauge("windlass_reboot_drain_blockers", help, move || counted.blockers());
        figures
    }

    /// So many nodes of the policy are in each phase.
    pub(crate) fn count(&self, policy: &str, phases: BTreeMap<&'static str, usize>) {
        self.0.nodes.lock().insert(policy.to_owned(), phases);
    }

    /// The policy is gone.
    pub(crate) fn forget(&self, policy: &str) {
        self.0.nodes.lock().remove(policy);
    }

    /// A node left a phase after this long.
    pub(crate) fn left(&self, phase: Phase, after: Duration) {
        let labels = [("phase", phase.name())];
        self.0.phases.get_or_create(&labels).observe(after);
    }

    /// What is in the way of this node's drain; nothing when it is over.
    pub(crate) fn blocked(&self, node: &str, by: Vec<Blocker>) {
        let mut blockers = self.0.blockers.lock();
        if by.is_empty() {
            blockers.remove(node);
        } else {
            blockers.insert(node.to_owned(), by);
        }
    }

    /// What is in the way of this node's drain.
    pub(crate) fn blockers_of(&self, node: &str) -> Vec<Blocker> {
        self.0.blockers.lock().get(node).cloned().unwrap_or_default()
    }

    #[expect(clippy::cast_precision_loss, reason = "nobody has so many nodes")]
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

    #[expect(clippy::cast_precision_loss, reason = "nobody has so many pods")]
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
