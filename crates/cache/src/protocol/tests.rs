//! Each test is a script of the expected step, its result, and the expected effect on the store. They cover the
//! behaviours of client-go's reflector tests.

use WatchErrorKind::{ConnectionRefused, Expired, NotInstalled, Other, TooManyRequests, VersionTooLarge};

use super::*;

/// A result in a script.
#[derive(Clone, Copy)]
enum StepResult {
    Page(&'static str, Option<&'static str>),
    ListFails(WatchErrorKind),
    WatchFails(WatchErrorKind),
    Added(&'static str),
    Applied(&'static str),
    Deleted(&'static str),
    Bookmark(&'static str),
    /// The bookmark that ends the initial events.
    InitialEnd(&'static str),
    StreamFails(WatchErrorKind),
    /// The stream ends this many seconds after the watch was requested.
    Ends(u64),
    /// Nothing is received until the read deadline, which is this many seconds after now.
    TimesOut(u64),
    /// The wait is over.
    Waited,
}
use StepResult::{
    Added, Applied, Bookmark, Deleted, Ends, InitialEnd, ListFails, Page, StreamFails, TimesOut, Waited,
    WatchFails,
};

const BUSY: WatchErrorKind = TooManyRequests { retry_after: None };

fn without_watch_list(seed: u64) -> ListWatch {
    ListWatch::new(fastrand::Rng::with_seed(seed), Instant::now()).without_watch_list()
}

/// Runs a script on a protocol without WatchList.
fn run_script(script: &[(&str, StepResult, Effect)]) -> ListWatch {
    let mut protocol = without_watch_list(1);
    continue_with(&mut protocol, &mut Instant::now(), script);
    protocol
}

fn continue_with(protocol: &mut ListWatch, now: &mut Instant, script: &[(&str, StepResult, Effect)]) {
    for (number, (expected, back, effect)) in script.iter().enumerate() {
        assert_eq!(describe(&protocol.step()), *expected, "step {number}");
        assert_eq!(
            answer(protocol, now, *back),
            *effect,
            "effect of step {number}, {expected}"
        );
    }
}

fn answer(protocol: &mut ListWatch, now: &mut Instant, back: StepResult) -> Effect {
    let failure = |kind| WatchError {
        kind,
        message: String::new(),
    };
    match back {
        Page(resource_version, continue_token) => protocol.input(
            &Input::Page {
                resource_version,
                continue_token,
            },
            *now,
        ),
        ListFails(cause) => protocol.input(&Input::ListFailed(&failure(cause)), *now),
        WatchFails(cause) => protocol.input(&Input::WatchFailed(&failure(cause)), *now),
        StreamFails(cause) => protocol.input(&Input::StreamFailed(&failure(cause)), *now),
        Applied(resource_version) => protocol.input(
            &Input::Event {
                event_type: EventType::Modified,
                resource_version,
            },
            *now,
        ),
        Added(resource_version) => protocol.input(
            &Input::Event {
                event_type: EventType::Added,
                resource_version,
            },
            *now,
        ),
        Deleted(resource_version) => protocol.input(
            &Input::Event {
                event_type: EventType::Deleted,
                resource_version,
            },
            *now,
        ),
        Bookmark(resource_version) | InitialEnd(resource_version) => {
            let initial_events_end = matches!(back, InitialEnd(_));
            let bookmark = Input::Bookmark {
                resource_version,
                initial_events_end,
            };
            protocol.input(&bookmark, *now)
        }
        Ends(seconds) => {
            *now += Duration::from_secs(seconds);
            protocol.input(&Input::StreamEnded, *now)
        }
        TimesOut(seconds) => {
            let deadline = protocol.read_deadline(*now);
            assert_eq!((deadline - *now).as_secs(), seconds, "read deadline");
            *now = deadline;
            protocol.input(&Input::TimedOut, *now)
        }
        Waited => {
            let Step::Wait(delay) = protocol.step() else {
                panic!("it does not wait")
            };
            *now += delay;
            protocol.input(&Input::Waited, *now)
        }
    }
}

fn describe(step: &Step) -> String {
    match step {
        Step::List(ListCall {
            resource_version,
            limit,
            continue_token,
        }) => {
            let limit = limit.map_or("all".to_owned(), |limit| limit.to_string());
            let token = continue_token
                .as_deref()
                .map(|token| format!(" from {token}"))
                .unwrap_or_default();
            format!("list '{resource_version}' {limit}{token}")
        }
        Step::Watch(WatchCall {
            resource_version,
            initial_events,
            ..
        }) => {
            let sort = if *initial_events { "stream" } else { "watch" };
            format!("{sort} '{resource_version}'")
        }
        Step::Wait(_) => "wait".to_owned(),
    }
}

#[test]
fn list_at_zero_then_watch_from_its_version() {
    run_script(&[
        ("list '0' 500", Page("10", None), Effect::Replace),
        ("watch '10'", Applied("11"), Effect::Apply),
        ("watch '10'", Deleted("12"), Effect::Remove),
    ]);
}

#[test]
fn watch_timeout_is_between_five_and_ten_minutes() {
    for seed in 0..200 {
        let mut protocol = without_watch_list(seed);
        let _ = answer(&mut protocol, &mut Instant::now(), Page("1", None));
        let Step::Watch(WatchCall { timeout, .. }) = protocol.step() else {
            panic!("it does not watch")
        };
        assert!((300..600).contains(&timeout.as_secs()), "{timeout:?}");
    }
}

/// The pages of one list are one state, stored together.
#[test]
fn pages_are_staged_until_the_last() {
    run_script(&[
        ("list '0' 500", Page("10", Some("a")), Effect::Stage),
        ("list '' 500 from a", Page("10", Some("b")), Effect::Stage),
        ("list '' 500 from b", Page("10", Some("")), Effect::Replace),
        ("watch '10'", Ends(60), Effect::None),
    ]);
}

/// Every event advances the version, bookmarks included.
#[test]
fn ended_watch_resumes_from_the_newest_version_without_delay() {
    run_script(&[
        ("list '0' 500", Page("10", None), Effect::Replace),
        ("watch '10'", Applied("20"), Effect::Apply),
        ("watch '10'", Bookmark("30"), Effect::Advance),
        ("watch '10'", Ends(400), Effect::None),
        ("watch '30'", Deleted("40"), Effect::Remove),
        ("watch '30'", Ends(0), Effect::None),
        ("watch '40'", Ends(2), Effect::None),
        ("watch '40'", Applied(""), Effect::Apply),
        ("watch '40'", Ends(2), Effect::None),
        ("watch '40'", Ends(2), Effect::None),
    ]);
}

/// 30 s after the timeout that the watch has requested.
#[test]
fn dead_watch_is_given_up_after_its_timeout_and_resumed() {
    let mut protocol = without_watch_list(1);
    let mut now = Instant::now();
    continue_with(
        &mut protocol,
        &mut now,
        &[("list '0' 500", Page("10", None), Effect::Replace)],
    );
    let Step::Watch(WatchCall { timeout, .. }) = protocol.step() else {
        panic!("it does not watch")
    };
    now += Duration::from_secs(10);
    continue_with(
        &mut protocol,
        &mut now,
        &[
            ("watch '10'", TimesOut(timeout.as_secs() + 20), Effect::None),
            ("watch '10'", Ends(9), Effect::None),
        ],
    );
}

#[test]
fn empty_watch_that_ends_immediately_is_a_failure() {
    run_script(&[
        ("list '0' 500", Page("10", None), Effect::Replace),
        ("watch '10'", Ends(0), Effect::None),
        ("wait", Waited, Effect::None),
        ("list '10' all", Page("10", None), Effect::Replace),
    ]);
}

/// A relist never goes back in time, and is served by the watch cache in one piece.
#[test]
fn relist_requests_at_least_the_known_version() {
    run_script(&[
        ("list '0' 500", Page("10", None), Effect::Replace),
        ("watch '10'", Applied("15"), Effect::Apply),
        ("watch '10'", StreamFails(Other), Effect::None),
        ("wait", Waited, Effect::None),
        ("list '15' all", Page("20", None), Effect::Replace),
        ("watch '20'", Ends(9), Effect::None),
    ]);
}

#[test]
fn server_without_watch_cache_is_paged_on_relist() {
    run_script(&[
        ("list '0' 500", Page("10", Some("a")), Effect::Stage),
        ("list '' 500 from a", Page("10", None), Effect::Replace),
        ("watch '10'", WatchFails(Other), Effect::None),
        ("wait", Waited, Effect::None),
        ("list '10' 500", Page("20", None), Effect::Replace),
    ]);
}

/// The same for a version that the server has not reached yet.
#[test]
fn unavailable_list_version_falls_back_to_newest_immediately() {
    for cause in [Expired, VersionTooLarge] {
        run_script(&[
            ("list '0' 500", Page("10", None), Effect::Replace),
            ("watch '10'", WatchFails(Expired), Effect::None),
            ("wait", Waited, Effect::None),
            ("list '10' all", ListFails(cause), Effect::Discard),
            ("list '' 500", Page("30", None), Effect::Replace),
            ("watch '30'", StreamFails(Other), Effect::None),
            ("wait", Waited, Effect::None),
            ("list '30' all", Page("30", None), Effect::Replace),
        ]);
    }
}

#[test]
fn failed_list_of_the_newest_state_is_retried() {
    run_script(&[
        ("list '0' 500", Page("10", None), Effect::Replace),
        ("watch '10'", StreamFails(Expired), Effect::None),
        ("wait", Waited, Effect::None),
        ("list '10' all", ListFails(Expired), Effect::Discard),
        ("list '' 500", ListFails(Expired), Effect::Discard),
        ("wait", Waited, Effect::None),
        ("list '' 500", Page("30", None), Effect::Replace),
    ]);
}

/// The staged objects of the old list are dropped.
#[test]
fn expired_continue_token_causes_one_unpaged_list() {
    run_script(&[
        ("list '0' 500", Page("10", Some("a")), Effect::Stage),
        ("list '' 500 from a", ListFails(Expired), Effect::Discard),
        ("list '0' all", Page("12", None), Effect::Replace),
        ("watch '12'", Ends(9), Effect::None),
    ]);
    run_script(&[
        ("list '0' 500", Page("10", Some("a")), Effect::Stage),
        ("list '' 500 from a", ListFails(Expired), Effect::Discard),
        ("list '0' all", ListFails(Expired), Effect::Discard),
        ("list '' 500", Page("12", None), Effect::Replace),
    ]);
}

/// A kube-rs defect: a 410 at the start of a watch is retried with the same version forever.
#[test]
fn watch_from_an_expired_version_causes_a_relist() {
    for back in [WatchFails(Expired), StreamFails(Expired)] {
        run_script(&[
            ("list '0' 500", Page("10", None), Effect::Replace),
            ("watch '10'", back, Effect::None),
            ("wait", Waited, Effect::None),
            ("list '10' all", Page("11", None), Effect::Replace),
        ]);
    }
}

/// A server whose lists have no version: its watches first send every object, in no particular order.
#[test]
fn watch_without_version_is_not_resumed_midway() {
    run_script(&[
        ("list '0' 500", Page("0", None), Effect::Replace),
        ("watch '0'", Added("9"), Effect::Apply),
        ("watch '0'", Added("3"), Effect::Apply),
        ("watch '0'", Ends(60), Effect::None),
        ("list '0' 500", Page("0", None), Effect::Replace),
        ("watch '0'", StreamFails(BUSY), Effect::None),
        ("wait", Waited, Effect::None),
        ("list '0' 500", Page("0", None), Effect::Replace),
        ("watch '0'", Added("9"), Effect::Apply),
        ("watch '0'", Applied("12"), Effect::Apply),
        ("watch '0'", Added("13"), Effect::Apply),
        ("watch '0'", Ends(60), Effect::None),
        ("watch '13'", Ends(60), Effect::None),
    ]);
}

#[test]
fn busy_or_restarting_server_is_watched_again_without_relist() {
    for back in [WatchFails(BUSY), StreamFails(BUSY), WatchFails(ConnectionRefused)] {
        run_script(&[
            ("list '0' 500", Page("10", None), Effect::Replace),
            ("watch '10'", Applied("11"), Effect::Apply),
            ("watch '10'", back, Effect::None),
            ("wait", Waited, Effect::None),
            ("watch '11'", back, Effect::None),
            ("wait", Waited, Effect::None),
            ("watch '11'", Ends(9), Effect::None),
        ]);
    }
}

#[test]
fn retry_after_is_honoured() {
    let mut protocol = without_watch_list(1);
    let requested = Duration::from_secs(17);
    let _ = answer(
        &mut protocol,
        &mut Instant::now(),
        ListFails(TooManyRequests {
            retry_after: Some(requested),
        }),
    );
    assert_eq!(protocol.step(), Step::Wait(requested));
}

#[test]
fn consecutive_failures_back_off() {
    let mut protocol = without_watch_list(1);
    let mut now = Instant::now();
    for at_least in [800, 1600, 3200, 6400] {
        let _ = answer(&mut protocol, &mut now, ListFails(Other));
        let Step::Wait(delay) = protocol.step() else {
            panic!("it does not wait")
        };
        assert!(
            delay >= Duration::from_millis(at_least),
            "{delay:?} is less than {at_least} ms"
        );
        let _ = answer(&mut protocol, &mut now, Waited);
    }
}

#[test]
fn protocol_waits_for_a_kind_to_be_installed() {
    run_script(&[
        ("list '0' 500", ListFails(NotInstalled), Effect::Discard),
        ("wait", Waited, Effect::None),
        ("list '0' 500", ListFails(NotInstalled), Effect::Discard),
        ("wait", Waited, Effect::None),
        ("list '0' 500", Page("3", None), Effect::Replace),
        ("watch '3'", Ends(9), Effect::None),
    ]);
}

/// If the kind is installed again, it starts without a version.
#[test]
fn objects_are_cleared_after_two_404s() {
    run_script(&[
        ("list '0' 500", Page("10", None), Effect::Replace),
        ("watch '10'", WatchFails(NotInstalled), Effect::None),
        ("wait", Waited, Effect::None),
        ("list '10' all", ListFails(NotInstalled), Effect::Discard),
        ("wait", Waited, Effect::None),
        ("list '10' all", ListFails(NotInstalled), Effect::Clear),
        ("wait", Waited, Effect::None),
        ("list '0' 500", Page("90", None), Effect::Replace),
    ]);
}

#[test]
fn objects_may_be_kept_until_the_kind_is_served_again() {
    let mut protocol = without_watch_list(1).when_unserved(WhenUnserved::Keep);
    let not_found = [
        ("list '10' all", ListFails(NotInstalled), Effect::Discard),
        ("wait", Waited, Effect::None),
    ];
    let mut script = vec![
        ("list '0' 500", Page("10", None), Effect::Replace),
        ("watch '10'", WatchFails(NotInstalled), Effect::None),
        ("wait", Waited, Effect::None),
    ];
    script.extend([not_found; 5].concat());
    script.push(("list '10' all", Page("90", None), Effect::Replace));
    continue_with(&mut protocol, &mut Instant::now(), &script);
}

#[test]
fn single_404_keeps_the_objects() {
    let protocol = run_script(&[
        ("list '0' 500", Page("10", None), Effect::Replace),
        ("watch '10'", WatchFails(NotInstalled), Effect::None),
        ("wait", Waited, Effect::None),
        ("list '10' all", ListFails(NotInstalled), Effect::Discard),
        ("wait", Waited, Effect::None),
        ("list '10' all", ListFails(Other), Effect::Discard),
        ("wait", Waited, Effect::None),
        ("list '10' all", ListFails(NotInstalled), Effect::Discard),
    ]);
    assert_eq!(protocol.resource_version(), "10");
}

mod streaming;
