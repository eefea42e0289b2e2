//! Durations and timestamps, with Go's range, syntax and format.

use std::{cmp::Ordering, fmt::Write};

use crate::EvalError;

/// A length of time: nanoseconds, as Go's `time.Duration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(i64);

const NANOS: i64 = 1_000_000_000;

impl Duration {
    /// Makes a duration.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Returns the nanoseconds.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Parses Go's syntax, such as `1h30m` or `-1.5s`.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Some(Self(0));
        }
        let total = parse_units(rest, &GO_UNITS)?;
        let total = if negative { -total } else { total };
        i64::try_from(total).ok().map(Self)
    }

    /// Seconds with as many digits as needed, such as `180s` or `1.5s`.
    pub fn to_seconds_text(self) -> String {
        #[allow(clippy::cast_precision_loss)]
        let fraction = (self.0 % NANOS) as f64 / 1e9;
        #[allow(clippy::cast_precision_loss)]
        let seconds = (self.0 / NANOS) as f64 + fraction;
        format!("{seconds}s")
    }
}

const GO_UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a sequence of numbers with units; the sum in nanoseconds.
fn parse_units(mut rest: &str, units: &[(&str, i128)]) -> Option<i128> {
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest
            .find(|sign: char| !sign.is_ascii_digit() && sign != '.')
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return None;
        }
        let end = after
            .find(|sign: char| sign.is_ascii_digit() || sign == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
        if whole.len() > 19 {
            return None;
        }
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(*factor)?)?;
        // More digits than this are less than a nanosecond.
        let digits = &fraction[..fraction.len().min(18)];
        if !digits.is_empty() {
            let value: i128 = digits.parse().ok()?;
            total += value * factor / 10_i128.pow(u32::try_from(digits.len()).ok()?);
        }
        if total > i128::from(i64::MAX) + 1 {
            return None;
        }
        rest = after;
    }
    Some(total)
}

/// Parses the `duration` format of OpenAPI: Go's syntax, or a number with a unit up to weeks, such as `2 days`.
pub(crate) fn parse_schema_duration(text: &str) -> Option<Duration> {
    if let Some(duration) = Duration::parse(text) {
        return Some(duration);
    }
    // A number, spaces and a unit, of which several may follow each other.
    let mut rest = text.trim_start();
    let mut total: i128 = 0;
    let mut found = false;
    while !rest.is_empty() {
        let end = rest
            .find(|sign: char| !sign.is_ascii_digit() && sign != '.')
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let after = after.trim_start();
        let end = after
            .find(|sign: char| !sign.is_alphabetic())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let factor: i128 = match unit {
            "ns" | "nano" => 1,
            "us" | "\u{b5}s" | "micro" => 1_000,
            "ms" | "milli" => 1_000_000,
            "s" | "sec" | "second" | "seconds" => 1_000_000_000,
            "m" | "min" | "minute" | "minutes" => 60_000_000_000,
            "h" | "hr" | "hour" | "hours" => 3_600_000_000_000,
            "d" | "day" | "days" => 86_400_000_000_000,
            "w" | "week" | "weeks" | "wk" => 604_800_000_000_000,
            _ => return None,
        };
        let number: i128 = number.parse().ok()?;
        total = total.checked_add(number.checked_mul(factor)?)?;
        found = true;
        rest = after.trim_start();
    }
    found.then(|| i64::try_from(total).ok().map(Duration)).flatten()
}

/// A point in time between the years 1 and 9999, with the offset from UTC that it was written with.
///
/// The offset matters only for the text; timestamps are compared by the point in time.
#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    seconds: i64,
    nanos: u32,
    offset: i32,
}

/// 0001-01-01T00:00:00Z
const MIN_SECONDS: i64 = -62_135_596_800;
/// 9999-12-31T23:59:59Z
const MAX_SECONDS: i64 = 253_402_300_799;

