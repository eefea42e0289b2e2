//! One counter per function, loop and closure of the server.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

include!(concat!(env!("OUT_DIR"), "/sites.rs"));

static COUNTS: [AtomicU64; SITES.len()] = [const { AtomicU64::new(0) }; SITES.len()];

/// Called by the copied source at every counted location.
#[inline]
pub(crate) fn step(site: usize) {
    COUNTS[site].fetch_add(1, Relaxed);
}

#[inline]
pub(crate) fn steps(site: usize, count: usize) {
    COUNTS[site].fetch_add(count as u64, Relaxed);
}

/// The counters, in the order of [`location`].
pub fn counts() -> Vec<u64> {
    COUNTS.iter().map(|count| count.load(Relaxed)).collect()
}

/// The difference to earlier counters.
pub fn counts_since(before: &[u64]) -> Vec<u64> {
    COUNTS
        .iter()
        .zip(before)
        .map(|(count, before)| count.load(Relaxed) - before)
        .collect()
}

/// The file and line of a counter.
pub fn location(site: usize) -> &'static str {
    SITES[site]
}

/// The receiver of `contains`, to find its length: the methods of a known type are inherent and take precedence over
/// those of [`Unknown`].
pub(crate) struct Searched<'a, T: ?Sized>(pub(crate) &'a T);

macro_rules! lists {
    ($($list:ty),*) => { $(impl<T> Searched<'_, $list> {
        pub(crate) fn length(&self) -> usize { self.0.len() }
    })* };
}
lists!(Vec<T>, [T], &[T], &Vec<T>, &mut Vec<T>, Box<[T]>);

macro_rules! texts {
    ($($text:ty),*) => { $(impl Searched<'_, $text> {
        /// The standard library compares more than one byte at a time.
        pub(crate) fn length(&self) -> usize { 1 + self.0.len() / 8 }
    })* };
}
texts!(String, str, &str, &String);

/// Receivers that are not searched linearly, or have a constant length.
pub(crate) trait Unknown {
    fn length(&self) -> usize {
        1
    }
}

impl<T: ?Sized> Unknown for Searched<'_, T> {}

/// Counts the length of a list or text and returns it.
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
