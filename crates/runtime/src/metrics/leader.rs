//! Who leads, by client-go's names.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::{
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use super::readings::{Read, Reading, ToCounter, ToGauge};

/// The elections that this process takes part in, usually one.
#[derive(Clone, Default)]
pub(super) struct Leaders(Arc<Mutex<Vec<Candidate>>>);

struct Candidate {
    lease: String,
    leads: Box<dyn Fn() -> bool + Send + Sync>,
    slow_paths: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl Leaders {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let leaders = Self::default();
        let asked = leaders.clone();
        let status = Read::new(
            "leader_election_master_status",
            "1 while this process leads",
            move || asked.each(|candidate| f64::from(u8::from((candidate.leads)()))),
            ConstGauge::new as ToGauge,
        );
        registry.register_collector(Box::new(status));
        let asked = leaders.clone();
        let slow_paths = Read::new(
            "leader_election_slowpath",
            "Renewals that had to read the lease first",
            move || asked.each(|candidate| (candidate.slow_paths)()),
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
            leads: Box::new(leads),
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
