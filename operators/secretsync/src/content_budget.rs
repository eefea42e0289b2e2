//! Limits the content that is held for one source namespace.
//!
//! Metadata does not contain an object's size, so it is known only after the content was fetched. Content that does
//! not fit is dropped at once, and not fetched again until it can fit.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The content, in bytes, that is held for the objects of one kind and namespace.
#[derive(Debug)]
pub(crate) struct ContentBudget {
    pub(crate) limit: usize,
    held: AtomicUsize,
}

impl ContentBudget {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            held: AtomicUsize::new(0),
        }
    }

    /// Reserves bytes until the returned guard is dropped; `None` if they do not fit.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= self.limit);
        let reserved = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        reserved.ok().map(|_| Reservation {
            meter: Arc::clone(self),
            bytes,
        })
    }

    /// Returns whether this many bytes would fit now.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        let held = self.held.load(Ordering::Relaxed);
        held.checked_add(bytes).is_some_and(|held| held <= self.limit)
    }
}

/// Reserved bytes.
#[derive(Debug)]
pub(crate) struct Reservation {
    meter: Arc<ContentBudget>,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.meter.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_reserved_up_to_the_limit_and_released_on_drop() {
        let meter = Arc::new(ContentBudget::new(10));
        let first = meter.reserve(6).expect("it fits");
        assert!(meter.reserve(5).is_none() && !meter.fits(5));
        assert!(meter.reserve(usize::MAX).is_none());
        let second = meter.reserve(4).expect("it fits exactly");
        assert!(!meter.fits(1));
        drop(first);
        assert!(meter.fits(6) && !meter.fits(7));
        drop(second);
        assert!(meter.reserve(10).is_some());
    }
}
