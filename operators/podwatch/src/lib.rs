//! Watches pods or any other kind and reports changes to stdout, files, webhooks, chats, logs and Events.
//!
//! ```text
//!   syncToStdout (no flags):  pods ──► queue ──► a line for each pod that exists or was deleted
//!
//!   everything else:          kinds ──► watcher ──► notice_builder ─────────────► delivery ──────► sinks
//!                                       changes     redacts, compares, filters    one queue        stdout, file,
//!                                                   = a Notice                    per sink         webhook, …
//! ```
//!
//! Without flags it is `syncToStdout`, client-go's introductory controller (the module [`sync`]). With [`Arguments`] it watches
//! any kind, including those of CRDs that are not installed yet, and reports to several sinks at once: the initial objects,
//! additions, updates with the changed fields, and deletions, including those it infers from a relist.
//!
//! ```text
//! $ podwatch
//! Sync/Add/Update for Pod web-0
//! Pod default/web-0 does not exist anymore
//!
//! $ podwatch --kind deployments --diff
//! 2026-01-02T03:04:05Z updated Deployment shop/web  spec.replicas: 1 → 2
//! ```
//!
//! # Guarantees
//!
//! - **Nothing secret leaves the process.** Objects are [redacted](REDACTED) before anything else looks at them.
//! - **Nothing is lost silently.** Changes that arrive faster than they are reported collapse into the newest state of each object,
//!   and each notice says how many it includes; [`NoticeOptions::every_change`] reports each, within limits.
//!   The deletion of an object that a sink knows is always reported, including that of an object recreated under the same name. An object on which a
//!   [`Filter`] fails is reported.
//! - **Sinks are independent.** Each sink has its own queue ([`delivery`]); a dead one delays no other.
//! - **At least once**, across restarts too with `--state` ([`journal`]).
//!
//! # In a program
//!
//! [`setup`] adds it to a [`Manager`](windlass::runtime::Manager), which may run other controllers too; [`watch`] does the same without
//! flags. It writes nothing to the cluster but the Events of the sink `events`; `rbac.yaml` has the rights it needs: `list` and `watch` on each kind.
//!
//! Caching and queueing are [`windlass`]'s job, not this crate's.

pub mod arguments;
pub mod delivery;
mod diff;
mod filter;
pub mod journal;
mod kinds;
pub mod notice;
mod notice_builder;
mod redact;
mod setup;
pub mod sinks;
pub mod sync;
mod tracker;
mod watcher;

pub use arguments::{Arguments, EXAMPLES, Scope};
pub use filter::{Filter, FilterError};
pub use kinds::{Kind, KindError, KindRef, resolve};
pub use notice::{EventType, FieldChange, Notice, NotifyOutcome, Observer};
pub use notice_builder::{MAX_PENDING_CHANGES, NoticeOptions};
pub use redact::REDACTED;
pub use setup::{SetupError, setup, watch};
