//! A shared cache of Kubernetes objects, kept current by list and watch (client-go's shared informer).
//!
//! ```text
//!               requests                 effects
//!   protocol ─────────────► driver ── ingest ──────► store ──► Snapshot ◄── Lister, Query, Index
//!   (no I/O) ◄───────────── (a task) ◄── kube::Client   │ ▲
//!               inputs                                  │ └──── write_through: responses to our own writes
//!                                                       └─────► Buffer per Subscription
//! ```
//!
//! A [`Cache`] lists a kind, watches it from there, and follows the server through lost connections, restarts and
//! expired resource versions. [`Cache::synced`] waits for the first complete list and returns a [`Lister`], which
//! reads; so acting on a half-filled cache does not compile. A [`Subscription`] delivers changes with the state before
//! and after.
//!
//! An object takes little memory: a [`Meta`], and its JSON without `managedFields`, compressed with a dictionary
//! trained from the kind's own objects. It is decoded when it is read, as any type, and stays decoded within a budget;
//! [`Settings`] has the alternatives. Readers get `Arc`s: shared, immutable, no copy. An object is packed about a
//! second after it arrived, off the watch's task, unless it has changed again. Until then it takes the size of its
//! JSON: 8 MiB per kind while objects change, and never more than 48 MiB.
//!
//! Ownership: the users of a cache (its clones, listers and subscriptions) together own the drivers' tasks, which end
//! with the last user. A driver writes the store. Responses to writes through [`CacheSet::client`] are stored as well,
//! and the watch cannot undo them with older events. Each subscription owns its buffer, so a slow subscriber delays no
//! other. [`CacheSet`] hands out one cache per kind and scope and owns none.
//!
//! This crate does not know about reconciling or work queues, and never writes to the API on its own. `STATEMENTS.md`
//! maps each guaranteed behaviour to its test.
//!
//! ```no_run
//! use std::time::Duration;
//! use k8s_openapi::api::core::v1::Pod;
//! use windlass_cache::{Cache, ObjectKey, WatchScope};
//!
//! # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let cache = Cache::<Pod>::start(client, &WatchScope::all().namespace("shop"));
//! let pods = cache.synced(Duration::from_secs(30)).await?;
//! if let Some(pod) = pods.get(&ObjectKey::namespaced("shop", "web-0")) {
//!     println!("{:?}", pod.status);
//! }
//! # Ok(()) }
//! ```
//!
//! Reading before the first list is complete does not compile:
//!
//! ```compile_fail,E0599
//! # use k8s_openapi::api::core::v1::Pod;
//! # use windlass_cache::{Cache, ObjectKey};
//! fn too_early(cache: &Cache<Pod>) {
//!     cache.get(&ObjectKey::namespaced("shop", "web-0"));
//! }
//! ```
//!
//! Nor does changing a shared object:
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
mod cache_set;
mod cached_object;
mod change;
mod connection_log;
mod core;
mod decoded;
mod driver;
mod entry;
mod field_path;
mod index;
mod ingest;
mod key;
mod kind;
mod lister;
mod meta;
mod own_writes;
mod pack_queue;
mod packing;
mod paged;
pub mod protocol;
mod query;
mod report;
mod scan;
mod settings;
mod slot_table;
mod snapshot;
mod stats;
mod store;
mod subscription;
mod target;
mod watch_error;
mod wire;
mod write_through;

pub use cache::{Cache, SyncError};
pub use cache_set::CacheSet;
pub use cached_object::{CachedObject, DecodeError};
pub use change::{Change, Deletion};
pub use connection_log::{ConnectionLog, is_connection_error};
pub use core::SyncFailure;
pub use field_path::{FieldPath, InvalidFieldPath};
pub use index::{Index, Indexer};
pub use key::ObjectKey;
pub use kind::{Cacheable, GroupVersionKind, WatchScope, is_cluster_scoped};
pub use lister::Lister;
pub use meta::{Meta, Uid};
pub use query::{FieldSelector, Query};
pub use report::{Report, ReportedError, StaleCache};
pub use settings::Settings;
pub use stats::{STATISTICS, Statistic, StatisticKind, StatisticValue, Stats};
pub use subscription::{ChangeQueue, SubscriberHandle, Subscription, SyncHandle};
pub use watch_error::{WatchError, WatchErrorKind};
