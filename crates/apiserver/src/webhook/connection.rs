//! Connections to webhooks: HTTP/1.1 over TLS, kept for the next call.
//!
//! A connection has no task: it is driven by the call that uses it, and ends with its pool.

use std::{
    collections::HashMap,
    hash::{Hash, Hasher},
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
use tokio::{net::TcpStream, time::Instant};
use tokio_rustls::TlsConnector;

use super::{Endpoint, budget::Share, first_bytes::FirstBytes, tls};

/// The largest response: twice what the largest patch of the largest object takes.
pub(super) const MAX_RESPONSE_BYTES: usize = 8 * 1024 * 1024;

/// How long an unused connection is kept, and how many are, of one webhook and of all.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_IDLE: usize = 8;
const MAX_IDLE_OF_ALL: usize = 64;

/// Connections that are not in use, by what they were opened for.
#[derive(Default)]
pub(super) struct Pool(Mutex<HashMap<PoolKey, Vec<Connection>>>);

/// Where a connection leads, and the configuration of its TLS, which each endpoint has once.
#[derive(Clone)]
struct PoolKey {
    address: Box<str>,
    server_name: Box<str>,
    config: Arc<ClientConfig>,
}

impl PoolKey {
    fn parts(&self) -> (&str, &str, *const ClientConfig) {
        (&self.address, &self.server_name, Arc::as_ptr(&self.config))
    }
}

impl PartialEq for PoolKey {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for PoolKey {}

impl Hash for PoolKey {
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
    /// Sends a request to this address (`host:port`), on a kept connection if there is one.
    pub(super) async fn send(
        &self,
        endpoint: &Endpoint,
        address: &str,
        request: Request<Bytes>,
        share: &mut Share,
    ) -> Result<Response<Bytes>, String> {
        let key = PoolKey {
            address: address.into(),
            server_name: endpoint.host.clone(),
            config: endpoint.tls_config(),
        };
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
        let mut connection = Connection::open(endpoint, address, key.config.clone()).await?;
        match connection.exchange(request, share).await {
            Ok(response) => {
                self.keep(key, connection);
                Ok(response)
            }
            Err(ExchangeError::NotSent(why) | ExchangeError::Failed(why)) => Err(why),
        }
    }

    fn take(&self, key: &PoolKey) -> Option<Connection> {
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

    fn keep(&self, key: PoolKey, mut connection: Connection) {
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
    async fn open(endpoint: &Endpoint, address: &str, config: Arc<ClientConfig>) -> Result<Self, String> {
        let stream = TcpStream::connect(address)
            .await
            .map_err(|error| format!("dial tcp {address}: {}", dial_error(&error)))?;
        let name = ServerName::try_from(endpoint.host.to_string()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(config)
            .connect(name, FirstBytes::of(stream))
            .into_fallible()
            .await
            .map_err(|(error, stream)| tls::handshake_error(&error, stream.first()))?;
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

fn dial_error(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
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
