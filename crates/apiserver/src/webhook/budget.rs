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
pub(super) struct Share {
    budget: ResponseBudget,
    bytes: usize,
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
        }
    }
}

impl Share {
    /// Adds bytes, or says why there are none left.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), String> {
        let held = self.budget.held.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        if held.saturating_add(bytes) > self.budget.limit {
            return Err("the server holds too many responses of webhooks: try again later".to_owned());
        }
        Ok(())
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
        assert_eq!(one.grow(10), Ok(()));
        assert!(other.grow(1).is_err(), "it is counted nevertheless");
        drop(one.hold(Bytes::new()));
        assert_eq!(other.grow(9), Ok(()));
        assert!(other.grow(1).is_err());
    }
}
