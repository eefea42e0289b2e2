//! Limits: how long a request may take, how large an object may be, how many watches may be open.
//!
//! | limit | of | beyond it |
//! |---|---|---|
//! | 3 MiB | a body | 413 |
//! | 1.5 MiB | a stored object, as in etcd | 500, with etcd's message |
//! | [`Limits::stored_bytes`] | all stored objects | 500, with etcd's message |
//! | 10,000 levels | any document, as in kube-apiserver's decoders | 400; 422 for the result of a patch |
//! | 128 levels | a stored object of a built-in kind | 400 |
//! | 34 seconds, or the query's `timeout` | a write | 504 |
//! | a minute, or the query's `timeout` | another request than a watch | 504 |
//! | [`Limits::watches`] | open watches | 429 with `Retry-After`, except for administrators |
//! | [`Limits::reads`], [`Limits::writes`], [`Limits::received_bytes`], [`Limits::answer_bytes`], [`Limits::webhook_bytes`] | concurrent requests | 429 with `Retry-After`, except for administrators |
//! | the storage's window | history | 410 |
//! | the others of [`Limits`] | connections | closed |
//! | 1 MiB and 64 bytes per byte of the body | memory that YAML aliases copy | 400 |
//! | 4 MiB each, 32 MiB together | compiled patterns of a CRD; kube-apiserver allows more | 422 |
//! | 64 MiB | the paths of all fields of a CRD's schema together | 422 |
//! | 1,000 causes or 256 KiB | a validation error | the others are counted |
//! | 100 problems or 64 KiB | the error of an apply that does not match its schema | the others are omitted |

use std::{str::FromStr, time::Duration};

use serde_json::Value;
use tokio::time::Instant;

use crate::{depth, object::Object, registry::Resource, status::Status, storage::StoredBytes};

/// The largest request body.
pub(crate) const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// Limits on what clients can make a server hold, and for how long; see [`Builder::limits`](crate::Builder::limits).
///
/// Some limits do not apply to administrators (`system:masters`) and health checks. One user cannot use up
/// [`watches`](Self::watches), [`reads`](Self::reads), [`writes`](Self::writes),
/// [`received_bytes`](Self::received_bytes), [`answer_bytes`](Self::answer_bytes) or
/// [`webhook_bytes`](Self::webhook_bytes): of the second half of each, a user gets no more than remains free, divided by
/// the number of users who have some of it; one request in any case. So `n` users together leave one of `n + 1` parts of
/// that half to others. The service accounts of a namespace count as one user. What remains: a person with many users, or
/// who may create namespaces with service accounts, can use up a limit: 15 of them one of 100, 30 one of 400, 158 one of
/// 10,000. Then others get 429 until something ends; administrators do not.
///
/// ```
/// use std::time::Duration;
/// use windlass_apiserver::{Limits, Server};
///
/// let mut limits = Limits::default();
/// limits.idle_timeout = Duration::from_secs(10);
/// let server = Server::builder().limits(limits).build();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Open watches and followed logs; each takes a few kilobytes. A watch counts once more for every 256 bytes of its
    /// selectors. Default: 10,000.
    pub watches: usize,
    /// Concurrent reads, until their answer is sent; watches and followed logs do not count. As many may wait for a revision that the
    /// server has not reached. Default: 400, like `--max-requests-inflight`.
    pub reads: usize,
    /// Concurrent writes, from when their body is received until their answer is sent. Default: 200, like `--max-mutating-requests-inflight`.
    pub writes: usize,
    /// Bytes of request bodies in memory. Default: 256 MiB. Less than 12 MiB are not divided between users.
    pub received_bytes: usize,
    /// Bytes of errors and other small documents in memory, until they are sent; those of less than 1 KiB do not count.
    /// Default: 64 MiB. Less than 4 MiB are not divided between users.
    pub answer_bytes: usize,
    /// Bytes in memory for webhooks: reviews until they are answered, responses until their request ends, and objects that a
    /// webhook has converted until they are sent. An eighth of it, but no more than 32 MiB, keeps the last of these for other
    /// readers. Default: 256 MiB. Less than 32 MiB are not divided between users.
    pub webhook_bytes: usize,
    /// Bytes of all stored objects. Beyond it, no client can store more. Beyond half of it, clients can store in a namespace only
    /// as much as remains free, except for administrators, but including what controllers create; so a full namespace leaves room for others. What is
    /// not in a namespace counts as one. Default: 2 GiB, like etcd's `--quota-backend-bytes`. A storage that does not count
    /// its bytes has no limit.
    pub stored_bytes: usize,
    /// The size from which work is large, in bytes of the body and of the object that it changes. On a socket with a
    /// multi-thread runtime, large work does not run on the threads that serve other requests. Default: 64 KiB.
    pub large_work_bytes: usize,
    /// Timeout of a TLS handshake. Default: 10 s.
    pub handshake_timeout: Duration,
    /// Timeout of the first request's head after the handshake, and of every head after its first byte. Default: 32 s, as
    /// in kube-apiserver.
    pub header_timeout: Duration,
    /// The longest pause within a body. Default: 15 s. The whole request has a minute.
    pub body_timeout: Duration,
    /// How long a connection stays open without a request. Default: 90 s, as in kube-apiserver.
    pub idle_timeout: Duration,
    /// How long a client may not read its answer or watch before the server ends it. Default: 2 min. On HTTP/2 only that
    /// stream is reset; but the last 64 KiB of an answer are out of the server's hands once they are queued for the
    /// connection, and if those are not read for so long, the connection is closed.
    pub unread_timeout: Duration,
    /// Open connections. For further ones, the server closes idle ones, unauthenticated ones first. If all are busy, it
    /// closes one of the user who has most of them, or, if the further one would be that user's, answers it with 429 and
    /// closes it. Service accounts of a namespace count as one user, and so do all anonymous clients. Default: 4,000, or
    /// what the process's limit on open files allows.
    pub connections: usize,
    /// Further connections that only administrators may keep: any client may connect, and must authenticate with its
    /// first request. At the limit, those that have not displace each other, the oldest first. Default: 400.
    pub reserved_connections: usize,
    /// Concurrent requests on one HTTP/2 connection. Default: 100, as in kube-apiserver.
    pub streams: u32,
    /// Requests that a client may reset on one HTTP/2 connection within [`Limits::ping_interval`]; beyond it, the
    /// connection is closed. Default: 400.
    pub resets: usize,
    /// Interval of HTTP/2 keep-alive pings. Default: 30 s.
    pub ping_interval: Duration,
    /// Timeout of the answer to a ping. Default: 20 s.
    pub ping_timeout: Duration,
    /// The largest head of a request, in bytes. Default: 64 KiB.
    pub header_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            watches: 10_000,
            reads: 400,
            writes: 200,
            received_bytes: 256 * 1024 * 1024,
            answer_bytes: 64 * 1024 * 1024,
            webhook_bytes: 256 * 1024 * 1024,
            stored_bytes: 2 * 1024 * 1024 * 1024,
            large_work_bytes: 64 * 1024,
            handshake_timeout: Duration::from_secs(10),
            header_timeout: Duration::from_secs(32),
            body_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(90),
            unread_timeout: Duration::from_mins(2),
            connections: 4_000,
            reserved_connections: 400,
            streams: 100,
            resets: 400,
            ping_interval: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(20),
            header_bytes: 64 * 1024,
        }
    }
}

