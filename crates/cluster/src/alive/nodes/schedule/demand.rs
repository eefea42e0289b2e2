//! What a pod asks of a node.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Container, NodeSelectorTerm, Pod, PreferredSchedulingTerm, ResourceRequirements, Toleration,
    },
    apimachinery::pkg::api::resource::Quantity,
};

use crate::alive::nodes::amount::{thousandths, units};

/// What a pod counts for that asks for nothing, so that such pods spread too. The numbers are the real scheduler's.
const ASSUMED_CPU: i64 = 100;
const ASSUMED_MEMORY: i64 = 200 << 20;

/// Amounts of resources: those that a pod asks for, those that a node has, or those that are in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    /// In thousandths.
    pub(super) cpu: i64,
    pub(super) memory: i64,
    pub(super) ephemeral_storage: i64,
    /// All others, by name; never of an amount of zero.
    pub(super) others: BTreeMap<String, i64>,
}

impl Amounts {
    pub(super) fn of(list: Option<&BTreeMap<String, Quantity>>) -> Self {
        let mut amounts = Self::default();
        for (name, quantity) in list.into_iter().flatten() {
            match name.as_str() {
                "cpu" => amounts.cpu = thousandths(quantity),
                "memory" => amounts.memory = units(quantity),
                "ephemeral-storage" => amounts.ephemeral_storage = units(quantity),
                "pods" => {}
                _ => {
                    let amount = units(quantity);
                    if amount != 0 {
                        amounts.others.insert(name.clone(), amount);
                    }
                }
            }
        }
        amounts
    }

    pub(super) fn add(&mut self, more: &Self) {
        self.each(more, i64::saturating_add);
    }

    pub(super) fn subtract(&mut self, less: &Self) {
        self.each(less, i64::saturating_sub);
        self.others.retain(|_, amount| *amount != 0);
    }

    /// Of each resource the greater amount.
    fn raise(&mut self, other: &Self) {
        self.each(other, i64::max);
    }

    fn each(&mut self, other: &Self, combine: impl Fn(i64, i64) -> i64) {
        self.cpu = combine(self.cpu, other.cpu);
        self.memory = combine(self.memory, other.memory);
        self.ephemeral_storage = combine(self.ephemeral_storage, other.ephemeral_storage);
        for (name, amount) in &other.others {
            let own = self.others.entry(name.clone()).or_default();
            *own = combine(*own, *amount);
        }
    }
}

/// A port of the node that a pod wants for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPort {
    ip: String,
    protocol: String,
    port: i32,
}

impl HostPort {
    /// Whether both cannot be on one node: the same port of the same address, or of all addresses.
    pub(super) fn clashes(&self, other: &Self) -> bool {
        let everywhere = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || everywhere(&self.ip) || everywhere(&other.ip))
    }
}

/// What a pod takes from the node that it is on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) requests: Amounts,
    /// What counts when nodes are compared: cpu and memory, at least the assumed amounts.
    pub(super) weight: (i64, i64),
    pub(super) ports: Vec<HostPort>,
}

/// What a pod asks of the node that it shall be on.
#[derive(Clone, Debug, Default)]
pub(super) struct Demand {
    pub(super) share: Share,
    pub(super) selector: BTreeMap<String, String>,
    /// The terms of the required node affinity, one of which must match.
    pub(super) required: Option<Vec<NodeSelectorTerm>>,
    pub(super) preferred: Vec<PreferredSchedulingTerm>,
    pub(super) tolerations: Vec<Toleration>,
    /// It would rather wait than have others removed.
    pub(super) never_preempts: bool,
}

impl Demand {
    pub(super) fn of(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else {
            return Self::default();
        };
        let affinity = spec
            .affinity
            .as_ref()
            .and_then(|affinity| affinity.node_affinity.as_ref());
        Self {
            share: Share::of(pod),
            selector: spec.node_selector.clone().unwrap_or_default(),
            required: affinity
                .and_then(|affinity| {
                    affinity
                        .required_during_scheduling_ignored_during_execution
                        .as_ref()
                })
                .map(|required| required.node_selector_terms.clone()),
            preferred: affinity
                .and_then(|affinity| {
                    affinity
                        .preferred_during_scheduling_ignored_during_execution
                        .clone()
                })
                .unwrap_or_default(),
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
        }
    }
}

