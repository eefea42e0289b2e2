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
//!
//! Who can ask:
//!
//! - A listener on a loopback address answers requests for `localhost` only, so that a web page in a browser on this machine
//!   cannot read from it by DNS rebinding.
//! - Debug pages name objects and show errors, so a [`Manager`](crate::Manager) serves them on loopback addresses only. In a pod,
//!   `kubectl port-forward` reaches them: the API server authenticates and authorises that, over TLS.

mod answer;
mod checks;
mod endpoints;
mod host;
mod listener;
mod status;
mod table;

pub use self::{
    checks::Checks,
    endpoints::Endpoints,
    listener::{BindError, Listener},
    status::{CacheStatus, ControllerState, ControllerStatus, Ended, Failing, OutcomeCounts, Running},
};
