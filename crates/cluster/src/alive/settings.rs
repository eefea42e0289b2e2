//! How an embedded cluster lives.

/// How many nodes there are, and how fast things go.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    /// Simulated nodes, named `node-1` and so on.
    pub(crate) nodes: usize,
    /// How much faster than real everything with a duration of its own goes: image pulls, container starts, probes,
    /// heartbeats. Infinite means at once.
    pub(crate) speed: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            nodes: 0,
            speed: f64::INFINITY,
        }
    }
}
