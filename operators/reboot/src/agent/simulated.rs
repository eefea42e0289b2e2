//! The agents of simulated nodes, all in one process that is on none of them.

use windlass::{
    k8s_openapi::api::core::v1::Node,
    kube::{Api, api::ListParams},
    prelude::{Client, Controller, Manager, ResourceExt},
    runtime::Clock,
};

use super::{
    AgentError, FIELD_MANAGER,
    driver::{Agent, Boot},
    how::{How, is_simulated},
};
use crate::state::Names;

/// How many nodes are named in an error.
const MOST_NAMED: usize = 3;

/// Adds an agent for every simulated node of the cluster, also for those that come later.
///
/// A cluster with a node that is not simulated is refused: such a node has a machine, and the agent belongs there. One that
/// comes later is left alone.
pub async fn simulated(manager: Manager, client: &Client, prefix: &str) -> Result<Manager, AgentError> {
    simulated_at(manager, client, prefix, Clock::system()).await
}

/// The same by another clock, for tests.
pub async fn simulated_at(
    manager: Manager,
    client: &Client,
    prefix: &str,
    clock: Clock,
) -> Result<Manager, AgentError> {
    let names = Names::new(prefix)?;
    let nodes = Api::<Node>::all(client.clone())
        .list(&ListParams::default())
        .await
        .map_err(|source| AgentError::Nodes {
            source: Box::new(source),
        })?;
    let real: Vec<_> = nodes.iter().filter(|node| !is_simulated(node)).collect();
    if !real.is_empty() {
        let some: Vec<_> = real.iter().take(MOST_NAMED).map(|node| node.name_any()).collect();
        let nodes = match real.len() - some.len() {
            0 => some.join(", "),
            more => format!("{} and {more} more", some.join(", ")),
        };
        return Err(AgentError::NotSimulated { nodes });
    }
    let agent = Agent {
        names,
        boot: Boot::Reported,
        how: How::Simulated,
        check: None,
        clock,
        complaints: parking_lot::Mutex::default(),
    };
    let controller = Controller::<Node>::new("simulated-agents")
        .component(FIELD_MANAGER)
        .on_every_replica()
        .workers::<4>()
        .reconcile(agent);
    Ok(manager.controller(controller))
}
