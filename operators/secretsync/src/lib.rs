//! Copies Secrets and ConfigMaps into the namespaces that ask for them, keeps the copies right, and takes them away when they
//! are not wanted any more.
//!
//! ```text
//!   annotated objects ─┐                                        ┌─► copy (one sync, one namespace) ──► visit (one copy)
//!   SecretSyncs ───────┼─ follow ─► Roster ── (sync, namespace) ┤        │                               │
//!   Namespaces ────────┤  watches   who wants what     queue    └─► account (finalizer, status)         wire: GET, POST,
//!   copies' metadata ──┘                                                 ▲── Ledger: what became of it ◄─┘ PUT, DELETE
//! ```
//!
//! Two front ends, one engine: an annotated object of the source namespace is a sync of its own, a [`SecretSync`] is one with
//! selectors and policies. What each wants in each namespace follows from the state of things alone, so that whatever happened
//! while nobody ran is caught up.
//!
//! # What it promises
//!
//! - **Both sides agree.** The source by annotation or [`SecretSync`], the namespace by annotation or label, which says from
//!   where; system namespaces only if they are named ([`Arguments::allowed_namespaces`]).
//! - **Only copies are touched**: objects with the label [`SOURCE_UID`](api::SOURCE_UID) that say the UID of the very source,
//!   and that were written under our name. Creation never overwrites; an update and a deletion hold for one version.
//! - **The target decides about what it had before.** Such an object becomes a copy only with its own or its namespace's consent
//!   ([`ADOPT`](api::ADOPT)); it is compared only with its own; and it is released in the end, never deleted.
//! - **Nothing is written when nothing differs.** A copy is compared by the digest in its annotation and by who owns its fields
//!   ([`managedFields`](https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management)): no content is read
//!   for that.
//! - **Nobody waits for a bad neighbour.** A queue key is one sync in one namespace, with a backoff of its own; what takes away
//!   goes before what spreads.
//! - **Values stay hidden.** They are base64 text from the response to the request, zeroed when they are dropped, and have no
//!   form in which they could be logged. Of foreign objects nothing is held at all.
//!
//! # In a program
//!
//! [`setup`] adds it to a [`Manager`](windlass::runtime::Manager) that may run other controllers too. `rbac.yaml` has the
//! rights that it needs, `manifests/` the CRD and a Deployment; `docs/secretsync.md` is for those who run it.
//!
//! This crate does not know how lists and watches stay current, or how work is queued: that is [`windlass`].

mod account;
mod adoption;
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
mod meter;
mod plan;
mod policy;
mod room;
mod roster;
mod rules;
mod setup;
mod slot;
mod visit;
mod wire;

pub use api::{
    AdoptionPolicy, DeletionPolicy, Filter, MetadataPolicy, Recreate, SecretSync, SecretSyncSpec,
    SecretSyncStatus, SourceKind, SyncFailure,
};
pub use arguments::Arguments;
pub use identity::SyncId;
pub use setup::{SetupError, setup};
