//! Priority of a key.

use std::fmt;

/// Priority of a key: higher ones go first, equal ones in order of arrival.
///
/// Any `i32` is valid; the constants are the ones that controllers agree on. Designed for a handful of distinct values
/// (one per reason to queue); hundreds work and cost a little more per add.
///
/// ```
/// use windlass_workqueue::Priority;
/// assert!(Priority::LOW < Priority::NORMAL);
/// assert_eq!(Priority::default(), Priority::NORMAL);
/// assert_eq!(Priority::from(7).value(), 7);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(i32);

impl Priority {
    /// For objects that did not change: the initial list, a resync (-100, as in controller-runtime).
    pub const LOW: Self = Self(-100);
    /// For everything else (0); the default.
    pub const NORMAL: Self = Self(0);
    /// For work that a user is waiting for (100).
    pub const HIGH: Self = Self(100);

    /// Creates the priority with this value.
    pub const fn new(value: i32) -> Self {
        Self(value)
    }

    /// Returns the number.
    pub const fn value(self) -> i32 {
        self.0
    }
}

impl From<i32> for Priority {
    fn from(value: i32) -> Self {
        Self(value)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
