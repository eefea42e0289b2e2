//! The HTTP endpoints of a manager: health, readiness, metrics and debug pages.
//!
//! ```text
//!   kubelet ────► /healthz, /readyz ──► Checks: named, each with a timeout
//!   Prometheus ─► /metrics ───────────► Metrics::scrape
//!   operator ───► /debug ─────────────► the list of debug pages
//!                 /debug/controllers ─► ControllerStatus, collected on request
//!                 /debug/caches ──────► CacheStatus
//! ```
//!
//! [`Listener::bind`] is called before anything else starts, so a port in use is an early error. [`Listener::serve`] owns
//! every connection and closes them when it ends. [`Endpoints`] selects what is served.
//!
//! Access:
//!
//! - A listener on a loopback address accepts requests for `localhost` only, so a web page in a browser on this machine
//!   cannot read from it by DNS rebinding.
//! - Debug pages show object names and errors, so a [`Manager`](crate::Manager) serves them on loopback addresses only. In a
//!   pod, use `kubectl port-forward`: the API server authenticates and authorizes it, over TLS.

mod checks;
mod endpoints;
mod host;
mod listener;
mod response;
mod status;
mod table;

pub use self::{
    checks::Checks,
    endpoints::Endpoints,
    listener::{BindError, Listener},
    status::{
        CacheFailure, CacheStatus, ControllerState, ControllerStatus, FailingObject, FinishedReconcile,
        OutcomeCounts, RunningReconcile,
    },
};
