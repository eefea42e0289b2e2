//! When a cron job runs: five fields, or a word that stands for them, in some time zone.

use std::{fs::File, io::Read, path::Path};

use super::super::findings::Findings;

/// What one field can say.
struct Field {
    least: i64,
    most: i64,
    /// Names for the numbers from the least one on.
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field {
        least: 0,
        most: 59,
        names: &[],
    },
    Field {
        least: 0,
        most: 23,
        names: &[],
    },
    Field {
        least: 1,
        most: 31,
        names: &[],
    },
    Field {
        least: 1,
        most: 12,
        names: &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
    },
    Field {
        least: 0,
        most: 6,
        names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    },
];

const WORDS: [&str; 7] = [
    "yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly",
];

/// What is wrong with a schedule.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    let mut schedule = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        // The zone is for another check to refuse.
        schedule = schedule.split_once(' ').map_or("", |(_, rest)| rest).trim();
    }
    if let Some(word) = schedule.strip_prefix('@') {
        return match word.strip_prefix("every ") {
            Some(duration) => {
                check_duration(duration).map_err(|why| format!("failed to parse duration {schedule}: {why}"))
            }
            None if WORDS.contains(&word) => Ok(()),
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
            (self.least, self.most)
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
            // A number with a step goes on to the end.
            (Some(step), None) => (number(step)?, if high.is_none() { self.most } else { end }),
            (Some(_), Some(_)) => return Err(format!("too many slashes: {range}")),
        };
        if start < self.least {
            let least = self.least;
            return Err(format!(
                "beginning of range ({start}) below minimum ({least}): {range}"
            ));
        }
        if end > self.most {
            return Err(format!(
                "end of range ({end}) above maximum ({}): {range}",
                self.most
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
        let name = self.names.iter().zip(self.least..);
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

/// A duration as Go writes it: `1h30m`.
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

pub(super) fn check_zone(zone: &str, findings: &mut Findings) {
    let field = "spec.timeZone";
    if zone.is_empty() {
        findings.invalid(field, "", "timeZone must be nil or non-empty string");
        return;
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
    let is_part =
        |part: &str| !matches!(part, "" | "." | "..") && !part.starts_with('-') && part.bytes().all(plain);
    let unknown = format_args!("unknown time zone {zone}").to_string();
    if !zone.split('/').all(is_part) {
        findings.invalid(field, zone, &unknown);
    } else if zone.eq_ignore_ascii_case("local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        findings.invalid(field, zone, why);
    } else if !is_zone(zone) {
        findings.invalid(field, zone, &unknown);
    }
}

/// Whether the machine knows a time zone; where it knows none, whatever has the form of one.
fn is_zone(zone: &str) -> bool {
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
    fn schedules_are_told_from_what_is_none() {
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
