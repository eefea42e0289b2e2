//! The server as a `tower` service, without a socket.

mod builder;
mod documents;
mod in_flight;
mod metrics;
mod resources;
mod respond;
mod routes;

use std::{
    convert::Infallible,
    panic::AssertUnwindSafe,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderName, HeaderValue, Method, Request, Response, header, request::Parts};

pub use builder::Builder;
use in_flight::InFlight;
use respond::{add_warning, error_response, text_response};
use tokio::time::Instant;
use windlass_api::request::RequestInfo;

use crate::{
    auth::{AccessControl, Authenticator, Budget, Caller, Peer, User},
    body::Body,
    gzip,
    https::{Connection, ConnectionLimitReached},
    large_work::LargeWork,
    limits::{Limits, Timeout},
    logs::Logs,
    media::Encoding,
    object_store::ObjectStore,
    request_metrics::{RequestMetrics, RequestTarget},
    status::Status,
    verbs::WriteVerbs,
    webhook::WebhookClient,
};

/// The header with a request's audit ID, set by the client or else by the server.
const AUDIT_ID_HEADER: HeaderName = HeaderName::from_static("audit-id");

/// The state that all clones of a server share.
pub(crate) struct Api {
    pub(crate) store: Arc<ObjectStore>,
    /// Decides whether a request is allowed.
    pub(crate) access: Arc<AccessControl>,
    pub(crate) writes: WriteVerbs,
    webhooks: Arc<WebhookClient>,
    limits: Limits,
    /// How much more work the limits allow now.
    in_flight: InFlight,
    metrics: Arc<RequestMetrics>,
}

/// What is known about a request so far.
#[derive(Default)]
struct Known {
    target: OnceLock<RequestTarget>,
    /// Who sent it. Unknown until it is authenticated.
    user: OnceLock<Arc<User>>,
}

/// A Kubernetes API server inside the process.
///
/// It is a [`tower::Service`]: `kube::Client::new(Server::new(), "default")` talks to it without a socket.
/// Clones share all state, which is dropped with the last of them.
#[derive(Clone)]
pub struct Server {
    api: Arc<Api>,
    authenticator: Authenticator,
    large_work: LargeWork,
    /// The connection of the requests; none in the process.
    connection: Option<Arc<Connection>>,
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
impl Api {
    pub(crate) fn metrics(&self) -> &Arc<RequestMetrics> {
        &self.metrics
    }

    pub(crate) fn webhooks(&self) -> &Arc<WebhookClient> {
        &self.webhooks
    }
}

impl Server {
    /// Creates a server with the namespaces that every cluster has.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Configures a server with other than the default options.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Configures a server for tests whose uids, generated names and keys all follow from `seed`, so that a run can be
    /// repeated.
    ///
    /// Anyone who guesses the seed can forge its tokens, so [`Server::serve`] refuses to put it on a socket.
    pub fn seeded(seed: u64) -> Builder {
        Builder::seeded(seed)
    }

    /// The logs of its pods' containers. The server runs none: the code that simulates or runs pods writes them.
    pub fn logs(&self) -> Logs {
        Logs::new(self.api.store.clone(), self.api.writes.pod_logs.clone())
    }

    /// The same server for requests of this user. They need no credentials, but with [`Builder::rbac`] the user needs
    /// the rights.
    #[must_use]
    pub fn as_user(&self, user: User) -> Self {
        Self {
            authenticator: Authenticator::Trusted(Arc::new(user)),
            ..self.clone()
        }
    }

    /// The same server with authentication: a request's user comes from its `Authorization` header. Without one it is
    /// anonymous.
    #[must_use]
    pub fn authenticated(&self) -> Self {
        self.for_peer(Peer::NoCertificate)
    }

    /// Whether its keys are predictable; see [`Server::seeded`].
    pub fn is_seeded(&self) -> bool {
        self.api.store.environment.is_seeded()
    }

    #[cfg(test)]
    pub(crate) fn api(&self) -> &Arc<Api> {
        &self.api
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.api.limits
    }

    /// The same server for one peer of a connection.
    pub(crate) fn for_peer(&self, peer: Peer) -> Self {
        Self {
            authenticator: Authenticator::Credentials(peer),
            ..self.clone()
        }
    }

    /// The same server on a socket, where large work must not delay other requests.
    pub(crate) fn on_socket(self) -> Self {
        let large_work = LargeWork::on_socket(self.large_work.most());
        Self { large_work, ..self }
    }

    /// The same server for one connection.
    pub(crate) fn on_connection(self, connection: Arc<Connection>) -> Self {
        let connection = Some(connection);
        Self { connection, ..self }
    }

