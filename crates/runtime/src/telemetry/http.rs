//! Posts encoded messages to the collector.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::Full;

use super::config::{Target, TelemetryError};
use crate::http_client::{HttpClient, read_body};

/// How many bytes of a response are read.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// The longest `Retry-After` that is honored.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

pub(super) struct Collector {
    target: Target,
    client: HttpClient,
}

/// Why a message was not accepted. The texts contain neither headers nor the body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PostError {
    /// A later attempt may succeed.
    Unavailable {
        reason: String,
        retry_after: Option<Duration>,
    },
    /// The collector does not want this message.
    Rejected(String),
}

impl Collector {
    /// Sends nothing yet.
    pub(super) fn new(target: Target) -> Result<Self, TelemetryError> {
        let client =
            HttpClient::new(&target.url, None).map_err(|error| TelemetryError::Tls(error.to_string()))?;
        Ok(Self { target, client })
    }

    /// The URL without its query, which may contain a key.
    pub(super) fn address(&self) -> String {
        self.target
            .url
            .to_string()
            .split('?')
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    /// Posts a message once and returns the body of the response.
    pub(super) async fn post(&self, message: Bytes) -> Result<Bytes, PostError> {
        let mut request = Request::new(Full::new(message));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.target.url.clone();
        let headers = request.headers_mut();
        *headers = self.target.headers.clone();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/x-protobuf"),
        );
        headers.insert(
            header::USER_AGENT,
            HeaderValue::from_static(concat!("windlass-runtime/", env!("CARGO_PKG_VERSION"))),
        );
        let timeout = self.target.timeout;
        let exchange = async {
            let sent = self.client.send(request).await;
            let response = sent.map_err(|error| PostError::Unavailable {
                reason: error.to_string(),
                retry_after: None,
            })?;
            let (head, body) = response.into_parts();
            check(head.status, &head.headers)?;
            // The status has confirmed it, even if the body cannot be read.
            Ok(read_body(body, MAX_RESPONSE_BYTES).await.unwrap_or_default())
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(PostError::Unavailable {
                reason: format!("no response within {timeout:?}"),
                retry_after: None,
            }),
        }
    }

    /// Closes the connections, and waits for their tasks.
    pub(super) async fn close(&self) {
        self.client.close().await;
    }
}

/// Which statuses are worth another attempt is defined by OTLP.
fn check(status: StatusCode, headers: &HeaderMap) -> Result<(), PostError> {
    let reason = format!("the collector responded with {status}");
    match status.as_u16() {
        200..=299 => Ok(()),
        429 | 502 | 503 | 504 => {
            let after = headers
                .get(header::RETRY_AFTER)
                .and_then(|value| value.to_str().ok());
            let retry_after = after
                .and_then(|seconds| seconds.parse().ok())
                .map(|seconds| Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
            Err(PostError::Unavailable { reason, retry_after })
        }
        _ => Err(PostError::Rejected(reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_retried_as_otlp_defines() {
        let mut headers = HeaderMap::new();
        let after = |headers: &HeaderMap| match check(StatusCode::SERVICE_UNAVAILABLE, headers) {
            Err(PostError::Unavailable { retry_after, .. }) => retry_after,
            other => panic!("{other:?}"),
        };
        assert_eq!(after(&headers), None);
        for (value, expected) in [
            ("3", Some(Duration::from_secs(3))),
            ("86400", Some(MAX_RETRY_AFTER)),
            ("soon", None),
        ] {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(value));
            assert_eq!(after(&headers), expected, "{value}");
        }
        for status in [200, 202, 204] {
            assert_eq!(
                check(StatusCode::from_u16(status).expect("a status"), &headers),
                Ok(())
            );
        }
        for status in [301, 400, 401, 404, 413, 500, 501] {
            let checked = check(StatusCode::from_u16(status).expect("a status"), &headers);
            assert!(matches!(checked, Err(PostError::Rejected(_))), "{checked:?}");
        }
    }
}
