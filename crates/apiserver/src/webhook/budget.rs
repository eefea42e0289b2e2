//! How many bytes of webhooks' responses the server holds at a time.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;

/// Counts the bytes of all responses that are held, which [`Limits`](crate::Limits) limits.
#[derive(Clone, Debug)]
pub(crate) struct ResponseBudget {
    held: Arc<AtomicUsize>,
    limit: usize,
}

/// A part of the budget, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: ResponseBudget,
    bytes: usize,
    is_exhausted: bool,
}

/// The body of a response, and its share of the budget.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    pub(crate) bytes: Bytes,
    _share: Share,
}

impl ResponseBudget {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            held: Arc::default(),
            limit,
        }
    }

    /// A share without bytes.
    pub(super) fn share(&self) -> Share {
        Share {
            budget: self.clone(),
            bytes: 0,
            is_exhausted: false,
        }
    }
}

impl Share {
    /// Adds bytes. Returns whether there were enough left; they count nevertheless.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let held = self.budget.held.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        self.is_exhausted |= held.saturating_add(bytes) > self.budget.limit;
        !self.is_exhausted
    }

    /// Whether there were not enough bytes left.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    pub(super) fn hold(self, bytes: Bytes) -> ResponseBody {
        ResponseBody { bytes, _share: self }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_shared_and_freed() {
        let budget = ResponseBudget::new(10);
        let (mut one, mut other) = (budget.share(), budget.share());
        assert!(one.grow(10));
        assert!(!other.grow(1), "it is counted nevertheless");
        drop(one.hold(Bytes::new()));
        let mut third = budget.share();
        assert!(third.grow(9));
        assert!(!third.grow(1) && third.is_exhausted());
    }
}
