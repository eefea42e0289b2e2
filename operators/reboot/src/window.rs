//! Maintenance windows in local time, and days on which they stay closed.
//!
//! ```text
//!   Fri 22:00 – 04:00, Europe/Berlin        Fri          Sat          Sun
//!                                     ───────────╔═══════════╗───────────────
//!                                              22:00       04:00     (`days: [Fri]` is the day it starts on)
//! ```
//!
//! A window is open while the local time of its time zone is between its start and its end. This also covers clock
//! changes: an hour that is skipped in spring is in no window, an hour that is repeated in autumn is in a window
//! twice. This module has no state, and the caller passes the current time.
//!
//! The time zone database is compiled in, so that it works in containers without one, and all replicas agree.

use jiff::{
    SignedDuration, Timestamp, ToSpan, Zoned,
    civil::{Date, Time, Weekday},
    tz::{TimeZone, TimeZoneDatabase},
};
use windlass::api_type;

/// How far beyond the last exclusion to search for an opening or a closing: a weekly window recurs within a week, and
/// clock changes never skipped more than a day.
const HORIZON_DAYS: i64 = 35;

/// Longest time that a window can be open, unless it is always open.
const MAX_OPEN_DURATION: SignedDuration = SignedDuration::from_hours(8 * 24);

/// A weekly time at which nodes may be rebooted.
#[api_type]
#[derive(Eq)]
pub struct WindowSpec {
    /// The days on which it starts; a window over midnight continues on the next day. Empty: every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    pub days: Vec<Day>,
    /// When it opens: hours and minutes, as `22:00`.
    #[schemars(regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub start: String,
    /// When it closes: hours and minutes, as `04:00`, or `24:00`. If not after the start, on the next day.
    #[schemars(regex(pattern = r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$"))]
    pub end: String,
    /// The time zone, as `Europe/Berlin`. Default: `UTC`.
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
}

/// A day of the week.
#[api_type]
#[derive(Copy, Eq)]
#[allow(missing_docs, reason = "they are the days of the week")]
pub enum Day {
    #[serde(rename = "Mon")]
    Monday,
    #[serde(rename = "Tue")]
    Tuesday,
    #[serde(rename = "Wed")]
    Wednesday,
    #[serde(rename = "Thu")]
    Thursday,
    #[serde(rename = "Fri")]
    Friday,
    #[serde(rename = "Sat")]
    Saturday,
    #[serde(rename = "Sun")]
    Sunday,
}

/// Days on which no node is rebooted, even inside a window.
#[api_type]
#[derive(Eq)]
pub struct ExclusionSpec {
    /// The first day, as `2026-12-20`.
    #[schemars(regex(pattern = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"))]
    pub from: String,
    /// The last day.
    #[schemars(regex(pattern = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"))]
    pub to: String,
    /// The time zone of these days. Default: `UTC`.
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// A window or an exclusion is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// Not hours and minutes.
    #[error("invalid windows[{index}].{field} `{value}`: expected a time of day, for example `22:00`")]
    Time {
        /// Index of the window.
        index: usize,
        /// `start` or `end`.
        field: &'static str,
        /// The value.
        value: String,
    },
    /// Not a date.
    #[error("invalid exclusions[{index}].{field} `{value}`: expected a date, for example `2026-12-20`")]
    Date {
        /// Index of the exclusion.
        index: usize,
        /// `from` or `to`.
        field: &'static str,
        /// The value.
        value: String,
    },
    /// It ends before it begins.
    #[error("invalid exclusions[{index}]: it ends on {to}, before it begins on {from}: swap them")]
    Backwards {
        /// Index of the exclusion.
        index: usize,
        /// Its first day.
        from: Date,
        /// Its last day.
        to: Date,
    },
    /// No such time zone.
    #[error(
        "invalid {list}[{index}].timeZone `{value}`: expected a name of the IANA database, for example `Europe/Berlin` or `UTC`"
    )]
    Zone {
        /// `windows` or `exclusions`.
        list: &'static str,
        /// Index in that list.
        index: usize,
        /// The value.
        value: String,
    },
}

