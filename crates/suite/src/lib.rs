//! Behaviour test suites that are written once and run on every kind of cluster.
//!
//! ```text
//!  Suite ── cases ─┐                         ┌─ embedded ─┐
//!                  ├──► one trial per pair ──┤  real      ├──► one shared Cluster each, started by the first case
//!  WINDLASS_BACKENDS ─┘                      └─ existing ─┘         └──► a namespace per case
//!
//!  paused: an embedded cluster and a paused clock per case instead
//!  cluster_per_case: a cluster per case on every backend
//! ```
//!
//! A suite is a module of a test target with `harness = false`; its cases get a [`Context`]:
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use windlass_suite::{Context, suite};
//!
//! async fn new_namespace_has_no_widgets(ctx: Context) -> anyhow::Result<()> {
//!     let labelled = kube::api::ListParams::default().labels("widget");
//!     assert!(ctx.api::<ConfigMap>().list(&labelled).await?.items.is_empty());
//!     Ok(())
//! }
//!
//! suite!("widgets"; new_namespace_has_no_widgets);
//!
//! fn main() -> std::process::ExitCode {
//!     windlass_suite::run([suite()])
//! }
//! ```
//!
//! The usual arguments of `cargo test` work (filters, `--list`, `--test-threads`); a case on a backend is called
//! `widgets::real::new_namespace_has_no_widgets`, so the filter `widgets::` selects a suite. The last line of each suite's
//! output says how many cases ran on which backend.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `WINDLASS_BACKENDS` | backends to run on, separated by commas | `embedded,real` |
//! | `WINDLASS_REQUIRE_REAL` | `1`: without a control plane, real cases fail instead of being ignored | unset |
//!
//! # Controllers under test
//!
//! A [`TestEnvironment`] is a case's namespace with a [`RequestProxy`] for the controllers under test. The proxy records
//! their requests, injects errors and delays, and simulates a crash at the n-th request. [`crash_at_every_request`] runs a
//! [`CrashScenario`] with a crash at each of them. [`ManifestRoles`] gives controllers exactly the rights of a manifest, and
//! reports unused rights. A [`CapturedLog`] holds the log of the process.
//!
//! The [`Suite`] owns the clusters and the runtime of their clients; cases use them while they run.
//! This crate knows nothing about particular suites.

mod captured_log;
mod context;
mod crash;
mod environment;
mod manifest_roles;
mod network_link;
mod program;
mod proxy;
mod recorded_request;
mod running_manager;
mod settings;
mod shared_cluster;
mod snapshot;
mod suite;

use std::time::Duration;

pub use captured_log::CapturedLog;
pub use context::Context;
pub use crash::{CrashReport, CrashScenario, crash_at_every_request, crash_at_requests};
pub use environment::{Namespaced, TestEnvironment, install_crds};
pub use manifest_roles::ManifestRoles;
pub use network_link::NetworkLink;
pub use program::{output, program};
pub use proxy::{CrashPoint, RequestProxy};
pub use recorded_request::RecordedRequest;
pub use running_manager::RunningManager;
pub use settings::Target;
pub use snapshot::Snapshot;
pub use suite::{Suite, run};

/// Timeout of every wait in a case, much longer than any step takes.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// Defines a function `suite` that returns the listed functions as a suite. The compiler reports a function that is not
/// listed as dead code.
///
/// Options follow the name, as calls of [`Suite`]'s methods: `suite!("foo", paused, nodes(3); …)`.
#[macro_export]
macro_rules! suite {
    ($name:literal $(, $option:ident $(($($value:expr),*))?)*; $($case:path),+ $(,)?) => {
        pub(crate) fn suite() -> $crate::Suite {
            $crate::Suite::new($name)
                $(.$option($($($value),*)?))*
                $(.case(stringify!($case), $case))+
        }
    };
}
