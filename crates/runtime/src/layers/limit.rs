//! Request rate limit: a token bucket.

use std::{
    num::NonZeroU32,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use kube::client::Body;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until},
};
use tower::{Layer, Service, ServiceExt as _};

use super::{ResponseFuture, is_stream};

/// Average requests per second, and the burst after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    per_second: NonZeroU32,
    burst: NonZeroU32,
}

impl RateLimit {
    /// This many requests per second, with a burst of the same size.
    pub fn per_second(requests: NonZeroU32) -> Self {
        Self {
            per_second: requests,
            burst: requests,
        }
    }

    /// Burst of requests after a pause. Default: the requests of one second.
    #[must_use]
    pub fn burst(mut self, requests: NonZeroU32) -> Self {
        self.burst = requests;
        self
    }

    /// The time between two tokens.
    fn interval(self) -> Duration {
        Duration::from_secs(1) / self.per_second.get()
    }
}

/// Layer of [`Limit`]. All services of one layer, and their clones, share the limit.
#[derive(Clone, Debug)]
pub struct LimitLayer(Arc<Bucket>);

impl LimitLayer {
    /// Starts with a full bucket.
    pub fn new(limit: RateLimit) -> Self {
        Self(Arc::new(Bucket {
            interval: limit.interval(),
            slack: limit.interval() * (limit.burst.get() - 1),
            full_at: Mutex::new(None),
        }))
    }
}

impl<S> Layer<S> for LimitLayer {
    type Service = Limit<S>;

    fn layer(&self, inner: S) -> Limit<S> {
        Limit {
            inner,
            bucket: Arc::clone(&self.0),
        }
    }
}

/// Delays each request until it gets a token, in order of arrival. A request that is cancelled while it waits takes none.
/// Watches need none.
#[derive(Clone, Debug)]
pub struct Limit<S> {
    inner: S,
    bucket: Arc<Bucket>,
}

impl<S> Service<Request<Body>> for Limit<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // Each call makes its own clone ready, after it has got its token.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (inner, bucket) = (self.inner.clone(), Arc::clone(&self.bucket));
        Box::pin(async move {
            if !is_stream(&request) {
                bucket.take().await;
            }
            inner.oneshot(request).await
        })
    }
}

#[derive(Debug)]
struct Bucket {
    interval: Duration,
    /// The bucket has a token from this long before it is full: the time in which all but one arrive.
    slack: Duration,
    /// When the bucket will be full; `None` or in the past: it is full. The lock is the queue: it is fair, and held while
    /// the first request waits.
    full_at: Mutex<Option<Instant>>,
}

impl Bucket {
    /// Waits for a token. Cancellation-safe: the token is taken at the very end.
    async fn take(&self) {
        let mut full_at = self.full_at.lock().await;
        if let Some(full) = *full_at
            && full > Instant::now() + self.slack
        {
            sleep_until(full - self.slack).await;
        }
        let now = Instant::now();
        let full = full_at.map_or(now, |full| full.max(now));
        *full_at = Some(full + self.interval);
    }
}
