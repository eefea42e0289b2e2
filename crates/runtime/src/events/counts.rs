//! Event counters.

/// Counts the events of a [`Recorder`](super::Recorder) and its clones by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventCounts {
    /// Events created on the server.
    pub created: u64,
    /// Patches that raised an event's count; one patch may cover many calls.
    pub patched: u64,
    /// Events of [lasting states](super::Recorder::lasting) that an earlier process had created, and that were left as
    /// they are.
    pub found: u64,
    /// Requests that the server rejected or that failed too often. Retried failures are not counted.
    pub failed: u64,
    dropped: [u64; DropReason::ALL.len()],
}

/// Why an event was never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// Too many different events wait to be written: the server is slow or unreachable.
    QueueFull,
    /// The source exceeded its rate limit for this object.
    Spam,
    /// The series was evicted from memory by newer ones before its last count was written.
    Forgotten,
    /// The writer has ended.
    Stopped,
}

impl DropReason {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::QueueFull, Self::Spam, Self::Forgotten, Self::Stopped];

    /// The reason as a metric label value.
    pub const fn label(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Spam => "spam",
            Self::Forgotten => "forgotten",
            Self::Stopped => "stopped",
        }
    }
}

impl EventCounts {
    /// Successful requests: created and patched.
    pub fn written(&self) -> u64 {
        self.created + self.patched
    }

    /// Events dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    pub(super) fn add_dropped(&mut self, reason: DropReason, calls: u64) {
        self.dropped[reason as usize] += calls;
    }
}
