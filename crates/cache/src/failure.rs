//! Why a list or a watch did not work, reduced to what the protocol must tell apart.

use std::{error::Error, io, time::Duration};

use kube::core::Status;

/// A failed list, watch request or watch stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the protocol decides by.
    pub cause: Cause,
    /// What a person reads.
    pub message: String,
}

/// The causes that the resource-version rules tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The resource version or continue token is older than what the server keeps (410).
    Expired,
    /// The resource version is newer than what this server has seen so far.
    TooLarge,
    /// The server asks for patience (429).
    TooManyRequests {
        /// The server's `Retry-After`, if it sent one.
        retry_after: Option<Duration>,
    },
    /// Nobody listens at the address: the server restarts, its state is as before.
    Refused,
    /// The server does not know the resource (404): its CRD is not installed.
    NotInstalled,
    /// Anything else: forbidden, broken connections, internal errors, nonsense in the body.
    Other,
}

/// How long a cache waits at most because a server asked it to: one answer must not silence it for hours.
const LONGEST_WAIT: Duration = Duration::from_mins(5);

impl Failure {
    /// A failure without a cause that the protocol knows.
    pub fn other(message: impl Into<String>) -> Self {
        Self {
            cause: Cause::Other,
            message: message.into(),
        }
    }

    /// What the server said, either as an error response or as an `ERROR` frame in a watch.
    pub fn from_status(status: &Status, retry_after: Option<Duration>) -> Self {
        let cause = match (status.code, status.reason.as_str()) {
            _ if is_too_large(status) => Cause::TooLarge,
            (410, _) | (_, "Expired" | "Gone") => Cause::Expired,
            (429, _) | (_, "TooManyRequests") => Cause::TooManyRequests {
                retry_after: retry_after
                    .or_else(|| {
                        let seconds = status.details.as_ref()?.retry_after_seconds;
                        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
                    })
                    .map(|wait| wait.min(LONGEST_WAIT)),
            },
            (404, _) | (_, "NotFound") => Cause::NotInstalled,
            _ => Cause::Other,
        };
        let message = match (status.message.as_str(), status.reason.as_str()) {
            ("", "") => format!("the server answered {}", status.code),
            ("", reason) => reason.to_owned(),
            (message, _) => message.to_owned(),
        };
        Self { cause, message }
    }

    /// A request that got no response.
    pub fn from_client(error: &kube::Error) -> Self {
        let cause = if is_refused(error) {
            Cause::Refused
        } else {
            Cause::Other
        };
        Self {
            cause,
            message: with_sources(error),
        }
    }
}

/// The server has said this in three ways over time; client-go knows the same three.
fn is_too_large(status: &Status) -> bool {
    const MESSAGE: &str = "Too large resource version";
    let causes = || status.details.iter().flat_map(|details| &details.causes);
    causes().any(|cause| cause.reason == "ResourceVersionTooLarge" || cause.message == MESSAGE)
        || (status.reason == "Timeout" && status.message.contains(MESSAGE))
}

fn is_refused(error: &(dyn Error + 'static)) -> bool {
    sources(error).any(|error| {
        error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    })
}

/// An error and everything below it in one line: hyper's own message alone says only "client error".
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

    /// go-anchors §1.2: too-large is recognised three ways.
    #[test]
    fn a_status_is_read_for_what_the_protocol_must_do() {
        use serde_json::json;
        let too_large = "Too large resource version";
        let cases = [
            (json!({"code": 410, "reason": "Expired"}), Cause::Expired),
            (json!({"code": 410, "reason": "Gone"}), Cause::Expired),
            (json!({"reason": "Expired"}), Cause::Expired),
            (
                json!({"code": 504, "reason": "Timeout", "details": {"causes": [{"reason": "ResourceVersionTooLarge", "message": "x", "field": ""}]}}),
                Cause::TooLarge,
            ),
            (
                json!({"code": 504, "reason": "Timeout", "details": {"causes": [{"reason": "", "message": too_large, "field": ""}]}}),
                Cause::TooLarge,
            ),
            (
                json!({"code": 504, "reason": "Timeout", "message": format!("{too_large}: 9, current: 1")}),
                Cause::TooLarge,
            ),
            (
                json!({"code": 504, "reason": "Timeout", "message": "slow"}),
                Cause::Other,
            ),
            (json!({"code": 404, "reason": "NotFound"}), Cause::NotInstalled),
            (
                json!({"code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": 3}}),
                Cause::TooManyRequests {
                    retry_after: Some(Duration::from_secs(3)),
                },
            ),
            (
                json!({"code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": 65_536}}),
                Cause::TooManyRequests {
                    retry_after: Some(Duration::from_mins(5)),
                },
            ),
            (json!({"code": 403, "reason": "Forbidden"}), Cause::Other),
        ];
        for (json, expected) in cases {
            assert_eq!(
                Failure::from_status(&status(json.clone()), None).cause,
                expected,
                "{json}"
            );
        }
    }

    #[test]
    fn a_refused_connection_is_found_below_other_errors() {
        #[derive(Debug, thiserror::Error)]
        #[error("client error")]
        struct Connect(#[source] io::Error);
        let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "refused");
        let wrapped = kube::Error::Service(Box::new(Connect(refused)));
        assert_eq!(Failure::from_client(&wrapped).cause, Cause::Refused);
        let reset = kube::Error::Service(Box::new(io::Error::new(io::ErrorKind::ConnectionReset, "reset")));
        assert_eq!(Failure::from_client(&reset).cause, Cause::Other);
    }
}
