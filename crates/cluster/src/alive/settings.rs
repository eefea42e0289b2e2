//! How an embedded cluster lives.

use std::{sync::Arc, time::Duration};

use windlass_runtime::Clock;

/// The time between two heartbeats of a kubelet, and the least that a higher speed makes of it: beats that are more
/// frequent tell nobody more.
const HEARTBEAT: Duration = Duration::from_secs(10);
const SHORTEST_HEARTBEAT: Duration = Duration::from_secs(1);

/// How many heartbeats may be missing before a node counts as lost: the node controller waits for 50 seconds.
const PATIENCE: u32 = 5;

/// How many nodes there are, and how fast things go.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Simulated nodes, named `node-1` and so on.
    pub(crate) nodes: usize,
    /// How much faster than real everything with a duration of its own goes: image pulls, container starts, probes,
    /// heartbeats. Infinite means at once.
    pub(crate) speed: f64,
    /// The certificate of the authority that signs the API server's own, as PEM. Without it pods are not given any.
    pub(crate) root_ca: Option<Arc<str>>,
    /// The time that goes into objects.
    pub(crate) clock: Clock,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            nodes: 0,
            speed: f64::INFINITY,
            root_ca: None,
            clock: Clock::system(),
        }
    }
}

impl Settings {
    /// Whether what takes time on a real cluster happens at once.
    pub(crate) fn is_instant(&self) -> bool {
        !self.speed.is_finite() || self.speed <= 0.0
    }

    /// What a stage takes that needs time on a real cluster only because work is done in it: nothing, if all is at once.
    pub(crate) fn stage(&self, real: Duration) -> Duration {
        if self.is_instant() {
            return Duration::ZERO;
        }
        self.pause(real)
    }

    /// What a wait takes that is meant as one (a back-off, a grace period that is used up, what a script says): its real
    /// time, if all else is at once, or it would be an endless loop.
    pub(crate) fn pause(&self, real: Duration) -> Duration {
        if self.is_instant() {
            return real;
        }
        Duration::try_from_secs_f64(real.as_secs_f64() / self.speed).unwrap_or(Duration::MAX)
    }

    /// The time between two heartbeats of a kubelet.
    pub(crate) fn heartbeat(&self) -> Duration {
        self.pause(HEARTBEAT).max(SHORTEST_HEARTBEAT)
    }

    /// How long a node may be silent.
    pub(crate) fn patience(&self) -> Duration {
        self.heartbeat() * PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_shrink_to_nothing_and_waits_do_not() {
        let of = |speed| Settings {
            speed,
            ..Settings::default()
        };
        let ten = Duration::from_secs(10);
        for (speed, stage, pause, heartbeat) in [
            (f64::INFINITY, 0, 10_000, 10_000),
            (1.0, 10_000, 10_000, 10_000),
            (4.0, 2_500, 2_500, 2_500),
            (1000.0, 10, 10, 1_000),
        ] {
            let settings = of(speed);
            let found = [settings.stage(ten), settings.pause(ten), settings.heartbeat()];
            assert_eq!(found.map(|d| d.as_millis()), [stage, pause, heartbeat], "{speed}");
        }
    }
}
