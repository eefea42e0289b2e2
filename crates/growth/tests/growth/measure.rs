//! Counting the work of one request, and judging how it grows.

use std::collections::BTreeMap;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use windlass_growth::steps;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// Counters are of the whole process: one test at a time.
pub(crate) static ALONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

/// What was done for a request: steps by their place, allocations, and allocated bytes.
pub(crate) struct Work {
    steps: Vec<u64>,
    allocations: u64,
    bytes: u64,
}

impl Work {
    /// The work of a future.
    pub(crate) async fn of<T>(work: impl Future<Output = T>) -> (T, Self) {
        let before = steps::counts();
        let region = Region::new(ALLOCATOR);
        let result = work.await;
        let change = region.change();
        let work = Self {
            steps: steps::counts_since(&before),
            allocations: (change.allocations + change.reallocations) as u64,
            bytes: change.bytes_allocated as u64,
        };
        (result, work)
    }
}

/// What grew faster than the request, of requests of sizes n, 2n and 4n: each place and its three counts.
///
/// For counts `a + b n`, the growth from 2n to 4n is twice that from n to 2n. What is left over is `6 c n²` for `c n²`, and
/// `2 k n` for `k n log n`: a quarter of all pairs is far above the bound. And the last count is 16 times the first for
/// `c n²`, 4 times for `b n`, and not 6 times for `k n log n`, even where sorting gets by with less for the shortest.
pub(crate) fn faster_than_linear(n: u64, [once, twice, four]: &[Work; 3]) -> BTreeMap<String, [u64; 3]> {
    let mut found = BTreeMap::new();
    let mut judge = |place: &str, counts: [u64; 3], unit: u64, times: u64| {
        let [a, b, c] = counts;
        let excess = c.saturating_sub(b).saturating_sub(2 * b.saturating_sub(a));
        // What the shortest has nothing of depends on something else.
        if a > 0 && excess > unit * n * n && c >= times * a {
            found.insert(place.to_owned(), counts);
        }
    };
    for (site, _) in four.steps.iter().enumerate().filter(|(_, count)| **count > n * n) {
        let counts = [once, twice, four].map(|work| work.steps[site]);
        judge(steps::place(site), counts, 1, 6);
    }
    // Of everything together, pairs may be the smaller part.
    let counts = [once, twice, four].map(|work| work.allocations);
    judge("allocations", counts, 1, 5);
    let counts = [once, twice, four].map(|work| work.bytes);
    judge("allocated bytes", counts, 64, 5);
    found
}
