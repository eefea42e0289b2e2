//! Work grows no faster than the request, whatever of it is long: see the crate's own page for how work is counted.
//!
//! Every list, map and string of every built-in kind is made long, alone and with all others, with entries that are
//! distinct, alike, or not allowed; and so are requests in ways that no schema tells. Each is sent with n, 2n and 4n entries,
//! and every counter of the server must have grown in proportion. A failure names the line of the loop.

mod bases;
mod fields;
mod lab;
mod measure;
mod requests;
mod schemas;

use lab::{Lab, Suspects, Works};
use measure::ALONE;
use schemas::Schemas;

/// The shortest of three lists; the others have twice and four times as many entries.
const ENTRIES: usize = 12;
/// As few where a whole object is filled, which then has some hundred lists.
const ENTRIES_EACH: usize = 8;
/// More where there are few requests.
const ENTRIES_OF_REQUESTS: usize = 32;

#[test]
fn every_long_field_of_a_built_in_kind_is_handled_in_linear_work() {
    let _alone = ALONE.lock();
    let schemas = Schemas::read();
    let mut suspects = Suspects::default();
    run(async {
        let lab = Lab::new(&schemas).await;
        for (resource, long) in schemas.long(&schemas.resources()) {
            for &style in long.styles() {
                let case = |times| fields::one_long(&lab, &resource, &long, style, ENTRIES * times);
                let mut works = [case(1).await, case(2).await, case(4).await];
                let place = format!("{}.{} {style:?}", resource.kind, long.path.join("."));
                suspects.judge(&place, ENTRIES, &mut works);
            }
        }
    });
    suspects.assert_none();
}

#[test]
fn every_built_in_kind_with_all_its_lists_long_is_handled_in_linear_work() {
    let _alone = ALONE.lock();
    let schemas = Schemas::read();
    let mut suspects = Suspects::default();
    run(async {
        let lab = Lab::new(&schemas).await;
        for resource in schemas.resources() {
            let case = |times| fields::all_long(&lab, &resource, ENTRIES_EACH * times);
            // What is made once and kept is made by the first of them.
            case(1).await;
            let mut works = [case(1).await, case(2).await, case(4).await];
            suspects.judge(&resource.kind, ENTRIES_EACH, &mut works);
        }
    });
    suspects.assert_none();
}

#[test]
fn every_long_request_is_handled_in_linear_work() {
    let _alone = ALONE.lock();
    let schemas = Schemas::read();
    let mut suspects = Suspects::default();
    run(async {
        let lab = Lab::new(&schemas).await;
        requests::prepare(&lab).await;
        for (what, make) in requests::requests() {
            let case = async |times| {
                let mut works = Works::new();
                let request = make(ENTRIES_OF_REQUESTS * times, lab.number());
                lab.measure(&mut works, what, request).await;
                works
            };
            case(1).await;
            let mut works = [case(1).await, case(2).await, case(4).await];
            suspects.judge("", ENTRIES_OF_REQUESTS, &mut works);
        }
    });
    suspects.assert_none();
}

fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(work);
}
