//! Points in time as the real server gives them back: in UTC, to the second or the microsecond.

use jiff::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    Seconds,
    Micros,
}

impl Precision {
    /// That of a Go struct, where it stands for a moment.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "Time" => Some(Self::Seconds),
            "MicroTime" => Some(Self::Micros),
            _ => None,
        }
    }
}

/// A time in its canonical form, or Go's words on what it is not.
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
    // What is counted in millionths says how many there are.
    if precision == Precision::Micros {
        let digits = rest.get(1..7).filter(|_| rest.starts_with('.'));
        if !digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
            return Err(refuse(rest, ".000000"));
        }
        if rest[7..].starts_with(|c: char| c.is_ascii_digit()) {
            return Err(refuse(&rest[7..], "Z07:00"));
        }
    }
    let time: Timestamp = text.parse().map_err(|_| refuse(rest, "Z07:00"))?;
    Ok(match precision {
        Precision::Seconds => time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Precision::Micros => time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_utc_and_of_their_precision() {
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
        assert_eq!(
            canonical("x", Precision::Seconds).unwrap_err(),
            r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#
        );
    }
}
