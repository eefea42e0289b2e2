//! Leader election metrics, with client-go's names.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use super::readings::{Reading, ReadingCollector, ToCounter, ToGauge};

/// The leader elections of this process, usually one.
#[derive(Clone, Default)]
pub(super) struct LeaderElections(Arc<Mutex<Vec<Candidate>>>);

struct Candidate {
    lease: String,
    is_leader: Box<dyn Fn() -> bool + Send + Sync>,
    slow_paths: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl LeaderElections {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let leaders = Self::default();
        let elections = leaders.clone();
        let status = ReadingCollector::new(
            "leader_election_master_status",
            "1 while this process leads",
            move || elections.each(|candidate| f64::from(u8::from((candidate.is_leader)()))),
            ConstGauge::new as ToGauge,
        );
        registry.register_collector(Box::new(status));
        let elections = leaders.clone();
        let slow_paths = ReadingCollector::new(
            "leader_election_slowpath",
            "Renewals that had to read the lease first",
            move || elections.each(|candidate| (candidate.slow_paths)()),
            ConstCounter::new as ToCounter,
        );
        registry.register_collector(Box::new(slow_paths));
        leaders
    }

    pub(super) fn add(
        &self,
        lease: &str,
        leads: impl Fn() -> bool + Send + Sync + 'static,
        slow_paths: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        let mut candidates = self.0.lock();
        candidates.retain(|candidate| candidate.lease != lease);
        candidates.push(Candidate {
            lease: lease.to_owned(),
            is_leader: Box::new(leads),
            slow_paths: Box::new(slow_paths),
        });
    }

    fn each<Value>(&self, read: impl Fn(&Candidate) -> Value) -> Vec<Reading<Value>> {
        let candidates = self.0.lock();
        let readings = candidates
            .iter()
            .map(|candidate| Reading::new(read(candidate)).label("name", &candidate.lease));
        readings.collect()
    }
}
