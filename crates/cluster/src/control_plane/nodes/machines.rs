//! The simulated machines behind the nodes: their actual state, whatever the API shows.
//!
//! ```text
//!   Nodes (the tests' handle) ──► Machines ◄── kubelets: power, boot ID, addresses
//!                                    └─ WakeQueue: nodes and pods to reconcile
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::watch;
use windlass_runtime::ObjectKey;

use super::{identity::digest, node_spec::NodeSpec, wake_queue::WakeQueue};

/// The first node address, and the first pod address; each node has 256 pod addresses.
const FIRST_NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(172, 18, 0, 2);
const FIRST_POD_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 0);

/// All machines of a cluster. Clones share the same machines.
#[derive(Clone, Default)]
pub(crate) struct Machines {
    shared: Arc<Shared>,
    /// Nodes to reconcile because their machine changed.
    pub(super) node_queue: WakeQueue,
    /// Pods to reconcile because their machine changed.
    pub(super) pod_queue: WakeQueue,
}

#[derive(Default)]
struct Shared {
    /// Never locked across an await.
    state: Mutex<State>,
    /// Incremented on every change, to wake waiting tasks.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) machines: BTreeMap<String, Machine>,
    closed: bool,
    /// How many machines were ever created; the next machine's number.
    created: u32,
    /// How many boots there were on all machines; makes boot IDs unique.
    boots: u64,
}

pub(super) struct Machine {
    pub(super) spec: NodeSpec,
    pub(super) number: u32,
    pub(super) boot_id: String,
    pub(super) power: Power,
    /// When a machine that is off starts again.
    pub(super) on_at: Option<tokio::time::Instant>,
    /// When its last boot ended, if it has rebooted.
    pub(super) booted_at: Option<tokio::time::Instant>,
    /// Whether its network reaches the API server.
    pub(super) connected: bool,
    pub(super) registration: Registration,
    /// Whether the scheduler has seen its node without repelling taints.
    pub(super) schedulable: bool,
    /// The last octet of the addresses in use, by pod.
    addresses: BTreeMap<ObjectKey, u8>,
    /// The pods bound to its node.
    pub(super) pods: BTreeSet<ObjectKey>,
    /// Images that were pulled already.
    pub(super) images: BTreeSet<String>,
}

/// Power state of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Power {
    /// Running.
    On,
    /// Shutting down: its kubelet still reports `NotReady`.
    Stopping,
    /// Off or booting.
    Off,
    /// Hung: nothing on it makes progress.
    Hung,
}

/// Whether a kubelet has registered its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Registration {
    /// Not registered since the machine booted.
    Unregistered,
    /// Registered, but disconnected or hung since its last report.
    Stale,
    /// Registered and up to date.
    Registered,
}

impl Machines {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("no panic while locked")
    }

    /// Wakes all tasks that wait for a change.
    pub(super) fn notify_waiters(&self) {
        self.shared.changed.send_modify(|count| *count += 1);
    }

    /// Waits until `test` returns true, or the cluster has stopped. Cancellation-safe.
    pub(super) async fn wait_until(&self, test: impl Fn(&State) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        loop {
            {
                let state = self.lock();
                if state.closed || test(&state) {
                    return;
                }
            }
            changed.changed().await.expect("the sender is in `shared`");
        }
    }

    /// Marks the cluster as stopped, and wakes all waiting tasks.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.notify_waiters();
    }

    /// Adds a machine that is switched on. Returns false if the name is taken.
    pub(crate) fn add(&self, spec: NodeSpec) -> bool {
        let name = spec.name.clone();
        let mut state = self.lock();
        if state.machines.contains_key(&name) {
            return false;
        }
        let number = state.created;
        state.created += 1;
        let machine = Machine {
            spec,
            number,
            boot_id: state.next_boot_id(&name),
            power: Power::On,
            on_at: None,
            booted_at: None,
            connected: true,
            registration: Registration::Unregistered,
            schedulable: false,
            addresses: BTreeMap::new(),
            pods: BTreeSet::new(),
            images: BTreeSet::new(),
        };
        state.machines.insert(name.clone(), machine);
        drop(state);
        self.notify_waiters();
        self.node_queue.add(ObjectKey::cluster_scoped(name));
        true
    }

    /// Records that the scheduler may bind pods to this node.
    pub(super) fn mark_schedulable(&self, name: &str) {
        if let Some(machine) = self.lock().machines.get_mut(name) {
            machine.schedulable = true;
        }
        self.notify_waiters();
    }

    /// Waits until the nodes of all running machines are schedulable. Cancellation-safe.
    pub(crate) async fn wait_until_all_schedulable(&self) {
        let open = |machine: &Machine| machine.schedulable || machine.power != Power::On;
        self.wait_until(|state| state.machines.values().all(open)).await;
    }

    /// Names of the machines whose kubelets send heartbeats.
    pub(super) fn sending_heartbeats(&self) -> Vec<String> {
        let state = self.lock();
        let beating = state.machines.iter().filter(|(_, machine)| {
            machine.registration != Registration::Unregistered && machine.can_reach_api()
        });
        beating.map(|(name, _)| name.clone()).collect()
    }
}

