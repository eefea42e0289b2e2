//! Behaviour suites: written once, run on every kind of cluster.
//!
//! ```text
//!  Suite ── cases ─┐                         ┌─ embedded ─┐
//!                  ├──► one trial per pair ──┤  real      ├──► one shared Cluster each, started by the first case
//!  WINDLASS_BACKENDS ─┘                      └─ existing ─┘         └──► a namespace per case
//!
//!  paused: an embedded cluster and a clock per case instead
//!  apart: a cluster per case on every backend
//! ```
//!
//! A suite is a test target with `harness = false` whose cases get a [`Context`]:
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use windlass_suite::{Context, suite};
//!
//! async fn a_new_namespace_has_no_widgets(ctx: Context) -> anyhow::Result<()> {
//!     let labelled = kube::api::ListParams::default().labels("widget");
//!     assert!(ctx.api::<ConfigMap>().list(&labelled).await?.items.is_empty());
//!     Ok(())
//! }
//!
//! suite!("widgets"; a_new_namespace_has_no_widgets);
//! ```
//!
//! The usual arguments of `cargo test` work (filters, `--list`, `--test-threads`); a case on a backend is called
//! `real::a_new_namespace_has_no_widgets`. The last line says how many cases ran where.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `WINDLASS_BACKENDS` | which backends, separated by commas | `embedded,real` |
//! | `WINDLASS_REQUIRE_REAL` | `1`: a missing control plane fails the real cases, instead of ignoring them | unset |
//!
//! # Controllers under test
//!
//! A [`World`] is a case's namespace with a [`Wire`] on which controllers work: it notes what they send, refuses what a
//! test wants to see fail, and breaks at the n-th request. [`at_every_request`] tells a [`Story`] with a death at each of
//! them. [`Shipped`] gives the controllers exactly the rights of a manifest, and says which of them nobody used.
//! A [`Log`] is what all of them have logged.
//!
//! The [`Suite`] owns the clusters and the runtime that their clients live on; cases borrow them for as long as they run.
//! This crate does not know what any suite is about.

mod context;
mod crash;
mod line;
mod log;
mod program;
mod role;
mod running;
mod sent;
mod settings;
mod shared;
mod snapshot;
mod suite;
mod wire;
mod world;

use std::time::Duration;

pub use context::Context;
pub use crash::{Story, Told, at_every_request, at_requests};
pub use line::Line;
pub use log::Log;
pub use program::{output, program};
pub use role::Shipped;
pub use running::Running;
pub use sent::Sent;
pub use settings::Target;
pub use snapshot::Snapshot;
pub use suite::Suite;
pub use wire::{Moment, Wire};
pub use world::{Namespaced, World, install};

/// No step of a case takes nearly so long unless it never comes.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Makes a `main` that runs the named functions as a suite. A function that is written but not named here is dead
/// code, which the compiler reports.
///
/// What the suite asks for stands behind its name, as [`Suite`]'s methods: `suite!("foo", paused, nodes(3); …)`.
#[macro_export]
macro_rules! suite {
    ($name:literal $(, $option:ident $(($($value:expr),*))?)*; $($case:path),+ $(,)?) => {
        fn main() -> ::std::process::ExitCode {
            $crate::Suite::new($name)
                $(.$option($($($value),*)?))*
                $(.case(stringify!($case), $case))+
                .run()
        }
    };
}
