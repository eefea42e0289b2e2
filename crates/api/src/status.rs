//! What the status of a failed request means.
//!
//! Kubernetes says it in up to three places: the code, the reason and the causes of a `Status`. [`StatusClass`] (with the
//! feature `kube`) reads all of them.

use std::time::Duration;

/// Returns the delay of a `Retry-After` header. Kubernetes sends seconds, never a date.
///
/// ```
/// use std::time::Duration;
/// use windlass_api::status::parse_retry_after;
///
/// assert_eq!(parse_retry_after("2"), Some(Duration::from_secs(2)));
/// assert_eq!(parse_retry_after("soon"), None);
/// ```
pub fn parse_retry_after(header: &str) -> Option<Duration> {
    header.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(feature = "kube")]
pub use class::{StatusClass, retry_after};

#[cfg(feature = "kube")]
mod class {
    use std::time::Duration;

    use kube::core::{Status, response::StatusCause};

    /// The class of a failed request. A status has exactly one; the most specific wins.
    ///
    /// ```
    /// use kube::core::Status;
    /// use windlass_api::status::StatusClass;
    ///
    /// let status = Status::failure("pods \"a\" not found", "NotFound").with_code(404);
    /// assert_eq!(StatusClass::of(&status), StatusClass::NotFound);
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum StatusClass {
        /// The namespace is being deleted and accepts no new objects (403 with a cause).
        NamespaceTerminating,
        /// The object was deleted, and another one of that name may have a different UID: the answer to a patch that has the
        /// UID (422 with a cause), and to a failed UID precondition (409; its message distinguishes it from other conflicts).
        UidMismatch,
        /// The resource version is newer than the newest that this server has (504 with a cause).
        VersionTooLarge,
        /// The resource version or continue token is older than the server's history (410).
        Expired,
        /// The object, its kind or its namespace does not exist (404).
        NotFound,
        /// An object of that name already exists (409).
        AlreadyExists,
        /// The object changed concurrently, or another manager owns a field: read it again (409).
        Conflict,
        /// The server is overloaded, or a budget blocks an eviction (429). [`retry_after`] has the delay.
        TooManyRequests,
        /// The credentials are missing, unknown or expired (401).
        Unauthorized,
        /// The user lacks a right, or a quota or policy does not allow the request (403).
        Forbidden,
        /// The request or its object is invalid (400, 422).
        Invalid,
        /// The resource does not support the method, or the server the media type (405, 406, 415).
        Unsupported,
        /// The server fails (5xx).
        ServerError,
        /// Any other failure.
        Other,
    }

    impl StatusClass {
        /// Classifies a status, from an error response or an `ERROR` event of a watch, which may have no code.
        pub fn of(status: &Status) -> Self {
            let has_cause = |is_it: fn(&StatusCause) -> bool| {
                let mut causes = status.details.iter().flat_map(|details| &details.causes);
                causes.any(is_it)
            };
            match (status.code, &*status.reason) {
                _ if has_cause(|cause| cause.reason == "NamespaceTerminating") => Self::NamespaceTerminating,
                (422, _) if has_cause(|cause| cause.field == "metadata.uid") => Self::UidMismatch,
                (409, _) if is_uid_conflict(&status.message) => Self::UidMismatch,
                _ if has_cause(is_too_large) => Self::VersionTooLarge,
                (_, "Timeout") if status.message.contains(TOO_LARGE) => Self::VersionTooLarge,
                (410, _) | (_, "Expired" | "Gone") => Self::Expired,
                (404, _) | (_, "NotFound") => Self::NotFound,
                (_, "AlreadyExists") => Self::AlreadyExists,
                (409, _) | (_, "Conflict") => Self::Conflict,
                (429, _) | (_, "TooManyRequests") => Self::TooManyRequests,
                (401, _) | (_, "Unauthorized") => Self::Unauthorized,
                (403, _) | (_, "Forbidden") => Self::Forbidden,
                (400 | 422, _) | (_, "BadRequest" | "Invalid") => Self::Invalid,
                (405 | 406 | 415, _) => Self::Unsupported,
                (500.., _) => Self::ServerError,
                _ => Self::Other,
            }
        }

        /// Classifies a failed request of a client. `None` if the server did not answer with a status.
        pub fn of_error(error: &kube::Error) -> Option<Self> {
            match error {
                kube::Error::Api(status) => Some(Self::of(status)),
                _ => None,
            }
        }

        /// Whether the same request may succeed later: the server is overloaded, failing or behind.
        pub fn is_transient(self) -> bool {
            matches!(
                self,
                Self::TooManyRequests | Self::ServerError | Self::VersionTooLarge
            )
        }
    }

    /// Whether the message of a conflict is about the UID. The status has no cause; the texts are those of a deletion, of an
    /// update or binding, and of an apply that finds no object.
    fn is_uid_conflict(message: &str) -> bool {
        [
            "the UID in the precondition (",
            "UID in precondition: ",
            "uid mismatch: ",
        ]
        .iter()
        .any(|text| message.contains(text))
    }