/// All windows and exclusions of a policy. The default is always open.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Windows {
    /// Empty: always open.
    windows: Vec<Window>,
    /// Nothing is open from the first instant up to the second.
    exclusions: Vec<(Timestamp, Timestamp)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Window {
    /// From Monday on.
    days: [bool; 7],
    start: Time,
    /// If not after `start`, on the next day. Midnight is that of the next day.
    end: Time,
    zone: TimeZone,
}

impl Windows {
    /// Parses the windows and exclusions; returns the first error.
    pub fn parse(windows: &[WindowSpec], exclusions: &[ExclusionSpec]) -> Result<Self, WindowError> {
        let windows = windows
            .iter()
            .enumerate()
            .map(|(index, spec)| Window::parse(index, spec));
        let exclusions = exclusions
            .iter()
            .enumerate()
            .map(|(index, spec)| spec.instants(index));
        Ok(Self {
            windows: windows.collect::<Result<_, _>>()?,
            exclusions: exclusions.collect::<Result<_, _>>()?,
        })
    }

    /// Returns whether nodes may be rebooted at this instant.
    pub fn open_at(&self, now: Timestamp) -> bool {
        let excluded = self.exclusions.iter().any(|(from, to)| *from <= now && now < *to);
        !excluded && (self.windows.is_empty() || self.windows.iter().any(|window| window.open_at(now)))
    }

    /// Returns the first instant, not before `after`, at which nodes may be rebooted. `None`: never.
    pub fn next_opening(&self, after: Timestamp) -> Option<Timestamp> {
        self.next(after, true)
    }

    /// Returns when the windows that are open at `now` close. `None` if they are closed or never close.
    ///
    /// Adjacent windows count as one.
    pub fn closes_after(&self, now: Timestamp) -> Option<Timestamp> {
        self.open_at(now).then(|| self.next(now, false))?
    }

    /// Returns when the windows that are open at `now` opened. `None` if they are closed or have been open for longer
    /// than a window can be.
    pub fn open_since(&self, now: Timestamp) -> Option<Timestamp> {
        if !self.open_at(now) {
            return None;
        }
        let long_ago = now.checked_sub(MAX_OPEN_DURATION).ok()?;
        let mut opened = self.next_opening(long_ago)?;
        while let Some(closed) = self.closes_after(opened).filter(|closed| *closed <= now) {
            opened = self.next_opening(closed)?;
        }
        (opened > long_ago).then_some(opened)
    }

    /// Returns the first instant, not before `after`, at which the windows are open or closed, depending on `open`.
    fn next(&self, after: Timestamp, open: bool) -> Option<Timestamp> {
        let last = self
            .exclusions
            .iter()
            .map(|(_, to)| *to)
            .fold(after, Timestamp::max);
        let limit = last
            .checked_add((HORIZON_DAYS * 24).hours())
            .unwrap_or(Timestamp::MAX);
        let mut at = after;
        while self.open_at(at) != open {
            at = self.next_edge(at).filter(|edge| *edge <= limit)?;
        }
        Some(at)
    }

    /// Returns the first instant after this one at which anything may change.
    fn next_edge(&self, after: Timestamp) -> Option<Timestamp> {
        // Nothing changes inside an exclusion, which may last years.
        let excluded = self
            .exclusions
            .iter()
            .filter(|(from, to)| *from <= after && after < *to);
        if let Some(end) = excluded.map(|(_, to)| *to).max() {
            return Some(end);
        }
        let exclusions = self
            .exclusions
            .iter()
            .map(|(from, _)| *from)
            .filter(|edge| *edge > after);
        let windows = self.windows.iter().filter_map(|window| window.next_edge(after));
        exclusions.chain(windows).min()
    }
}

impl Window {
    fn parse(index: usize, spec: &WindowSpec) -> Result<Self, WindowError> {
        let wrong = |field, value: &str| WindowError::Time {
            index,
            field,
            value: value.to_owned(),
        };
        let end = if spec.end == "24:00" { "00:00" } else { &spec.end };
        let mut days = [spec.days.is_empty(); 7];
        for day in &spec.days {
            days[day.position()] = true;
        }
        Ok(Self {
            days,
            start: time(&spec.start).ok_or_else(|| wrong("start", &spec.start))?,
            end: time(end).ok_or_else(|| wrong("end", &spec.end))?,
            zone: zone("windows", index, &spec.time_zone)?,
        })
    }

