//! Errors of lists and watches, classified as the protocol needs it.

use std::{error::Error, io, time::Duration};

use kube::core::Status;
use windlass_api::status::{self, StatusClass};

use crate::connection_log::is_connection_error;

/// A failed list, watch request or watch stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchError {
    /// Decides how the protocol continues.
    pub kind: WatchErrorKind,
    /// The message for logs and status.
    pub message: String,
}

/// The kinds of errors that the resource version rules distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchErrorKind {
    /// The resource version or continue token is older than the server's history (410).
    Expired,
    /// The resource version is newer than the newest that this server has.
    VersionTooLarge,
    /// The server is overloaded (429).
    TooManyRequests {
        /// The server's `Retry-After`, if it sent one.
        retry_after: Option<Duration>,
    },
    /// The connection was refused: the server restarts and keeps its state.
    ConnectionRefused,
    /// The request got no response: the connection could not be opened, or broke before.
    ConnectionFailed,
    /// The server does not know the resource (404): its CRD is not installed.
    NotInstalled,
    /// The user may not list or watch the resource (403).
    Forbidden,
    /// Anything else: internal errors, invalid bodies, responses that break off.
    Other,
}

/// Upper bound for the server's `Retry-After`: one response must not stop a cache for hours.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

impl WatchError {
    /// Creates an error that the protocol does not distinguish.
    pub fn other(message: impl Into<String>) -> Self {
        Self {
            kind: WatchErrorKind::Other,
            message: message.into(),
        }
    }

    /// Classifies a status, from an error response or an `ERROR` event of a watch.
    pub fn from_status(status: &Status, retry_after: Option<Duration>) -> Self {
        let kind = match StatusClass::of(status) {
            StatusClass::VersionTooLarge => WatchErrorKind::VersionTooLarge,
            StatusClass::Expired => WatchErrorKind::Expired,
            StatusClass::TooManyRequests => WatchErrorKind::TooManyRequests {
                retry_after: retry_after
                    .or_else(|| status::retry_after(status))
                    .map(|wait| wait.min(MAX_RETRY_AFTER)),
            },
            StatusClass::NotFound => WatchErrorKind::NotInstalled,
            StatusClass::Forbidden => WatchErrorKind::Forbidden,
            _ => WatchErrorKind::Other,
        };
        let message = match (status.message.as_str(), status.reason.as_str()) {
            ("", "") => format!("the server answered {}", status.code),
            ("", reason) => reason.to_owned(),
            (message, _) => message.to_owned(),
        };
        Self { kind, message }
    }

    /// Classifies the error of a request that got no response.
    pub fn from_client(error: &kube::Error) -> Self {
        let kind = if is_refused(error) {
            WatchErrorKind::ConnectionRefused
        } else if is_connection_error(error) {
            WatchErrorKind::ConnectionFailed
        } else {
            WatchErrorKind::Other
        };
        Self {
            kind,
            message: with_sources(error),
        }
    }
}

fn is_refused(error: &(dyn Error + 'static)) -> bool {
    sources(error).any(|error| {
        error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    })
}

/// Returns an error and its sources in one line: hyper's own message alone is only "client error".
pub(crate) fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for error in sources(error) {
        let message = error.to_string();
        if text.is_empty() {
            text = message;
        } else if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
    }
    text
}

fn sources<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(json: serde_json::Value) -> Status {
        serde_json::from_value(json).expect("a status")
    }

    /// "Too large resource version" is recognised in three ways, as in client-go.
    #[test]
    fn status_is_classified_for_the_protocol() {
        use serde_json::json;
        let too_large = "Too large resource version";
        let cases = [
            (json!({"code": 410, "reason": "Expired"}), WatchErrorKind::Expired),
            (json!({"code": 410, "reason": "Gone"}), WatchErrorKind::Expired),
            (json!({"reason": "Expired"}), WatchErrorKind::Expired),
            (
                json!({"code": 504, "reason": "Timeout", "details": {"causes": [{"reason": "ResourceVersionTooLarge", "message": "x", "field": ""}]}}),
                WatchErrorKind::VersionTooLarge,
            ),
            (
                json!({"code": 504, "reason": "Timeout", "details": {"causes": [{"reason": "", "message": too_large, "field": ""}]}}),
                WatchErrorKind::VersionTooLarge,
            ),
            (
                json!({"code": 504, "reason": "Timeout", "message": format!("{too_large}: 9, current: 1")}),
                WatchErrorKind::VersionTooLarge,
            ),
            (
                json!({"code": 504, "reason": "Timeout", "message": "slow"}),
                WatchErrorKind::Other,
            ),
            (
                json!({"code": 404, "reason": "NotFound"}),
                WatchErrorKind::NotInstalled,
            ),
            (
                json!({"code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": 3}}),
                WatchErrorKind::TooManyRequests {
                    retry_after: Some(Duration::from_secs(3)),
                },
            ),
            (
                json!({"code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": 65_536}}),
                WatchErrorKind::TooManyRequests {
                    retry_after: Some(Duration::from_mins(5)),
                },
            ),
            (
                json!({"code": 403, "reason": "Forbidden"}),
                WatchErrorKind::Forbidden,
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(
                WatchError::from_status(&status(json.clone()), None).kind,
                expected,
                "{json}"
            );
        }
    }

    #[test]
    fn refused_connection_is_found_in_the_error_sources() {
        #[derive(Debug, thiserror::Error)]
        #[error("client error")]
        struct Connect(#[source] io::Error);
        let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "refused");
        let wrapped = kube::Error::Service(Box::new(Connect(refused)));
        assert_eq!(
            WatchError::from_client(&wrapped).kind,
            WatchErrorKind::ConnectionRefused
        );
        let reset = kube::Error::Service(Box::new(io::Error::new(io::ErrorKind::ConnectionReset, "reset")));
        assert_eq!(
            WatchError::from_client(&reset).kind,
            WatchErrorKind::ConnectionFailed
        );
        let rejected = kube::Error::Service("a layer rejected it".into());
        assert_eq!(WatchError::from_client(&rejected).kind, WatchErrorKind::Other);
    }
}
