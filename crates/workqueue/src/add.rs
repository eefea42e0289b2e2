//! What an add may ask for.

use std::time::Duration;

use crate::Priority;

/// What an add asks for, beyond the key. The default is a plain add: now, at normal priority.
///
/// ```
/// use std::time::Duration;
/// use windlass_workqueue::{Add, Priority, WorkQueue};
///
/// let queue = WorkQueue::new();
/// queue.add_with("a", Add { priority: Priority::LOW, ..Add::default() });
/// queue.add_with("b", Add { after: Duration::from_secs(60), ..Add::default() });
/// // Not in a minute after all, but in an hour:
/// queue.add_with("b", Add { after: Duration::from_secs(3600), replace_delay: true, ..Add::default() });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Add {
    /// How urgent the key is. A key that is already queued or delayed keeps the higher of its old and new priority.
    /// Default: [`Priority::NORMAL`].
    pub priority: Priority,
    /// Not before this much time has passed. Zero, the default, means now; now also ends a delay that is pending.
    pub after: Duration,
    /// A key that is delayed already takes the new time even if it is later. Default: the earlier of the two stays.
    /// A key that is queued already stays queued either way.
    pub replace_delay: bool,
    /// Counts a failure of the key and waits as long as the rate limiter says; with [`after`](Self::after) as well, the
    /// shorter of the two. Default: no.
    pub rate_limited: bool,
}
