//! Timestamps as the real server returns them: in UTC, to the second or the microsecond.

use jiff::Timestamp;

use crate::environment::rfc3339;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    Seconds,
    Micros,
}

impl Precision {
    /// The precision of a Go time struct.
    pub(super) fn of_struct(name: &str) -> Option<Self> {
        match name {
            "Time" => Some(Self::Seconds),
            "MicroTime" => Some(Self::Micros),
            _ => None,
        }
    }
}

/// The canonical form of a timestamp, or Go's error message.
pub(crate) fn canonical(text: &str, precision: Precision) -> Result<String, String> {
    let layout = match precision {
        Precision::Seconds => "2006-01-02T15:04:05Z07:00",
        Precision::Micros => "2006-01-02T15:04:05.000000Z07:00",
    };
    let refuse = |rest: &str, part: &str| {
        format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {part:?}")
    };
    let mut rest = text;
    for part in ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"] {
        let head = rest.get(..part.len()).ok_or_else(|| refuse(rest, part))?;
        let is_number = part.len() > 1;
        let fits = if is_number {
            head.bytes().all(|byte| byte.is_ascii_digit())
        } else {
            head == part
        };
        if !fits {
            return Err(refuse(rest, part));
        }
        rest = &rest[part.len()..];
    }
    // A microsecond timestamp needs exactly six decimals.
    if precision == Precision::Micros {
        let digits = rest.get(1..7).filter(|_| rest.starts_with('.'));
        if !digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
            return Err(refuse(rest, ".000000"));
        }
        if rest[7..].starts_with(|c: char| c.is_ascii_digit()) {
            return Err(refuse(&rest[7..], "Z07:00"));
        }
    }
    if precision == Precision::Seconds && rest == "Z" && is_certainly_valid(text.as_bytes()) {
        return Ok(text.to_owned());
    }
    let time: Timestamp = text.parse().map_err(|_| refuse(rest, "Z07:00"))?;
    Ok(match precision {
        Precision::Seconds => rfc3339(time),
        Precision::Micros => time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
    })
}

/// Whether a UTC timestamp with a precision of seconds is certainly valid: its day exists in every month.
fn is_certainly_valid(text: &[u8]) -> bool {
    let number = |place: usize| (text[place] - b'0') * 10 + (text[place + 1] - b'0');
    (1..=12).contains(&number(5))
        && (1..=28).contains(&number(8))
        && number(11) < 24
        && number(14) < 60
        && number(17) < 60
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_utc_with_their_precision() {
        for (given, precision, form) in [
            (
                "2020-01-01T00:00:00.123+02:00",
                Precision::Seconds,
                "2019-12-31T22:00:00Z",
            ),
            (
                "2020-01-01T00:00:00.123456+00:00",
                Precision::Micros,
                "2020-01-01T00:00:00.123456Z",
            ),
            ("2020-12-28T23:59:59Z", Precision::Seconds, "2020-12-28T23:59:59Z"),
            ("2020-02-29T23:59:59Z", Precision::Seconds, "2020-02-29T23:59:59Z"),
        ] {
            assert_eq!(canonical(given, precision).as_deref(), Ok(form));
        }
        for short_or_long in [
            "2020-01-01T00:00:00Z",
            "2020-01-01T00:00:00.1234567Z",
            "2020-01-01T00:00:00.12",
        ] {
            assert!(
                canonical(short_or_long, Precision::Micros).is_err(),
                "{short_or_long}"
            );
        }
        for no_time in [
            "2021-02-29T00:00:00Z",
            "2021-13-01T00:00:00Z",
            "2021-00-01T00:00:00Z",
            "2021-01-00T00:00:00Z",
            "2021-01-01T24:00:00Z",
            "2021-01-01T00:60:00Z",
        ] {
            assert!(canonical(no_time, Precision::Seconds).is_err(), "{no_time}");
        }
        assert_eq!(
            canonical("x", Precision::Seconds).unwrap_err(),
            r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#
        );
    }
}
