//! Counts requests by method and response code.

use std::task::{Context, Poll};

use http::{Request, Response};
use kube::client::Body;
use tower::{Layer, Service};

use super::ResponseFuture;
use crate::metrics::RequestMetrics;

/// Layer of [`Count`].
#[derive(Clone, Debug)]
pub struct CountLayer(RequestMetrics);

impl CountLayer {
    /// Counts requests in these metrics.
    pub fn new(metrics: RequestMetrics) -> Self {
        Self(metrics)
    }
}

impl<S> Layer<S> for CountLayer {
    type Service = Count<S>;

    fn layer(&self, inner: S) -> Count<S> {
        Count {
            inner,
            metrics: self.0.clone(),
        }
    }
}

/// Counts each request when its response begins, or when it fails. A request that is cancelled before is not counted,
/// because its result is unknown.
#[derive(Clone, Debug)]
pub struct Count<S> {
    inner: S,
    metrics: RequestMetrics,
}

impl<S> Service<Request<Body>> for Count<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let metrics = self.metrics.clone();
        let method = request.method().clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            metrics.count(&method, answer.as_ref().ok().map(Response::status));
            answer
        })
    }
}
