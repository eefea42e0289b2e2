//! Posts encoded messages to the collector.

use std::{error::Error, fmt::Write as _, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::{client::legacy, rt::TokioTimer};
use kube::client::ConfigExt as _;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::config::{Target, TelemetryError};

/// How many bytes of a response are read.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// How long an unused connection is kept: longer than the default interval of metrics.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// The longest `Retry-After` that is honored.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

pub(super) struct Collector {
    target: Target,
    send: Box<dyn Fn(Request<Full<Bytes>>) -> BoxFuture<'static, SendResult> + Send + Sync>,
    connections: Connections,
}

type SendResult = Result<Response<Incoming>, legacy::Error>;

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
        let connector = kube::Config::new(target.url.clone())
            .rustls_https_connector()
            .map_err(|error| TelemetryError::Tls(error.to_string()))?;
        let connections = Connections::default();
        let client = legacy::Client::builder(connections.clone())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(1)
            .build(connector);
        Ok(Self {
            target,
            send: Box::new(move |request| Box::pin(client.request(request))),
            connections,
        })
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
            let response = (self.send)(request)
                .await
                .map_err(|error| PostError::Unavailable {
                    reason: chain(&error),
                    retry_after: None,
                })?;
            let (head, body) = response.into_parts();
            check(head.status, &head.headers)?;
            // The status has confirmed it, even if the body cannot be read.
            let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
            Ok(body.map(http_body_util::Collected::to_bytes).unwrap_or_default())
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
        let mut tasks = std::mem::take(&mut *self.connections.0.lock());
        tasks.shutdown().await;
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

/// The error and its sources in one line.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        write!(text, ": {error}").expect("writing to a String succeeds");
        source = error.source();
    }
    text
}

/// The tasks of the client's connections, so that none of them outlives the exporter.
#[derive(Clone, Default)]
struct Connections(Arc<Mutex<JoinSet<()>>>);

impl hyper::rt::Executor<Pin<Box<dyn Future<Output = ()> + Send>>> for Connections {
    fn execute(&self, connection: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let mut tasks = self.0.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(connection);
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
