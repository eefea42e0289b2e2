//! Copies Secrets and ConfigMaps into the namespaces that ask for them, keeps the copies up to date, and removes them
//! when they are no longer wanted.
//!
//! ```text
//!   annotated objects ─┐                                            ┌─► namespace_sync ──► copy_reconciler (one copy)
//!   SecretSyncs ───────┼─ watches ─► SyncIndex ── (sync, namespace) ┤        │                 │
//!   Namespaces ────────┤             desired copies         queue   └─► sync_status           requests: GET, POST,
//!   copies' metadata ──┘                                                     ▲── WorkTracker ◄─┘ PUT, DELETE
//! ```
//!
//! Two front ends share one engine: an annotated object of the source namespace is a sync of its own, and a
//! [`SecretSync`] is a sync with selectors and policies. The desired copies depend only on the current state, so
//! changes made while no process ran are caught up.
//!
//! # Guarantees
//!
//! - **Both sides agree.** The source by an annotation or a [`SecretSync`], the namespace by an annotation or label
//!   that names the allowed source namespaces; system namespaces only if they are listed
//!   ([`Arguments::allowed_system_namespaces`]).
//! - **Only copies are changed**: objects with the label [`SOURCE_UID_LABEL`](api::SOURCE_UID_LABEL) that contains
//!   the source's UID, written by our field manager. Creation never overwrites; updates and deletions are conditional
//!   on the resource version.
//! - **The target owns what it had before.** Such an object becomes a copy only with its own or its namespace's
//!   consent ([`ADOPT_ANNOTATION`](api::ADOPT_ANNOTATION)). It is compared only with its own consent, and is released
//!   in the end, never deleted.
//! - **In sync means compared.** A copy counts as up to date only at a resource version that this process has written,
//!   or has read and compared. Metadata proves nothing about content, so a copy that was changed by others is read, and
//!   all of them are once after a start. Nothing is written if nothing differs.
//! - **Metadata says nothing about values**: no digest of them is written anywhere.
//! - **A failing namespace does not delay others.** A queue key is one sync in one namespace, with its own backoff;
//!   removals run before additions.
//! - **Values stay hidden.** They stay base64 from the response to the request, are zeroed when dropped, and cannot
//!   be formatted into logs. Content of other objects is never held.
//!
//! # In a program
//!
//! [`setup`] adds the controller to a [`Manager`](windlass::runtime::Manager), which may run other controllers too.
//! `rbac.yaml` has the rights that it needs, `manifests/` the CRD and a Deployment. `docs/secretsync.md` is the user
//! guide.
//!
//! This crate knows nothing about list/watch or work queues: that is [`windlass`].

mod action_log;
mod adoption;
pub mod api;
pub mod arguments;
mod consent;
mod content;
mod content_budget;
mod content_cell;
mod copy_metadata;
mod copy_outcome;
mod copy_reconciler;
mod digest;
mod engine;
mod field_ownership;
mod filter;
mod identity;
mod member;
mod metrics;
mod namespace_sync;
mod plan;
mod removal_count;
mod removal_guard;
mod requests;
mod rules;
mod setup;
mod source_status;
mod source_watch;
mod sync_index;
mod sync_status;
mod target_events;
mod unanswered;
mod watches;
mod webhooks;
mod work_tracker;

pub use api::{
    AdoptionPolicy, DeletionPolicy, Filter, MetadataPolicy, RecentRemovals, RecreatePolicy, SecretSync,
    SecretSyncSpec, SecretSyncStatus, SourceKind, SyncFailure,
};
pub use arguments::Arguments;
pub use identity::SyncId;
pub use setup::{SetupError, setup};
pub use webhooks::{add_webhooks, add_webhooks_as};
