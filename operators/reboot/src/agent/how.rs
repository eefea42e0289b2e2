//! How a machine is rebooted.

use std::time::Duration;

use windlass::{
    k8s_openapi::api::core::v1::Node,
    prelude::{Error, json},
    runtime::Writer,
};

use super::{logind, words::Words};

/// The annotation by which simulated nodes are known; real ones do not have it.
pub(super) const SIMULATED: &str = "simulation.windlass.dev/machine";

/// The annotation that asks a simulated node to end the boot that it names.
const SIMULATED_REBOOT: &str = "simulation.windlass.dev/reboot";

/// How long a command may take to say that it will.
const PATIENCE: Duration = Duration::from_mins(1);

/// A way to reboot a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// Ask logind over D-Bus: no program and no privilege is needed for it, only the bus's socket and a user whom polkit allows
    /// that; the files for the host are in `operators/reboot/host`. Root is refused unless `--allow-root` is given. Pods end in
    /// their order, where kubelet is set up for it.
    Logind {
        /// The address of the bus. Default: the system's.
        bus: Option<String>,
    },
    /// Run `systemctl reboot`: for agents that run on the host.
    Systemctl,
    /// Run any command.
    Command(Words),
    /// Ask the simulated machine of an embedded cluster, through the API. Real nodes are refused.
    Simulated,
}

impl How {
    /// Asks for the end of this boot of the machine, and returns when that was taken.
    ///
    /// Not cancellation-safe: the machine may have taken it when nobody waits for the answer any more.
    pub(super) async fn reboot(&self, node: &Node, boot_id: &str, writer: &Writer) -> Result<(), Error> {
        match self {
            Self::Logind { bus } => Ok(logind::reboot(bus.as_deref()).await?),
            Self::Systemctl => run(&Words::new("systemctl", ["reboot"])).await,
            Self::Command(words) => run(words).await,
            Self::Simulated => {
                if !is_simulated(node) {
                    return Err("it is not simulated: simulated reboots are for simulated nodes".into());
                }
                let ask = json!({"metadata": {"annotations": {SIMULATED_REBOOT: boot_id}}});
                writer.merge(node, &ask).await?;
                Ok(())
            }
        }
    }
}

async fn run(words: &Words) -> Result<(), Error> {
    match words.run(PATIENCE).await? {
        (status, _) if status.success() => Ok(()),
        (status, said) => Err(format!("`{words}` ended with {status}: {said}").into()),
    }
}

/// Whether a node is one of an embedded cluster.
pub(super) fn is_simulated(node: &Node) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(SIMULATED))
}
