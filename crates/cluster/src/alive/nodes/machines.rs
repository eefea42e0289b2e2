//! The machines behind the nodes: what is true of them whether or not the API knows it.
//!
//! ```text
//!   Nodes (the tests' handle) ──► Machines ◄── kubelets: may I act? which boot? which address?
//!                                    └─ Wakes: nodes and pods whose kubelet has something to do
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::watch;
use windlass_runtime::ObjectKey;

use super::{identity::digest, spec::NodeSpec, wakes::Wakes};

/// The first address of nodes, and the first of pods; each node has 256 of the latter.
const NODES_FROM: Ipv4Addr = Ipv4Addr::new(172, 18, 0, 2);
const PODS_FROM: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 0);

/// All machines of a cluster. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Machines {
    shared: Arc<Shared>,
    /// Nodes that have something to say to the API.
    pub(super) nodes: Wakes,
    /// Pods whose containers may have changed.
    pub(super) pods: Wakes,
}

#[derive(Default)]
struct Shared {
    /// Locked for a moment, never across a wait.
    state: Mutex<State>,
    /// How often something changed that somebody may wait for.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) machines: BTreeMap<String, Machine>,
    closed: bool,
    /// How many machines there ever were, for their numbers.
    made: u32,
    /// How often any of them was started, for their boot IDs.
    boots: u64,
}

pub(super) struct Machine {
    pub(super) spec: NodeSpec,
    pub(super) number: u32,
    pub(super) boot_id: String,
    pub(super) power: Power,
    /// When one that is off starts again.
    pub(super) on_at: Option<tokio::time::Instant>,
    /// Whether it reaches the API.
    pub(super) connected: bool,
    pub(super) standing: Standing,
    /// The scheduler has seen it fit for pods.
    pub(super) open: bool,
    /// The last part of the addresses in use, by pod.
    addresses: BTreeMap<ObjectKey, u8>,
    /// The pods that its kubelet knows.
    pub(super) pods: BTreeSet<ObjectKey>,
    /// What need not be pulled again.
    pub(super) images: BTreeSet<String>,
}

/// What a machine is able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Power {
    /// It works.
    On,
    /// It says good-bye before it goes off.
    Stopping,
    /// It is off, or starts.
    Off,
    /// Nothing on it goes on.
    Hung,
}

/// How the API knows a kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has not made itself known since the machine started.
    New,
    /// It has, and was not heard of for a while.
    Missed,
    Known,
}

impl Machines {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("nobody panics with it")
    }

    /// Something changed that somebody may wait for.
    pub(super) fn tell(&self) {
        self.shared.changed.send_modify(|count| *count += 1);
    }

    /// Waits until `test` says so, or nothing happens any more. Cancellation-safe.
    pub(super) async fn until(&self, test: impl Fn(&State) -> bool) {
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

    /// Nobody acts on the machines any more: who waits for something is told.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.tell();
    }

    /// A new machine, switched on; false if there is one of that name.
    pub(crate) fn add(&self, spec: NodeSpec) -> bool {
        let name = spec.name.clone();
        let mut state = self.lock();
        if state.machines.contains_key(&name) {
            return false;
        }
        let number = state.made;
        state.made += 1;
        let machine = Machine {
            spec,
            number,
            boot_id: state.next_boot(&name),
            power: Power::On,
            on_at: None,
            connected: true,
            standing: Standing::New,
            open: false,
            addresses: BTreeMap::new(),
            pods: BTreeSet::new(),
            images: BTreeSet::new(),
        };
        state.machines.insert(name.clone(), machine);
        drop(state);
        self.tell();
        self.nodes.wake(ObjectKey::cluster(name));
        true
    }

    /// The scheduler may give pods to this node.
    pub(super) fn is_open(&self, name: &str) {
        if let Some(machine) = self.lock().machines.get_mut(name) {
            machine.open = true;
        }
        self.tell();
    }

    /// Waits until the nodes of all machines that work take pods. Cancellation-safe.
    pub(crate) async fn all_open(&self) {
        let open = |machine: &Machine| machine.open || machine.power != Power::On;
        self.until(|state| state.machines.values().all(open)).await;
    }

    /// The machines whose kubelets tell the API that they are alive.
    pub(super) fn beating(&self) -> Vec<String> {
        let state = self.lock();
        let beating = state
            .machines
            .iter()
            .filter(|(_, machine)| machine.standing != Standing::New && machine.reaches_the_api());
        beating.map(|(name, _)| name.clone()).collect()
    }
}

impl State {
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// An ID that no machine had before.
    pub(super) fn next_boot(&mut self, name: &str) -> String {
        self.boots += 1;
        super::identity::uuid(&format!("boot {} of {name}", self.boots))
    }
}

impl Machine {
    pub(super) fn reaches_the_api(&self) -> bool {
        self.connected && matches!(self.power, Power::On | Power::Stopping)
    }

    pub(super) fn address(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(NODES_FROM).wrapping_add(self.number))
    }

    fn first_pod_address(&self) -> u32 {
        u32::from(PODS_FROM).wrapping_add(self.number.wrapping_mul(256))
    }

    pub(super) fn pod_cidr(&self) -> String {
        format!("{}/24", Ipv4Addr::from(self.first_pod_address()))
    }

    pub(super) fn machine_id(&self) -> String {
        digest(&format!("machine {} {}", self.number, self.spec.name))[..32].to_owned()
    }

    /// The address of a pod: the one that it has, or a free one. None if all are taken.
    pub(super) fn address_of(&mut self, pod: &ObjectKey) -> Option<Ipv4Addr> {
        let last = match self.addresses.get(pod) {
            Some(last) => *last,
            None => {
                let taken: BTreeSet<_> = self.addresses.values().copied().collect();
                // The first is the node's own, and the last is for broadcasts.
                let free = (2..=254).find(|last| !taken.contains(last))?;
                self.addresses.insert(pod.clone(), free);
                free
            }
        };
        Some(Ipv4Addr::from(self.first_pod_address() + u32::from(last)))
    }

    pub(super) fn forget(&mut self, pod: &ObjectKey) {
        self.addresses.remove(pod);
        self.pods.remove(pod);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_addresses_of_its_own() {
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
        assert_eq!(b.address_of(&one), Some(Ipv4Addr::new(10, 244, 1, 2)));
        assert_eq!(b.address_of(&other), Some(Ipv4Addr::new(10, 244, 1, 3)));
        assert_eq!(b.address_of(&one), Some(Ipv4Addr::new(10, 244, 1, 2)));
        b.forget(&one);
        assert_eq!(
            b.address_of(&ObjectKey::namespaced("ns", "third")),
            Some(Ipv4Addr::new(10, 244, 1, 2))
        );
    }
}
