//! The agents of simulated nodes, all in one process that runs on none of them.

use windlass::{
    k8s_openapi::api::core::v1::Node,
    kube::{Api, api::ListParams},
    prelude::{Client, Controller, Manager, ResourceExt},
    runtime::Clock,
};

use super::{
    AgentError, FIELD_MANAGER,
    driver::{Agent, BootIdSource},
    reboot_method::{RebootMethod, is_simulated},
};
use crate::state::AnnotationKeys;

/// Maximum number of nodes named in an error.
const MAX_NAMED_NODES: usize = 3;

/// Adds an agent for every simulated node of the cluster, including nodes that are added later.
///
/// Fails if a node is not simulated: such a node needs an agent of its own. Real nodes that are added later are
/// ignored.
pub async fn simulated(manager: Manager, client: &Client, prefix: &str) -> Result<Manager, AgentError> {
    simulated_at(manager, client, prefix, Clock::system()).await
}

/// Like [`simulated`], with another clock, for tests.
pub async fn simulated_at(
    manager: Manager,
    client: &Client,
    prefix: &str,
    clock: Clock,
) -> Result<Manager, AgentError> {
    let keys = AnnotationKeys::new(prefix)?;
    let nodes = Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await
        .map_err(|source| AgentError::ListNodes {
            source: Box::new(source),
        })?;
    let real: Vec<_> = nodes.iter().filter(|node| !is_simulated(node)).collect();
    if !real.is_empty() {
        let some: Vec<_> = real
            .iter()
            .take(MAX_NAMED_NODES)
            .map(|node| node.name_any())
            .collect();
        let nodes = match real.len() - some.len() {
            0 => some.join(", "),
            more => format!("{} and {more} more", some.join(", ")),
        };
        return Err(AgentError::NotSimulated { nodes });
    }
    let agent = Agent {
        keys,
        boot_id_source: BootIdSource::NodeStatus,
        reboot_method: RebootMethod::Simulated,
        check: None,
        clock,
        last_errors: parking_lot::Mutex::default(),
    };
    let controller = Controller::<Node>::new("simulated-agents")
        .field_manager(FIELD_MANAGER)
        .on_every_replica()
        .workers::<4>()
        .reconcile(agent);
    Ok(manager.controller(controller))
}
