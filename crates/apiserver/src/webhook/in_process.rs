//! Webhooks that run in the process of the server.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use tokio::task::JoinSet;
use tower::{Service, ServiceExt};

type Handler = dyn Fn(Request<Bytes>) -> BoxFuture<'static, Option<Response<Bytes>>> + Send + Sync;

/// A webhook in the process: it needs no socket, no certificate and no real time, so a test with it stays deterministic on
/// a paused clock. See [`Builder::webhook`](crate::Builder::webhook).
#[derive(Clone)]
pub struct InProcessWebhook(Arc<Handler>);

impl InProcessWebhook {
    /// A webhook that a service answers. An error of the service is a connection that ends without an answer.
    pub fn new<S>(service: S) -> Self
    where
        S: Service<Request<Bytes>, Response = Response<Bytes>> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        Self(Arc::new(move |request| {
            let service = service.clone();
            async move { service.oneshot(request).await.ok() }.boxed()
        }))
    }

    /// The response to a request; `None` if the service fails or panics.
    ///
    /// It runs as a task of its own, which ends with the call: a webhook that makes a request about which it is asked itself,
    /// without end, must not use up the stack. The limit on concurrent requests ends it.
    pub(super) async fn call(&self, request: Request<Bytes>) -> Option<Response<Bytes>> {
        let handler = self.0.clone();
        let mut task = JoinSet::new();
        // The service may also panic before it returns a future.
        task.spawn(async move { handler(request).await });
        task.join_next().await?.ok().flatten()
    }
}

impl fmt::Debug for InProcessWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessWebhook").finish_non_exhaustive()
    }
}
