//! A limit on requests per second: a bucket of tokens that fills at a steady rate.

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

use super::{Answer, is_stream};

/// So many requests per second on average, and so many at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    per_second: NonZeroU32,
    burst: NonZeroU32,
}

impl RateLimit {
    /// This many per second, and at most as many at once.
    pub fn per_second(requests: NonZeroU32) -> Self {
        Self {
            per_second: requests,
            burst: requests,
        }
    }

    /// This many at once after a pause. Default: those of one second.
    #[must_use]
    pub fn burst(mut self, requests: NonZeroU32) -> Self {
        self.burst = requests;
        self
    }

    /// The time in which one token comes.
    fn interval(self) -> Duration {
        Duration::from_secs(1) / self.per_second.get()
    }
}

/// Makes [`Limit`]; all services of one layer, and their clones, share the limit.
#[derive(Clone, Debug)]
pub struct LimitLayer(Arc<Bucket>);

impl LimitLayer {
    /// With a full bucket.
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

/// Lets each request wait for its token, in the order in which they came. A request that is given up while it waits
/// takes none. Watches need none.
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
    type Future = Answer<S::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // Each call makes its own clone ready, after its turn has come.
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
    /// How long before the bucket is full there is a token in it: the time in which all but one come.
    slack: Duration,
    /// When the bucket is full again if nobody takes; `None`, or passed: it is full. The lock is the queue: it is given
    /// in the order of asking, and held while the first waits.
    full_at: Mutex<Option<Instant>>,
}

impl Bucket {
    /// Returns with a token. Cancellation-safe: it is taken at the very end.
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
