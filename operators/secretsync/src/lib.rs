//! Copies Secrets and ConfigMaps into the namespaces that ask for them.

pub mod api;
pub mod arguments;
mod setup;

pub use api::{
    AdoptionPolicy, DeletionPolicy, Filter, MetadataPolicy, Recreate, SecretSync, SecretSyncSpec,
    SecretSyncStatus, SourceKind, SyncFailure,
};
pub use arguments::Arguments;
pub use setup::{SetupError, setup};