/// The largest stored object, in bytes: etcd's limit for a request.
const MAX_OBJECT_BYTES: usize = 1024 * 1024 * 3 / 2;

/// The default and maximum timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// The default and maximum timeout of a write, as in kube-apiserver.
const WRITE_TIMEOUT: Duration = Duration::from_secs(34);

/// How long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeout {
    pub(crate) after: Duration,
    is_write: bool,
}

impl Timeout {
    /// The timeout of a request that names none.
    pub(crate) const DEFAULT: Self = Self {
        after: REQUEST_TIMEOUT,
        is_write: false,
    };

    /// The timeout of a request with this verb; `query` is the query's `timeout`.
    pub(crate) fn of(verb: &str, query: Option<&str>) -> Result<Self, Status> {
        let is_write = matches!(
            verb,
            "create" | "update" | "patch" | "delete" | "deletecollection"
        );
        let most = if is_write { WRITE_TIMEOUT } else { REQUEST_TIMEOUT };
        let wanted = query.map(parse_timeout).transpose()?.flatten();
        Ok(Self {
            after: wanted.map_or(most, |wanted| wanted.min(most)),
            is_write,
        })
    }

    /// When a request that begins now ends.
    pub(crate) fn deadline(self) -> Deadline {
        Deadline {
            at: Instant::now() + self.after,
            timeout: self,
        }
    }

    /// The answer to a request that takes longer.
    pub(crate) fn status(self) -> Status {
        if self.is_write {
            Status::write_timeout()
        } else {
            Status::timeout()
        }
    }
}

/// When a request ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    timeout: Timeout,
}

impl Deadline {
    /// The answer to the request, if it has not ended in time.
    pub(crate) fn check(self) -> Result<(), Status> {
        if Instant::now() < self.at {
            return Ok(());
        }
        Err(self.timeout.status())
    }
}

/// Rejects an object that cannot be stored: it is larger than etcd's limit, or of a built-in kind and too deep for the
/// parts of the server that read it on a small stack. A real server stores the latter.
pub(crate) fn check_storable(resource: &Resource, object: &Object) -> Result<(), Status> {
    if depth::has_large_stack() && !resource.is_custom && depth::of_value(object.tree()) > depth::SHALLOW {
        return Err(Status::bad_request(format!(
            "{} {:?} nests deeper than {} levels",
            resource.kind,
            object.name(),
            depth::SHALLOW,
        )));
    }
    check_size(object)
}

