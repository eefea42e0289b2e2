//! Tries again what the server refused for now.

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

use super::{Answer, is_stream};

/// How much of an answer that nobody wants is read, so that its connection can be used again.
const MOST_UNREAD: usize = 64 * 1024;

/// How often to try again, and how long to wait for it.
///
/// What is tried again, and after how long:
///
/// | request | answer | wait |
/// |---|---|---|
/// | any | 429 or 503 with `Retry-After` | what the server says |
/// | one that only reads | another 5xx with `Retry-After` | what the server says |
/// | one that only reads | the connection failed or broke | backoff |
///
/// A write is tried again only when the server says that it did not act. Not tried again: watches, requests whose body is
/// a stream, evictions (their 429 is mostly a disruption budget's answer, and may stay so for hours), and what would have to
/// wait longer than [`longest_wait`](Self::longest_wait).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retries {
    /// Attempts after the first. Default: 10, as in client-go.
    pub most: u32,
    /// A server that asks for more patience is not waited for: its answer goes to the caller, whose worker has better
    /// things to do. Default: 30 s.
    pub longest_wait: Duration,
    /// The wait after a connection failed, at first; it doubles each time up to 16 times this, and a part of it is
    /// random. Default: 50 ms.
    pub backoff: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            most: 10,
            longest_wait: Duration::from_secs(30),
            backoff: Duration::from_millis(50),
        }
    }
}

impl Retries {
    /// At most this many attempts after the first.
    pub fn at_most(most: u32) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    /// How long to wait before another attempt, if one can help. Pure but for the random part of the backoff.
    fn wait(
        &self,
        method: &Method,
        answer: Result<&Response<Body>, &kube::Error>,
        tried: u32,
    ) -> Option<Duration> {
        if tried >= self.most {
            return None;
        }
        let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        let wait = match answer {
            Ok(response) => {
                let refused = match response.status() {
                    StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => true,
                    status => reads && status.is_server_error(),
                };
                retry_after(response).filter(|_| refused)?
            }
            Err(error) => {
                if !reads || !is_lost_connection(error) {
                    return None;
                }
                let longest = self.backoff * (1 << tried.min(4));
                longest.mul_f64(0.5 + fastrand::f64() / 2.0)
            }
        };
        (wait <= self.longest_wait).then_some(wait)
    }
}

/// The seconds that the server asks for. Kubernetes never sends a date.
fn retry_after(response: &Response<Body>) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// Whether the request failed because of the connection, and not because somebody refused to send it.
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

/// Makes [`Retry`].
#[derive(Clone, Debug)]
pub struct RetryLayer(Retries);

impl RetryLayer {
    /// Tries again as these say.
    pub fn new(retries: Retries) -> Self {
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

/// Tries requests again; see [`Retries`] for which. When it gives up, the last answer is the answer.
#[derive(Clone, Debug)]
pub struct Retry<S> {
    inner: S,
    retries: Retries,
}

impl<S> Service<Request<Body>> for Retry<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = kube::Error> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Answer<kube::Error>;

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
                let spare = if tried < retries.most { copy(&next) } else { None };
                let method = next.method().clone();
                let answer = inner.clone().oneshot(next).await;
                let Some(spare) = spare else { return answer };
                let Some(wait) = retries.wait(&method, answer.as_ref(), tried) else {
                    return answer;
                };
                tracing::debug!(%method, uri = %spare.uri(), ?wait, tried, "the request is tried again");
                let due = Instant::now() + wait;
                if let Ok(response) = answer {
                    // Not reading it would cost the connection.
                    let unread = Limited::new(response.into_body(), MOST_UNREAD).collect();
                    drop(timeout_at(due, unread).await);
                }
                sleep_until(due).await;
                next = spare;
                tried += 1;
            }
        })
    }
}

/// The same request again, unless it can be sent only once or is not to be tried twice.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
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
