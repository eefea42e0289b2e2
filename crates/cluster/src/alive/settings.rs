//! How an embedded cluster lives.

use std::sync::Arc;

/// How many nodes there are, and how fast things go.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// Simulated nodes, named `node-1` and so on.
    pub(crate) nodes: usize,
    /// How much faster than real everything with a duration of its own goes: image pulls, container starts, probes,
    /// heartbeats. Infinite means at once.
    pub(crate) speed: f64,
    /// The certificate of the authority that signs the API server's own, as PEM. Without it pods are not given any.
    pub(crate) root_ca: Option<Arc<str>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            nodes: 0,
            speed: f64::INFINITY,
            root_ca: None,
        }
    }
}
