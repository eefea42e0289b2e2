//! What the server allows: how long a request may take, how large an object may be, how many may watch.
//!
//! | limit | of | past it |
//! |---|---|---|
//! | 3 MiB | a body | 413 |
//! | 1.5 MiB | a stored object, as etcd has it | 500, in etcd's words |
//! | 10,000 levels | any document, as kube-apiserver's decoders have it | 400, 422 for a patch's outcome |
//! | 128 levels | a stored object of a built-in kind | 400 |
//! | a minute, or the query's `timeout` | a request that is no watch | 504 |
//! | [`Limits::watches`] | open watches | 429 with `Retry-After` |
//! | [`Limits::reads`], [`Limits::writes`], [`Limits::received`] | work at once | 429 with `Retry-After`, except for administrators |
//! | the storage's window | history | 410 |
//! | the others of [`Limits`] | connections | they end |

use std::{str::FromStr, time::Duration};

use serde_json::Value;

use crate::{depth, object::Object, registry::Resource, status::Status};

/// The largest body that is read.
pub(crate) const BODY: usize = 3 * 1024 * 1024;

/// What clients can make a server hold, and for how long; see [`Builder::limits`](crate::Builder::limits).
///
/// Administrators are those in `system:masters`: they come through where others have to wait. Health checks do too.
///
/// ```
/// use std::time::Duration;
/// use windlass_apiserver::{Limits, Server};
///
/// let mut limits = Limits::default();
/// limits.idle = Duration::from_secs(10);
/// let server = Server::builder().limits(limits).build();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Watches that may be open at once; each takes a few kilobytes. Default: 10,000.
    pub watches: usize,
    /// Reads that are worked on at once, until their answer has been sent; watches and logs do not count. Default: 400, as
    /// `--max-requests-inflight`.
    pub reads: usize,
    /// Writes that are worked on at once, from when their body is there. Default: 200, as
    /// `--max-mutating-requests-inflight`.
    pub writes: usize,
    /// Bytes of request bodies that are held at once. Default: 256 MiB.
    pub received: usize,
    /// The size from which work is large: the bytes of a body and of the object that it changes. On a socket of a
    /// multi-thread runtime, large work does not run on the threads that answer everybody else. Default: 64 KiB.
    pub large: usize,
    /// How long a TLS handshake may take. Default: 10 s.
    pub handshake: Duration,
    /// How long the first request's head may take after the handshake, and any head after its first byte. Default: 32 s, as
    /// kube-apiserver.
    pub header: Duration,
    /// How long a body may pause. Default: 15 s. The whole request has a minute.
    pub body: Duration,
    /// How long a connection stays open without a request. Default: 90 s, as kube-apiserver.
    pub idle: Duration,
    /// How long a client may leave unread what it was sent, before its answer or watch is cut. Default: 2 min.
    pub unread: Duration,
    /// Connections that may be open at once. Where there are more, the ones that idle longest are closed, first of those
    /// that never proved who they are; if all are busy, further clients get 429 and are disconnected. Default: 4,000.
    pub connections: usize,
    /// Further connections that only administrators may keep: everybody may connect, and has to show with the first
    /// request who they are. Default: 400.
    pub reserved: usize,
    /// Requests that may be open at once on one HTTP/2 connection. Default: 100, as kube-apiserver.
    pub streams: u32,
    /// Requests that a client may take back on one HTTP/2 connection within [`Limits::ping`]; past it, the connection is
    /// closed. Default: 400.
    pub resets: usize,
    /// How often an HTTP/2 client is asked whether it is still there. Default: 30 s.
    pub ping: Duration,
    /// How long it may take to answer that. Default: 20 s.
    pub pong: Duration,
    /// The largest head of a request. Default: 64 KiB.
    pub head: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            watches: 10_000,
            reads: 400,
            writes: 200,
            received: 256 * 1024 * 1024,
            large: 64 * 1024,
            handshake: Duration::from_secs(10),
            header: Duration::from_secs(32),
            body: Duration::from_secs(15),
            idle: Duration::from_secs(90),
            unread: Duration::from_mins(2),
            connections: 4_000,
            reserved: 400,
            streams: 100,
            resets: 400,
            ping: Duration::from_secs(30),
            pong: Duration::from_secs(20),
            head: 64 * 1024,
        }
    }
}

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