/// Makes an object storable, if possible: as in the real server, managed fields are given up if without them it is not too
/// large. An apply fails instead: it has to call [`check_storable`] before.
pub(crate) fn make_storable(resource: &Resource, object: &mut Object) -> Result<(), Status> {
    let refused = match check_storable(resource, object) {
        Err(status) if !object.managed_fields().stored_json().is_empty() => status,
        answer => return answer,
    };
    let managed_fields = object.take_managed_fields();
    check_storable(resource, object).map_err(|_| {
        object.set_managed_fields(managed_fields);
        refused
    })
}

/// The approximate length of the object's JSON.
pub(crate) fn size_of(object: &Object) -> usize {
    let fields = object.fields().iter();
    let fields = fields.map(|(key, value)| key.len() + approximate_size(value));
    fields.sum::<usize>() + object.managed_fields().stored_json().len()
}

/// Rejects an object for which there is no room: it needs `growth` more bytes than before.
pub(crate) fn check_room(
    limit: usize,
    is_administrators: bool,
    stored: StoredBytes,
    growth: usize,
) -> Result<(), Status> {
    let after = stored.all.saturating_add(growth);
    let fits = if after <= limit / 2 {
        true
    } else if is_administrators {
        after <= limit
    } else {
        stored.namespace.saturating_add(growth) <= limit.saturating_sub(stored.all)
    };
    if growth == 0 || fits {
        return Ok(());
    }
    Err(Status::without_reason(
        "etcdserver: mvcc: database space exceeded",
    ))
}

fn check_size(object: &Object) -> Result<(), Status> {
    if size_of(object) > MAX_OBJECT_BYTES {
        return Err(Status::without_reason("etcdserver: request is too large"));
    }
    Ok(())
}

/// The approximate length of the value's JSON.
fn approximate_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
        Value::String(text) => text.len() + 3,
        Value::Array(items) => items.iter().map(|item| approximate_size(item) + 1).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| key.len() + 4 + approximate_size(value))
            .sum(),
    }
}

/// The timeout in a query; zero or less means the default.
fn parse_timeout(text: &str) -> Result<Option<Duration>, Status> {
    let seconds = parse_go_duration(text).ok_or_else(|| {
        Status::bad_request(format!(
            "invalid timeout specified in the request URL - time: invalid duration {text:?}"
        ))
    })?;
    if seconds <= 0.0 {
        return Ok(None);
    }
    Ok(Some(
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
    ))
}

/// Parses a Go duration: `1h2m3.5s`.
fn parse_go_duration(text: &str) -> Option<f64> {
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
    fn timeout_is_a_go_duration_of_at_most_a_minute() {
        for (text, expected) in [
            ("32s", 32.0),
            ("1m0.5s", 60.0),
            ("500ms", 0.5),
            ("1µs", 1e-6),
            ("3h", 60.0),
            ("0", 60.0),
            ("-5s", 60.0),
        ] {
            let got = Timeout::of("get", Some(text))
                .ok()
                .map(|time| time.after.as_secs_f64());
            assert_eq!(got, Some(expected), "{text}");
        }
        for text in ["junk", "5", "s", ".s", "1.2.3s", "1x", "é"] {
            let status = Timeout::of("get", Some(text)).expect_err(text).to_value();
            let expected =
                format!("invalid timeout specified in the request URL - time: invalid duration {text:?}");
            assert_eq!(status["message"], expected);
        }
    }

    #[test]
    fn full_namespaces_leave_room_for_others_and_everything_for_administrators() {
        let limit = 1_000;
        let mut namespaces = [0; 8];
        for index in 0..namespaces.len() {
            loop {
                let stored = StoredBytes {
                    all: namespaces.iter().sum(),
                    namespace: namespaces[index],
                };
                if check_room(limit, false, stored, 5).is_err() {
                    break;
                }
                namespaces[index] += 5;
            }
        }
        assert_eq!(namespaces[..4], [500, 250, 125, 65]);
        let stored = StoredBytes {
            all: 900,
            namespace: 500,
        };
        assert!(check_room(limit, true, stored, 100).is_ok());
        assert_eq!(check_room(limit, true, stored, 101).expect_err("full").code, 500);
        assert!(check_room(limit, false, stored, 1).is_err());
        assert!(check_room(limit, false, stored, 0).is_ok(), "it does not grow");
    }

    #[test]
    fn object_size_is_limited_as_in_etcd() {
        let object = |size: usize| {
            Object::new(json!({"metadata": {}, "spec": ["x".repeat(size)]})).expect("an object")
        };
        assert!(check_size(&object(1_500_000)).is_ok());
        assert_eq!(check_size(&object(1_600_000)).expect_err("large").code, 500);
    }
}
