//! Webhooks that run in the process of the server.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response};
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
    pub(super) async fn call(&self, request: Request<Bytes>) -> Option<Response<Bytes>> {
        // The service may also panic before it returns a future.
        let call = async { (self.0)(request).await };
        std::panic::AssertUnwindSafe(call)
            .catch_unwind()
            .await
            .unwrap_or_default()
    }
}

impl fmt::Debug for InProcessWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessWebhook").finish_non_exhaustive()
    }
}
