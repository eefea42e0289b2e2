//! How much content one source namespace may have held.
//!
//! Metadata does not say how large an object is, so it is known when the content was fetched; what does not fit is dropped at
//! once, and not fetched again while it cannot fit.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The content of the objects of one kind and namespace that is held, in bytes.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) most: usize,
    held: AtomicUsize,
}

impl Meter {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            held: AtomicUsize::new(0),
        }
    }

    /// Counts so many bytes as held until what is returned is dropped; `None` if they do not fit.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let more = |held: usize| held.checked_add(bytes).filter(|held| *held <= self.most);
        let reserved = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        reserved.ok().map(|_| Reservation {
            meter: Arc::clone(self),
            bytes,
        })
    }

    /// Whether so many bytes would fit now.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let held = self.held.load(Ordering::Relaxed);
        held.checked_add(bytes).is_some_and(|held| held <= self.most)
    }
}

/// Bytes that are counted as held.
#[derive(Debug)]
pub(crate) struct Reservation {
    meter: Arc<Meter>,
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
    fn bytes_are_held_up_to_the_limit_and_given_back() {
        let meter = Arc::new(Meter::new(10));
        let first = meter.reserve(6).expect("it fits");
        assert!(meter.reserve(5).is_none() && !meter.has_room(5));
        assert!(meter.reserve(usize::MAX).is_none());
        let second = meter.reserve(4).expect("it fits exactly");
        assert!(!meter.has_room(1));
        drop(first);
        assert!(meter.has_room(6) && !meter.has_room(7));
        drop(second);
        assert!(meter.reserve(10).is_some());
    }
}