    /// Answers a request.
    pub(crate) async fn handle<B>(self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let started = Instant::now();
        let (parts, body) = request.into_parts();
        let info = Arc::new(RequestInfo::of(
            &parts.method,
            parts.uri.path(),
            parts.uri.query(),
        ));
        let only_reads = matches!(&*info.access.verb, "get" | "list");
        let _in_flight = (!info.is_long_running()).then(|| self.api.metrics.in_flight(only_reads));
        let known = Known::default();
        // A panic is a bug of this server. It fails this request only.
        let work = AssertUnwindSafe(self.handle_within_timeout(&parts, &info, body, &known)).catch_unwind();
        let answer = work.await.unwrap_or_else(|_| {
            tracing::error!(method = %parts.method, path = parts.uri.path(), "request handler panicked");
            Err(Status::internal("the request could not be handled"))
        });
        let mut response = answer.unwrap_or_else(|status| {
            // A client that accepts YAML gets errors in YAML too.
            let encoding = Encoding::of_error(&parts.headers);
            error_response(&status, encoding)
        });
        let user = known.user.get();
        self.api
            .in_flight
            .hold_answer(&mut response, user.map(|user| &**user));
        self.api.metrics.observe(
            known.target.get_or_init(|| RequestTarget::of_path(&info.path)),
            metrics::verb(&parts, &info),
            info.query.text("dryRun") == Some("All"),
            response.status().as_u16(),
            started.elapsed(),
        );
        let audit_id = parts.headers.get(AUDIT_ID_HEADER).cloned();
        let audit_id = audit_id.unwrap_or_else(|| self.api.store.environment.audit_id());
        response.headers_mut().insert(AUDIT_ID_HEADER, audit_id);
        if gzip::is_accepted(&parts.headers) && !info.path.starts_with(documents::OPENAPI_V3_PREFIX) {
            let cost = response.body().cost_to_start(self.large_work.most());
            let compress = || gzip::compress(response);
            response = match user {
                Some(user) => self.work(user, cost, compress).await,
                None => compress(),
            };
        }
        if parts.method == Method::HEAD {
            *response.body_mut() = Body::whole(Bytes::new());
        }
        response
    }

    /// Answers a request within its timeout. For a watch, this covers only the start.
    async fn handle_within_timeout<B>(
        &self,
        parts: &Parts,
        info: &Arc<RequestInfo>,
        body: B,
        known: &Known,
    ) -> Result<Response<Body>, Status>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if !info.is_well_formed {
            // Go's HTTP server answers this before authentication.
            return Ok(text_response(400, "400 Bad Request"));
        }
        let limit = if info.access.verb == "watch" {
            Timeout::DEFAULT
        } else {
            Timeout::of(&info.access.verb, info.query.text("timeout"))?
        };
        let answer = self.authorize_and_route(parts, info, body, known);
        let answer = tokio::time::timeout(limit.after, answer).await;
        answer.unwrap_or_else(|_| Err(limit.status()))
    }

    /// Authenticates, impersonates, authorizes and routes a request.
    async fn authorize_and_route<B>(
        &self,
        parts: &Parts,
        info: &Arc<RequestInfo>,
        body: B,
        known: &Known,
    ) -> Result<Response<Body>, Status>
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let found = self
            .api
            .access
            .authenticate(&self.authenticator, &parts.headers)?;
        known.user.get_or_init(|| found.user.clone());
        let is_check = matches!(&*info.path, "/healthz" | "/livez" | "/readyz");
        if let Some(connection) = self.connection.as_ref().filter(|_| !is_check) {
            connection
                .admit(&found.user)
                .map_err(|ConnectionLimitReached| Status::busy())?;
        }
        let access = &info.access;
        let control = &self.api.access;
        let enter = |budget: &Budget| {
            let user = control.impersonate(found.user.clone(), access, &parts.headers, budget)?;
            control.authorize_within(&user, access, budget)?;
            let info = info.clone();
            Ok(Arc::new(Caller::new(user, info)))
        };
        let decided = {
            let budget = Budget::inline();
            let entered = enter(&budget);
            (!budget.is_exhausted()).then_some(entered)
        };
        let entered = match decided {
            Some(entered) => entered,
            None => {
                let enter = || enter(&Budget::unlimited());
                self.work(&found.user, usize::MAX, enter).await
            }
        };
        let mut answer = match entered {
            Ok(caller) => self.route(parts, info, body, &caller, &known.target).await,
            Err(status) => {
                let mut response = error_response(&status, Encoding::of_error(&parts.headers));
                let sniffing = HeaderValue::from_static("nosniff");
                response
                    .headers_mut()
                    .insert(header::X_CONTENT_TYPE_OPTIONS, sniffing);
                Ok(response)
            }
        };
        if let Some(warning) = found.warning {
            let mut response =
                answer.unwrap_or_else(|status| error_response(&status, Encoding::of_error(&parts.headers)));
            add_warning(&mut response, warning);
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
        async move { Ok(server.handle(request).await) }.boxed()
    }
}
