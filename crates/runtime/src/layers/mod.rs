//! Client layers: retries, a request rate limit, and request metrics.
//!
//! ```text
//!   reconcile ──► Client ──► Retry ──► Limit ──► Count ──► Report ──► the client given to `wrap` ──► API server
//!                              ▲                                  (has the write fence)
//!                              └── 429, 503, lost connection: retried from here
//! ```
//!
//! The order matters. Retries are outermost: each attempt waits for the rate limit, is counted, and passes the layers below
//! again, including a write fence. The limit comes before the count, so requests are counted when they are sent. The count
//! is last: it shows the load on the server, as in client-go; a request that a layer below rejects is counted as `<error>`,
//! like one that the network lost. Failed connections are reported below it, each of them.
//!
//! No layer reads a response body. Watches are neither rate-limited nor retried; the cache that owns them restarts them.

mod connection;
mod count;
mod limit;
mod retry;

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, header};
use kube::{Client, client::Body};
use tower::{Service, ServiceBuilder};
use windlass_api::request::Query;
use windlass_cache::ConnectionLog;

pub use self::{
    connection::{ReportConnection, ReportConnectionLayer},
    count::{Count, CountLayer},
    limit::{Limit, LimitLayer, RateLimit},
    retry::{Retry, RetryLayer, RetryPolicy},
};
use crate::metrics::RequestMetrics;

/// Rate limit, retries and metrics of a client; see [`wrap`].
///
/// ```
/// use std::num::NonZeroU32;
/// use windlass_runtime::{layers::{ClientOptions, RateLimit}, metrics::Metrics};
///
/// let metrics = Metrics::new();
/// let options = ClientOptions {
///     rate_limit: Some(RateLimit::per_second(NonZeroU32::new(50).unwrap())),
///     metrics: Some(metrics.requests("10.0.0.1:443")),
///     ..ClientOptions::default()
/// };
/// ```
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Rate limit of requests. Default: none, as in controller-runtime; the server has API Priority and Fairness.
    pub rate_limit: Option<RateLimit>,
    /// Retry policy. Default: [`RetryPolicy::default`]; `None` disables retries.
    pub retry_policy: Option<RetryPolicy>,
    /// Metrics that count requests. Default: none.
    pub metrics: Option<RequestMetrics>,
    /// Log of the connection to the server. Default: none; a manager sets it.
    pub connection_log: Option<Arc<ConnectionLog>>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            rate_limit: None,
            retry_policy: Some(RetryPolicy::default()),
            metrics: None,
            connection_log: None,
        }
    }
}

/// Wraps `client` with the layers of `options`.
///
/// A client made from a `kube::Config` has retries of its own, which also repeat writes after a gateway timeout and so may
/// do them twice. Set `default_retry` to `false` in the config, and use these retries instead.
pub fn wrap(client: Client, options: ClientOptions) -> Client {
    let ClientOptions {
        rate_limit,
        retry_policy,
        metrics,
        connection_log,
    } = options;
    let namespace = client.default_namespace().to_owned();
    let valid_until = *client.valid_until();
    let service = ServiceBuilder::new()
        .option_layer(retry_policy.map(RetryLayer::new))
        .option_layer(rate_limit.map(LimitLayer::new))
        .option_layer(metrics.map(CountLayer::new))
        .option_layer(connection_log.map(ReportConnectionLayer::new))
        .service(ClientService(client));
    Client::new(service, namespace).with_valid_until(valid_until)
}

/// Wraps `client` so that it only reports the state of its connection. `retry_after` is when its requests are sent again.
pub(crate) fn with_connection_log(client: Client, log: Arc<ConnectionLog>, retry_after: Duration) -> Client {
    let namespace = client.default_namespace().to_owned();
    let valid_until = *client.valid_until();
    let service = ServiceBuilder::new()
        .layer(ReportConnectionLayer::new(log).retry_after(retry_after))
        .service(ClientService(client));
    Client::new(service, namespace).with_valid_until(valid_until)
}

/// A client as the innermost service.
#[derive(Clone)]
struct ClientService(Client);

type ResponseFuture<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

impl Service<Request<Body>> for ClientService {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = ResponseFuture<kube::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.0.clone();
        Box::pin(async move { client.send(request).await })
    }
}

/// Whether the response is an endless stream: a watch, or a protocol upgrade.
fn is_stream<B>(request: &Request<B>) -> bool {
    Query::parse(request.uri().query()).flag("watch") || request.headers().contains_key(header::UPGRADE)
}