    const TOO_LARGE: &str = "Too large resource version";

    /// The API server has reported this in three ways over time; client-go recognises the same three.
    fn is_too_large(cause: &StatusCause) -> bool {
        cause.reason == "ResourceVersionTooLarge" || cause.message == TOO_LARGE
    }

    /// Returns the delay before the next attempt that the server asks for.
    pub fn retry_after(status: &Status) -> Option<Duration> {
        let seconds = status.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds.into()))
    }

    #[cfg(test)]
    mod tests {
        use serde_json::json;

        use super::*;

        #[test]
        fn status_has_one_class() {
            let cause = |cause: serde_json::Value| json!({"causes": [cause]});
            for (status, expected) in [
                (json!({"code": 410, "reason": "Expired"}), StatusClass::Expired),
                (json!({"code": 410, "reason": "Gone"}), StatusClass::Expired),
                (json!({"reason": "Expired"}), StatusClass::Expired),
                (
                    json!({"code": 504, "reason": "Timeout", "details": cause(json!({"reason": "ResourceVersionTooLarge", "message": "x", "field": ""}))}),
                    StatusClass::VersionTooLarge,
                ),
                (
                    json!({"code": 504, "reason": "Timeout", "details": cause(json!({"reason": "", "message": TOO_LARGE, "field": ""}))}),
                    StatusClass::VersionTooLarge,
                ),
                (
                    json!({"code": 504, "reason": "Timeout", "message": format!("{TOO_LARGE}: 9, current: 1")}),
                    StatusClass::VersionTooLarge,
                ),
                (
                    json!({"code": 504, "reason": "Timeout", "message": "slow"}),
                    StatusClass::ServerError,
                ),
                (json!({"code": 404, "reason": "NotFound"}), StatusClass::NotFound),
                (json!({"code": 404}), StatusClass::NotFound),
                (
                    json!({"code": 409, "reason": "AlreadyExists"}),
                    StatusClass::AlreadyExists,
                ),
                (json!({"code": 409, "reason": "Conflict"}), StatusClass::Conflict),
                (json!({"code": 409}), StatusClass::Conflict),
                (
                    json!({"code": 409, "reason": "Conflict", "message": "the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (2). The object might have been modified"}),
                    StatusClass::Conflict,
                ),
                (
                    json!({"code": 409, "reason": "Conflict", "message": "the UID in the precondition (a) does not match the UID in record (b). The object might have been deleted and then recreated"}),
                    StatusClass::UidMismatch,
                ),
                (
                    json!({"code": 409, "reason": "Conflict", "message": "Precondition failed: UID in precondition: a, UID in object meta: b"}),
                    StatusClass::UidMismatch,
                ),
                (
                    json!({"code": 429, "reason": "TooManyRequests"}),
                    StatusClass::TooManyRequests,
                ),
                (
                    json!({"code": 403, "reason": "Forbidden"}),
                    StatusClass::Forbidden,
                ),
                (
                    json!({"code": 403, "reason": "Forbidden", "details": cause(json!({"reason": "NamespaceTerminating", "message": "", "field": "metadata.namespace"}))}),
                    StatusClass::NamespaceTerminating,
                ),
                (json!({"code": 400}), StatusClass::Invalid),
                (
                    json!({"code": 422, "reason": "Invalid", "details": cause(json!({"reason": "", "message": "", "field": "metadata.name"}))}),
                    StatusClass::Invalid,
                ),
                (
                    json!({"code": 422, "reason": "Invalid", "details": cause(json!({"reason": "", "message": "", "field": "metadata.uid"}))}),
                    StatusClass::UidMismatch,
                ),
                (
                    json!({"code": 500, "reason": "InternalError"}),
                    StatusClass::ServerError,
                ),
                (
                    json!({"code": 415, "reason": "UnsupportedMediaType"}),
                    StatusClass::Unsupported,
                ),
                (
                    json!({"code": 401, "reason": "Unauthorized"}),
                    StatusClass::Unauthorized,
                ),
                (json!({"code": 302}), StatusClass::Other),
            ] {
                let parsed: Status = serde_json::from_value(status.clone()).expect("a status");
                assert_eq!(StatusClass::of(&parsed), expected, "{status}");
                let error = kube::Error::Api(Box::new(parsed));
                assert_eq!(StatusClass::of_error(&error), Some(expected), "{status}");
            }
        }

        #[test]
        fn retry_after_is_read_from_the_details() {
            let status = |seconds: u32| -> Status {
                serde_json::from_value(json!({"details": {"retryAfterSeconds": seconds}})).expect("a status")
            };
            assert_eq!(retry_after(&status(3)), Some(Duration::from_secs(3)));
            assert_eq!(retry_after(&status(0)), None);
            assert_eq!(retry_after(&Status::failure("", "")), None);
        }
    }
}
