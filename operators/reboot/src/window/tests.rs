use jiff::Unit;
use proptest::prelude::*;

use super::*;

const WEEK: [Day; 7] = [
    Day::Monday,
    Day::Tuesday,
    Day::Wednesday,
    Day::Thursday,
    Day::Friday,
    Day::Saturday,
    Day::Sunday,
];

fn spec(days: &[Day], start: &str, end: &str, zone: &str) -> WindowSpec {
    WindowSpec {
        days: days.to_vec(),
        start: start.to_owned(),
        end: end.to_owned(),
        time_zone: zone.to_owned(),
    }
}

fn one(days: &[Day], start: &str, end: &str, zone: &str) -> Windows {
    Windows::parse(&[spec(days, start, end, zone)], &[]).expect("windows")
}

fn excluded(from: &str, to: &str, zone: &str) -> Exclusion {
    Exclusion {
        from: from.to_owned(),
        to: to.to_owned(),
        time_zone: zone.to_owned(),
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

#[test]
fn without_windows_it_is_always_open_but_for_exclusions() {
    let always = Windows::default();
    let now = at("2026-03-04T05:06:07Z");
    assert!(always.open_at(now));
    assert_eq!(always.next_opening(now), Some(now));
    assert_eq!(always.closes_after(now), None, "it does not close");
    assert_eq!(always.open_since(now), None, "it did not open");

    let holidays =
        Windows::parse(&[], &[excluded("2026-12-20", "2027-01-06", "Europe/Berlin")]).expect("windows");
    let eve = at("2026-12-19T22:59:59Z");
    assert_eq!(
        holidays.closes_after(eve),
        Some(at("2026-12-19T23:00:00Z")),
        "midnight in Berlin"
    );
    assert_eq!(
        holidays.next_opening(at("2026-12-24T12:00:00Z")),
        Some(at("2027-01-06T23:00:00Z"))
    );
}

#[test]
fn an_overnight_window_belongs_to_the_day_it_starts_on() {
    let friday = one(&[Day::Friday], "22:00", "04:00", "Europe/Berlin");
    // 2026-06-05 is a Friday; Berlin is two hours ahead.
    for (now, open) in [
        ("2026-06-04T21:00:00Z", false), // Thursday 23:00
        ("2026-06-05T00:30:00Z", false), // Friday 02:30: Thursday's night
        ("2026-06-05T19:59:59Z", false),
        ("2026-06-05T20:00:00Z", true),
        ("2026-06-05T22:30:00Z", true), // Saturday 00:30
        ("2026-06-06T01:59:59Z", true),
        ("2026-06-06T02:00:00Z", false),
        ("2026-06-06T20:30:00Z", false), // Saturday 22:30
    ] {
        assert_eq!(friday.open_at(at(now)), open, "{now}");
    }
    assert_eq!(
        friday.next_opening(at("2026-06-06T02:00:00Z")),
        Some(at("2026-06-12T20:00:00Z"))
    );
    assert_eq!(
        friday.closes_after(at("2026-06-05T21:00:00Z")),
        Some(at("2026-06-06T02:00:00Z"))
    );
}

#[test]
fn the_same_time_at_both_ends_is_a_whole_day_and_24_00_its_end() {
    let day = one(&[Day::Sunday], "06:00", "06:00", "UTC");
    assert_eq!(
        day.next_opening(at("2026-06-05T00:00:00Z")),
        Some(at("2026-06-07T06:00:00Z"))
    );
    assert_eq!(
        day.closes_after(at("2026-06-07T06:00:00Z")),
        Some(at("2026-06-08T06:00:00Z"))
    );
    let sunday = one(&[Day::Sunday], "00:00", "24:00", "UTC");
    assert_eq!(
        sunday.closes_after(at("2026-06-07T00:00:00Z")),
        Some(at("2026-06-08T00:00:00Z"))
    );
    assert_eq!(
        one(&[], "00:00", "24:00", "Asia/Tokyo").closes_after(at("2026-06-07T00:00:00Z")),
        None
    );
}

#[test]
fn windows_that_touch_close_once() {
    let both = [
        spec(&[], "22:00", "24:00", "UTC"),
        spec(&[], "00:00", "02:00", "UTC"),
    ];
    let windows = Windows::parse(&both, &[]).expect("windows");
    assert_eq!(
        windows.closes_after(at("2026-06-07T22:00:00Z")),
        Some(at("2026-06-08T02:00:00Z"))
    );
}

/// What the clock on the wall shows decides: an hour left out is in no window, an hour that comes again is in it again.
#[test]
fn a_clock_change_moves_edges_to_where_the_clock_on_the_wall_shows_them() {
    struct Case {
        zone: &'static str,
        window: (&'static str, &'static str),
        asked: &'static str,
        opens: &'static str,
        closes: &'static str,
    }
    let cases = [
        // 29 March 2026, Berlin: 02:00 becomes 03:00 at 01:00 UTC.
        Case {
            zone: "Europe/Berlin",
            window: ("02:30", "04:00"),
            asked: "2026-03-29T00:00:00Z",
            opens: "2026-03-29T01:00:00Z",
            closes: "2026-03-29T02:00:00Z",
        },
        Case {
            zone: "Europe/Berlin",
            window: ("01:00", "02:30"),
            asked: "2026-03-28T23:00:00Z",
            opens: "2026-03-29T00:00:00Z",
            closes: "2026-03-29T01:00:00Z",
        },
        // The window that is left out whole comes on the next day.
        Case {
            zone: "Europe/Berlin",
            window: ("02:00", "03:00"),
            asked: "2026-03-29T00:00:00Z",
            opens: "2026-03-30T00:00:00Z",
            closes: "2026-03-30T01:00:00Z",
        },
        // Over midnight and over the change: five hours, not six.
        Case {
            zone: "Europe/Berlin",
            window: ("22:00", "04:00"),
            asked: "2026-03-28T12:00:00Z",
            opens: "2026-03-28T21:00:00Z",
            closes: "2026-03-29T02:00:00Z",
        },
        // 25 October 2026, Berlin: 03:00 becomes 02:00 at 01:00 UTC.
        Case {
            zone: "Europe/Berlin",
            window: ("22:00", "04:00"),
            asked: "2026-10-24T12:00:00Z",
            opens: "2026-10-24T20:00:00Z",
            closes: "2026-10-25T03:00:00Z",
        },
        Case {
            zone: "Europe/Berlin",
            window: ("02:30", "04:00"),
            asked: "2026-10-25T00:00:00Z",
            opens: "2026-10-25T00:30:00Z",
            closes: "2026-10-25T01:00:00Z",
        },
        Case {
            zone: "Europe/Berlin",
            window: ("02:30", "04:00"),
            asked: "2026-10-25T01:00:00Z",
            opens: "2026-10-25T01:30:00Z",
            closes: "2026-10-25T03:00:00Z",
        },
        Case {
            zone: "Europe/Berlin",
            window: ("02:15", "02:45"),
            asked: "2026-10-25T00:45:00Z",
            opens: "2026-10-25T01:15:00Z",
            closes: "2026-10-25T01:45:00Z",
        },
        // New York, 8 March 2026: 02:00 becomes 03:00 at 07:00 UTC.
        Case {
            zone: "America/New_York",
            window: ("02:30", "05:00"),
            asked: "2026-03-08T06:00:00Z",
            opens: "2026-03-08T07:00:00Z",
            closes: "2026-03-08T09:00:00Z",
        },
        // Lord Howe Island changes by half an hour: 5 April 2026, 02:00 becomes 01:30 at 15:00 UTC of the day before.
        Case {
            zone: "Australia/Lord_Howe",
            window: ("01:00", "01:45"),
            asked: "2026-04-04T14:50:00Z",
            opens: "2026-04-04T15:00:00Z",
            closes: "2026-04-04T15:15:00Z",
        },
        // Beirut, 25 October 2026: midnight becomes 23:00 of the day before, at 21:00 UTC.
        Case {
            zone: "Asia/Beirut",
            window: ("23:30", "00:30"),
            asked: "2026-10-24T20:00:00Z",
            opens: "2026-10-24T20:30:00Z",
            closes: "2026-10-24T21:00:00Z",
        },
        Case {
            zone: "Asia/Beirut",
            window: ("23:30", "00:30"),
            asked: "2026-10-24T21:00:00Z",
            opens: "2026-10-24T21:30:00Z",
            closes: "2026-10-24T22:30:00Z",
        },
        // Samoa had no 30 December 2011: the day after the 29th was the 31st.
        Case {
            zone: "Pacific/Apia",
            window: ("23:00", "01:00"),
            asked: "2011-12-30T08:00:00Z",
            opens: "2011-12-30T09:00:00Z",
            closes: "2011-12-30T11:00:00Z",
        },
    ];
    for Case {
        zone,
        window,
        asked,
        opens,
        closes,
    } in cases
    {
        let windows = one(&[], window.0, window.1, zone);
        assert_eq!(
            windows.next_opening(at(asked)),
            Some(at(opens)),
            "{zone} {window:?} after {asked}"
        );
        let before_closing = at(closes) - 1.second();
        assert_eq!(
            windows.open_since(before_closing),
            Some(at(opens)),
            "{zone} {window:?}"
        );
        assert_eq!(windows.open_since(at(closes)), None);
        assert_eq!(
            windows.closes_after(at(opens)),
            Some(at(closes)),
            "{zone} {window:?} from {opens}"
        );
    }
}

#[test]
fn a_window_that_never_comes_has_no_opening() {
    // Every Monday is excluded, and Mondays are all there is.
    let windows = [spec(&[Day::Monday], "01:00", "02:00", "UTC")];
    let endless = [excluded("2026-01-01", "9998-12-31", "UTC")];
    let windows = Windows::parse(&windows, &endless).expect("windows");
    let found = windows.next_opening(at("2026-06-01T00:00:00Z"));
    assert_eq!(found, Some(at("9999-01-04T01:00:00Z")), "years are no work");
    assert_eq!(
        Windows::parse(&[], &[])
            .expect("windows")
            .closes_after(Timestamp::MAX),
        None
    );
    assert_eq!(
        one(&[Day::Monday], "01:00", "02:00", "UTC").next_opening(Timestamp::MAX),
        None
    );
}

#[test]
fn what_is_wrong_is_named_with_its_place_and_the_fix() {
    let good = || spec(&[Day::Monday], "01:00", "02:00", "UTC");
    for (windows, exclusions, message) in [
        (
            vec![good(), spec(&[], "25:00", "02:00", "UTC")],
            vec![],
            "windows[1].start `25:00` is not a time of day: write it as `22:00`",
        ),
        (
            vec![spec(&[], "01:00", "2:00", "UTC")],
            vec![],
            "windows[0].end `2:00` is not a time of day: write it as `22:00`",
        ),
        (
            vec![spec(&[], "24:00", "02:00", "UTC")],
            vec![],
            "windows[0].start `24:00` is not a time of day: write it as `22:00`",
        ),
        (
            vec![spec(&[], "01:00", "02:00", "Berlin")],
            vec![],
            "windows[0].timeZone `Berlin` is not a time zone: write it as `Europe/Berlin`, or `UTC`",
        ),
        (
            vec![],
            vec![excluded("2026-02-30", "2026-03-01", "UTC")],
            "exclusions[0].from `2026-02-30` is not a date: write it as `2026-12-20`",
        ),
        (
            vec![],
            vec![excluded("2026-03-02", "2026-03-01", "UTC")],
            "exclusions[0] ends on 2026-03-01, before it begins on 2026-03-02: swap them",
        ),
    ] {
        let error = Windows::parse(&windows, &exclusions).expect_err(message);
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn a_spec_is_as_people_write_it() {
    let written = serde_json::json!({ "days": ["Sat", "Sun"], "start": "22:00", "end": "04:00" });
    let read: WindowSpec = serde_json::from_value(written).expect("a window");
    assert_eq!(read, spec(&[Day::Saturday, Day::Sunday], "22:00", "04:00", "UTC"));
}

/// Zones with changes of an hour, of half an hour, over midnight, on other days than their neighbours, and without any.
const ZONES: [&str; 9] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Beirut",
    "America/Havana",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "America/St_Johns",
];

fn any_time() -> impl Strategy<Value = String> {
    (0..24, 0..60).prop_map(|(hours, minutes)| format!("{hours:02}:{minutes:02}"))
}

fn any_window() -> impl Strategy<Value = WindowSpec> {
    let days = proptest::sample::subsequence(WEEK.to_vec(), 0..=7);
    (days, any_time(), any_time(), proptest::sample::select(&ZONES[..]))
        .prop_map(|(days, start, end, zone)| spec(&days, &start, &end, zone))
}

fn any_exclusion() -> impl Strategy<Value = Exclusion> {
    (0..365_i64, 0..9_i64, proptest::sample::select(&ZONES[..])).prop_map(|(day, length, zone)| {
        let from = jiff::civil::date(2026, 1, 1).saturating_add(day.days());
        let to = from.saturating_add(length.days());
        excluded(&from.to_string(), &to.to_string(), zone)
    })
}

/// Within a day of one of the zone's changes, or anywhere in the year.
fn any_instant() -> impl Strategy<Value = Timestamp> {
    let anywhere =
        (0..365 * 24 * 60_i64).prop_map(|minutes| at("2026-01-01T00:00:00Z") + (minutes * 60).seconds());
    let change = (proptest::sample::select(&ZONES[1..]), 0..2_usize, -1440..1440_i64);
    let near = change.prop_map(|(zone, which, minutes)| {
        let zone = TimeZone::get(zone).expect("a zone");
        let mut changes = zone.following(at("2026-01-01T00:00:00Z"));
        let change = changes
            .nth(which)
            .map_or(at("2026-06-01T00:00:00Z"), |change| change.timestamp());
        change + (minutes * 60).seconds()
    });
    prop_oneof![anywhere, near]
}

/// The definition, in other words than the code's: minutes of the local day, and yesterday's window if it is not over.
fn open_by_hand(windows: &[WindowSpec], exclusions: &[Exclusion], now: Timestamp) -> bool {
    let minutes = |text: &str| text[..2].parse::<i32>().unwrap() * 60 + text[3..].parse::<i32>().unwrap();
    let listed = |spec: &WindowSpec, date: Date| {
        spec.days.is_empty() || spec.days.iter().any(|day| WEEK[position(date.weekday())] == *day)
    };
    let open = windows.iter().any(|spec| {
        let local = now.in_tz(&spec.time_zone).unwrap();
        let minute = i32::from(local.hour()) * 60 + i32::from(local.minute());
        let (start, end) = (minutes(&spec.start), minutes(&spec.end));
        let end = if end <= start { end + 1440 } else { end };
        [
            (local.date(), minute),
            (local.date().yesterday().unwrap(), minute + 1440),
        ]
        .into_iter()
        .any(|(date, minute)| listed(spec, date) && (start..end).contains(&minute))
    });
    let excluded = exclusions.iter().any(|spec| {
        let today = now.in_tz(&spec.time_zone).unwrap().date().to_string();
        spec.from <= today && today <= spec.to
    });
    (windows.is_empty() || open) && !excluded
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edges_are_where_a_walk_by_the_minute_finds_them(
        windows in proptest::collection::vec(any_window(), 0..3),
        exclusions in proptest::collection::vec(any_exclusion(), 0..3),
        now in any_instant(),
    ) {
        let parsed = Windows::parse(&windows, &exclusions).expect("windows");
        let by_hand = |at| open_by_hand(&windows, &exclusions, at);
        prop_assert_eq!(parsed.open_at(now), by_hand(now));
        let two_days = (0..2 * 24 * 60).map(|minutes: i64| now + (minutes * 60).seconds());
        let (opens, closes) = (parsed.next_opening(now), parsed.closes_after(now));
        if let Some(first) = two_days.clone().find(|at| by_hand(*at)) {
            prop_assert_eq!(opens, Some(first));
        } else {
            prop_assert!(opens.is_none_or(|opens| opens >= now + (2 * 24).hours()));
        }
        match two_days.clone().find(|at| !by_hand(*at)) {
            Some(first) if parsed.open_at(now) => prop_assert_eq!(closes, Some(first)),
            Some(_) => prop_assert_eq!(closes, None),
            None => prop_assert!(closes.is_none_or(|closes| closes >= now + (2 * 24).hours())),
        }
    }

    #[test]
    fn an_opening_is_open_and_the_instant_before_is_not(
        windows in proptest::collection::vec(any_window(), 1..4),
        exclusions in proptest::collection::vec(any_exclusion(), 0..4),
        now in any_instant(),
    ) {
        let parsed = Windows::parse(&windows, &exclusions).expect("windows");
        let opens = parsed.next_opening(now).expect("every week has one");
        prop_assert!(opens >= now && parsed.open_at(opens));
        prop_assert!(opens == now || !parsed.open_at(opens - 1.nanosecond()));
        if let Some(closes) = parsed.closes_after(opens) {
            prop_assert!(closes > opens && !parsed.open_at(closes));
            prop_assert!(parsed.open_at(closes - 1.nanosecond()));
        }
        let since = parsed.open_since(opens);
        prop_assert!(since.is_none_or(|since| since <= opens && (since == opens || opens == now)));
        prop_assert!(since.is_none_or(|since| parsed.open_at(since) && !parsed.open_at(since - 1.nanosecond())));
        prop_assert_eq!(opens, opens.round(Unit::Minute).expect("a whole minute"));
    }

    #[test]
    fn no_text_makes_it_panic(start in ".{0,8}", end in "[0-9:]{0,6}", zone in "\\PC{0,20}", from in "[0-9-]{0,11}") {
        let _ = Windows::parse(&[spec(&[], &start, &end, "UTC")], &[]);
        let _ = Windows::parse(&[spec(&[], "01:00", &end, &zone)], &[]);
        let _ = Windows::parse(&[], &[excluded(&from, &from, "UTC")]);
    }
}