impl Share {
    pub(super) fn of(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else {
            return Self::default();
        };
        let mut together = Amounts::default();
        for container in &spec.containers {
            together.add(&asked(container.resources.as_ref()));
        }
        // Init containers run one after the other; those that stay run beside all that follow.
        let (mut staying, mut peak) = (Amounts::default(), Amounts::default());
        for container in spec.init_containers.iter().flatten() {
            let mut now = asked(container.resources.as_ref());
            now.add(&staying);
            if stays(container) {
                staying.clone_from(&now);
            }
            peak.raise(&now);
        }
        together.add(&staying);
        together.raise(&peak);
        let whole = spec.resources.as_ref();
        let whole_pod = asked(whole);
        let says = |name: &str| {
            whole.is_some_and(|whole| {
                let lists = [&whole.requests, &whole.limits];
                lists
                    .iter()
                    .any(|list| list.as_ref().is_some_and(|list| list.contains_key(name)))
            })
        };
        if says("cpu") {
            together.cpu = whole_pod.cpu;
        }
        if says("memory") {
            together.memory = whole_pod.memory;
        }
        together.add(&Amounts::of(spec.overhead.as_ref()));
        let ports = spec
            .containers
            .iter()
            .chain(
                spec.init_containers
                    .iter()
                    .flatten()
                    .filter(|container| stays(container)),
            )
            .flat_map(|container| container.ports.iter().flatten())
            .filter_map(|port| {
                Some(HostPort {
                    ip: port.host_ip.clone().unwrap_or_default(),
                    protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
                    port: port.host_port.filter(|port| *port > 0)?,
                })
            })
            .collect();
        let at_least = |amount: i64, assumed: i64| if amount == 0 { assumed } else { amount };
        Self {
            weight: (
                at_least(together.cpu, ASSUMED_CPU),
                at_least(together.memory, ASSUMED_MEMORY),
            ),
            requests: together,
            ports,
        }
    }
}

/// An init container that goes on running: a sidecar.
fn stays(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn asked(resources: Option<&ResourceRequirements>) -> Amounts {
    Amounts::of(resources.and_then(|resources| resources.requests.as_ref()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn share(spec: &serde_json::Value) -> Share {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
        Share::of(&pod)
    }

    #[test]
    fn init_containers_count_where_they_need_more_and_sidecars_beside_the_rest() {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount, "example.com/gpu": "1"}});
        let found = share(&json!({
            "initContainers": [
                {"name": "first", "resources": cpu("3")},
                {"name": "side", "restartPolicy": "Always", "resources": cpu("1")},
                {"name": "second", "resources": cpu("3")},
            ],
            "containers": [{"name": "a", "resources": cpu("1")}, {"name": "b", "resources": cpu("500m")}],
            "overhead": {"cpu": "10m"},
        }));
        assert_eq!(found.requests.cpu, 4010);
        assert_eq!(found.requests.others, [("example.com/gpu".to_owned(), 3)].into());
        assert_eq!(found.weight, (4010, ASSUMED_MEMORY));
    }

    #[test]
    fn what_is_asked_for_the_whole_pod_counts_instead() {
        let found = share(&json!({
            "resources": {"requests": {"cpu": "2"}},
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        }));
        assert_eq!((found.requests.cpu, found.requests.memory), (2000, 1 << 30));
    }

    #[test]
    fn a_port_of_all_addresses_clashes_with_that_of_one() {
        let port = |ip: &str, port: i32| HostPort {
            ip: ip.to_owned(),
            protocol: "TCP".to_owned(),
            port,
        };
        assert!(port("", 80).clashes(&port("10.0.0.1", 80)));
        assert!(!port("10.0.0.2", 80).clashes(&port("10.0.0.1", 80)));
        assert!(!port("", 80).clashes(&port("", 81)));
    }
}
