//! What can happen to machines.

use tokio::time::Instant;
use windlass_runtime::ObjectKey;

use super::machines::{Machine, Machines, Power, Standing};

/// What a machine suffers from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing on it goes on.
    Hung,
    /// Nobody hears of it.
    CutOff,
}

/// There is no such machine, or nobody acts on machines any more.
#[derive(Debug)]
pub(crate) struct NoMachine;

impl Machines {
    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().machines.keys().cloned().collect()
    }

    pub(crate) fn boot_id(&self, name: &str) -> Option<String> {
        Some(self.lock().machines.get(name)?.boot_id.clone())
    }

    pub(crate) fn check(&self, name: &str) -> Result<(), NoMachine> {
        self.change(name, |_| ())
    }

    fn change<T>(&self, name: &str, change: impl FnOnce(&mut Machine) -> T) -> Result<T, NoMachine> {
        let mut state = self.lock();
        if state.is_closed() {
            return Err(NoMachine);
        }
        state.machines.get_mut(name).map(change).ok_or(NoMachine)
    }

    /// Everything on the machine is to be looked at anew.
    fn wake(&self, name: &str) {
        let pods: Vec<_> = match self.lock().machines.get(name) {
            Some(machine) => machine.pods.iter().cloned().collect(),
            None => return,
        };
        self.nodes.wake(ObjectKey::cluster(name));
        self.pods.wake_all(pods);
        self.tell();
    }

    pub(crate) fn suffer(&self, name: &str, fault: Fault) -> Result<(), NoMachine> {
        self.change(name, |machine| match fault {
            Fault::Hung => machine.power = Power::Hung,
            Fault::CutOff => machine.connected = false,
        })
    }

    pub(crate) fn recover(&self, name: &str) -> Result<(), NoMachine> {
        self.change(name, |machine| {
            machine.connected = true;
            if machine.standing == Standing::Known {
                machine.standing = Standing::Missed;
            }
            if machine.power == Power::Hung {
                machine.power = Power::On;
            }
        })?;
        self.wake(name);
        Ok(())
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), NoMachine> {
        self.check(name)?;
        self.lock().machines.remove(name);
        self.tell();
        Ok(())
    }

    /// Somebody presses the button, which works on a machine that hangs too. The answer is the boot ID that it had.
    pub(crate) fn power_cycle(&self, name: &str) -> Result<String, NoMachine> {
        let before = self.change(name, |machine| {
            match machine.power {
                Power::On => machine.power = Power::Stopping,
                Power::Hung => (machine.power, machine.on_at) = (Power::Off, Some(Instant::now())),
                Power::Stopping | Power::Off => {}
            }
            machine.boot_id.clone()
        })?;
        self.wake(name);
        Ok(before)
    }

    /// A program on the machine asks for a reboot.
    pub(crate) fn reboot_command(&self, name: &str) {
        let asked = self.change(name, |machine| {
            if machine.power == Power::On {
                machine.power = Power::Stopping;
            }
        });
        if asked.is_ok() {
            self.wake(name);
        }
    }

    /// Waits until the machine has come back from a boot before which it had this ID.
    pub(crate) async fn is_back(&self, name: &str, before: &str) -> Result<(), NoMachine> {
        let back = |machine: &Machine| {
            let spoke = machine.standing == Standing::Known || !machine.connected;
            machine.boot_id != before && machine.power == Power::On && spoke
        };
        self.until(|state| state.machines.get(name).is_none_or(back))
            .await;
        self.check(name)
    }

    /// Waits until the node of a machine takes pods, or is registered if it is not meant for all.
    pub(crate) async fn is_up(&self, name: &str) -> Result<(), NoMachine> {
        let up = |machine: &Machine| {
            machine.open || (machine.standing == Standing::Known && !machine.spec.taints.is_empty())
        };
        self.until(|state| state.machines.get(name).is_none_or(up)).await;
        self.check(name)
    }
}
