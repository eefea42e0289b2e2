//! Annotations of simulated nodes, for programs outside of the cluster's process.
//!
//! Inside the process, use [`Nodes`](crate::Nodes). Another process, such as a simulated node agent, recognizes a
//! simulated node by [`MACHINE_ANNOTATION`] and reboots it with [`REBOOT_ANNOTATION`]:
//!
//! ```text
//! kubectl annotate node node-1 simulation.windlass.dev/reboot=$(
//!   kubectl get node node-1 -o jsonpath='{.status.nodeInfo.bootID}')
//! ```
//!
//! [`REBOOT_BEHAVIOR_ANNOTATION`] makes reboots go wrong, to rehearse what a controller does then.

use std::{str::FromStr, time::Duration};

use k8s_openapi::jiff::SignedDuration;

/// The annotation that marks a simulated node. Its kubelet sets it on registration. The value is the machine's ID.
pub const MACHINE_ANNOTATION: &str = "simulation.windlass.dev/machine";

/// The annotation that requests a reboot of a simulated node. The value is the current boot ID; the node's kubelet
/// removes the annotation before it reboots.
///
/// A repeated or late request names another boot, so it reboots nothing and causes a `StaleRebootRequest` event. A machine
/// that hangs or is disconnected does not react before it is restored.
pub const REBOOT_ANNOTATION: &str = "simulation.windlass.dev/reboot";

/// The annotation that makes reboots of a simulated node go wrong, until it is removed. The value is a
/// [`RebootBehavior`]: `never-return`, `return-after=40m` or `flap`. An invalid value causes an
/// `InvalidRebootBehavior` event, and the node reboots as usual.
pub const REBOOT_BEHAVIOR_ANNOTATION: &str = "simulation.windlass.dev/reboot-behavior";

/// The longest time in `return-after`.
const MAX_RETURN: Duration = Duration::from_hours(24);

/// What goes wrong when a simulated node reboots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebootBehavior {
    /// `never-return`: it stays off. It boots when the annotation is removed.
    NeverReturn,
    /// `return-after=TIME`: it is off for so long, whatever the cluster's speed; for example `90s` or `40m`.
    ReturnAfter(Duration),
    /// `flap`: after the reboot it is Ready and not Ready in turns, for five seconds each.
    Flap,
}

/// A value of the annotation that is not a behavior.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "annotation {REBOOT_BEHAVIOR_ANNOTATION} is invalid: expected `never-return`, `flap`, or `return-after=` with a time of at most 24h, \
     for example `return-after=40m`"
)]
pub struct InvalidRebootBehavior;

impl FromStr for RebootBehavior {
    type Err = InvalidRebootBehavior;

    fn from_str(text: &str) -> Result<Self, InvalidRebootBehavior> {
        match text.split_once('=') {
            None if text == "never-return" => Ok(Self::NeverReturn),
            None if text == "flap" => Ok(Self::Flap),
            Some(("return-after", time)) => {
                let time = time.parse::<SignedDuration>().ok();
                let time = time.and_then(|time| Duration::try_from(time).ok());
                let time = time.filter(|time| *time <= MAX_RETURN);
                time.map(Self::ReturnAfter).ok_or(InvalidRebootBehavior)
            }
            _ => Err(InvalidRebootBehavior),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behavior_parses_or_is_rejected() {
        for (text, behavior) in [
            ("never-return", Some(RebootBehavior::NeverReturn)),
            ("flap", Some(RebootBehavior::Flap)),
            (
                "return-after=40m",
                Some(RebootBehavior::ReturnAfter(Duration::from_mins(40))),
            ),
            ("return-after=25h", None),
            ("return-after=-1s", None),
            ("return-after=", None),
            ("return-after", None),
            ("never-return=1", None),
            ("explode", None),
            ("", None),
        ] {
            assert_eq!(text.parse().ok(), behavior, "{text}");
        }
    }
}
