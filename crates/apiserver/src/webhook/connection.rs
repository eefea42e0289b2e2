//! Connections to webhooks: HTTP/1.1 over TLS, kept for the next call.
//!
//! A connection has no task: it is driven by the call that uses it, and ends with its pool.

use std::{collections::HashMap, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::{Either, Fuse, FusedFuture, FutureExt, select};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{net::TcpStream, time::Instant};
use tokio_rustls::TlsConnector;

use super::{Endpoint, first_bytes::FirstBytes, tls};

/// The largest response.
pub(super) const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;

/// How long an unused connection is kept, and how many are, of one webhook and of all.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_IDLE: usize = 8;
const MAX_IDLE_OF_ALL: usize = 64;

/// Connections that are not in use, by what they were opened for.
#[derive(Default)]
pub(super) struct Pool(Mutex<HashMap<PoolKey, Vec<Connection>>>);

/// Where a connection leads and whom it trusts.
#[derive(Clone, PartialEq, Eq, Hash)]
struct PoolKey {
    address: Box<str>,
    server_name: Box<str>,
    ca_bundle: Box<[u8]>,
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: Fuse<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
    unused_since: Instant,
}

/// Why there is no response.
enum ExchangeError {
    /// The connection failed before a response began; on a reused connection, the webhook had closed it.
    Closed(String),
    Failed(String),
}

impl Pool {
    /// Sends a request to this address (`host:port`), on a kept connection if there is one.
    pub(super) async fn send(
        &self,
        endpoint: &Endpoint,
        address: &str,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, String> {
        let key = PoolKey {
            address: address.into(),
            server_name: endpoint.host.clone(),
            ca_bundle: endpoint.ca_bundle.clone(),
        };
        while let Some(mut connection) = self.take(&key) {
            match connection.exchange(request.clone()).await {
                Ok(response) => {
                    self.keep(key, connection);
                    return Ok(response);
                }
                // The webhook has closed it meanwhile.
                Err(ExchangeError::Closed(_)) => {}
                Err(ExchangeError::Failed(why)) => return Err(why),
            }
        }
        let config = tls::client_config(&endpoint.ca_bundle);
        let mut connection = Connection::open(endpoint, address, config).await?;
        match connection.exchange(request).await {
            Ok(response) => {
                self.keep(key, connection);
                Ok(response)
            }
            Err(ExchangeError::Closed(why) | ExchangeError::Failed(why)) => Err(why),
        }
    }

    fn take(&self, key: &PoolKey) -> Option<Connection> {
        let mut idle = self.0.lock();
        let connections = idle.get_mut(key)?;
        while let Some(connection) = connections.pop() {
            if connection.unused_since.elapsed() < IDLE_TIMEOUT && !connection.sender.is_closed() {
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
        if idle.values().map(Vec::len).sum::<usize>() >= MAX_IDLE_OF_ALL {
            idle.clear();
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

    async fn exchange(&mut self, request: Request<Bytes>) -> Result<Response<Bytes>, ExchangeError> {
        let exchange = async {
            let closed = |error: &hyper::Error| ExchangeError::Closed(connection_error(error));
            self.sender.ready().await.map_err(|error| closed(&error))?;
            let request = request.map(Full::new);
            let response = self.sender.send_request(request).await;
            let (parts, body) = response.map_err(|error| closed(&error))?.into_parts();
            let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
            let body = body.map_err(|error| ExchangeError::Failed(error.to_string()))?;
            Ok(Response::from_parts(parts, body.to_bytes()))
        };
        futures::pin_mut!(exchange);
        match select(exchange, &mut self.driver).await {
            Either::Left((result, _)) => result,
            // The connection has ended, and with it the exchange.
            Either::Right((_, exchange)) => exchange.await,
        }
    }
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
