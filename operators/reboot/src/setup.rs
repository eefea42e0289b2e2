//! From arguments to a manager that does it.

use windlass::{
    prelude::*,
    runtime::{Clock, node_name},
};

use crate::{
    arguments::Arguments,
    controller::{self, Shared},
    figures::Figures,
    state::Names,
};

/// Why it cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The annotations cannot be named so.
    #[error("--annotation-prefix: {0}")]
    Prefix(#[from] windlass::runtime::names::InvalidName),
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

/// The same by another clock, for tests.
pub fn setup_at(manager: Manager, arguments: &Arguments, clock: Clock) -> Result<Manager, SetupError> {
    let names = Names::new(&arguments.prefix)?;
    let own = arguments.own_node.clone().or_else(|| node_name().ok());
    let figures = Figures::register(&manager.metrics());
    let shared = Arc::new(Shared::new(names, own, clock, figures));
    Ok(manager
        .controller(controller::policies(&shared))
        .controller(controller::nodes(&shared)))
}
