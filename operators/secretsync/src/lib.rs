//! Copies Secrets and ConfigMaps into the namespaces that ask for them.

mod account;
pub mod api;
pub mod arguments;
mod consent;
mod content;
mod copy;
mod engine;
mod figures;
mod follow;
mod grip;
mod held;
mod identity;
mod ledger;
mod member;
mod policy;
mod room;
mod roster;
mod rules;
mod setup;
mod slot;
mod wire;

pub use api::{
    AdoptionPolicy, DeletionPolicy, Filter, MetadataPolicy, Recreate, SecretSync, SecretSyncSpec,
    SecretSyncStatus, SourceKind, SyncFailure,
};
pub use arguments::Arguments;
pub use identity::SyncId;
pub use setup::{SetupError, setup};
