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
    Windows::parse(&[spec(days, start, end, zone)], &[]).expect("valid windows")
}

fn excluded(from: &str, to: &str, zone: &str) -> ExclusionSpec {
    ExclusionSpec {
        from: from.to_owned(),
        to: to.to_owned(),
        time_zone: zone.to_owned(),
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a valid time")
}

#[test]
fn no_windows_means_open_except_for_exclusions() {
    let always = Windows::default();
    let now = at("2026-03-04T05:06:07Z");
    assert!(always.open_at(now));
    assert_eq!(always.next_opening(now), Some(now));
    assert_eq!(always.closes_after(now), None, "it never closes");
    assert_eq!(always.open_since(now), None, "it never opened");

    let holidays =
        Windows::parse(&[], &[excluded("2026-12-20", "2027-01-06", "Europe/Berlin")]).expect("valid windows");
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
fn overnight_window_belongs_to_its_start_day() {
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
fn equal_start_and_end_is_a_whole_day_and_24_00_ends_it() {
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
fn adjacent_windows_close_once() {
    let both = [
        spec(&[], "22:00", "24:00", "UTC"),
        spec(&[], "00:00", "02:00", "UTC"),
    ];
    let windows = Windows::parse(&both, &[]).expect("valid windows");
    assert_eq!(
        windows.closes_after(at("2026-06-07T22:00:00Z")),
        Some(at("2026-06-08T02:00:00Z"))
    );
}

/// Zone, start, end; the time of the query, and the expected opening and closing.
const CHANGES: &str = "
    # 29 March 2026, Berlin: 02:00 becomes 03:00 at 01:00 UTC.
    Europe/Berlin       02:30 04:00  2026-03-29T00:00:00Z  2026-03-29T01:00:00Z  2026-03-29T02:00:00Z
    Europe/Berlin       01:00 02:30  2026-03-28T23:00:00Z  2026-03-29T00:00:00Z  2026-03-29T01:00:00Z
    # The window that is left out whole comes on the next day.
    Europe/Berlin       02:00 03:00  2026-03-29T00:00:00Z  2026-03-30T00:00:00Z  2026-03-30T01:00:00Z
    # Over midnight and over the change: five hours, not six.
    Europe/Berlin       22:00 04:00  2026-03-28T12:00:00Z  2026-03-28T21:00:00Z  2026-03-29T02:00:00Z
    # 25 October 2026, Berlin: 03:00 becomes 02:00 at 01:00 UTC.
    Europe/Berlin       22:00 04:00  2026-10-24T12:00:00Z  2026-10-24T20:00:00Z  2026-10-25T03:00:00Z
    Europe/Berlin       02:30 04:00  2026-10-25T00:00:00Z  2026-10-25T00:30:00Z  2026-10-25T01:00:00Z
    Europe/Berlin       02:30 04:00  2026-10-25T01:00:00Z  2026-10-25T01:30:00Z  2026-10-25T03:00:00Z
    Europe/Berlin       02:15 02:45  2026-10-25T00:45:00Z  2026-10-25T01:15:00Z  2026-10-25T01:45:00Z
    # New York, 8 March 2026: 02:00 becomes 03:00 at 07:00 UTC.
    America/New_York    02:30 05:00  2026-03-08T06:00:00Z  2026-03-08T07:00:00Z  2026-03-08T09:00:00Z
    # Lord Howe Island changes by half an hour: 5 April 2026, 02:00 becomes 01:30 at 15:00 UTC of the day before.
    Australia/Lord_Howe 01:00 01:45  2026-04-04T14:50:00Z  2026-04-04T15:00:00Z  2026-04-04T15:15:00Z
    # Beirut, 25 October 2026: midnight becomes 23:00 of the day before, at 21:00 UTC.
    Asia/Beirut         23:30 00:30  2026-10-24T20:00:00Z  2026-10-24T20:30:00Z  2026-10-24T21:00:00Z
    Asia/Beirut         23:30 00:30  2026-10-24T21:00:00Z  2026-10-24T21:30:00Z  2026-10-24T22:30:00Z
    # Samoa had no 30 December 2011: the day after the 29th was the 31st.
    Pacific/Apia        23:00 01:00  2011-12-30T08:00:00Z  2011-12-30T09:00:00Z  2011-12-30T11:00:00Z
";

/// The local time decides: a skipped hour is in no window, a repeated hour is in it twice.
#[test]
fn clock_changes_follow_the_local_time() {
    let cases = CHANGES
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    assert_eq!(cases.clone().count(), 13);
    for case in cases {
        let fields: Vec<_> = case.split_whitespace().collect();
        let [zone, start, end, asked, opens, closes] = fields[..] else {
            panic!("{case}");
        };
        let (windows, asked, opens, closes) = (one(&[], start, end, zone), at(asked), at(opens), at(closes));
        assert_eq!(windows.next_opening(asked), Some(opens), "{case}");
        assert_eq!(windows.closes_after(opens), Some(closes), "{case}");
        assert_eq!(windows.open_since(closes - 1.second()), Some(opens), "{case}");
        assert_eq!(windows.open_since(closes), None, "{case}");
    }
}

#[test]
fn search_skips_years_of_exclusions_and_stops_at_the_end_of_time() {
    let windows = [spec(&[Day::Monday], "01:00", "02:00", "UTC")];
    let endless = [excluded("2026-01-01", "9998-12-31", "UTC")];
    let windows = Windows::parse(&windows, &endless).expect("valid windows");
    let found = windows.next_opening(at("2026-06-01T00:00:00Z"));
    assert_eq!(found, Some(at("9999-01-04T01:00:00Z")), "years are skipped");
    assert_eq!(
        Windows::parse(&[], &[])
            .expect("valid windows")
            .closes_after(Timestamp::MAX),
        None
    );
    assert_eq!(
        one(&[Day::Monday], "01:00", "02:00", "UTC").next_opening(Timestamp::MAX),
        None
    );
}

#[test]
fn parse_errors_name_the_field_and_the_fix() {
    let good = || spec(&[Day::Monday], "01:00", "02:00", "UTC");
    for (windows, exclusions, message) in [
        (
            vec![good(), spec(&[], "25:00", "02:00", "UTC")],
            vec![],
            "invalid windows[1].start `25:00`: expected a time of day, for example `22:00`",
        ),
        (
            vec![spec(&[], "01:00", "2:00", "UTC")],
            vec![],
            "invalid windows[0].end `2:00`: expected a time of day, for example `22:00`",
        ),
        (
            vec![spec(&[], "24:00", "02:00", "UTC")],
            vec![],
            "invalid windows[0].start `24:00`: expected a time of day, for example `22:00`",
        ),
        (
            vec![spec(&[], "01:00", "02:00", "Berlin")],
            vec![],
            "invalid windows[0].timeZone `Berlin`: expected a name of the IANA database, for example `Europe/Berlin` or `UTC`",
        ),
        (
            vec![],
            vec![excluded("2026-02-30", "2026-03-01", "UTC")],
            "invalid exclusions[0].from `2026-02-30`: expected a date, for example `2026-12-20`",
        ),
        (
            vec![],
            vec![excluded("2026-03-02", "2026-03-01", "UTC")],
            "invalid exclusions[0]: it ends on 2026-03-01, before it begins on 2026-03-02: swap them",
        ),
    ] {
        let error = Windows::parse(&windows, &exclusions).expect_err(message);
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn spec_round_trips() {
    let written = serde_json::json!({ "days": ["Sat", "Sun"], "start": "22:00", "end": "04:00" });
    let read: WindowSpec = serde_json::from_value(written).expect("a window");
    assert_eq!(read, spec(&[Day::Saturday, Day::Sunday], "22:00", "04:00", "UTC"));
}

/// Zones with changes of an hour, of half an hour, over midnight, on unusual dates, and without any.
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

fn any_exclusion() -> impl Strategy<Value = ExclusionSpec> {
    (0..365_i64, 0..9_i64, proptest::sample::select(&ZONES[..])).prop_map(|(day, length, zone)| {
        let from = jiff::civil::date(2026, 1, 1).saturating_add(day.days());
        let to = from.saturating_add(length.days());
        excluded(&from.to_string(), &to.to_string(), zone)
    })
}

/// Within a day of a clock change of the zone, or anywhere in the year.
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

/// An independent definition: minutes of the local day, and yesterday's window if it is still open.
fn open_by_hand(windows: &[WindowSpec], exclusions: &[ExclusionSpec], now: Timestamp) -> bool {
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
    fn edges_match_a_minute_by_minute_search(
        windows in proptest::collection::vec(any_window(), 0..3),
        exclusions in proptest::collection::vec(any_exclusion(), 0..3),
        now in any_instant(),
    ) {
        let parsed = Windows::parse(&windows, &exclusions).expect("valid windows");
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
    fn opening_is_open_and_the_instant_before_is_closed(
        windows in proptest::collection::vec(any_window(), 1..4),
        exclusions in proptest::collection::vec(any_exclusion(), 0..4),
        now in any_instant(),
    ) {
        let parsed = Windows::parse(&windows, &exclusions).expect("valid windows");
        let opens = parsed.next_opening(now).expect("a weekly window opens");
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
    fn parsing_arbitrary_text_does_not_panic(start in ".{0,8}", end in "[0-9:]{0,6}", zone in "\\PC{0,20}", from in "[0-9-]{0,11}") {
        let _ = Windows::parse(&[spec(&[], &start, &end, "UTC")], &[]);
        let _ = Windows::parse(&[spec(&[], "01:00", &end, &zone)], &[]);
        let _ = Windows::parse(&[], &[excluded(&from, &from, "UTC")]);
    }
}
