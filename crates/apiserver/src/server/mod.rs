//! The server as a `tower` service: requests in, answers out, no socket needed.

mod builder;
mod documents;
mod respond;
mod routes;

use std::{
    convert::Infallible,
    panic::AssertUnwindSafe,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderName, HeaderValue, Method, Request, Response, request::Parts};

pub use builder::Builder;
use respond::refusal;

use crate::{body::Body, gzip, limits, media::Encoding, request::Query, status::Status, verbs::Api};

/// What a request and its answer are called in logs, by the client or else by the server.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The state that all clones of a server, and all its open watches, share.
pub(crate) type Shared = Arc<Api>;

/// A Kubernetes API server inside the process.
///
/// It is a [`tower::Service`]: `kube::Client::new(Server::new(), "default")` talks to it without a socket.
/// Clones share everything; the state is gone with the last of them.
#[derive(Clone)]
pub struct Server {
    api: Shared,
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// An empty server, with the namespaces that every cluster has.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A server with other than the default parts.
    pub fn builder() -> Builder {
        Builder::default()
    }

    async fn answer<B>(self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        // A panic is a bug of this server; it costs its client one answer, and nobody else anything.
        let work = AssertUnwindSafe(self.in_time(&parts, body)).catch_unwind();
        let answer = work.await.unwrap_or_else(|_| {
            tracing::error!(method = %parts.method, path = parts.uri.path(), "a request panicked");
            Err(Status::internal("the request could not be handled"))
        });
        let mut response = answer.unwrap_or_else(|status| {
            // A client that reads YAML gets its refusals in YAML too.
            let encoding = Encoding::of_refusal(&parts.headers);
            refusal(&status, encoding)
        });
        let audit_id = parts.headers.get(AUDIT_ID).cloned();
        let audit_id = audit_id.or_else(|| HeaderValue::from_str(&self.api.world.audit_id()).ok());
        if let Some(audit_id) = audit_id {
            response.headers_mut().insert(AUDIT_ID, audit_id);
        }
        if gzip::is_taken(&parts.headers) && !parts.uri.path().starts_with(documents::OPENAPI) {
            response = gzip::packed(response);
        }
        if parts.method == Method::HEAD {
            *response.body_mut() = Body::whole(Bytes::new());
        }
        response
    }

    /// Ends what takes too long. A watch is answered at once, and has a length of its own.
    async fn in_time<B>(&self, parts: &Parts, body: B) -> Result<Response<Body>, Status>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let query = Query::parse(parts.uri.query());
        let limit = if query.flag("watch") {
            limits::timeout(None)?
        } else {
            limits::timeout(query.text("timeout"))?
        };
        let answer = tokio::time::timeout(limit, self.route(parts, body)).await;
        answer.unwrap_or_else(|_| Err(Status::timeout()))
    }
}

impl<B> tower::Service<Request<B>> for Server
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        async move { Ok(server.answer(request).await) }.boxed()
    }
}
