//! The initial state as a stream (watch-list), 68 to 78.

use super::*;

fn play_streaming(script: &[(&str, Back, Effect)]) -> ListWatch {
    let mut protocol = ListWatch::new(fastrand::Rng::with_seed(1), Instant::now());
    continue_with(&mut protocol, &mut Instant::now(), script);
    protocol
}

/// Synced by the marked bookmark, what changes before it is folded in, and the same watch goes on.
#[test]
fn the_initial_state_is_streamed_and_the_same_watch_goes_on() {
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
fn a_stream_that_is_cut_after_sync_goes_on_as_a_plain_watch() {
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
fn a_stream_that_is_cut_before_sync_starts_from_scratch() {
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
fn a_busy_server_is_asked_again_for_a_stream() {
    for back in [WatchFails(BUSY), WatchFails(Cause::Refused), StreamFails(BUSY)] {
        play_streaming(&[
            ("stream ''", back, Effect::Discard),
            ("wait", Waited, Effect::None),
            ("stream ''", back, Effect::Discard),
            ("wait", Waited, Effect::None),
            ("stream ''", InitialEnd("10"), Effect::Replace),
        ]);
    }
}

/// Any other error: this round is a list, the next one tries to stream again.
#[test]
fn a_server_that_cannot_stream_is_listed() {
    for back in [
        WatchFails(Cause::Other),
        StreamFails(Cause::Other),
        WatchFails(Cause::NotInstalled),
    ] {
        play_streaming(&[
            ("stream ''", back, Effect::Discard),
            ("list '0' 500", Page("10", None), Effect::Replace),
            ("watch '10'", StreamFails(Cause::Other), Effect::None),
            ("wait", Waited, Effect::None),
            ("stream '10'", back, Effect::Discard),
            ("list '10' all", Page("12", None), Effect::Replace),
            ("watch '12'", Ends(9), Effect::None),
        ]);
    }
}

#[test]
fn a_version_that_cannot_be_streamed_is_given_up_for_the_newest_at_once() {
    for cause in [Cause::Expired, Cause::TooLarge] {
        play_streaming(&[
            ("stream ''", InitialEnd("10"), Effect::Replace),
            ("stream ''", StreamFails(Cause::Expired), Effect::None),
            ("wait", Waited, Effect::None),
            ("stream '10'", WatchFails(cause), Effect::Discard),
            ("stream ''", StreamFails(cause), Effect::Discard),
            ("wait", Waited, Effect::None),
            ("stream ''", InitialEnd("30"), Effect::Replace),
            ("stream ''", StreamFails(Cause::Other), Effect::None),
            ("wait", Waited, Effect::None),
            ("stream '30'", InitialEnd("30"), Effect::Replace),
        ]);
    }
}

/// 187.
#[test]
fn a_kind_that_goes_is_noticed_though_it_is_streamed() {
    play_streaming(&[
        ("stream ''", InitialEnd("10"), Effect::Replace),
        ("stream ''", Ends(9), Effect::None),
        ("watch '10'", WatchFails(Cause::NotInstalled), Effect::None),
        ("wait", Waited, Effect::None),
        ("stream '10'", WatchFails(Cause::NotInstalled), Effect::Discard),
        ("list '10' all", ListFails(Cause::NotInstalled), Effect::Discard),
        ("wait", Waited, Effect::None),
        ("stream '10'", WatchFails(Cause::NotInstalled), Effect::Discard),
        ("list '10' all", ListFails(Cause::NotInstalled), Effect::Clear),
        ("wait", Waited, Effect::None),
        ("stream ''", InitialEnd("90"), Effect::Replace),
    ]);
}
