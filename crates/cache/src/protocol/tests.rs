//! Each test plays a script: what the protocol must ask for, what comes back, what must happen to the store.
//! Numbers are those of client-go's reflector tests in the project's collection of behaviours (D).

use super::*;

/// What comes back in a script.
#[derive(Clone, Copy)]
enum Back {
    Page(&'static str, Option<&'static str>),
    ListFails(Cause),
    WatchFails(Cause),
    Added(&'static str),
    Applied(&'static str),
    Deleted(&'static str),
    Bookmark(&'static str),
    /// The bookmark that ends the initial events.
    InitialEnd(&'static str),
    StreamFails(Cause),
    /// The stream ends so many seconds after the watch was asked for.
    Ends(u64),
    /// The wait is over.
    Waited,
}
use Back::{
    Added, Applied, Bookmark, Deleted, Ends, InitialEnd, ListFails, Page, StreamFails, Waited, WatchFails,
};

const BUSY: Cause = Cause::TooManyRequests { retry_after: None };

fn listing(seed: u64) -> ListWatch {
    ListWatch::new(fastrand::Rng::with_seed(seed), Instant::now()).listing()
}

/// Plays a script on a protocol that lists.
fn play(script: &[(&str, Back, Effect)]) -> ListWatch {
    let mut protocol = listing(1);
    continue_with(&mut protocol, &mut Instant::now(), script);
    protocol
}

fn continue_with(protocol: &mut ListWatch, now: &mut Instant, script: &[(&str, Back, Effect)]) {
    for (number, (expected, back, effect)) in script.iter().enumerate() {
        assert_eq!(describe(&protocol.step()), *expected, "step {number}");
        assert_eq!(
            answer(protocol, now, *back),
            *effect,
            "effect of step {number}, {expected}"
        );
    }
}

fn answer(protocol: &mut ListWatch, now: &mut Instant, back: Back) -> Effect {
    let failure = |cause| Failure {
        cause,
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
                event: Event::Modified,
                resource_version,
            },
            *now,
        ),
        Added(resource_version) => protocol.input(
            &Input::Event {
                event: Event::Added,
                resource_version,
            },
            *now,
        ),
        Deleted(resource_version) => protocol.input(
            &Input::Event {
                event: Event::Deleted,
                resource_version,
            },
            *now,
        ),
        Bookmark(resource_version) | InitialEnd(resource_version) => {
            let initial_end = matches!(back, InitialEnd(_));
            let bookmark = Input::Bookmark {
                resource_version,
                initial_end,
            };
            protocol.input(&bookmark, *now)
        }
        Ends(seconds) => {
            *now += Duration::from_secs(seconds);
            protocol.input(&Input::StreamEnded, *now)
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
fn it_lists_from_the_watch_cache_and_watches_from_there() {
    play(&[
        ("list '0' 500", Page("10", None), Effect::Replace),
        ("watch '10'", Applied("11"), Effect::Apply),
        ("watch '10'", Deleted("12"), Effect::Remove),
    ]);
}

/// 63.
#[test]
fn a_watch_is_to_last_between_five_and_ten_minutes() {
    for seed in 0..200 {
        let mut protocol = listing(seed);
        let _ = answer(&mut protocol, &mut Instant::now(), Page("1", None));
        let Step::Watch(WatchCall { timeout, .. }) = protocol.step() else {
            panic!("it does not watch")
        };
        assert!((300..600).contains(&timeout.as_secs()), "{timeout:?}");
    }
}

/// 56: the pages of one list are one state, stored together.
#[test]
fn pages_are_put_aside_until_the_last() {
    play(&[
        ("list '0' 500", Page("10", Some("a")), Effect::Stage),
        ("list '' 500 from a", Page("10", Some("b")), Effect::Stage),
        ("list '' 500 from b", Page("10", Some("")), Effect::Replace),
        ("watch '10'", Ends(60), Effect::None),
    ]);
}

/// 64: everything that is seen moves the version, bookmarks included.
#[test]
fn a_watch_that_ends_goes_on_from_the_newest_version_without_a_list_or_delay() {
    play(&[
        ("list '0' 500", Page("10", None), Effect::Replace),
        ("watch '10'", Applied("20"), Effect::Apply),
        ("watch '10'", Bookmark("30"), Effect::None),
        ("watch '10'", Ends(400), Effect::None),
        ("watch '30'", Deleted("40"), Effect::Remove),
        ("watch '30'", Ends(0), Effect::None),
        ("watch '40'", Ends(2), Effect::None),
        ("watch '40'", Applied(""), Effect::Apply),
        ("watch '40'", Ends(2), Effect::None),
        ("watch '40'", Ends(2), Effect::None),
    ]);
}

#[test]
fn a_watch_that_ends_at_once_with_nothing_seen_is_a_failure() {
    play(&[
        ("list '0' 500", Page("10", None), Effect::Replace),
        ("watch '10'", Ends(0), Effect::None),
        ("wait", Waited, Effect::None),
        ("list '10' all", Page("10", None), Effect::Replace),
    ]);
}

/// 57, 59: a relist never goes back in time, and comes in one piece from the watch cache.
#[test]
fn a_relist_asks_for_no_older_state_than_what_is_known() {
    play(&[
        ("list '0' 500", Page("10", None), Effect::Replace),
        ("watch '10'", Applied("15"), Effect::Apply),
        ("watch '10'", StreamFails(Cause::Other), Effect::None),
        ("wait", Waited, Effect::None),
        ("list '15' all", Page("20", None), Effect::Replace),
        ("watch '20'", Ends(9), Effect::None),
    ]);
}

/// 58.
#[test]
fn a_server_without_a_watch_cache_is_paged_on_relist_too() {
    play(&[
        ("list '0' 500", Page("10", Some("a")), Effect::Stage),
        ("list '' 500 from a", Page("10", None), Effect::Replace),
        ("watch '10'", WatchFails(Cause::Other), Effect::None),
        ("wait", Waited, Effect::None),
        ("list '10' 500", Page("20", None), Effect::Replace),
    ]);
}

/// 60; the same for a version that the server has not reached yet (62).
#[test]
fn a_version_that_cannot_be_listed_is_given_up_for_the_newest_at_once() {
    for cause in [Cause::Expired, Cause::TooLarge] {
        play(&[
            ("list '0' 500", Page("10", None), Effect::Replace),
            ("watch '10'", WatchFails(Cause::Expired), Effect::None),
            ("wait", Waited, Effect::None),
            ("list '10' all", ListFails(cause), Effect::Discard),
            ("list '' 500", Page("30", None), Effect::Replace),
            ("watch '30'", StreamFails(Cause::Other), Effect::None),
            ("wait", Waited, Effect::None),
            ("list '30' all", Page("30", None), Effect::Replace),
        ]);
    }
}

#[test]
fn the_newest_is_asked_for_again_if_that_fails_too() {
    play(&[
        ("list '0' 500", Page("10", None), Effect::Replace),
        ("watch '10'", StreamFails(Cause::Expired), Effect::None),
        ("wait", Waited, Effect::None),
        ("list '10' all", ListFails(Cause::Expired), Effect::Discard),
        ("list '' 500", ListFails(Cause::Expired), Effect::Discard),
        ("wait", Waited, Effect::None),
        ("list '' 500", Page("30", None), Effect::Replace),
    ]);
}

/// 61: and what was put aside of the old list is forgotten.
#[test]
fn an_expired_continue_token_leads_to_one_unpaged_list() {
    play(&[
        ("list '0' 500", Page("10", Some("a")), Effect::Stage),
        ("list '' 500 from a", ListFails(Cause::Expired), Effect::Discard),
        ("list '0' all", Page("12", None), Effect::Replace),
        ("watch '12'", Ends(9), Effect::None),
    ]);
    play(&[
        ("list '0' 500", Page("10", Some("a")), Effect::Stage),
        ("list '' 500 from a", ListFails(Cause::Expired), Effect::Discard),
        ("list '0' all", ListFails(Cause::Expired), Effect::Discard),
        ("list '' 500", Page("12", None), Effect::Replace),
    ]);
}

/// The kube-rs defect: a 410 at the start of a watch must not be retried with the same version for ever.
#[test]
fn a_watch_from_an_expired_version_leads_to_a_list() {
    for back in [WatchFails(Cause::Expired), StreamFails(Cause::Expired)] {
        play(&[
            ("list '0' 500", Page("10", None), Effect::Replace),
            ("watch '10'", back, Effect::None),
            ("wait", Waited, Effect::None),
            ("list '10' all", Page("11", None), Effect::Replace),
        ]);
    }
}

/// A server that gives lists no version: its watches tell of everything first, in no order.
#[test]
fn a_watch_without_a_version_is_not_resumed_from_the_middle() {
    play(&[
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

/// 52, 53.
#[test]
fn a_busy_or_restarting_server_is_watched_again_without_a_list() {
    for back in [WatchFails(BUSY), StreamFails(BUSY), WatchFails(Cause::Refused)] {
        play(&[
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
fn a_server_that_says_when_to_come_back_is_obeyed() {
    let mut protocol = listing(1);
    let asked = Duration::from_secs(17);
    let _ = answer(
        &mut protocol,
        &mut Instant::now(),
        ListFails(Cause::TooManyRequests {
            retry_after: Some(asked),
        }),
    );
    assert_eq!(protocol.step(), Step::Wait(asked));
}

#[test]
fn failures_that_follow_each_other_wait_longer_and_longer() {
    let mut protocol = listing(1);
    let mut now = Instant::now();
    for at_least in [800, 1600, 3200, 6400] {
        let _ = answer(&mut protocol, &mut now, ListFails(Cause::Other));
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

/// 187.
#[test]
fn a_kind_that_is_not_installed_is_waited_for() {
    play(&[
        ("list '0' 500", ListFails(Cause::NotInstalled), Effect::Discard),
        ("wait", Waited, Effect::None),
        ("list '0' 500", ListFails(Cause::NotInstalled), Effect::Discard),
        ("wait", Waited, Effect::None),
        ("list '0' 500", Page("3", None), Effect::Replace),
        ("watch '3'", Ends(9), Effect::None),
    ]);
}

/// 187: and if it is installed again, it starts from nothing.
#[test]
fn a_kind_that_is_uninstalled_loses_its_objects_when_that_is_certain() {
    play(&[
        ("list '0' 500", Page("10", None), Effect::Replace),
        ("watch '10'", WatchFails(Cause::NotInstalled), Effect::None),
        ("wait", Waited, Effect::None),
        ("list '10' all", ListFails(Cause::NotInstalled), Effect::Discard),
        ("wait", Waited, Effect::None),
        ("list '10' all", ListFails(Cause::NotInstalled), Effect::Clear),
        ("wait", Waited, Effect::None),
        ("list '0' 500", Page("90", None), Effect::Replace),
    ]);
}

#[test]
fn a_single_404_from_a_starting_server_costs_no_objects() {
    let protocol = play(&[
        ("list '0' 500", Page("10", None), Effect::Replace),
        ("watch '10'", WatchFails(Cause::NotInstalled), Effect::None),
        ("wait", Waited, Effect::None),
        ("list '10' all", ListFails(Cause::NotInstalled), Effect::Discard),
        ("wait", Waited, Effect::None),
        ("list '10' all", ListFails(Cause::Other), Effect::Discard),
        ("wait", Waited, Effect::None),
        ("list '10' all", ListFails(Cause::NotInstalled), Effect::Discard),
    ]);
    assert_eq!(protocol.resource_version(), "10");
}

mod streaming;
