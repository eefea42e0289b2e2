//! Counts requests by how they were answered.

use std::task::{Context, Poll};

use http::{Request, Response};
use kube::client::Body;
use tower::{Layer, Service};

use super::Answer;
use crate::metrics::RequestMetrics;

/// Makes [`Count`].
#[derive(Clone, Debug)]
pub struct CountLayer(RequestMetrics);

impl CountLayer {
    /// Counts into these.
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

/// Counts each request when its answer begins, or when it fails. One that is given up before counts for nothing: how it
/// would have been answered is not known.
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
    type Future = Answer<S::Error>;

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
