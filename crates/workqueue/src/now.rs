//! A clock that is read lazily, at most once per operation. Reading the clock costs as much as half of an add.

use std::cell::Cell;

use tokio::time::Instant;

/// The time of one operation, read on first use.
#[derive(Default)]
pub(crate) struct LazyNow(Cell<Option<Instant>>);

impl LazyNow {
    #[inline]
    pub(crate) fn get(&self) -> Instant {
        self.0.get().unwrap_or_else(|| {
            let now = Instant::now();
            self.0.set(Some(now));
            now
        })
    }
}
