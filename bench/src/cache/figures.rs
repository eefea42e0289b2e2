//! What is measured of a cache.

use serde::{Deserialize, Serialize};

/// The figures of one contender in one case; what the case does not measure is 0.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Figures {
    /// Bytes per pod that stay when everything is there.
    pub(super) retained: f64,
    /// Microseconds of CPU per pod until then, of the process with the cache.
    pub(super) sync_cpu: f64,
    /// Update events per second.
    pub(super) events: f64,
    /// Microseconds of CPU per update event, of the whole process with what makes the events. Not in the table: the
    /// rivals in Go do not tell it.
    pub(super) event_cpu: f64,
    /// Nanoseconds for one `get`.
    pub(super) get: f64,
}