fn overflow() -> EvalError {
    EvalError::new("timestamp overflow")
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timestamp {}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timestamp {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

impl Timestamp {
    /// Makes a timestamp from seconds since 1970.
    pub fn from_unix(seconds: i64) -> Result<Self, EvalError> {
        if !(MIN_SECONDS..=MAX_SECONDS).contains(&seconds) {
            return Err(overflow());
        }
        Ok(Self {
            seconds,
            nanos: 0,
            offset: 0,
        })
    }

    /// Returns the seconds since 1970.
    pub const fn unix(self) -> i64 {
        self.seconds
    }

    /// Whether it is the first moment of the year 1, Go's zero value.
    pub(crate) const fn is_zero(self) -> bool {
        self.seconds == MIN_SECONDS && self.nanos == 0
    }

    /// Parses RFC 3339. `Ok(None)` if it is not, an error if it is out of range.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, EvalError> {
        let Some(parsed) = parse_rfc3339(text) else {
            return Ok(None);
        };
        if !(MIN_SECONDS..=MAX_SECONDS).contains(&parsed.seconds) {
            return Err(overflow());
        }
        Ok(Some(parsed))
    }

    pub(crate) fn add(self, duration: Duration) -> Result<Self, EvalError> {
        self.plus(i128::from(duration.0))
    }

    pub(crate) fn subtract(self, duration: Duration) -> Result<Self, EvalError> {
        if duration.0 == i64::MIN {
            return Err(EvalError::new("duration overflow"));
        }
        self.plus(-i128::from(duration.0))
    }

    fn plus(self, nanos: i128) -> Result<Self, EvalError> {
        let total = i128::from(self.seconds) * i128::from(NANOS) + i128::from(self.nanos) + nanos;
        let seconds = i64::try_from(total.div_euclid(i128::from(NANOS))).map_err(|_| overflow())?;
        let nanos = u32::try_from(total.rem_euclid(i128::from(NANOS))).map_err(|_| overflow())?;
        Ok(Self {
            nanos,
            offset: self.offset,
            ..Self::from_unix(seconds)?
        })
    }

    /// The time since another.
    pub(crate) fn since(self, other: Self) -> Result<Duration, EvalError> {
        let seconds = i128::from(self.seconds) - i128::from(other.seconds);
        let nanos = seconds * i128::from(NANOS) + i128::from(self.nanos) - i128::from(other.nanos);
        i64::try_from(nanos)
            .map(Duration)
            .map_err(|_| EvalError::overflow())
    }

    /// The date and time in a zone: UTC if `zone` is empty.
    pub(crate) fn civil(self, zone: &str) -> Result<Civil, EvalError> {
        // The server runs in UTC, which is its local zone.
        let offset = if matches!(zone, "" | "UTC" | "Local") {
            0
        } else if let Some((hours, minutes)) = zone.split_once(':') {
            let number = |text: &str| {
                text.parse::<i64>()
                    .map_err(|_| EvalError::new(format!("strconv.Atoi: parsing {text:?}: invalid syntax")))
            };
            let (hours, minutes) = (number(hours)?, number(minutes)?);
            let minutes = if zone.starts_with('-') { -minutes } else { minutes };
            hours
                .saturating_mul(3600)
                .saturating_add(minutes.saturating_mul(60))
                .clamp(-200_000, 200_000)
        } else {
            let unknown = |_| EvalError::new(format!("unknown time zone {zone}"));
            let zone = jiff::tz::TimeZoneDatabase::bundled().get(zone).map_err(unknown)?;
            let at = jiff::Timestamp::from_second(self.seconds).map_err(unknown)?;
            i64::from(zone.to_offset(at).seconds())
        };
        Ok(Civil::new(self.seconds + offset, self.nanos))
    }

    /// RFC 3339 with as many digits as needed, in the offset that it was written with.
    pub fn to_text(self) -> String {
        let civil = Civil::new(self.seconds + i64::from(self.offset), self.nanos);
        let mut text = format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            civil.year, civil.month, civil.day, civil.hour, civil.minute, civil.second
        );
        if self.nanos > 0 {
            let digits = format!("{:09}", self.nanos);
            text.push('.');
            text.push_str(digits.trim_end_matches('0'));
        }
        if self.offset == 0 {
            text.push('Z');
        } else {
            let minutes = self.offset.abs() / 60;
            let sign = if self.offset < 0 { '-' } else { '+' };
            let _ = write!(text, "{sign}{:02}:{:02}", minutes / 60, minutes % 60);
        }
        text
    }
}

