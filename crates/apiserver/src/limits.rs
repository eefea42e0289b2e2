//! What the server allows: how long a request may take, how large an object may be, how many may watch.
//!
//! | limit | of | past it |
//! |---|---|---|
//! | 3 MiB | a body | 413 |
//! | 1.5 MiB | a stored object, as etcd has it | 500, in etcd's words |
//! | 10,000 levels | any document, as kube-apiserver's decoders have it | 400, 422 for a patch's outcome |
//! | 100 levels | a stored object of a built-in kind | 400 |
//! | a minute, or the query's `timeout` | a request that is no watch | 504 |
//! | [`WATCHERS`], or what the builder says | open watches | 429 with `Retry-After` |
//! | the storage's window | history | 410 |

use std::{str::FromStr, time::Duration};

use serde_json::Value;

use crate::{depth, object::Object, registry::Resource, status::Status};

/// The largest body that is read.
pub(crate) const BODY: usize = 3 * 1024 * 1024;

/// How many watches may be open at once by default. Each takes a few kilobytes.
pub(crate) const WATCHERS: usize = 10_000;

/// The largest object that is stored: etcd's limit for a request.
const OBJECT: usize = 1024 * 1024 * 3 / 2;

/// How long a request may take that does not say how long.
const REQUEST: Duration = Duration::from_mins(1);

/// Refuses an object that cannot be stored: one that etcd would not take, or a built-in kind that is so deep that only
/// requests for it could read it. A real server stores the latter.
pub(crate) fn check_stored(resource: &Resource, object: &Object) -> Result<(), Status> {
    if depth::has_room() && !resource.custom && depth::of_value(object.tree()) > depth::SHALLOW {
        return Err(Status::bad_request(format!(
            "{} {:?} nests deeper than {} levels",
            resource.kind,
            object.name(),
            depth::SHALLOW,
        )));
    }
    check_size(object)
}

fn check_size(object: &Object) -> Result<(), Status> {
    let size: usize = object
        .fields()
        .iter()
        .map(|(key, value)| key.len() + size(value))
        .sum();
    if size > OBJECT {
        return Err(Status::unexplained("etcdserver: request is too large"));
    }
    Ok(())
}

/// About as long as the value's JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
        Value::String(text) => text.len() + 3,
        Value::Array(items) => items.iter().map(|item| size(item) + 1).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| key.len() + 4 + size(value))
            .sum(),
    }
}

/// How long a request may take; `said` is the query's `timeout`.
pub(crate) fn timeout(said: Option<&str>) -> Result<Duration, Status> {
    let Some(text) = said else {
        return Ok(REQUEST);
    };
    let seconds = go_seconds(text).ok_or_else(|| {
        Status::bad_request(format!(
            "invalid timeout specified in the request URL - time: invalid duration {text:?}"
        ))
    })?;
    // No time at all, or less, means the usual time.
    Ok(Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero() || seconds > 0.0)
        .map_or(REQUEST, |time| time.min(REQUEST)))
}

/// A duration as Go writes it: `1h2m3.5s`.
fn go_seconds(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0.0);
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let amount = f64::from_str(&rest[..number]).ok()?;
        let unit = &rest[number..];
        let unit = &unit[..unit
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(unit.len())];
        seconds += amount
            * match unit {
                "ns" => 1e-9,
                "us" | "µs" | "μs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
        rest = &rest[number + unit.len()..];
    }
    (!text.is_empty()).then_some(sign * seconds)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_timeout_is_a_go_duration_of_at_most_a_minute() {
        for (text, expected) in [
            ("32s", 32.0),
            ("1m0.5s", 60.0),
            ("500ms", 0.5),
            ("1µs", 1e-6),
            ("3h", 60.0),
            ("0", 60.0),
            ("-5s", 60.0),
        ] {
            let got = timeout(Some(text)).ok().map(|time| time.as_secs_f64());
            assert_eq!(got, Some(expected), "{text}");
        }
        for text in ["junk", "5", "s", ".s", "1.2.3s", "1x", "é"] {
            let status = timeout(Some(text)).expect_err(text).to_value();
            let expected =
                format!("invalid timeout specified in the request URL - time: invalid duration {text:?}");
            assert_eq!(status["message"], expected);
        }
    }

    #[test]
    fn objects_have_etcds_limit() {
        let object = |size: usize| {
            Object::new(json!({"metadata": {}, "spec": ["x".repeat(size)]})).expect("an object")
        };
        assert!(check_size(&object(1_500_000)).is_ok());
        assert_eq!(check_size(&object(1_600_000)).expect_err("large").code, 500);
    }
}
