//! Tests that work grows linearly with the request, whichever part is long. The crate's documentation explains the
//! counting.
//!
//! Every list, map and string of every type in a built-in kind is made long, in the first kind that has it, alone and with
//! all others of the kind, with entries that are distinct, identical or invalid, but of the right JSON type. So are the
//! lists and maps of a custom resource, also with entries of the wrong type and unknown fields, and further parts of
//! requests that schemas do not describe. Each request is sent with n, 2n and 4n entries, and every counter of the server
//! must grow proportionally. A failure names the line of the loop.

mod custom_resources;
mod fields;
mod harness;
mod measure;
mod minimal_objects;
mod requests;
mod schemas;

use harness::{Harness, Measurements, Violations};
use measure::SERIAL;
use schemas::Schemas;

/// The number of entries in the smallest of three requests; the others have twice and four times as many.
const ENTRIES: usize = 12;
/// Fewer if a whole object is filled, which then has some hundred lists.
const ENTRIES_EACH: usize = 8;
/// More where there are few requests.
const ENTRIES_OF_REQUESTS: usize = 32;

#[test]
fn long_field_of_built_in_kind_takes_linear_work() {
    let _alone = SERIAL.lock();
    let schemas = Schemas::read();
    let mut suspects = Violations::default();
    run(async {
        let lab = Harness::new(&schemas).await;
        for (resource, long) in schemas.long_fields(&schemas.resources()) {
            for &style in long.styles() {
                let case =
                    |times| fields::measure_one_long_field(&lab, &resource, &long, style, ENTRIES * times);
                let mut works = [case(1).await, case(2).await, case(4).await];
                let place = format!("{}.{} {style:?}", resource.kind, long.path.join("."));
                suspects.check(&place, ENTRIES, &mut works);
            }
        }
    });
    suspects.assert_none();
}

#[test]
fn built_in_kind_with_all_fields_long_takes_linear_work() {
    let _alone = SERIAL.lock();
    let schemas = Schemas::read();
    let mut suspects = Violations::default();
    run(async {
        let lab = Harness::new(&schemas).await;
        for resource in schemas.resources() {
            let case = |times| fields::measure_all_fields_long(&lab, &resource, ENTRIES_EACH * times);
            // The first request fills caches.
            case(1).await;
            let mut works = [case(1).await, case(2).await, case(4).await];
            suspects.check(&resource.kind, ENTRIES_EACH, &mut works);
        }
    });
    suspects.assert_none();
}

#[test]
fn custom_resource_takes_linear_work() {
    let _alone = SERIAL.lock();
    let schemas = Schemas::read();
    let mut suspects = Violations::default();
    run(async {
        let lab = Harness::new(&schemas).await;
        custom_resources::prepare(&lab).await;
        for style in custom_resources::STYLES {
            let case = |times| custom_resources::measure(&lab, style, ENTRIES_OF_REQUESTS * times);
            case(1).await;
            let mut works = [case(1).await, case(2).await, case(4).await];
            suspects.check(&format!("{style:?}"), ENTRIES_OF_REQUESTS, &mut works);
        }
    });
    suspects.assert_none();
}

#[test]
fn long_request_takes_linear_work() {
    let _alone = SERIAL.lock();
    let schemas = Schemas::read();
    let mut suspects = Violations::default();
    run(async {
        let lab = Harness::new(&schemas).await;
        requests::prepare(&lab).await;
        for (what, make) in requests::requests() {
            let case = async |times| {
                let mut works = Measurements::new();
                let request = make(ENTRIES_OF_REQUESTS * times, lab.unique_number());
                lab.measure(&mut works, what, request).await;
                works
            };
            case(1).await;
            let mut works = [case(1).await, case(2).await, case(4).await];
            suspects.check("", ENTRIES_OF_REQUESTS, &mut works);
        }
    });
    suspects.assert_none();
}

#[test]
fn long_sequence_of_requests_takes_linear_work() {
    let _alone = SERIAL.lock();
    let schemas = Schemas::read();
    let mut suspects = Violations::default();
    run(async {
        let lab = Harness::new(&schemas).await;
        requests::prepare(&lab).await;
        for sequence in requests::sequences() {
            let case = async |times| {
                let (n, call) = (ENTRIES_OF_REQUESTS * times, lab.unique_number());
                for request in (sequence.prepare)(n, call) {
                    let (code, answer) = lab.send(request).await;
                    assert!((200..300).contains(&code), "{}: {answer:?}", sequence.what);
                }
                let mut works = Measurements::new();
                lab.measure_all(&mut works, sequence.what, (sequence.measured)(n, call))
                    .await;
                works
            };
            case(1).await;
            let mut works = [case(1).await, case(2).await, case(4).await];
            suspects.check("", ENTRIES_OF_REQUESTS, &mut works);
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