    fn open_at(&self, now: Timestamp) -> bool {
        let local = now.to_zoned(self.zone.clone());
        let (today, time) = (position(local.weekday()), local.time());
        let since_today = self.days[today] && self.start <= time;
        if self.start < self.end {
            return since_today && time < self.end;
        }
        let since_yesterday = self.days[(today + 6) % 7] && time < self.end;
        since_today || since_yesterday
    }

    /// Returns the first instant after this one at which the local time is the start, the end or midnight, or the
    /// clock changes.
    fn next_edge(&self, after: Timestamp) -> Option<Timestamp> {
        let local = after.to_zoned(self.zone.clone());
        let mut edges: Vec<Timestamp> = self
            .zone
            .following(after)
            .next()
            .map(|change| change.timestamp())
            .into_iter()
            .collect();
        // The previous day, too: where the clock is set back over midnight, its evening is repeated.
        for days in -1..=2 {
            let Ok(date) = local.date().checked_add(days.days()) else {
                continue;
            };
            for time in [self.start, self.end, Time::midnight()] {
                edges.extend(self.instants_at(date, time));
            }
        }
        edges.into_iter().filter(|edge| *edge > after).min()
    }

    /// Returns the instants at which the local time is this one: two where an hour is repeated. Where it is skipped
    /// the clock changes, which is an edge anyway.
    fn instants_at(&self, date: Date, time: Time) -> impl Iterator<Item = Timestamp> {
        let ambiguous = self.zone.to_ambiguous_zoned(date.to_datetime(time));
        let at = |zoned: Result<Zoned, jiff::Error>| zoned.ok().map(|zoned| zoned.timestamp());
        [at(ambiguous.clone().earlier()), at(ambiguous.later())]
            .into_iter()
            .flatten()
    }
}

impl ExclusionSpec {
    /// Returns the instants at which the exclusion begins and ends.
    fn instants(&self, index: usize) -> Result<(Timestamp, Timestamp), WindowError> {
        let wrong = |field, value: &str| WindowError::Date {
            index,
            field,
            value: value.to_owned(),
        };
        let (from, to) = (date(&self.from), date(&self.to));
        let from = from.ok_or_else(|| wrong("from", &self.from))?;
        let to = to.ok_or_else(|| wrong("to", &self.to))?;
        if to < from {
            return Err(WindowError::Backwards { index, from, to });
        }
        let zone = zone("exclusions", index, &self.time_zone)?;
        let midnight = |date: Date| date.to_zoned(zone.clone()).ok().map(|zoned| zoned.timestamp());
        let next = to.tomorrow().ok().and_then(midnight);
        Ok((
            midnight(from).ok_or_else(|| wrong("from", &self.from))?,
            next.ok_or_else(|| wrong("to", &self.to))?,
        ))
    }
}

impl Day {
    /// From Monday on.
    fn position(self) -> usize {
        self as usize
    }
}

fn position(day: Weekday) -> usize {
    usize::try_from(day.to_monday_zero_offset()).expect("0 to 6")
}

/// Parses `22:00`, and no other notation.
fn time(text: &str) -> Option<Time> {
    let (hours, minutes) = text.split_once(':')?;
    Time::new(two_digits(hours)?, two_digits(minutes)?, 0, 0).ok()
}

fn two_digits(text: &str) -> Option<i8> {
    let digits = text.len() == 2 && text.bytes().all(|sign| sign.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

/// Parses `2026-12-20`, and no other notation.
fn date(text: &str) -> Option<Date> {
    let shaped = text.len() == 10 && text.bytes().all(|sign| sign.is_ascii_digit() || sign == b'-');
    shaped.then(|| text.parse().ok())?
}

fn zone(list: &'static str, index: usize, name: &str) -> Result<TimeZone, WindowError> {
    let found = TimeZoneDatabase::bundled().get(name);
    found.map_err(|_| WindowError::Zone {
        list,
        index,
        value: name.to_owned(),
    })
}

#[cfg(test)]
mod tests;
