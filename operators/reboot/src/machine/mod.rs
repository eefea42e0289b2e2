//! What happens to a node next: pure functions from what stands on the node, what its policy says, and the time.
//!
//! ```text
//!                       slot                 cordon            no drain asked for
//!   (requested) ──────────────► Granted ─────────────► Cordoned ───────────────────┐
//!        ▲                         │                       │                        ▼
//!        │ rest over               │                       └──► Draining ──────► Drained
//!        │                         │ halt, cancel,               │ timeout          │ window, pause, slot and cordon
//!   Aborted ◄──────────────────────┴─────────────────────────────┴──────────────────┤ are looked at once more
//!        ▲     uncordon if ours; slot free                                           ▼
//!        └──── halt, and the agent has not begun (whoever writes first wins) ──── Armed ───► agent: in-progress, reboot
//!                                                                                    │
//!   Failed ◄── no other boot ID in time; agent gave up; not good in time ────────────┤ another boot ID
//!   keeps its slot, until somebody takes the state off                               ▼
//!                                    uncordon if ours, everything off            Rebooted ───► Soaking
//!                       (nothing) ◄────────────────────────────────────────────────┴─────────────┘
//!                        slot free
//! ```
//!
//! Every arrow is one write to one object, conditional on the version that was looked at: the node's, or for slots the
//! policy's. So each step is done by one of many who try, and what a process that died has left is where the next one goes
//! on. Waits are deadlines that stand in the state.
//!
//! [`step`] is the controller's part, [`agent::step`] the agent's. Neither does I/O.

pub mod agent;
mod change;
mod halt;
mod roll;
#[cfg(test)]
mod tests;
mod view;

pub use change::{Change, Cordon, Said};
pub use halt::Halt;
pub use roll::{DrainRule, Facts, Rules, Step, drained, step, verified};
pub use view::NodeView;
