//! Connections to webhooks: HTTP/1.1 over TLS (without it only after a redirect), kept for the next call.
//!
//! A connection has no task: it is driven by the call that uses it, and ends with its pool.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures::future::{Either, Fuse, FusedFuture, FutureExt, select};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::Instant,
};
use tokio_rustls::TlsConnector;

use super::{budget::Share, first_bytes::FirstBytes, tls};

/// The largest response: twice what the largest patch of the largest object takes.
pub(super) const MAX_RESPONSE_BYTES: usize = 8 * 1024 * 1024;

/// How long an unused connection is kept, and how many are, of one webhook and of all.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_IDLE: usize = 8;
const MAX_IDLE_OF_ALL: usize = 64;

/// Connections that are not in use, by what they were opened for.
#[derive(Default)]
pub(super) struct Pool(Mutex<HashMap<Route, Vec<Connection>>>);

/// Where a connection leads.
#[derive(Clone)]
pub(super) struct Route {
    /// A host, which may be a name, and a port.
    pub(super) address: (String, u16),
    /// The name that the certificate must have, and the configuration of TLS, which each endpoint has once. `None` for a
    /// connection without TLS.
    pub(super) tls: Option<(Box<str>, Arc<ClientConfig>)>,
}

impl Route {
    fn parts(&self) -> (&(String, u16), Option<(&str, *const ClientConfig)>) {
        let tls = self.tls.as_ref();
        (
            &self.address,
            tls.map(|(name, config)| (&**name, Arc::as_ptr(config))),
        )
    }
}

impl PartialEq for Route {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Route {}

impl Hash for Route {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Fuse<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
    unused_since: Instant,
}

/// Why there is no response.
enum ExchangeError {
    /// Nothing was sent: the webhook had closed the connection.
    NotSent(String),
    Failed(String),
}

impl Pool {
    /// Sends a request, on a kept connection if there is one.
    pub(super) async fn send(
        &self,
        key: Route,
        request: Request<Bytes>,
        share: &mut Share,
    ) -> Result<Response<Bytes>, String> {
        while let Some(mut connection) = self.take(&key) {
            match connection.exchange(request.clone(), share).await {
                Ok(response) => {
                    self.keep(key, connection);
                    return Ok(response);
                }
                Err(ExchangeError::NotSent(_)) => {}
                // The webhook may have acted upon it: it is not asked again.
                Err(ExchangeError::Failed(why)) => return Err(why),
            }
        }
        let mut connection = Connection::open(&key).await?;
        match connection.exchange(request, share).await {
            Ok(response) => {
                self.keep(key, connection);
                Ok(response)
            }
            Err(ExchangeError::NotSent(why) | ExchangeError::Failed(why)) => Err(why),
        }
    }

    fn take(&self, key: &Route) -> Option<Connection> {
        let mut idle = self.0.lock();
        let connections = idle.get_mut(key)?;
        while let Some(mut connection) = connections.pop() {
            if connection.unused_since.elapsed() < IDLE_TIMEOUT && connection.is_open() {
                return Some(connection);
            }
        }
        idle.remove(key);
        None
    }

