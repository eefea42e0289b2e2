//! Options of an add.

use std::time::Duration;

use crate::Priority;

/// Options of [`WorkQueue::add_with`](crate::WorkQueue::add_with). The default is a plain add: now, at normal priority.
///
/// ```
/// use std::time::Duration;
/// use windlass_workqueue::{AddOptions, Priority, WorkQueue};
///
/// let queue = WorkQueue::new();
/// queue.add_with("a", AddOptions { priority: Priority::LOW, ..AddOptions::default() });
/// queue.add_with("b", AddOptions { after: Duration::from_secs(60), ..AddOptions::default() });
/// // Postpone it from a minute to an hour:
/// queue.add_with("b", AddOptions { after: Duration::from_secs(3600), replace_delay: true, ..AddOptions::default() });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddOptions {
    /// Priority of the key. A key that is already queued or delayed keeps the higher of its old and new priority.
    /// Default: [`Priority::NORMAL`].
    pub priority: Priority,
    /// Delay before the key is queued. Zero, the default, queues it now and ends a delay that it may have.
    pub after: Duration,
    /// Lets a new deadline replace an earlier one of a delayed key. Default: the earlier of the two wins. A key that is
    /// queued already stays queued either way.
    pub replace_delay: bool,
    /// Counts a failure of the key and waits for the rate limiter's delay; with [`after`](Self::after) as well, for the
    /// shorter of the two. Default: no.
    pub rate_limited: bool,
}
