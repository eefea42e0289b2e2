//! Reports failed connections, and the next success, to the log of the server.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use kube::client::Body;
use tower::{Layer, Service};
use windlass_cache::ConnectionLog;

use super::{ResponseFuture, is_stream};

/// When a request is sent again if its connection fails; an extension that [`Retry`](super::Retry) adds.
#[derive(Clone, Copy, Debug)]
pub(super) struct NextRetry(pub(super) Duration);

/// Layer of [`ReportConnection`].
#[derive(Clone, Debug)]
pub struct ReportConnectionLayer {
    log: Arc<ConnectionLog>,
    retry_after: Option<Duration>,
}

impl ReportConnectionLayer {
    /// Reports to this log.
    pub fn new(log: Arc<ConnectionLog>) -> Self {
        Self {
            log,
            retry_after: None,
        }
    }

    /// The time after which requests are sent again by their senders. Default: unknown.
    #[must_use]
    pub fn retry_after(self, delay: Duration) -> Self {
        Self {
            retry_after: Some(delay),
            ..self
        }
    }
}

impl<S> Layer<S> for ReportConnectionLayer {
    type Service = ReportConnection<S>;

    fn layer(&self, inner: S) -> ReportConnection<S> {
        ReportConnection {
            inner,
            layer: self.clone(),
        }
    }
}

/// Reports whether the server answers. Failures of watches are left to the cache, which knows when it tries again.
#[derive(Clone, Debug)]
pub struct ReportConnection<S> {
    inner: S,
    layer: ReportConnectionLayer,
}

impl<S> Service<Request<Body>> for ReportConnection<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = kube::Error>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = ResponseFuture<kube::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<kube::Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let ReportConnectionLayer { log, retry_after } = self.layer.clone();
        let is_stream = is_stream(&request);
        let retry = request.extensions().get::<NextRetry>().map(|next| next.0);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            match &answer {
                Ok(_) => log.succeeded(),
                Err(error) if !is_stream => drop(log.record(error, retry.or(retry_after))),
                Err(_) => {}
            }
            answer
        })
    }
}
