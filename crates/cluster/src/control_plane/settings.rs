//! Settings of an embedded control plane.

use std::{sync::Arc, time::Duration};

/// The time between two heartbeats of a kubelet, and its lower bound at high speeds: more frequent heartbeats carry no
/// information.
const HEARTBEAT: Duration = Duration::from_secs(10);
const MIN_HEARTBEAT: Duration = Duration::from_secs(1);

/// How many missed heartbeats make a node Unknown. With 10 seconds each, this is the node controller's 50 seconds.
const MAX_MISSED_HEARTBEATS: u32 = 5;

/// Number of simulated nodes, and the speed of the simulation.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Simulated nodes, named `node-1` and so on.
    pub(crate) nodes: usize,
    /// Speed-up over real time of image pulls, container starts, probes and heartbeats. Infinite: instant.
    pub(crate) speed: f64,
    /// CA certificate of the API server as PEM, for the `kube-root-ca.crt` ConfigMaps. `None`: there are none.
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

impl Settings {
    /// Whether work that takes time on a real cluster takes none.
    pub(crate) fn is_instant(&self) -> bool {
        !self.speed.is_finite() || self.speed <= 0.0
    }

    /// Scales the duration of work, such as an image pull. Zero if the cluster is instant.
    pub(crate) fn scale_work(&self, real: Duration) -> Duration {
        if self.is_instant() {
            return Duration::ZERO;
        }
        self.scale_wait(real)
    }

    /// Scales an intentional wait: a back-off, a grace period, a delay in a pod script. In an instant cluster it takes its
    /// real time, because without it a crash loop would spin.
    pub(crate) fn scale_wait(&self, real: Duration) -> Duration {
        if self.is_instant() {
            return real;
        }
        Duration::try_from_secs_f64(real.as_secs_f64() / self.speed).unwrap_or(Duration::MAX)
    }

    /// Returns the time between two heartbeats of a kubelet.
    pub(crate) fn heartbeat_interval(&self) -> Duration {
        self.scale_wait(HEARTBEAT).max(MIN_HEARTBEAT)
    }

    /// Returns how long a node may miss heartbeats before it becomes Unknown (`--node-monitor-grace-period`).
    pub(crate) fn node_monitor_grace_period(&self) -> Duration {
        self.heartbeat_interval() * MAX_MISSED_HEARTBEATS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instant_cluster_skips_work_but_not_waits() {
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
            let found = [
                settings.scale_work(ten),
                settings.scale_wait(ten),
                settings.heartbeat_interval(),
            ];
            assert_eq!(found.map(|d| d.as_millis()), [stage, pause, heartbeat], "{speed}");
        }
    }
}
