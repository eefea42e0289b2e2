//! Behaviour suites: written once, run on every kind of cluster.
//!
//! ```text
//!  Suite ── cases ─┐                         ┌─ embedded ─┐
//!                  ├──► one trial per pair ──┤  real      ├──► one shared Cluster each, started by the first case
//!  WINDLASS_BACKENDS ─┘                      └─ existing ─┘         └──► a namespace per case
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
//! The [`Suite`] owns the clusters and the runtime that their clients live on; cases borrow them for as long as they run.
//! This crate does not know what any suite is about.

mod context;
mod settings;
mod shared;
mod suite;

pub use context::Context;
pub use settings::Target;
pub use suite::Suite;

/// Makes a `main` that runs the named functions as a suite. A function that is written but not named here is dead
/// code, which the compiler reports.
#[macro_export]
macro_rules! suite {
    ($name:literal; $($case:path),+ $(,)?) => {
        fn main() -> ::std::process::ExitCode {
            $crate::Suite::new($name)$(.case(stringify!($case), $case))+.run()
        }
    };
}
