//! Faults and power events of simulated machines.

use tokio::time::Instant;
use windlass_runtime::ObjectKey;

use super::machines::{Machine, Machines, Power, Registration};

/// A fault to inject into a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Everything on it stops.
    Hung,
    /// It runs, but cannot reach the API server.
    Disconnected,
}

/// There is no such machine, or the cluster has stopped.
#[derive(Debug)]
pub(crate) struct NoMachine;

impl Machines {
    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().machines.keys().cloned().collect()
    }

    pub(crate) fn boot_id(&self, name: &str) -> Option<String> {
        Some(self.lock().machines.get(name)?.boot_id.clone())
    }

    pub(crate) fn require(&self, name: &str) -> Result<(), NoMachine> {
        self.change(name, |_| ())
    }

    fn change<T>(&self, name: &str, change: impl FnOnce(&mut Machine) -> T) -> Result<T, NoMachine> {
        let mut state = self.lock();
        if state.is_closed() {
            return Err(NoMachine);
        }
        state.machines.get_mut(name).map(change).ok_or(NoMachine)
    }

    /// Reconciles the machine's node and all its pods again.
    fn reconcile_all(&self, name: &str) {
        let pods: Vec<_> = match self.lock().machines.get(name) {
            Some(machine) => machine.pods.iter().cloned().collect(),
            None => return,
        };
        self.node_queue.add(ObjectKey::cluster_scoped(name));
        self.pod_queue.add_all(pods);
        self.notify_waiters();
    }

    pub(crate) fn inject(&self, name: &str, fault: Fault) -> Result<(), NoMachine> {
        self.change(name, |machine| match fault {
            Fault::Hung => machine.power = Power::Hung,
            Fault::Disconnected => machine.connected = false,
        })
    }

    pub(crate) fn recover(&self, name: &str) -> Result<(), NoMachine> {
        self.change(name, |machine| {
            machine.connected = true;
            if machine.registration == Registration::Registered {
                machine.registration = Registration::Stale;
            }
            if machine.power == Power::Hung {
                machine.power = Power::On;
            }
        })?;
        self.reconcile_all(name);
        Ok(())
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), NoMachine> {
        self.require(name)?;
        self.lock().machines.remove(name);
        self.notify_waiters();
        Ok(())
    }

    /// Reboots the machine from outside, which also works while it hangs. Returns the boot ID it had.
    pub(crate) fn power_cycle(&self, name: &str) -> Result<String, NoMachine> {
        let before = self.change(name, |machine| {
            match machine.power {
                Power::On => machine.power = Power::Stopping,
                Power::Hung => (machine.power, machine.on_at) = (Power::Off, Some(Instant::now())),
                Power::Stopping | Power::Off => {}
            }
            machine.boot_id.clone()
        })?;
        self.reconcile_all(name);
        Ok(before)
    }

    /// Reboots the machine as if a program on it had run `reboot`. A hung machine ignores it.
    pub(crate) fn reboot_from_inside(&self, name: &str) {
        let asked = self.change(name, |machine| {
            if machine.power == Power::On {
                machine.power = Power::Stopping;
            }
        });
        if asked.is_ok() {
            self.reconcile_all(name);
        }
    }

    /// Waits until the machine runs again with another boot ID than `before`, and its node has reported it.
    pub(crate) async fn wait_until_rebooted(&self, name: &str, before: &str) -> Result<(), NoMachine> {
        let back = |machine: &Machine| {
            let spoke = machine.registration == Registration::Registered || !machine.connected;
            machine.boot_id != before && machine.power == Power::On && spoke
        };
        self.wait_until(|state| state.machines.get(name).is_none_or(back))
            .await;
        self.require(name)
    }

    /// Waits until the machine's node is schedulable, or registered if it has taints.
    pub(crate) async fn wait_until_ready(&self, name: &str) -> Result<(), NoMachine> {
        let up = |machine: &Machine| {
            machine.schedulable
                || (machine.registration == Registration::Registered && !machine.spec.taints.is_empty())
        };
        self.wait_until(|state| state.machines.get(name).is_none_or(up))
            .await;
        self.require(name)
    }
}
