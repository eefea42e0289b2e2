//! The agent: runs on each node, reboots it when the controller allows it, and verifies the reboot.
//!
//! ```text
//!   own Node (watched by name) ──► state_machine::agent::step ──► driver ──► P/reboot-in-progress (conditional write)
//!   boot ID (read once) ──────────────┘                            │
//!                                                                  └──► RebootMethod: logind · systemctl · command · simulated
//!   trigger: a file or a command ──► P/reboot-needed
//! ```
//!
//! The agent keeps no state in memory: all state is on its node. It reads no other node and writes only these two
//! annotations, which the ValidatingAdmissionPolicy in `manifests/` enforces. [`simulated`] adds the agents of all
//! nodes of a simulated cluster.

mod arguments;
mod boot;
mod command_line;
mod driver;
mod logind;
mod reboot_method;
mod simulated;
mod trigger;

use windlass::{
    api::naming::InvalidName,
    cache::is_connection_error,
    k8s_openapi::api::core::v1::Node,
    kube::{self, Api},
    prelude::{Client, Controller, Manager},
    runtime::{Clock, NodeNameError, Watch, node_name},
};

pub use self::{
    arguments::{Arguments, RebootWith},
    boot::{BootError, DEFAULT_BOOT_ID_FILE, read_boot_id},
    command_line::CommandLine,
    reboot_method::RebootMethod,
    simulated::{simulated, simulated_at},
    trigger::Trigger,
};
use self::{
    driver::{Agent, BootIdSource},
    reboot_method::is_simulated,
};
use crate::state::AnnotationKeys;

/// Field manager of the agent's writes.
const FIELD_MANAGER: &str = "reboot-agent";

/// Why an agent cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The name of its node is not known.
    #[error(transparent)]
    NodeName(#[from] NodeNameError),
    /// Its node is not in the cluster.
    #[error(
        "node `{0}` not found: set NODE_NAME (or --node) to the name of the node that this process runs on"
    )]
    UnknownNode(String),
    /// It runs as root on the host.
    #[error(
        "refusing to use the system bus as root: an attacker who takes over this process could start any program as root on the host. Run it \
         as the user `windlass-reboot`, which the files in operators/reboot/host allow only to reboot, or pass --allow-root"
    )]
    Root,
    /// The boot ID is not known.
    #[error(transparent)]
    Boot(#[from] BootError),
    /// The annotation prefix is invalid.
    #[error("--annotation-prefix: {0}")]
    Prefix(#[from] InvalidName),
    /// Some nodes are not simulated.
    #[error(
        "nodes are not simulated: {nodes}; simulated agents need a cluster with only simulated nodes, such as one of `windlass up`; on \
         other clusters, run reboot-agent on each node"
    )]
    NotSimulated {
        /// Their names.
        nodes: String,
    },
    /// The nodes cannot be listed.
    #[error("cannot list nodes to check that all of them are simulated")]
    ListNodes {
        /// The cause.
        source: Box<kube::Error>,
    },
}

/// Adds the agent of one node to a manager: the node of `--node`, or of the environment variable `NODE_NAME`.
///
/// Checks once that the node exists. If the API server does not answer, which is normal right after a boot, the agent
/// starts anyway and waits for it.
///
/// ```no_run
/// use windlass::prelude::*;
/// use windlass_reboot::{agent, state::DEFAULT_ANNOTATION_PREFIX};
///
/// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let arguments = agent::Arguments::default();
/// let manager = agent::setup(Manager::new(client.clone()), &client, DEFAULT_ANNOTATION_PREFIX, &arguments).await?;
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

/// Like [`setup`], with another clock, for tests.
pub async fn setup_at(
    manager: Manager,
    client: &Client,
    prefix: &str,
    arguments: &Arguments,
    clock: Clock,
) -> Result<Manager, AgentError> {
    let names = AnnotationKeys::new(prefix)?;
    let name = match &arguments.node {
        Some(name) => name.clone(),
        None => node_name()?,
    };
    let reboot_method = arguments.reboot_method();
    let boot_id_source = match &reboot_method {
        RebootMethod::Simulated => BootIdSource::NodeStatus,
        _ => BootIdSource::Machine(read_boot_id(&arguments.boot_id_file)?),
    };
    match Api::<Node>::all(client.clone()).get_opt(&name).await {
        Ok(None) => return Err(AgentError::UnknownNode(name)),
        Ok(Some(node)) => check_node(&node, &reboot_method, &boot_id_source)?,
        // The runtime logs it, and when it is over.
        Err(error) if is_connection_error(&error) => {
            tracing::debug!(node = name, %error, "cannot read the node yet");
        }
        Err(error) => tracing::warn!(node = name, %error, "cannot read the node yet"),
    }
    refuse_root(
        &reboot_method,
        arguments.allow_root,
        rustix::process::geteuid().is_root(),
    )?;
    let agent = Agent {
        keys: names.clone(),
        boot_id_source,
        reboot_method,
        check: arguments.check_command.clone(),
        clock,
        last_errors: parking_lot::Mutex::default(),
    };
    let own = Watch::<Node>::new().fields(format!("metadata.name={name}"));
    let controller = Controller::from_watch("reboot-agent", own)
        .field_manager(FIELD_MANAGER)
        .on_every_replica()
        .reconcile(agent);
    let manager = manager.controller(controller);
    Ok(match arguments.trigger() {
        Some(trigger) => trigger::add_task(manager, &name, &names, trigger, arguments.trigger_interval),
        None => manager,
    })
}

/// The other methods need root, or a command that has it, and are chosen explicitly.
fn refuse_root(how: &RebootMethod, allow_root: bool, is_root: bool) -> Result<(), AgentError> {
    if is_root && !allow_root && matches!(how, RebootMethod::Logind { .. }) {
        return Err(AgentError::Root);
    }
    Ok(())
}

fn check_node(node: &Node, how: &RebootMethod, boot: &BootIdSource) -> Result<(), AgentError> {
    let name = node.metadata.name.clone().unwrap_or_default();
    if *how == RebootMethod::Simulated && !is_simulated(node) {
        return Err(AgentError::NotSimulated { nodes: name });
    }
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    if let (BootIdSource::Machine(own), Some(info)) = (boot, info)
        && info.boot_id != *own
    {
        tracing::warn!(
            node = name,
            own,
            reported = info.boot_id,
            "the node reports another boot ID: either its kubelet has not reported since the boot, or this process does not run \
             on that node, and the agent will do nothing"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_refuses_the_bus_as_root_unless_allowed() {
        let bus = RebootMethod::Logind { bus: None };
        let refused = refuse_root(&bus, false, true).expect_err("refused").to_string();
        for fix in ["windlass-reboot", "operators/reboot/host", "--allow-root"] {
            assert!(refused.contains(fix), "{fix} in {refused}");
        }
        assert!(refuse_root(&bus, true, true).is_ok());
        assert!(refuse_root(&bus, false, false).is_ok());
        for how in [RebootMethod::Systemctl, RebootMethod::Simulated] {
            assert!(refuse_root(&how, false, true).is_ok(), "{how:?}");
        }
    }
}