    fn keep(&self, key: Route, mut connection: Connection) {
        if connection.driver.is_terminated() {
            return;
        }
        connection.unused_since = Instant::now();
        let mut idle = self.0.lock();
        // Those of webhooks that are gone are taken by no call.
        idle.retain(|_, connections| {
            connections.retain(|connection| connection.unused_since.elapsed() < IDLE_TIMEOUT);
            !connections.is_empty()
        });
        if idle.values().map(Vec::len).sum::<usize>() >= MAX_IDLE_OF_ALL {
            // The first of each is its oldest.
            let oldest = idle.iter().filter_map(|(key, connections)| {
                let first = connections.first()?;
                Some((first.unused_since, key.clone()))
            });
            let oldest = oldest.min_by_key(|(since, _)| *since);
            if let Some((_, key)) = oldest
                && let Some(connections) = idle.get_mut(&key)
            {
                connections.remove(0);
                if connections.is_empty() {
                    idle.remove(&key);
                }
            }
        }
        let connections = idle.entry(key).or_default();
        if connections.len() < MAX_IDLE {
            connections.push(connection);
        }
    }
}

impl Connection {
    async fn open(route: &Route) -> Result<Self, String> {
        let stream = connect(&route.address).await?;
        let Some((name, config)) = &route.tls else {
            return Self::over(stream).await;
        };
        let name = ServerName::try_from(name.to_string()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(config.clone())
            .connect(name, FirstBytes::of(stream))
            .into_fallible()
            .await
            .map_err(|(error, stream)| tls::handshake_error(&error, stream.first()))?;
        Self::over(stream).await
    }

    async fn over(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Self, String> {
        let (sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        let driver: Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>> = Box::pin(driver);
        Ok(Self {
            sender,
            driver: driver.fuse(),
            unused_since: Instant::now(),
        })
    }

    /// Whether the webhook has not closed the connection, as far as is known.
    fn is_open(&mut self) -> bool {
        // Driving it reads the end of the connection, if there is one.
        let has_ended = (&mut self.driver).now_or_never().is_some();
        !has_ended && !self.sender.is_closed()
    }

    async fn exchange(
        &mut self,
        request: Request<Bytes>,
        share: &mut Share,
    ) -> Result<Response<Bytes>, ExchangeError> {
        let exchange = async {
            let failed = |error: hyper::Error| {
                let why = connection_error(&error);
                if error.is_canceled() {
                    ExchangeError::NotSent(why)
                } else {
                    ExchangeError::Failed(why)
                }
            };
            let ready = self.sender.ready().await;
            ready.map_err(|error| ExchangeError::NotSent(connection_error(&error)))?;
            let response = self.sender.send_request(request.map(Full::new)).await;
            let (parts, body) = response.map_err(failed)?.into_parts();
            let body = receive(body, share).await.map_err(ExchangeError::Failed)?;
            Ok(Response::from_parts(parts, body))
        };
        futures::pin_mut!(exchange);
        match select(exchange, &mut self.driver).await {
            Either::Left((result, _)) => result,
            // The connection has ended, and with it the exchange.
            Either::Right((_, exchange)) => exchange.await,
        }
    }
}

/// Reads a body within its limit, and within what is left for all responses.
async fn receive(mut body: Incoming, share: &mut Share) -> Result<Bytes, String> {
    let mut received = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() else {
            continue;
        };
        if received.len() + data.len() > MAX_RESPONSE_BYTES {
            return Err("length limit exceeded".to_owned());
        }
        if !share.grow(data.len()) {
            return Err("no room for the response".to_owned());
        }
        received.extend_from_slice(&data);
    }
    Ok(received.freeze())
}

/// Connects to the first address of a host that accepts.
async fn connect((host, port): &(String, u16)) -> Result<TcpStream, String> {
    let mut first_error = None;
    for address in addresses(host, *port).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                first_error.get_or_insert_with(|| format!("dial tcp {address}: {}", dial_error(&error)));
            }
        }
    }
    Err(first_error.unwrap_or_else(|| unknown_host(host)))
}

async fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    // The system's resolver also reads `127.1` as an address.
    let last = host.rsplit('.').find(|label| !label.is_empty());
    let is_number = last.is_none_or(|label| label.starts_with(|first: char| first.is_ascii_digit()));
    if is_number {
        return Err(unknown_host(host));
    }
    let found = tokio::net::lookup_host((host, port)).await;
    found.map(Iterator::collect).map_err(|_| unknown_host(host))
}

fn unknown_host(host: &str) -> String {
    format!("dial tcp: lookup {host}: no such host")
}

/// `host:port`, with brackets around an IPv6 address.
pub(super) fn joined(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

fn dial_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        io::ErrorKind::TimedOut => "connect: connection timed out".to_owned(),
        _ => error.to_string(),
    }
}

fn connection_error(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        "EOF".to_owned()
    } else {
        error.to_string()
    }
}