/// A date and time of day.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Civil {
    pub(crate) year: i64,
    /// 1 to 12
    pub(crate) month: i64,
    /// 1 to 31
    pub(crate) day: i64,
    /// From 0, Sunday.
    pub(crate) weekday: i64,
    /// From 0.
    pub(crate) day_of_year: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
    pub(crate) millis: i64,
}

impl Civil {
    fn new(seconds: i64, nanos: u32) -> Self {
        let days = seconds.div_euclid(86_400);
        let time = seconds.rem_euclid(86_400);
        // The proleptic Gregorian calendar, in years that begin in March and eras of 400 years.
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_march_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_march_year + 2) / 153;
        let day = day_of_march_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 {
            march_month + 3
        } else {
            march_month - 9
        };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Self {
            year,
            month,
            day,
            weekday: (days + 4).rem_euclid(7),
            day_of_year: days - days_from_civil(year, 1, 1),
            hour: time / 3600,
            minute: time / 60 % 60,
            second: time % 60,
            millis: i64::from(nanos / 1_000_000),
        }
    }
}

/// Days since 1970.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// A fixed number of digits at the start of a text.
fn digits(text: &mut &str, count: usize) -> Option<i64> {
    let (number, rest) = text.split_at_checked(count)?;
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    *text = rest;
    number.parse().ok()
}

fn literal(text: &mut &str, sign: char) -> Option<()> {
    *text = text.strip_prefix(sign)?;
    Some(())
}

fn date(text: &mut &str) -> Option<i64> {
    let year = digits(text, 4)?;
    literal(text, '-')?;
    let month = digits(text, 2)?;
    literal(text, '-')?;
    let day = digits(text, 2)?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    ((1..=length).contains(&day)).then(|| days_from_civil(year, month, day))
}

fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let mut rest = text;
    let days = date(&mut rest)?;
    literal(&mut rest, 'T')?;
    let hour = digits(&mut rest, 2)?;
    literal(&mut rest, ':')?;
    let minute = digits(&mut rest, 2)?;
    literal(&mut rest, ':')?;
    let second = digits(&mut rest, 2)?;
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut nanos = 0;
    if let Some(after) = rest.strip_prefix(['.', ',']) {
        let count = after.bytes().take_while(u8::is_ascii_digit).count();
        if count == 0 {
            return None;
        }
        let kept = &after[..count.min(9)];
        nanos = kept.parse::<u32>().ok()? * 10_u32.pow(9 - u32::try_from(kept.len()).ok()?);
        rest = &after[count..];
    }
    let offset = if rest == "Z" {
        0
    } else {
        let sign = match rest.as_bytes().first()? {
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        rest = &rest[1..];
        let hours = digits(&mut rest, 2)?;
        literal(&mut rest, ':')?;
        let minutes = digits(&mut rest, 2)?;
        if !rest.is_empty() || hours > 24 || minutes > 60 {
            return None;
        }
        sign * (hours * 3600 + minutes * 60)
    };
    Some(Timestamp {
        seconds: days * 86_400 + hour * 3600 + minute * 60 + second - offset,
        nanos,
        offset: i32::try_from(offset).ok()?,
    })
}

/// Parses the `date` format of OpenAPI.
pub(crate) fn parse_date(text: &str) -> Option<Timestamp> {
    let mut rest = text;
    let days = date(&mut rest)?;
    rest.is_empty().then_some(Timestamp {
        seconds: days * 86_400,
        nanos: 0,
        offset: 0,
    })
}

/// Parses the `date-time` format of OpenAPI, which also allows a space or nothing where RFC 3339 has more.
pub(crate) fn parse_date_time(text: &str) -> Option<Timestamp> {
    if text.is_empty() {
        return Timestamp::from_unix(0).ok();
    }
    let upper = text.replacen('t', "T", 1).replacen('z', "Z", 1);
    parse_rfc3339(&upper).or_else(|| parse_rfc3339(&format!("{upper}Z")))
}
