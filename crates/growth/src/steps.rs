//! One counter per function, loop and closure of the server.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

include!(concat!(env!("OUT_DIR"), "/sites.rs"));

static COUNTS: [AtomicU64; SITES.len()] = [const { AtomicU64::new(0) }; SITES.len()];

/// Called by the copied source at every counted place.
#[inline]
pub(crate) fn step(site: usize) {
    COUNTS[site].fetch_add(1, Relaxed);
}

#[inline]
pub(crate) fn steps(site: usize, count: usize) {
    COUNTS[site].fetch_add(count as u64, Relaxed);
}

/// The counters, in the order of [`place`].
pub fn counts() -> Vec<u64> {
    COUNTS.iter().map(|count| count.load(Relaxed)).collect()
}

/// What was counted since the counters were so.
pub fn counts_since(before: &[u64]) -> Vec<u64> {
    COUNTS
        .iter()
        .zip(before)
        .map(|(count, before)| count.load(Relaxed) - before)
        .collect()
}

/// The file and line that a counter counts.
pub fn place(site: usize) -> &'static str {
    SITES[site]
}

/// What `contains` is asked of, to find out how long it is: the methods of a known type are inherent, and win over those
/// of [`Unknown`].
pub(crate) struct Searched<'a, T: ?Sized>(pub(crate) &'a T);

macro_rules! lists {
    ($($list:ty),*) => { $(impl<T> Searched<'_, $list> {
        pub(crate) fn length(&self) -> usize { self.0.len() }
    })* };
}
lists!(Vec<T>, [T], &[T], &Vec<T>, &mut Vec<T>, Box<[T]>);

macro_rules! texts {
    ($($text:ty),*) => { $(impl Searched<'_, $text> {
        /// The standard library looks at more than one byte at a time.
        pub(crate) fn length(&self) -> usize { 1 + self.0.len() / 8 }
    })* };
}
texts!(String, str, &str, &String);

/// What is not searched from end to end, or is of constant length.
pub(crate) trait Unknown {
    fn length(&self) -> usize {
        1
    }
}

impl<T: ?Sized> Unknown for Searched<'_, T> {}

/// Counts the length of a list or text, and is that.
#[macro_export]
#[doc(hidden)]
macro_rules! searched {
    ($site:expr, $list:expr) => {
        match &$list {
            list => {
                use $crate::steps::Unknown as _;
                $crate::steps::steps($site, $crate::steps::Searched(list).length());
                list
            }
        }
    };
}
