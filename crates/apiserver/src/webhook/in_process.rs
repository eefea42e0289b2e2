//! Webhooks that run in the process of the server.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use tokio::task::JoinSet;
use tower::{Service, ServiceExt};

/// How many calls a webhook may have open. One that makes a request about which it is asked itself, without end, has no other
/// limit: such a request may be an administrator's, and no time passes on a paused clock.
const MAX_CALLS: usize = 2_000;

type Handler = dyn Fn(Request<Bytes>) -> BoxFuture<'static, Option<Response<Bytes>>> + Send + Sync;

/// A webhook in the process: it needs no socket, no certificate and no real time, so a test with it stays deterministic on
/// a paused clock. See [`Builder::webhook`](crate::Builder::webhook).
#[derive(Clone)]
pub struct InProcessWebhook {
    handler: Arc<Handler>,
    open_calls: Arc<AtomicUsize>,
}

/// Counts a call until it is dropped.
struct OpenCall(Arc<AtomicUsize>);

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl InProcessWebhook {
    /// A webhook that a service answers. An error of the service is a connection that ends without an answer.
    pub fn new<S>(service: S) -> Self
    where
        S: Service<Request<Bytes>, Response = Response<Bytes>> + Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        let handler = move |request| {
            let service = service.clone();
            async move { service.oneshot(request).await.ok() }.boxed()
        };
        Self {
            handler: Arc::new(handler),
            open_calls: Arc::default(),
        }
    }

    /// The response to a request, or why there is none: the service fails, panics, or has too many calls.
    ///
    /// It runs as a task of its own, which ends with the call: a webhook that makes a request about which it is asked itself,
    /// without end, must not use up the stack.
    pub(super) async fn call(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        let open = self.open_calls.fetch_add(1, Ordering::Relaxed);
        let _open = OpenCall(self.open_calls.clone());
        if open >= MAX_CALLS {
            return Err(format!(
                "the webhook has {MAX_CALLS} open calls: does it make the requests about which it is asked?"
            ));
        }
        let handler = self.handler.clone();
        let mut task = JoinSet::new();
        // The service may also panic before it returns a future.
        task.spawn(async move { handler(request).await });
        let response = task.join_next().await.and_then(|ended| ended.ok().flatten());
        response.ok_or_else(|| "EOF".to_owned())
    }
}

impl fmt::Debug for InProcessWebhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessWebhook").finish_non_exhaustive()
    }
}
