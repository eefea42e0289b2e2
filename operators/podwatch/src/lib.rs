//! Tells what happens to pods, or to any other kind, to whoever should know.
//!
//! ```text
//!   syncToStdout (no flags):  pods ──► queue ──► a line for each pod that is there, or is not any more
//!
//!   everything else:          kinds ──► watcher ──► teller ────────────────────────► delivery ──► sinks
//!                                       what        redacted, compared, filtered     a queue      stdout, file,
//!                                       happened    = a Notice                       for each     webhook
//! ```
//!
//! Without flags it is `syncToStdout`, the example with which people learn what a controller is (the module [`sync`]). With
//! [`Arguments`] it watches any kind, also those of CRDs that are not installed yet, and tells several sinks at once:
//! what was there at the start, what is new, what changed and how, and what is gone, also if nobody saw it go.
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
//! # What it promises
//!
//! - **Nothing secret leaves the process.** Objects are [redacted](REDACTED) before anything else looks at them.
//! - **Nothing is lost quietly.** Changes that come faster than they are told collapse into the newest state of each object; an
//!   end is told, and so is that an object is another one of the same name. What a [`Filter`] cannot judge is told.
//! - **Nobody waits.** Each sink has its own queue ([`delivery`]); a dead one delays no other.
//! - **At least once**, also across restarts, with `--state` ([`journal`]).
//!
//! # In a program
//!
//! [`setup`] adds it to a [`Manager`](windlass::runtime::Manager) that may run other controllers too; [`watch`] does the same without
//! flags. It writes nothing to the cluster; `rbac.yaml` has the rights that it needs: `list` and `watch` of each kind.
//!
//! This crate does not know how lists and watches stay current, or how work is queued: that is [`windlass`].

pub mod arguments;
pub mod delivery;
mod diff;
mod filter;
pub mod journal;
mod kinds;
mod memory;
pub mod notice;
mod redact;
mod setup;
pub mod sinks;
pub mod sync;
mod teller;
mod watcher;

pub use arguments::{Arguments, EXAMPLES, Scope};
pub use filter::{Filter, FilterError};
pub use kinds::{Kind, KindError, KindRef, resolve};
pub use notice::{FieldChange, Notice, Observer, Told, What};
pub use redact::REDACTED;
pub use setup::{SetupError, setup, watch};
pub use teller::Wishes;