impl State {
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns a new boot ID.
    pub(super) fn next_boot_id(&mut self, name: &str) -> String {
        self.boots += 1;
        super::identity::uuid(&format!("boot {} of {name}", self.boots))
    }
}

impl Machine {
    pub(super) fn can_reach_api(&self) -> bool {
        self.connected && matches!(self.power, Power::On | Power::Stopping)
    }

    pub(super) fn address(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(FIRST_NODE_ADDRESS).wrapping_add(self.number))
    }

    fn first_pod_address(&self) -> u32 {
        u32::from(FIRST_POD_ADDRESS).wrapping_add(self.number.wrapping_mul(256))
    }

    pub(super) fn pod_cidr(&self) -> String {
        format!("{}/24", Ipv4Addr::from(self.first_pod_address()))
    }

    pub(super) fn machine_id(&self) -> String {
        digest(&format!("machine {} {}", self.number, self.spec.name))[..32].to_owned()
    }

    /// Returns the pod's address, allocating a free one on the first call. `None` if all are in use.
    pub(super) fn allocate_pod_address(&mut self, pod: &ObjectKey) -> Option<Ipv4Addr> {
        let last = match self.addresses.get(pod) {
            Some(last) => *last,
            None => {
                let taken: BTreeSet<_> = self.addresses.values().copied().collect();
                // 0 is the network, 1 the node itself, 255 broadcast.
                let free = (2..=254).find(|last| !taken.contains(last))?;
                self.addresses.insert(pod.clone(), free);
                free
            }
        };
        Some(Ipv4Addr::from(self.first_pod_address() + u32::from(last)))
    }

    pub(super) fn remove_pod(&mut self, pod: &ObjectKey) {
        self.addresses.remove(pod);
        self.pods.remove(pod);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_has_its_own_addresses() {
        let machines = Machines::default();
        assert!(machines.add("a".into()) && machines.add("b".into()));
        assert!(!machines.add("a".into()));
        let mut state = machines.lock();
        let b = state.machines.get_mut("b").expect("added");
        assert_eq!(
            (b.address().to_string(), b.pod_cidr()),
            ("172.18.0.3".into(), "10.244.1.0/24".into())
        );
        let (one, other) = (
            ObjectKey::namespaced("ns", "one"),
            ObjectKey::namespaced("ns", "other"),
        );
        assert_eq!(b.allocate_pod_address(&one), Some(Ipv4Addr::new(10, 244, 1, 2)));
        assert_eq!(b.allocate_pod_address(&other), Some(Ipv4Addr::new(10, 244, 1, 3)));
        assert_eq!(b.allocate_pod_address(&one), Some(Ipv4Addr::new(10, 244, 1, 2)));
        b.remove_pod(&one);
        assert_eq!(
            b.allocate_pod_address(&ObjectKey::namespaced("ns", "third")),
            Some(Ipv4Addr::new(10, 244, 1, 2))
        );
    }
}
