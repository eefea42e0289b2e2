//! From a notice to every sink, each at its own pace.
//!
//! ```text
//!                          ┌─ Lane "stdout" ──── waiting ─► Worker ─► Sink ─┐
//!   core ─ Feed::tell ─────┤                                                ├─ confirmed ─► Journal
//!          (kind, scope)   └─ Lane "webhook:…" ─ waiting ─► Worker ─► Sink ─┘   (uid, version per object)
//!                                 ▲ dead: rests, coalesces, counts
//! ```
//!
//! - **Nobody waits for anybody.** Telling never blocks, and each sink has its own queue, worker, rate and rest.
//! - **Bounded.** For each sink wait at most `queue` objects, each with its latest state. What there is no room for is counted, and
//!   found again by comparing what there is with what the sink has confirmed.
//! - **At least once.** The latest state of each object reaches each sink that works; what a sink has confirmed is not
//!   told to it again, also after a restart if there is a [journal](crate::journal).
//! - **In order** for each object; the end of one comes before what follows it under its name.
//!
//! Not promised: every step of an object that changes faster than a sink takes, or an object that came and went while
//! its sink was behind or the process away.
//!
//! Who owns what: the [`Hub`] owns the lanes, [`Hub::run`] the workers and the writing of the journal. Nothing outlives it.

mod figures;
mod hub;
mod keeper;
mod known;
mod lane;
mod pace;
mod steps;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod worker;

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use windlass::cache::ObjectKey;

pub use self::{
    figures::Figures,
    hub::{Feed, Hub, HubError},
};
pub use crate::journal::Version;
use crate::notice::Notice;

/// How fast and how much.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many in which time. Default: no limit.
    pub rate: Option<Rate>,
    /// How many objects may wait. Default: 1000.
    pub queue: NonZeroUsize,
    /// How often a notice is tried again. Default: until it is delivered.
    pub retries: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rate: None,
            queue: NonZeroUsize::new(1000).expect("not zero"),
            retries: None,
        }
    }
}

/// So many notices in so much time; a second's worth may come at once.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// How many.
    pub notices: u32,
    /// In which time.
    pub every: Duration,
}

/// What there is now of a feed's objects: asked when a sink has missed something. Quick, and without waiting.
pub trait Present: Send + Sync + 'static {
    /// Every object of the selection. Complete once [`Feed::listed`] was called.
    fn versions(&self) -> Vec<Version>;

    /// The object as it is now, as [`Synced`](crate::notice::What::Synced); `None` if it is gone.
    fn read(&self, key: &ObjectKey) -> Option<Arc<Notice>>;

    /// Whether a notice is to be told. Asked about what came from a comparison: what is not is known to the sink from then
    /// on, as if it were. Asked under a lock: it must use neither feed nor hub.
    fn wants(&self, notice: &Notice) -> bool;
}
