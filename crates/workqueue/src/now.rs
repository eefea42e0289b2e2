//! The time of one operation: read once, and only if it is needed. Reading the clock costs as much as half of an add.

use std::cell::Cell;

use tokio::time::Instant;

/// See the module.
#[derive(Default)]
pub(crate) struct Now(Cell<Option<Instant>>);

impl Now {
    #[inline]
    pub(crate) fn get(&self) -> Instant {
        self.0.get().unwrap_or_else(|| {
            let now = Instant::now();
            self.0.set(Some(now));
            now
        })
    }
}
