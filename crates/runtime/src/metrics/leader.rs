//! Who leads, by controller-runtime's names.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// The figures of one candidate, from [`Metrics::leader`](super::Metrics::leader).
#[derive(Clone, Debug)]
pub struct LeaderMetrics {
    status: Gauge,
    slow: Counter,
}

impl LeaderMetrics {
    /// It leads from now on.
    pub fn leads(&self) {
        self.status.set(1);
    }

    /// It does not, or no longer.
    pub fn follows(&self) {
        self.status.set(0);
    }

    /// It had to read the lease before it could renew it.
    pub fn slow_path(&self) {
        self.slow.inc();
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    name: String,
}

#[derive(Debug)]
pub(super) struct Leaders {
    status: Family<Labels, Gauge>,
    slow: Family<Labels, Counter>,
}

impl Leaders {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let families = Self {
            status: Family::default(),
            slow: Family::default(),
        };
        let registry = registry.sub_registry_with_prefix("leader_election");
        registry.register(
            "master_status",
            "1 while this process leads",
            families.status.clone(),
        );
        registry.register(
            "slowpath",
            "Renewals that had to read the lease first",
            families.slow.clone(),
        );
        families
    }

    pub(super) fn lease(&self, name: &str) -> LeaderMetrics {
        let labels = Labels {
            name: name.to_owned(),
        };
        LeaderMetrics {
            status: self.status.get_or_create_owned(&labels),
            slow: self.slow.get_or_create_owned(&labels),
        }
    }
}
