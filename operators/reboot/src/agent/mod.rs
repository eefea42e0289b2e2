//! The agent: one on each node, which reboots it when the controller lets it, and proves that it did.
//!
//! ```text
//!   own Node (watched by name) ──► machine::agent::step ──► driver ──► P/reboot-in-progress, a write that fails if anything
//!   boot ID (read once) ─────────────────┘                    │        changed
//!                                                             └──► How: logind · systemctl · a command · a simulated machine
//!   trigger: a file or a command ──► P/reboot-needed
//! ```
//!
//! It remembers nothing: what it is about stands on its node. It reads no other node, and writes nothing but these two
//! annotations; the policy in `manifests/` holds it to that. [`simulated`] is the same for all nodes of a cluster without
//! machines.

mod arguments;
mod boot;
mod driver;
mod how;
mod logind;
mod simulated;
mod trigger;
mod words;

use windlass::{
    k8s_openapi::api::core::v1::Node,
    kube::{self, Api},
    prelude::{Client, Controller, Manager},
    runtime::{Clock, NodeNameError, Watch, names::InvalidName, node_name},
};

pub use self::{
    arguments::{Arguments, Way},
    boot::{BOOT_ID, BootError, boot_id},
    how::How,
    simulated::{simulated, simulated_at},
    trigger::Trigger,
    words::Words,
};
use self::{
    driver::{Agent, Boot},
    how::is_simulated,
};
use crate::state::Names;

/// Who its writes come from.
const FIELD_MANAGER: &str = "reboot-agent";

/// Why an agent cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// It does not know its node.
    #[error(transparent)]
    NoNode(#[from] NodeNameError),
    /// Its node is not in the cluster.
    #[error(
        "there is no node `{0}` in this cluster: NODE_NAME (or --node) must be the name of the node that this process runs on"
    )]
    UnknownNode(String),
    /// It would be root on the host.
    #[error(
        "refusing to use the system bus as root: whoever takes over this process could start any program as root on the host. Run it \
         as the user `windlass-reboot`, whom the files in operators/reboot/host allow to reboot and nothing else, or pass --allow-root"
    )]
    Root,
    /// It does not know its boot.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// The annotations cannot be named so.
    #[error("--annotation-prefix: {0}")]
    Prefix(#[from] InvalidName),
    /// Some machines are real.
    #[error(
        "not simulated: {nodes}; simulated agents are for a cluster whose nodes all are, such as one of `windlass up`; on \
         others, run reboot-agent on each node"
    )]
    NotSimulated {
        /// Their names.
        nodes: String,
    },
    /// Which nodes there are is not known.
    #[error("cannot list the nodes, to see whether all of them are simulated")]
    Nodes {
        /// Why not.
        source: Box<kube::Error>,
    },
}

/// Adds the agent of one node to a manager: that of `--node`, or of the variable `NODE_NAME`.
///
/// Whether there is such a node is asked once, unless the server does not answer: right after a boot it may be away for long,
/// which is waited for.
///
/// ```no_run
/// use windlass::prelude::*;
/// use windlass_reboot::{agent, state::PREFIX};
///
/// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let arguments = agent::Arguments::default();
/// let manager = agent::setup(Manager::new(client.clone()), &client, PREFIX, &arguments).await?;
/// manager.run().await?;
/// # Ok(()) }
/// ```
pub async fn setup(
    manager: Manager,
    client: &Client,
    prefix: &str,
    arguments: &Arguments,
) -> Result<Manager, AgentError> {
    setup_at(manager, client, prefix, arguments, Clock::system()).await
}

/// The same by another clock, for tests.
pub async fn setup_at(
    manager: Manager,
    client: &Client,
    prefix: &str,
    arguments: &Arguments,
    clock: Clock,
) -> Result<Manager, AgentError> {
    let names = Names::new(prefix)?;
    let name = match &arguments.node {
        Some(name) => name.clone(),
        None => node_name()?,
    };
    let how = arguments.how();
    let boot = match &how {
        How::Simulated => Boot::Reported,
        _ => Boot::Own(boot_id(&arguments.boot_id_file)?),
    };
    match Api::<Node>::all(client.clone()).get_opt(&name).await {
        Ok(None) => return Err(AgentError::UnknownNode(name)),
        Ok(Some(node)) => check(&node, &how, &boot)?,
        Err(error) => tracing::warn!(node = name, %error, "the node cannot be read yet"),
    }
    refuse_root(&how, arguments.allow_root, rustix::process::geteuid().is_root())?;
    let agent = Agent {
        names: names.clone(),
        boot,
        how,
        check: arguments.check_command.clone(),
        clock,
        complaints: parking_lot::Mutex::default(),
    };
    let own = Watch::<Node>::new().fields(format!("metadata.name={name}"));
    let controller = Controller::of("reboot-agent", own)
        .component(FIELD_MANAGER)
        .on_every_replica()
        .reconcile(agent);
    let manager = manager.controller(controller);
    Ok(match arguments.trigger() {
        Some(trigger) => trigger::add(manager, &name, &names, trigger, arguments.trigger_interval),
        None => manager,
    })
}

/// The other ways need root, or a command that has it, and are chosen explicitly.
fn refuse_root(how: &How, allow_root: bool, is_root: bool) -> Result<(), AgentError> {
    if is_root && !allow_root && matches!(how, How::Logind { .. }) {
        return Err(AgentError::Root);
    }
    Ok(())
}

fn check(node: &Node, how: &How, boot: &Boot) -> Result<(), AgentError> {
    let name = node.metadata.name.clone().unwrap_or_default();
    if *how == How::Simulated && !is_simulated(node) {
        return Err(AgentError::NotSimulated { nodes: name });
    }
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    if let (Boot::Own(own), Some(info)) = (boot, info)
        && info.boot_id != *own
    {
        tracing::warn!(
            node = name,
            own,
            reported = info.boot_id,
            "the node reports another boot: either its kubelet has not spoken since the boot, or this is not its machine, and \
             nothing will happen here"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_refuses_the_bus_as_root_unless_allowed() {
        let bus = How::Logind { bus: None };
        let refused = refuse_root(&bus, false, true).expect_err("refused").to_string();
        for fix in ["windlass-reboot", "operators/reboot/host", "--allow-root"] {
            assert!(refused.contains(fix), "{fix} in {refused}");
        }
        assert!(refuse_root(&bus, true, true).is_ok());
        assert!(refuse_root(&bus, false, false).is_ok());
        for how in [How::Systemctl, How::Simulated] {
            assert!(refuse_root(&how, false, true).is_ok(), "{how:?}");
        }
    }
}
