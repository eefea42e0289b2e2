//! A pod's scheduling requirements and resource requests.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        Container, NodeSelectorTerm, Pod, PreferredSchedulingTerm, ResourceRequirements, Toleration,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use windlass_api::quantity::Amount;

/// Requests that are assumed for pods without any, so that such pods spread too. The numbers are kube-scheduler's.
const ASSUMED_CPU: i64 = 100;
const ASSUMED_MEMORY: i64 = 200 << 20;

/// The server has validated the quantity, so an invalid one may count as zero.
pub(super) fn amount(quantity: &Quantity) -> Amount {
    quantity.try_into().unwrap_or(Amount::ZERO)
}

/// Resource amounts: a pod's requests, or a node's allocatable or used resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resources {
    /// In thousandths.
    pub(super) cpu: i64,
    pub(super) memory: i64,
    pub(super) ephemeral_storage: i64,
    /// All other resources by name, without zero amounts.
    pub(super) others: BTreeMap<String, i64>,
}

impl Resources {
    pub(super) fn of(list: Option<&BTreeMap<String, Quantity>>) -> Self {
        let mut amounts = Self::default();
        for (name, quantity) in list.into_iter().flatten() {
            let amount = amount(quantity);
            match name.as_str() {
                "cpu" => amounts.cpu = amount.milli_value(),
                "memory" => amounts.memory = amount.value(),
                "ephemeral-storage" => amounts.ephemeral_storage = amount.value(),
                "pods" => {}
                _ if amount.value() != 0 => {
                    amounts.others.insert(name.clone(), amount.value());
                }
                _ => {}
            }
        }
        amounts
    }

    pub(super) fn add(&mut self, more: &Self) {
        self.combine_each(more, i64::saturating_add);
    }

    pub(super) fn subtract(&mut self, less: &Self) {
        self.combine_each(less, i64::saturating_sub);
        self.others.retain(|_, amount| *amount != 0);
    }

    /// Raises each resource to the amount in `other`, if that is greater.
    fn set_max(&mut self, other: &Self) {
        self.combine_each(other, i64::max);
    }

    fn combine_each(&mut self, other: &Self, combine: impl Fn(i64, i64) -> i64) {
        self.cpu = combine(self.cpu, other.cpu);
        self.memory = combine(self.memory, other.memory);
        self.ephemeral_storage = combine(self.ephemeral_storage, other.ephemeral_storage);
        for (name, amount) in &other.others {
            let own = self.others.entry(name.clone()).or_default();
            *own = combine(*own, *amount);
        }
    }
}

/// A host port of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostPort {
    ip: String,
    protocol: String,
    port: i32,
}

impl HostPort {
    /// Whether both cannot be on one node: the same port and protocol, on the same address or on all addresses.
    pub(super) fn conflicts_with(&self, other: &Self) -> bool {
        let everywhere = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || everywhere(&self.ip) || everywhere(&other.ip))
    }
}

/// The resources and ports that a pod uses on its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodResources {
    pub(super) requests: Resources,
    /// Cpu and memory for scoring, with the assumed amounts in place of zero.
    pub(super) non_zero_requests: (i64, i64),
    pub(super) ports: Vec<HostPort>,
}

/// The requirements of a pod on its node.
#[derive(Clone, Debug, Default)]
pub(super) struct PodRequirements {
    pub(super) resources: PodResources,
    pub(super) selector: BTreeMap<String, String>,
    /// The terms of the required node affinity, one of which must match.
    pub(super) required: Option<Vec<NodeSelectorTerm>>,
    pub(super) preferred: Vec<PreferredSchedulingTerm>,
    pub(super) tolerations: Vec<Toleration>,
    /// `preemptionPolicy: Never`.
    pub(super) never_preempts: bool,
}

impl PodRequirements {
    pub(super) fn of(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else {
            return Self::default();
        };
        let affinity = spec
            .affinity
            .as_ref()
            .and_then(|affinity| affinity.node_affinity.as_ref());
        Self {
            resources: PodResources::of(pod),
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

impl PodResources {
    pub(super) fn of(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else {
            return Self::default();
        };
        let mut together = Resources::default();
        for container in &spec.containers {
            together.add(&requests(container.resources.as_ref()));
        }
        // Init containers run one after the other; sidecars keep running next to all later containers.
        let (mut staying, mut peak) = (Resources::default(), Resources::default());
        for container in spec.init_containers.iter().flatten() {
            let mut now = requests(container.resources.as_ref());
            now.add(&staying);
            if is_sidecar(container) {
                staying.clone_from(&now);
            }
            peak.set_max(&now);
        }
        together.add(&staying);
        together.set_max(&peak);
        let whole = spec.resources.as_ref();
        let whole_pod = requests(whole);
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
        together.add(&Resources::of(spec.overhead.as_ref()));
        let ports = spec
            .containers
            .iter()
            .chain(
                spec.init_containers
                    .iter()
                    .flatten()
                    .filter(|container| is_sidecar(container)),
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
            non_zero_requests: (
                at_least(together.cpu, ASSUMED_CPU),
                at_least(together.memory, ASSUMED_MEMORY),
            ),
            requests: together,
            ports,
        }
    }
}

/// Whether an init container is a sidecar.
fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn requests(resources: Option<&ResourceRequirements>) -> Resources {
    Resources::of(resources.and_then(|resources| resources.requests.as_ref()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resources(spec: &serde_json::Value) -> PodResources {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("a pod");
        PodResources::of(&pod)
    }

    #[test]
    fn init_containers_count_by_maximum_and_sidecars_add_up() {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount, "example.com/gpu": "1"}});
        let found = resources(&json!({
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
        assert_eq!(found.non_zero_requests, (4010, ASSUMED_MEMORY));
    }

    #[test]
    fn pod_level_requests_replace_container_requests() {
        let found = resources(&json!({
            "resources": {"requests": {"cpu": "2"}},
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        }));
        assert_eq!((found.requests.cpu, found.requests.memory), (2000, 1 << 30));
    }

    #[test]
    fn host_port_on_all_addresses_conflicts_with_one_address() {
        let port = |ip: &str, port: i32| HostPort {
            ip: ip.to_owned(),
            protocol: "TCP".to_owned(),
            port,
        };
        assert!(port("", 80).conflicts_with(&port("10.0.0.1", 80)));
        assert!(!port("10.0.0.2", 80).conflicts_with(&port("10.0.0.1", 80)));
        assert!(!port("", 80).conflicts_with(&port("", 81)));
    }
}
