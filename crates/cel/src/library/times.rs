//! Parts of timestamps and durations.

use super::Result;
use crate::{
    Value,
    function::{Args, FunctionSpec},
    time::{Civil, Duration},
};

/// A row for a part of a timestamp.
macro_rules! part {
    ($name:literal, $id:literal, $with_zone:literal, $part:expr) => {
        FunctionSpec {
            name: $name,
            overloads: &[
                ($id, "timestamp.() -> int"),
                ($with_zone, "timestamp.(string) -> int"),
            ],
            eval: |args| part($name, &args, $part, None),
        }
    };
    ($name:literal, $id:literal, $with_zone:literal, $part:expr, $of_duration:literal, $nanos:literal) => {
        FunctionSpec {
            name: $name,
            overloads: &[
                ($id, "timestamp.() -> int"),
                ($with_zone, "timestamp.(string) -> int"),
                ($of_duration, "duration.() -> int"),
            ],
            eval: |args| part($name, &args, $part, Some($nanos)),
        }
    };
}

pub(super) const FUNCTIONS: &[FunctionSpec] = &[
    part!(
        "getFullYear",
        "timestamp_to_year",
        "timestamp_to_year_with_tz",
        |time| time.year
    ),
    part!(
        "getMonth",
        "timestamp_to_month",
        "timestamp_to_month_with_tz",
        |time| time.month - 1
    ),
    part!(
        "getDayOfYear",
        "timestamp_to_day_of_year",
        "timestamp_to_day_of_year_with_tz",
        |time| time.day_of_year
    ),
    part!(
        "getDayOfMonth",
        "timestamp_to_day_of_month",
        "timestamp_to_day_of_month_with_tz",
        |time| time.day - 1
    ),
    part!(
        "getDate",
        "timestamp_to_day_of_month_1_based",
        "timestamp_to_day_of_month_1_based_with_tz",
        |time| time.day
    ),
    part!(
        "getDayOfWeek",
        "timestamp_to_day_of_week",
        "timestamp_to_day_of_week_with_tz",
        |time| time.weekday
    ),
    part!(
        "getHours",
        "timestamp_to_hours",
        "timestamp_to_hours_with_tz",
        |time| time.hour,
        "duration_to_hours",
        3_600_000_000_000
    ),
    part!(
        "getMinutes",
        "timestamp_to_minutes",
        "timestamp_to_minutes_with_tz",
        |time| time.minute,
        "duration_to_minutes",
        60_000_000_000
    ),
    part!(
        "getSeconds",
        "timestamp_to_seconds",
        "timestamp_to_seconds_tz",
        |time| time.second,
        "duration_to_seconds",
        1_000_000_000
    ),
    part!(
        "getMilliseconds",
        "timestamp_to_milliseconds",
        "timestamp_to_milliseconds_with_tz",
        |time| time.millis,
        "duration_to_milliseconds",
        1_000_000
    ),
];

fn part<'a>(name: &str, args: &Args<'_, 'a>, part: fn(&Civil) -> i64, unit: Option<i64>) -> Result<'a> {
    let whole = |duration: &Duration, unit: i64| duration.nanos() / unit;
    Ok(Value::Int(match (&args.values[0], args.values.get(1), unit) {
        (Value::Timestamp(timestamp), None, _) => part(&timestamp.civil("")?),
        (Value::Timestamp(timestamp), Some(Value::String(zone)), _) => part(&timestamp.civil(zone)?),
        (Value::Duration(duration), None, Some(unit)) => whole(duration, unit),
        _ => return super::no_overload(name, args.values),
    }))
}
