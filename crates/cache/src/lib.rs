//! A shared, typed, always-current view of Kubernetes objects.
//!
//! ```text
//!               requests                 effects
//!   protocol ─────────────► driver ── ingest ──────► store ──► Snapshot ◄── Lister, Query, Index
//!   (no I/O) ◄───────────── (a task) ◄── kube::Client   │ ▲
//!               inputs                                  │ └──── writes: answers to our own writes
//!                                                       └─────► Buffer per Subscription
//! ```
//!
//! A [`Cache`] gets the whole state of a kind, watches it from there, and follows the server through lost connections,
//! restarts and expired versions. It becomes readable by [`Cache::synced`], which gives a [`Lister`]; so acting on a
//! half-filled cache does not compile. A [`Subscription`] tells of changes with the state before and after.
//!
//! What is kept of an object is small: a [`Meta`], and its JSON without `managedFields`, packed with a dictionary that is
//! trained from the kind's own objects. It is decoded when somebody reads it, as whatever type, and stays decoded within
//! a budget; [`Settings`] has the alternatives. Objects come out as `Arc`s: shared, immutable, no copy. What has just
//! arrived is packed a second later and apart from the watch, unless it has changed again; until then it takes what its
//! JSON takes, 8 MiB of a kind while things change and never more than 48 MiB.
//!
//! Who owns what: the users of a cache (its clones, listers and subscriptions) own the drivers' tasks together, and
//! they end with the last of them. A driver writes the store; what was written through [`Caches::client`] is put in as
//! well, and stays until the watch has come that far. Each subscription owns its buffer, so one that does not read
//! delays nobody. [`Caches`] hands out one cache per kind and selection and owns none.
//!
//! This crate knows nothing of reconciling or work queues, and never writes to the API by itself. `STATEMENTS.md` maps
//! each behaviour that it promises to the test that shows it.
//!
//! ```no_run
//! use std::time::Duration;
//! use k8s_openapi::api::core::v1::Pod;
//! use windlass_cache::{Cache, ObjectKey, Selection};
//!
//! # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let cache = Cache::<Pod>::start(client, &Selection::all().namespace("shop"));
//! let pods = cache.synced(Duration::from_secs(30)).await?;
//! if let Some(pod) = pods.get(&ObjectKey::namespaced("shop", "web-0")) {
//!     println!("{:?}", pod.status);
//! }
//! # Ok(()) }
//! ```
//!
//! Reading before it is complete does not compile:
//!
//! ```compile_fail,E0599
//! # use k8s_openapi::api::core::v1::Pod;
//! # use windlass_cache::{Cache, ObjectKey};
//! fn too_early(cache: &Cache<Pod>) {
//!     cache.get(&ObjectKey::namespaced("shop", "web-0"));
//! }
//! ```
//!
//! Nor does changing an object that others read too:
//!
//! ```compile_fail,E0594
//! # use k8s_openapi::api::core::v1::Pod;
//! # use windlass_cache::{Lister, ObjectKey};
//! fn meddle(pods: &Lister<Pod>) {
//!     if let Some(mut pod) = pods.get(&ObjectKey::namespaced("shop", "web-0")) {
//!         pod.spec = None;
//!     }
//! }
//! ```

mod backoff;
mod cache;
mod caches;
mod change;
mod core;
mod driver;
mod entry;
mod failure;
mod fresh;
mod hot;
mod index;
mod ingest;
mod key;
mod kind;
mod lister;
mod meta;
mod own;
mod packing;
mod paged;
mod path;
mod places;
pub mod protocol;
mod query;
mod report;
mod scan;
mod selector;
mod settings;
mod snapshot;
mod stats;
mod store;
mod stored;
mod subscription;
mod target;
mod wire;
mod writes;

pub use cache::{Cache, SyncError};
pub use caches::Caches;
pub use change::{Change, Deletion};
pub use failure::{Cause, Failure};
pub use index::{Index, IndexBy};
pub use key::ObjectKey;
pub use kind::{Cacheable, KindName, Selection, is_cluster_scoped};
pub use lister::Lister;
pub use meta::{Meta, Uid};
pub use path::{FieldPath, InvalidPath};
pub use query::{Fields, Query};
pub use report::Report;
pub use settings::Settings;
pub use stats::Stats;
pub use stored::{Stored, Undecodable};
pub use subscription::{Handler, Subscription, Synced};
