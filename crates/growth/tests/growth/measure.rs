//! Measures the work of a request and how it grows.

use std::collections::BTreeMap;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use windlass_growth::steps;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// Counters are global, so tests run one at a time.
pub(crate) static SERIAL: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

/// The work of a request: steps by location, allocations, and allocated bytes.
pub(crate) struct Work {
    steps: Vec<u64>,
    allocations: u64,
    bytes: u64,
}

impl Work {
    pub(crate) async fn measure<T>(work: impl Future<Output = T>) -> (T, Self) {
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

/// Returns the locations whose counts grew faster than linearly over requests of sizes n, 2n and 4n, with their counts.
///
/// For counts `a + b n`, the growth from 2n to 4n is twice that from n to 2n. The excess is `6 c n²` for `c n²`, and `2
/// k n` for `k n log n`: even a quarter of all pairs is far above the bound. And the last count is 16 times the first
/// for `c n²`, 4 times for `b n`, and less than 6 times for `k n log n`, even if sorting takes less for the smallest.
pub(crate) fn faster_than_linear(n: u64, [once, twice, four]: &[Work; 3]) -> BTreeMap<String, [u64; 3]> {
    let mut found = BTreeMap::new();
    let mut judge = |place: &str, counts: [u64; 3], unit: u64, times: u64| {
        let [a, b, c] = counts;
        let excess = c.saturating_sub(b).saturating_sub(2 * b.saturating_sub(a));
        // If the smallest request has none, the count depends on something else.
        if a > 0 && excess > unit * n * n && c >= times * a {
            found.insert(place.to_owned(), counts);
        }
    };
    for (site, _) in four.steps.iter().enumerate().filter(|(_, count)| **count > n * n) {
        let counts = [once, twice, four].map(|work| work.steps[site]);
        judge(steps::location(site), counts, 1, 6);
    }
    // In totals, quadratic work may be the smaller part.
    let counts = [once, twice, four].map(|work| work.allocations);
    judge("allocations", counts, 1, 5);
    let counts = [once, twice, four].map(|work| work.bytes);
    judge("allocated bytes", counts, 64, 5);
    found
}
