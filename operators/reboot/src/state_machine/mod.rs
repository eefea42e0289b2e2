//! Decides what happens to a node next: pure functions of the node, its policy and the time.
//!
//! ```text
//!                       slot                 cordon              drain disabled (after the hook, if there is one)
//!   (requested) ──────────────► Granted ─────────────► Cordoned ───────────────────┐
//!        ▲                         │                       │                        ▼
//!        │ backoff over            │                       └──► Draining ──────► Drained
//!        │                         │ halt, cancel                │ timeout          │ window, pause, slot and cordon
//!   Aborted ◄──────────────────────┴─────────────────────────────┴──────────────────┤ are checked once more
//!        ▲     uncordon if cordoned by us; slot released                             ▼
//!        └──── halt, and the agent has not started (the first write wins) ─────── Armed ───► agent: in-progress, reboot
//!                                                                                    │
//!   Failed ◄── no new boot ID in time; agent gave up; not healthy in time ───────────┤ new boot ID, also of a node
//!   keeps its slot until the state is removed by hand                                ▼ that failed because it had none
//!                     uncordon if cordoned by us, remove annotations             Rebooted ───► Soaking
//!                       (nothing) ◄────────────────────────────────────────────────┴─────────────┘
//!                        slot released
//! ```
//!
//! Every arrow is one write to one object (the node, or the policy for slots), conditional on the resource version
//! that was read. So of several controllers that try a step only one succeeds, and after a crash the next one
//! continues from there. Timeouts are deadlines in the state.
//!
//! [`step`] is the controller's part, [`agent::step`] the agent's. Neither does I/O.

pub mod agent;
mod change;
mod controller;
mod halt;
#[cfg(test)]
mod tests;
mod view;

pub use change::{CordonChange, NodeChange, NodeEvent};
pub use controller::{
    DrainRule, RebootRules, Step, StepInput, drained, expired, hook_failed, prepared, step, verified,
};
pub use halt::HaltReason;
pub use view::NodeView;
