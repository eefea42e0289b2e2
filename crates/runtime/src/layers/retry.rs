//! Retries requests that failed transiently.

use std::{
    error::Error as StdError,
    io,
    task::{Context, Poll},
    time::Duration,
};

use http::{Method, Request, Response, StatusCode, header::RETRY_AFTER};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use tokio::time::{Instant, sleep_until, timeout_at};
use tower::{Layer, Service, ServiceExt as _};
use windlass_api::status::parse_retry_after;

use super::{ResponseFuture, connection::NextRetry, is_stream};

/// How much of a discarded response is read, so that its connection can be reused.
const MAX_DRAINED_BYTES: usize = 64 * 1024;

/// Retry policy: how often to retry, and how long to wait.
///
/// | request | result | delay |
/// |---|---|---|
/// | any | 429 or 503 with `Retry-After` | `Retry-After` |
/// | read | another 5xx with `Retry-After` | `Retry-After` |
/// | read | the connection failed | backoff |
///
/// A write is retried only if the server says that it did not process it. Never retried: watches, requests with a streaming
/// body, evictions (their 429 mostly comes from a PDB and may last for hours), and requests that would have to wait longer
/// than [`max_wait`](Self::max_wait).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// Maximum number of retries. Default: 10, as in client-go.
    pub max_retries: u32,
    /// Maximum delay. If the server asks for more, its response is returned, so that a worker is not blocked. Default: 30 s.
    pub max_wait: Duration,
    /// Initial delay after a failed connection; doubles with each retry up to 16 times this, with jitter. Default: 50 ms.
    pub backoff: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 10,
            max_wait: Duration::from_secs(30),
            backoff: Duration::from_millis(50),
        }
    }
}

impl RetryPolicy {
    /// The default policy with this maximum number of retries.
    pub fn with_max_retries(max_retries: u32) -> Self {
        Self {
            max_retries,
            ..Self::default()
        }
    }

    /// The delay before a retry, or `None` if the request is not retried.
    fn wait(
        &self,
        method: &Method,
        answer: Result<&Response<Body>, &kube::Error>,
        tried: u32,
        connection_wait: Duration,
    ) -> Option<Duration> {
        if tried >= self.max_retries {
            return None;
        }
        let is_read = is_read(method);
        let wait = match answer {
            Ok(response) => {
                let is_retriable = match response.status() {
                    StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => true,
                    status => is_read && status.is_server_error(),
                };
                retry_after(response).filter(|_| is_retriable)?
            }
            Err(error) => {
                if !is_read || !is_lost_connection(error) {
                    return None;
                }
                connection_wait
            }
        };
        (wait <= self.max_wait).then_some(wait)
    }

    /// The delay after a failed connection.
    fn connection_wait(&self, tried: u32) -> Duration {
        let longest = self.backoff * (1 << tried.min(4));
        longest.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn retry_after(response: &Response<Body>) -> Option<Duration> {
    parse_retry_after(response.headers().get(RETRY_AFTER)?.to_str().ok()?)
}

/// Whether the connection failed, rather than a layer rejecting the request.
fn is_lost_connection(error: &(dyn StdError + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    causes.any(|error| {
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            error.is_closed() || error.is_incomplete_message() || error.is_canceled()
        } else if let Some(error) = error.downcast_ref::<io::Error>() {
            matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::NotConnected
                    | io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::TimedOut
            )
        } else {
            false
        }
    })
}

/// Layer of [`Retry`].
#[derive(Clone, Debug)]
pub struct RetryLayer(RetryPolicy);

impl RetryLayer {
    /// Retries requests with this policy.
    pub fn new(retries: RetryPolicy) -> Self {
        Self(retries)
    }
}

impl<S> Layer<S> for RetryLayer {
    type Service = Retry<S>;

    fn layer(&self, inner: S) -> Retry<S> {
        Retry {
            inner,
            retries: self.0.clone(),
        }
    }
}

/// Retries requests; see [`RetryPolicy`]. After the last retry its result is returned.
#[derive(Clone, Debug)]
pub struct Retry<S> {
    inner: S,
    retries: RetryPolicy,
}

impl<S> Service<Request<Body>> for Retry<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = kube::Error> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = ResponseFuture<kube::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<kube::Result<()>> {
        // Each attempt makes its own clone ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (inner, retries) = (self.inner.clone(), self.retries.clone());
        Box::pin(async move {
            let mut next = request;
            let mut tried = 0;
            loop {
                let spare = if tried < retries.max_retries {
                    try_clone(&next)
                } else {
                    None
                };
                let method = next.method().clone();
                let connection_wait = retries.connection_wait(tried);
                if spare.is_some() && is_read(&method) {
                    next.extensions_mut().insert(NextRetry(connection_wait));
                }
                let answer = inner.clone().oneshot(next).await;
                let Some(spare) = spare else { return answer };
                let Some(wait) = retries.wait(&method, answer.as_ref(), tried, connection_wait) else {
                    return answer;
                };
                let retry_after = wait.as_secs_f64();
                tracing::debug!(%method, uri = %spare.uri(), retry_after, tried, "retrying request");
                let due = Instant::now() + wait;
                if let Ok(response) = answer {
                    // An unread body would close the connection.
                    let unread = Limited::new(response.into_body(), MAX_DRAINED_BYTES).collect();
                    drop(timeout_at(due, unread).await);
                }
                sleep_until(due).await;
                next = spare;
                tried += 1;
            }
        })
    }
}

/// A copy of the request, or `None` if it cannot be copied or must not be retried.
fn try_clone(request: &Request<Body>) -> Option<Request<Body>> {
    if is_stream(request) || request.uri().path().ends_with("/eviction") {
        return None;
    }
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}
