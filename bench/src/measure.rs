//! One measurement of one case: a timing loop with a count of allocations.

use std::time::{Duration, Instant};

use stats_alloc::Region;
use windlass_bench::{
    cases::{Measurements, ReportedValue, measurements},
    report::Unit,
};

/// The cost of one operation.
pub(crate) const VALUES: &[ReportedValue] = &[
    ReportedValue {
        suffix: "",
        key: "nanos",
        unit: Unit::Nanos,
    },
    ReportedValue {
        suffix: ": allocations",
        key: "allocations",
        unit: Unit::Count,
    },
];

/// Runs a case once to warm up and then for at least a quarter of a second. `prepare` is not measured.
pub(crate) fn measure<T>(
    operations: u32,
    mut prepare: impl FnMut() -> T,
    mut run: impl FnMut(&mut T),
) -> Measurements {
    run(&mut prepare());
    let mut spent = Duration::ZERO;
    let mut allocations = 0;
    let mut total = 0.0;
    while spent < Duration::from_millis(250) {
        let mut prepared = prepare();
        let region = Region::new(crate::ALLOCATOR);
        let start = Instant::now();
        run(&mut prepared);
        spent += start.elapsed();
        let change = region.change();
        allocations += u32::try_from(change.allocations + change.reallocations).unwrap_or(u32::MAX);
        total += f64::from(operations);
    }
    measurements([
        ("nanos", spent.as_secs_f64() * 1e9 / total),
        ("allocations", f64::from(allocations) / total),
    ])
}
