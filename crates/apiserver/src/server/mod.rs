//! The server as a `tower` service: requests in, answers out, no socket needed.

mod builder;
mod documents;
mod resources;
mod respond;
mod routes;
mod work;

use std::{
    convert::Infallible,
    panic::AssertUnwindSafe,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderName, HeaderValue, Method, Request, Response, header, request::Parts};

pub use builder::Builder;
use respond::{refusal, text_response, warn};
use windlass_rights::RequestInfo;
pub(crate) use work::Load;
use work::Workshop;

use crate::{
    auth::{Caller, Door, Peer, User},
    body::Body,
    gzip,
    https::{Full, Seat},
    limits::{self, Limits},
    logs::Logs,
    media::Encoding,
    status::Status,
    verbs::Api,
};

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
    door: Door,
    /// Where large work is done; in the process, where its caller is.
    workshop: Option<Workshop>,
    /// The connection that requests come from.
    seat: Option<Arc<Seat>>,
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

    /// A server for tests whose uids, generated names and keys all follow from `seed`, so that a run can be repeated.
    ///
    /// Its tokens can be forged by everybody who guesses the seed, so [`Server::serve`] refuses to put it on a socket.
    pub fn seeded(seed: u64) -> Builder {
        Builder::seeded(seed)
    }

    /// What the containers of its pods print: nobody runs them here, so that whoever does must say.
    pub fn logs(&self) -> Logs {
        Logs::new(self.api.clone())
    }

    /// The same server, asked by this user: no proof is needed, but with [`Builder::rbac`] the rights are.
    #[must_use]
    pub fn as_user(&self, user: User) -> Self {
        Self {
            door: Door::Trusted(Arc::new(user)),
            ..self.clone()
        }
    }

    /// The same server as strangers find it: a request is made by whom its `Authorization` header proves, or by nobody in
    /// particular.
    #[must_use]
    pub fn guarded(&self) -> Self {
        self.behind(Peer::Unknown)
    }

    /// Whether its keys follow from a seed; see [`Server::seeded`].
    pub fn is_seeded(&self) -> bool {
        self.api.world.is_seeded()
    }

    #[cfg(test)]
    pub(crate) fn api(&self) -> &Shared {
        &self.api
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.api.limits
    }

    /// The same server for the client at the other end of a connection.
    pub(crate) fn behind(&self, peer: Peer) -> Self {
        Self {
            door: Door::Guarded(peer),
            ..self.clone()
        }
    }

    /// The same server on a socket, where large work must not hold others up.
    pub(crate) fn on_socket(self) -> Self {
        let workshop = Workshop::new();
        Self { workshop, ..self }
    }

    /// The same server for one connection.
    pub(crate) fn on_connection(self, seat: Arc<Seat>) -> Self {
        let seat = Some(seat);
        Self { seat, ..self }
    }

    async fn answer<B>(self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let info = RequestInfo::of(&parts.method, parts.uri.path(), parts.uri.query());
        // A panic is a bug of this server; it costs its client one answer, and nobody else anything.
        let work = AssertUnwindSafe(self.in_time(&parts, &info, body)).catch_unwind();
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
        if gzip::is_taken(&parts.headers) && !info.path.starts_with(documents::OPENAPI) {
            response = gzip::packed(response);
        }
        if parts.method == Method::HEAD {
            *response.body_mut() = Body::whole(Bytes::new());
        }
        response
    }

    /// Ends what takes too long. A watch is answered at once, and has a length of its own.
    async fn in_time<B>(&self, parts: &Parts, info: &RequestInfo, body: B) -> Result<Response<Body>, Status>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if !info.is_well_formed {
            // Go's HTTP server does not even look who asks.
            return Ok(text_response(400, "400 Bad Request"));
        }
        let limit = if info.access.verb == "watch" {
            limits::timeout(None)?
        } else {
            limits::timeout(info.query.text("timeout"))?
        };
        let answer = tokio::time::timeout(limit, self.enter(parts, info, body)).await;
        answer.unwrap_or_else(|_| Err(Status::timeout()))
    }

    /// Lets in whoever may do what is asked for.
    async fn enter<B>(&self, parts: &Parts, info: &RequestInfo, body: B) -> Result<Response<Body>, Status>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let found = self.api.authenticate(&self.door, &parts.headers)?;
        let is_check = matches!(&*info.path, "/healthz" | "/livez" | "/readyz");
        if let Some(seat) = self.seat.as_ref().filter(|_| !is_check) {
            seat.admit(&found.user).map_err(|Full| Status::busy())?;
        }
        let access = &info.access;
        let entered = self
            .api
            .impersonated(found.user, access, &parts.headers)
            .and_then(|user| {
                self.api.authorise(&user, access)?;
                let access = access.clone();
                Ok(Arc::new(Caller { user, access }))
            });
        let mut answer = match entered {
            Ok(caller) => self.route(parts, info, body, &caller).await,
            Err(status) => {
                let mut response = refusal(&status, Encoding::of_refusal(&parts.headers));
                let sniffing = HeaderValue::from_static("nosniff");
                response
                    .headers_mut()
                    .insert(header::X_CONTENT_TYPE_OPTIONS, sniffing);
                Ok(response)
            }
        };
        if let Some(warning) = found.warning {
            let mut response =
                answer.unwrap_or_else(|status| refusal(&status, Encoding::of_refusal(&parts.headers)));
            warn(&mut response, warning);
            answer = Ok(response);
        }
        answer
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
