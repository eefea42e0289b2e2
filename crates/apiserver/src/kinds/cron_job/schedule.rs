//! Schedules of cron jobs: five fields or a descriptor, and a time zone.

use std::{fs::File, io::Read, path::Path};

use crate::kinds::error_list::ErrorList;

/// The range of a field.
struct Field {
    min: i64,
    max: i64,
    /// Names for the numbers from the minimum on.
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field {
        min: 0,
        max: 59,
        names: &[],
    },
    Field {
        min: 0,
        max: 23,
        names: &[],
    },
    Field {
        min: 1,
        max: 31,
        names: &[],
    },
    Field {
        min: 1,
        max: 12,
        names: &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
    },
    Field {
        min: 0,
        max: 6,
        names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    },
];

const DESCRIPTORS: [&str; 7] = [
    "yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly",
];

/// Validates a schedule.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    let mut schedule = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        // The time zone is rejected by the caller.
        schedule = schedule.split_once(' ').map_or("", |(_, rest)| rest).trim();
    }
    if let Some(word) = schedule.strip_prefix('@') {
        return match word.strip_prefix("every ") {
            Some(duration) => {
                check_duration(duration).map_err(|why| format!("failed to parse duration {schedule}: {why}"))
            }
            None if DESCRIPTORS.contains(&word) => Ok(()),
            None => Err(format!("unrecognized descriptor: {schedule}")),
        };
    }
    let fields: Vec<_> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        ));
    }
    for (text, field) in fields.iter().zip(&FIELDS) {
        for range in text.split(',').filter(|range| !range.is_empty()) {
            field.check(range)?;
        }
    }
    Ok(())
}

impl Field {
    /// `number`, `number-number`, either with `/step`; `*` and `?` for all.
    fn check(&self, range: &str) -> Result<(), String> {
        let mut parts = range.split('/');
        let (ends, step) = (parts.next().unwrap_or_default(), parts.next());
        let mut limits = ends.split('-');
        let (low, high) = (limits.next().unwrap_or_default(), limits.next());
        let (start, end) = if matches!(low, "*" | "?") {
            (self.min, self.max)
        } else {
            let start = self.number(low)?;
            match (high, limits.next()) {
                (None, _) => (start, start),
                (Some(high), None) => (start, self.number(high)?),
                (Some(_), Some(_)) => return Err(format!("too many hyphens: {range}")),
            }
        };
        let (step, end) = match (step, parts.next()) {
            (None, _) => (1, end),
            // A number with a step is a range up to the maximum.
            (Some(step), None) => (number(step)?, if high.is_none() { self.max } else { end }),
            (Some(_), Some(_)) => return Err(format!("too many slashes: {range}")),
        };
        if start < self.min {
            let least = self.min;
            return Err(format!(
                "beginning of range ({start}) below minimum ({least}): {range}"
            ));
        }
        if end > self.max {
            return Err(format!(
                "end of range ({end}) above maximum ({}): {range}",
                self.max
            ));
        }
        if start > end {
            return Err(format!(
                "beginning of range ({start}) beyond end of range ({end}): {range}"
            ));
        }
        if step == 0 {
            return Err(format!("step of range should be a positive number: {range}"));
        }
        Ok(())
    }

    fn number(&self, text: &str) -> Result<i64, String> {
        let name = self.names.iter().zip(self.min..);
        match name.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            Some((_, number)) => Ok(number),
            None => number(text),
        }
    }
}

fn number(text: &str) -> Result<i64, String> {
    match text.parse::<i64>() {
        Ok(number) if number >= 0 => Ok(number),
        Ok(number) => Err(format!("negative number ({number}) not allowed: {text}")),
        Err(_) => Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"
        )),
    }
}

/// Validates a Go duration: `1h30m`.
fn check_duration(text: &str) -> Result<(), String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(());
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        if unit.len() == rest.len() {
            return Err(invalid());
        }
        let end = unit
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(unit.len());
        match &unit[..end] {
            "" => return Err(format!("time: missing unit in duration {text:?}")),
            "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" => {}
            other => return Err(format!("time: unknown unit {other:?} in duration {text:?}")),
        }
        rest = &unit[end..];
    }
    Ok(())
}

pub(super) fn check_zone(zone: &str, errors: &mut ErrorList) {
    let field = "spec.timeZone";
    if zone.is_empty() {
        errors.invalid(field, "", "timeZone must be nil or non-empty string");
        return;
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
    let is_part =
        |part: &str| !matches!(part, "" | "." | "..") && !part.starts_with('-') && part.bytes().all(plain);
    let unknown = format_args!("unknown time zone {zone}").to_string();
    if !zone.split('/').all(is_part) {
        errors.invalid(field, zone, &unknown);
    } else if zone.eq_ignore_ascii_case("local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(field, zone, why);
    } else if !is_known_zone(zone) {
        errors.invalid(field, zone, &unknown);
    }
}

/// Whether the machine's database has a time zone. Without a database, every well-formed name is accepted.
fn is_known_zone(zone: &str) -> bool {
    let folder = Path::new("/usr/share/zoneinfo");
    let begins_as_one = |path: &Path| {
        let mut head = [0; 4];
        File::open(path)
            .and_then(|mut file| file.read_exact(&mut head))
            .is_ok()
            && head == *b"TZif"
    };
    zone == "UTC" || begins_as_one(&folder.join(zone)) || !begins_as_one(&folder.join("Etc/UTC"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_and_invalid_schedules_are_distinguished() {
        for good in [
            "* * * * *",
            "1,2,3-5/2 */2 ? JAN mon-FRI",
            "@daily",
            "@every 1h30m",
            "5/10 * * * *",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "* * * *",
            "60 * * * *",
            "5-1 * * * *",
            "*/0 * * * *",
            "a * * * *",
            "@x",
            "@every 5",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}
