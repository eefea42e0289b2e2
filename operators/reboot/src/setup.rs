//! Adds the controller to a manager.

use windlass::{
    prelude::*,
    runtime::{Clock, node_name},
};

use crate::{
    alerts::{AlertGate, Prometheus, PrometheusError},
    arguments::{Arguments, own_pod},
    controller::{self, SharedState},
    metrics::RebootMetrics,
    state::AnnotationKeys,
};

/// Why the controller cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The annotation prefix is invalid.
    #[error("--annotation-prefix: {0}")]
    Prefix(#[from] windlass::api::naming::InvalidName),
    /// The Prometheus server cannot be used.
    #[error(transparent)]
    Prometheus(#[from] PrometheusError),
}

/// Adds the controller to a manager.
///
/// ```no_run
/// use windlass::prelude::*;
/// use windlass_reboot::{Arguments, setup};
///
/// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let manager = setup(Manager::new(client), &Arguments::default())?;
/// manager.run().await?;
/// # Ok(()) }
/// ```
pub fn setup(manager: Manager, arguments: &Arguments) -> Result<Manager, SetupError> {
    setup_at(manager, arguments, Clock::system())
}

/// Like [`setup`], with another clock, for tests.
pub fn setup_at(manager: Manager, arguments: &Arguments, clock: Clock) -> Result<Manager, SetupError> {
    let prometheus = arguments.prometheus()?;
    setup_with(manager, arguments, clock, prometheus)
}

/// Like [`setup_at`], with another Prometheus server than that of the arguments.
pub fn setup_with(
    manager: Manager,
    arguments: &Arguments,
    clock: Clock,
    prometheus: Option<Prometheus>,
) -> Result<Manager, SetupError> {
    let names = AnnotationKeys::new(&arguments.prefix)?;
    let own = arguments.own_node.clone().or_else(|| node_name().ok());
    let figures = RebootMetrics::register(&manager.metrics());
    let own_pod = arguments.own_pod.clone().or_else(own_pod);
    let alerts = AlertGate::new(prometheus);
    let hooks = arguments.hook_namespace.clone();
    let shared = SharedState::new(names, own, own_pod, clock, figures, alerts, hooks);
    let shared = Arc::new(shared);
    Ok(manager
        .controller(controller::policy_controller(&shared))
        .controller(controller::node_controller(&shared)))
}
