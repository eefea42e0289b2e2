//! When nodes may be rebooted: windows in the local time of a place, and days on which they stay closed.
//!
//! ```text
//!   Fri 22:00 – 04:00, Europe/Berlin        Fri          Sat          Sun
//!                                     ───────────╔═══════════╗───────────────
//!                                              22:00       04:00     (`days: [Fri]` is the day it starts on)
//! ```
//!
//! A window is open when the clock on the wall of its time zone shows a time from its start up to its end. That is all
//! there is to say about clock changes: an hour that is left out in spring is in no window, an hour that comes twice in
//! autumn is in a window twice. Nothing here has state, and what time it is comes from outside.
//!
//! The rules of the zones come with the program, so that a container without them works, and so that all replicas agree.

use jiff::{
    SignedDuration, Timestamp, ToSpan, Zoned,
    civil::{Date, Time, Weekday},
    tz::{TimeZone, TimeZoneDatabase},
};
use windlass::part;

/// How long beyond the last exclusion an opening or a closing is looked for: any weekly window comes by in a week, and
/// the longest stretch that clock changes ever took away is a day.
const HORIZON_DAYS: i64 = 35;

/// No window is open for longer, unless it always is.
const LONGEST: SignedDuration = SignedDuration::from_hours(8 * 24);

/// A time of the week at which nodes may be rebooted.
#[part]
#[derive(Eq)]
pub struct WindowSpec {
    /// The days on which it starts; a window over midnight goes on into the next. None: every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    pub days: Vec<Day>,
    /// When it opens: hours and minutes, as `22:00`.
    #[schemars(regex(pattern = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub start: String,
    /// When it closes: hours and minutes, as `04:00`, or `24:00`. Not after the start: on the next day.
    #[schemars(regex(pattern = r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$"))]
    pub end: String,
    /// The time zone, as `Europe/Berlin`. Default: `UTC`.
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
}

/// A day of the week.
#[part]
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

/// Days on which no node is rebooted, whatever the windows say.
#[part]
#[derive(Eq)]
pub struct Exclusion {
    /// The first of them, as `2026-12-20`.
    #[schemars(regex(pattern = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"))]
    pub from: String,
    /// The last of them.
    #[schemars(regex(pattern = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"))]
    pub to: String,
    /// Where they begin and end at midnight. Default: `UTC`.
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// What is wrong with a window or an exclusion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// Not hours and minutes.
    #[error("windows[{index}].{field} `{value}` is not a time of day: write it as `22:00`")]
    Time {
        /// Which window.
        index: usize,
        /// `start` or `end`.
        field: &'static str,
        /// What it says.
        value: String,
    },
    /// Not a date.
    #[error("exclusions[{index}].{field} `{value}` is not a date: write it as `2026-12-20`")]
    Date {
        /// Which exclusion.
        index: usize,
        /// `from` or `to`.
        field: &'static str,
        /// What it says.
        value: String,
    },
    /// It ends before it begins.
    #[error("exclusions[{index}] ends on {to}, before it begins on {from}: swap them")]
    Backwards {
        /// Which exclusion.
        index: usize,
        /// Its first day.
        from: Date,
        /// Its last day.
        to: Date,
    },
    /// No such time zone.
    #[error("{list}[{index}].timeZone `{value}` is not a time zone: write it as `Europe/Berlin`, or `UTC`")]
    Zone {
        /// `windows` or `exclusions`.
        list: &'static str,
        /// Which one of them.
        index: usize,
        /// What it says.
        value: String,
    },
}

/// All windows of a policy, ready to be asked. The default is always open.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Windows {
    /// None: always.
    windows: Vec<Window>,
    /// From each first instant up to each second one nothing is open.
    exclusions: Vec<(Timestamp, Timestamp)>,
}

#[derive(Clone, Debug, PartialEq)]
struct Window {
    /// From Monday on.
    days: [bool; 7],
    start: Time,
    /// Not after `start`: on the next day. Midnight is the next day's.
    end: Time,
    zone: TimeZone,
}

impl Windows {
    /// Reads them; the first thing that is wrong is the error.
    pub fn parse(windows: &[WindowSpec], exclusions: &[Exclusion]) -> Result<Self, WindowError> {
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

    /// Whether nodes may be rebooted at this instant.
    pub fn open_at(&self, now: Timestamp) -> bool {
        let excluded = self.exclusions.iter().any(|(from, to)| *from <= now && now < *to);
        !excluded && (self.windows.is_empty() || self.windows.iter().any(|window| window.open_at(now)))
    }

    /// The next instant, not before `after`, at which nodes may be rebooted: `after` itself if they may then. `None`:
    /// never.
    pub fn next_opening(&self, after: Timestamp) -> Option<Timestamp> {
        self.next(after, true)
    }

    /// When what is open at `now` closes. `None` if it is closed, or does not close.
    ///
    /// Windows that touch are one: it closes when none of them is open any more.
    pub fn closes_after(&self, now: Timestamp) -> Option<Timestamp> {
        self.open_at(now).then(|| self.next(now, false))?
    }

    /// Since when what is open at `now` is open. `None` if it is closed, or has been open for longer than windows are.
    pub fn open_since(&self, now: Timestamp) -> Option<Timestamp> {
        if !self.open_at(now) {
            return None;
        }
        let long_ago = now.checked_sub(LONGEST).ok()?;
        let mut opened = self.next_opening(long_ago)?;
        while let Some(closed) = self.closes_after(opened).filter(|closed| *closed <= now) {
            opened = self.next_opening(closed)?;
        }
        (opened > long_ago).then_some(opened)
    }

    /// The first instant, not before `after`, at which it is as `open` says.
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

    /// The first instant after this one at which anything may change.
    fn next_edge(&self, after: Timestamp) -> Option<Timestamp> {
        // Inside of an exclusion nothing does, and it may be years.
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

    /// The first instant after this one at which its clock shows its start or its end or midnight, or is changed.
    fn next_edge(&self, after: Timestamp) -> Option<Timestamp> {
        let local = after.to_zoned(self.zone.clone());
        let mut edges: Vec<Timestamp> = self
            .zone
            .following(after)
            .next()
            .map(|change| change.timestamp())
            .into_iter()
            .collect();
        // The day before: where the clock is set back over midnight, its evening comes again.
        for days in -1..=2 {
            let Ok(date) = local.date().checked_add(days.days()) else {
                continue;
            };
            for time in [self.start, self.end, Time::midnight()] {
                edges.extend(self.shown(date, time));
            }
        }
        edges.into_iter().filter(|edge| *edge > after).min()
    }

    /// The instants at which the clock shows this time: two where an hour comes again. Where it is left out the clock
    /// is changed, which is an edge anyway.
    fn shown(&self, date: Date, time: Time) -> impl Iterator<Item = Timestamp> {
        let ambiguous = self.zone.to_ambiguous_zoned(date.to_datetime(time));
        let at = |zoned: Result<Zoned, jiff::Error>| zoned.ok().map(|zoned| zoned.timestamp());
        [at(ambiguous.clone().earlier()), at(ambiguous.later())]
            .into_iter()
            .flatten()
    }
}

impl Exclusion {
    /// The instants at which it begins and is over.
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

/// `22:00`, and nothing else that could be read as a time.
fn time(text: &str) -> Option<Time> {
    let (hours, minutes) = text.split_once(':')?;
    Time::new(two_digits(hours)?, two_digits(minutes)?, 0, 0).ok()
}

fn two_digits(text: &str) -> Option<i8> {
    let digits = text.len() == 2 && text.bytes().all(|sign| sign.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

/// `2026-12-20`, and nothing else that could be read as a date.
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
