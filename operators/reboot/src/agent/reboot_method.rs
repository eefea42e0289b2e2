//! The ways to reboot a machine.

use std::time::Duration;

use windlass::{
    k8s_openapi::api::core::v1::Node,
    prelude::{Error, json},
    runtime::Writer,
};

use super::{command_line::CommandLine, logind};

/// The annotation that marks simulated nodes.
pub(super) const SIMULATED_ANNOTATION: &str = "simulation.windlass.dev/machine";

/// The annotation that asks a simulated node to end the boot that it names.
const SIMULATED_REBOOT_ANNOTATION: &str = "simulation.windlass.dev/reboot";

/// Timeout of a reboot command.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);

/// A way to reboot a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebootMethod {
    /// Calls logind over D-Bus. This needs no program and no privileges, only the bus's socket and a user that polkit
    /// allows to reboot; the files for the host are in `operators/reboot/host`. Root is refused unless `--allow-root`
    /// is given. Pods stop in order if the kubelet's graceful node shutdown is configured.
    Logind {
        /// Address of the bus. Default: the system bus.
        bus: Option<String>,
    },
    /// Runs `systemctl reboot`, for agents that run on the host.
    Systemctl,
    /// Runs any command.
    Command(CommandLine),
    /// Reboots a simulated node through the API. Real nodes are refused.
    Simulated,
}

impl RebootMethod {
    /// Requests the end of this boot of the machine, and returns when the request was accepted.
    ///
    /// Not cancellation-safe: the request may have been accepted even if its answer was not awaited.
    pub(super) async fn reboot(&self, node: &Node, boot_id: &str, writer: &Writer) -> Result<(), Error> {
        match self {
            Self::Logind { bus } => Ok(logind::reboot(bus.as_deref()).await?),
            Self::Systemctl => run(&CommandLine::new("systemctl", ["reboot"])).await,
            Self::Command(words) => run(words).await,
            Self::Simulated => {
                if !is_simulated(node) {
                    return Err(
                        "the node is not simulated: only simulated nodes can be rebooted this way".into(),
                    );
                }
                let ask = json!({"metadata": {"annotations": {SIMULATED_REBOOT_ANNOTATION: boot_id}}});
                writer.merge_patch(node, &ask).await?;
                Ok(())
            }
        }
    }
}

async fn run(words: &CommandLine) -> Result<(), Error> {
    match words.run(COMMAND_TIMEOUT).await? {
        (status, _) if status.success() => Ok(()),
        (status, output) => Err(format!("`{words}` failed with {status}: {output}").into()),
    }
}

pub(super) fn is_simulated(node: &Node) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(SIMULATED_ANNOTATION))
}
