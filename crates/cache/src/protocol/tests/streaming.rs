//! The initial state as a stream (WatchList).

use super::*;

fn play_streaming(script: &[(&str, StepResult, Effect)]) -> ListWatch {
    let mut protocol = ListWatch::new(fastrand::Rng::with_seed(1), Instant::now());
    continue_with(&mut protocol, &mut Instant::now(), script);
    protocol
}

/// The initial-events-end bookmark completes the list; changes before it are included.
#[test]
fn initial_events_are_staged_and_the_same_watch_continues() {
    let protocol = play_streaming(&[
        ("stream ''", Added("5"), Effect::Stage),
        ("stream ''", Added("3"), Effect::Stage),
        ("stream ''", Applied("8"), Effect::Stage),
        ("stream ''", Deleted("9"), Effect::Unstage),
        ("stream ''", Bookmark("9"), Effect::None),
        ("stream ''", InitialEnd("10"), Effect::Replace),
        ("stream ''", Applied("11"), Effect::Apply),
        ("stream ''", Deleted("12"), Effect::Remove),
    ]);
    assert_eq!(protocol.resource_version(), "12");
}

#[test]
fn stream_ended_after_sync_continues_as_a_plain_watch() {
    play_streaming(&[
        ("stream ''", InitialEnd("10"), Effect::Replace),
        ("stream ''", Applied("11"), Effect::Apply),
        ("stream ''", Ends(60), Effect::None),
        ("watch '11'", Applied("12"), Effect::Apply),
        ("watch '11'", StreamFails(BUSY), Effect::None),
        ("wait", Waited, Effect::None),
        ("watch '12'", Ends(9), Effect::None),
    ]);
}

#[test]
fn stream_ended_before_sync_starts_over() {
    let protocol = play_streaming(&[
        ("stream ''", Added("5"), Effect::Stage),
        ("stream ''", Ends(60), Effect::Discard),
        ("stream ''", Ends(0), Effect::Discard),
        ("wait", Waited, Effect::None),
        ("stream ''", InitialEnd("10"), Effect::Replace),
    ]);
    assert_eq!(protocol.resource_version(), "10");
}

/// Two 429s are three requests.
#[test]
fn busy_server_is_retried_with_a_stream() {
    for back in [WatchFails(BUSY), WatchFails(ConnectionRefused), StreamFails(BUSY)] {
        play_streaming(&[
            ("stream ''", back, Effect::Discard),
            ("wait", Waited, Effect::None),
            ("stream ''", back, Effect::Discard),
            ("wait", Waited, Effect::None),
            ("stream ''", InitialEnd("10"), Effect::Replace),
        ]);
    }
}

/// After any other error the protocol lists, and tries to stream again next time.
#[test]
fn server_without_watch_list_is_listed() {
    for (back, effect) in [
        (WatchFails(Other), Effect::Fallback),
        (StreamFails(Other), Effect::Discard),
        (WatchFails(NotInstalled), Effect::Fallback),
        (TimesOut(20), Effect::Fallback),
    ] {
        play_streaming(&[
            ("stream ''", back, effect),
            ("list '0' 500", Page("10", None), Effect::Replace),
            ("watch '10'", StreamFails(Other), Effect::None),
            ("wait", Waited, Effect::None),
            ("stream '10'", back, effect),
            ("list '10' all", Page("12", None), Effect::Replace),
            ("watch '12'", Ends(9), Effect::None),
        ]);
    }
}

#[test]
fn unavailable_stream_version_falls_back_to_newest_immediately() {
    for cause in [Expired, VersionTooLarge] {
        play_streaming(&[
            ("stream ''", InitialEnd("10"), Effect::Replace),
            ("stream ''", StreamFails(Expired), Effect::None),
            ("wait", Waited, Effect::None),
            ("stream '10'", WatchFails(cause), Effect::Discard),
            ("stream ''", StreamFails(cause), Effect::Discard),
            ("wait", Waited, Effect::None),
            ("stream ''", InitialEnd("30"), Effect::Replace),
            ("stream ''", StreamFails(Other), Effect::None),
            ("wait", Waited, Effect::None),
            ("stream '30'", InitialEnd("30"), Effect::Replace),
        ]);
    }
}

#[test]
fn uninstalled_kind_is_detected_while_streaming() {
    play_streaming(&[
        ("stream ''", InitialEnd("10"), Effect::Replace),
        ("stream ''", Ends(9), Effect::None),
        ("watch '10'", WatchFails(NotInstalled), Effect::None),
        ("wait", Waited, Effect::None),
        ("stream '10'", WatchFails(NotInstalled), Effect::Fallback),
        ("list '10' all", ListFails(NotInstalled), Effect::Discard),
        ("wait", Waited, Effect::None),
        ("stream '10'", WatchFails(NotInstalled), Effect::Fallback),
        ("list '10' all", ListFails(NotInstalled), Effect::Clear),
        ("wait", Waited, Effect::None),
        ("stream ''", InitialEnd("90"), Effect::Replace),
    ]);
}
