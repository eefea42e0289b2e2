//! The HTTP listener and its connections.

use std::{
    collections::VecDeque, convert::Infallible, future::Future, io, net::SocketAddr, sync::Arc,
    time::Duration,
};

use http::{Request, StatusCode};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    net::TcpListener,
    task::{AbortHandle, JoinSet},
};

use super::{Endpoints, host, response};

/// Timeout for the headers of a request, and for idle connections. The value is controller-runtime's.
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);

/// How long running requests may take to finish after the stop.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum number of connections; a further one closes the oldest. The kubelet, a scraper and a few users need a handful. A
/// client that holds connections open must not block the kubelet's probes.
const MAX_CONNECTIONS: usize = 128;

/// The response to a request with a foreign `Host` header.
const FOREIGN_HOST_MESSAGE: &str =
    "this loopback listener accepts only the host `localhost` or a loopback address\n";

/// A bound address, from [`Listener::bind`]. Connections wait until [`serve`](Self::serve) runs.
#[derive(Debug)]
pub struct Listener(TcpListener);

/// Why an address cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {}; choose another address with `{option}`", reason(.cause))]
pub struct BindError {
    address: String,
    option: &'static str,
    #[source]
    cause: io::Error,
}

fn reason(cause: &io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::AddrInUse => "the port is in use".to_owned(),
        io::ErrorKind::PermissionDenied => "the port needs privileges".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address".to_owned(),
        _ => cause.to_string(),
    }
}

impl Listener {
    /// Binds an address, such as `0.0.0.0:8080` or `localhost:0` (any free port). `option` is the flag or option that set it,
    /// for the error message.
    pub async fn bind(address: &str, option: &'static str) -> Result<Self, BindError> {
        let bound = TcpListener::bind(address).await;
        bound.map(Self).map_err(|cause| BindError {
            address: address.to_owned(),
            option,
            cause,
        })
    }

    /// The bound address with its port.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Whether only processes on this machine (or in this pod) can reach it.
    pub fn is_loopback(&self) -> bool {
        self.0
            .local_addr()
            .is_ok_and(|address| host::is_loopback(address.ip()))
    }

    /// Serves until `stop` completes; running requests then have half a second to finish. Dropping the future closes all
    /// connections at once.
    pub async fn serve(self, endpoints: Endpoints, stop: impl Future<Output = ()>) {
        let (endpoints, loopback) = (Arc::new(endpoints), self.is_loopback());
        let graceful = GracefulShutdown::new();
        let (mut connections, mut by_age) = (JoinSet::new(), VecDeque::new());
        let mut stop = std::pin::pin!(stop);
        loop {
            let stream = tokio::select! {
                () = &mut stop => break,
                Some(_) = connections.join_next() => continue,
                accepted = self.0.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    // The client has gone, or there is no file descriptor left at the moment: keep serving.
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept connection");
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        continue;
                    }
                },
            };
            by_age.retain(|connection: &AbortHandle| !connection.is_finished());
            if by_age.len() >= MAX_CONNECTIONS
                && let Some(oldest) = by_age.pop_front()
            {
                oldest.abort();
            }
            let (endpoints, watcher) = (Arc::clone(&endpoints), graceful.watcher());
            by_age.push_back(connections.spawn(async move {
                let service = service_fn(move |request: Request<Incoming>| {
                    let endpoints = Arc::clone(&endpoints);
                    async move {
                        if loopback && !host::is_local(request.headers()) {
                            return Ok::<_, Infallible>(response::text(
                                StatusCode::FORBIDDEN,
                                FOREIGN_HOST_MESSAGE,
                            ));
                        }
                        Ok(endpoints.respond(&request).await)
                    }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADER_TIMEOUT)
                    .serve_connection(TokioIo::new(stream), service);
                // Connection errors concern only the client.
                let _ = watcher.watch(connection).await;
            }));
        }
        // No new connections during the shutdown.
        drop(self.0);
        tokio::time::timeout(SHUTDOWN_TIMEOUT, graceful.shutdown())
            .await
            .ok();
        connections.shutdown().await;
    }
}
