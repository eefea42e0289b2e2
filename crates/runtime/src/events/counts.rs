//! What became of events, in numbers.

/// What became of the events that a [`Recorder`](super::Recorder) and its clones were told, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Events created on the server.
    pub created: u64,
    /// Events whose count was raised on the server; one patch may stand for many calls.
    pub patched: u64,
    /// Requests that were given up: refused by the server, or failed too often. Each failure that is retried is not one.
    pub failed: u64,
    dropped: [u64; DropReason::ALL.len()],
}

/// Why the server was never told of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// Too many different events wait to be written: the server is slow or gone.
    QueueFull,
    /// The source has said too much about this object already.
    Spam,
    /// So many other events came that this one was forgotten before its last count was written.
    Forgotten,
    /// The writer has ended.
    Stopped,
}

impl DropReason {
    /// Every reason, for whoever makes a metric of each.
    pub const ALL: [Self; 4] = [Self::QueueFull, Self::Spam, Self::Forgotten, Self::Stopped];

    /// The reason as a metric's label says it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Spam => "spam",
            Self::Forgotten => "forgotten",
            Self::Stopped => "stopped",
        }
    }
}

impl Counts {
    /// Successful requests: created and patched.
    pub fn written(&self) -> u64 {
        self.created + self.patched
    }

    /// Calls that the server was never told of, for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    pub(super) fn drop_more(&mut self, reason: DropReason, calls: u64) {
        self.dropped[reason as usize] += calls;
    }
}
