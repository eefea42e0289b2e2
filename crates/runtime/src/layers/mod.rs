//! What stands between a controller and the wire: retries, a limit on requests per second, and their count.
//!
//! ```text
//!   reconcile ──► Client ──► Retry ──► Limit ──► Count ──► what is given to `wrap` ──► the server
//!                              ▲                                     (a write fence goes there)
//!                              └── 429, 503, a lost connection: once more, from here
//! ```
//!
//! The order is the meaning. Retries are outermost: each attempt waits for its turn, is counted, and passes everything
//! below again, a write fence included. The limit comes before the count, so that what is counted went on its way at
//! that moment. The count is last: it shows what the server had to answer, as client-go's does; a request that something
//! below refuses is counted as `<error>`, like one that the network lost.
//!
//! Nothing here reads a response's body, and a watch passes unlimited and untried: its owner knows better when to begin
//! again.

mod count;
mod limit;
mod retry;

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::{Request, Response, header};
use kube::{Client, client::Body};
use tower::{Service, ServiceBuilder};

pub use self::{
    count::{Count, CountLayer},
    limit::{Limit, LimitLayer, RateLimit},
    retry::{Retries, Retry, RetryLayer},
};
use crate::metrics::RequestMetrics;

/// What a client does with each request; see [`wrap`].
///
/// ```
/// use std::num::NonZeroU32;
/// use windlass_runtime::{layers::{ClientOptions, RateLimit}, metrics::Metrics};
///
/// let metrics = Metrics::new();
/// let options = ClientOptions {
///     limit: Some(RateLimit::per_second(NonZeroU32::new(50).unwrap())),
///     metrics: Some(metrics.requests("10.0.0.1:443")),
///     ..ClientOptions::default()
/// };
/// ```
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// At most so many requests per second. Default: no limit, as in controller-runtime; the server has priorities and
    /// fairness of its own.
    pub limit: Option<RateLimit>,
    /// How often and for how long to try again. Default: [`Retries::default`]; `None` tries once.
    pub retries: Option<Retries>,
    /// Where requests are counted. Default: nowhere.
    pub metrics: Option<RequestMetrics>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            limit: None,
            retries: Some(Retries::default()),
            metrics: None,
        }
    }
}

/// A client that does as `options` say with each request before it passes it to `client`.
///
/// A client made from a `kube::Config` retries by itself, and writes too when a gateway timed out, which may do them
/// twice: set `default_retry` to `false` in the config, and let these retries do it.
pub fn wrap(client: Client, options: ClientOptions) -> Client {
    let ClientOptions {
        limit,
        retries,
        metrics,
    } = options;
    let namespace = client.default_namespace().to_owned();
    let valid_until = *client.valid_until();
    let service = ServiceBuilder::new()
        .option_layer(retries.map(RetryLayer::new))
        .option_layer(limit.map(LimitLayer::new))
        .option_layer(metrics.map(CountLayer::new))
        .service(Wire(client));
    Client::new(service, namespace).with_valid_until(valid_until)
}

/// A client as the innermost service.
#[derive(Clone)]
struct Wire(Client);

type Answer<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

impl Service<Request<Body>> for Wire {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Answer<kube::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.0.clone();
        Box::pin(async move { client.send(request).await })
    }
}

/// Whether the answer is a stream for as long as the client likes: a watch, or a connection that changes its protocol.
fn is_stream<B>(request: &Request<B>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let watches = form_urlencoded::parse(query.as_bytes())
        .any(|(name, value)| name == "watch" && matches!(&*value, "true" | "1"));
    watches || request.headers().contains_key(header::UPGRADE)
}
