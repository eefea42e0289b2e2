//! What a running manager shows over HTTP: is it alive, is it ready, what does it do.
//!
//! ```text
//!   kubelet ────► /healthz, /readyz ──► Checks: named, each with a timeout
//!   Prometheus ─► /metrics ───────────► Metrics::scrape
//!   a person ───► /debug/controllers ─► ControllerStatus, asked for now
//!                 /debug/caches ──────► CacheStatus
//! ```
//!
//! [`Listener::bind`] comes first, before anything else starts, so that a port in use is an early error;
//! [`Listener::serve`] owns every connection, and ends them when it ends. [`Endpoints`] says what is served; what it was
//! not given is not found.

mod answer;
mod checks;
mod endpoints;
mod listener;
mod status;
mod table;

pub use self::{
    checks::Checks,
    endpoints::Endpoints,
    listener::{BindError, Listener},
    status::{CacheStatus, ControllerState, ControllerStatus, Ended, Failing, OutcomeCounts, Running},
};
