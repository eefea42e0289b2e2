//! The socket and its connections.

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

use super::{Endpoints, answer, host};

/// How long a client may take for a request's head, and may idle between two: controller-runtime's number.
const HEAD_TIMEOUT: Duration = Duration::from_secs(32);

/// How long open requests may go on after the stop.
const GRACE: Duration = Duration::from_millis(500);

/// So many connections at once; for the next one the oldest is closed. Kubelet, a scraper and a few people need a handful, each
/// for a moment: a client that keeps connections open for their own sake must not keep kubelet from its probes.
const MOST_CONNECTIONS: usize = 128;

/// The answer to a request that was meant for another host.
const FOREIGN_HOST: &str =
    "this is served on loopback, and only for the host `localhost` or a loopback address\n";

/// An address that is ours, from [`Listener::bind`]. Clients that come wait until [`serve`](Self::serve) runs.
#[derive(Debug)]
pub struct Listener(TcpListener);

/// Why an address cannot be served.
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
    /// Takes the address, such as `0.0.0.0:8080` or `localhost:0` (any free port). `option` is what the user sets it with,
    /// for the error.
    pub async fn bind(address: &str, option: &'static str) -> Result<Self, BindError> {
        let bound = TcpListener::bind(address).await;
        bound.map(Self).map_err(|cause| BindError {
            address: address.to_owned(),
            option,
            cause,
        })
    }

    /// The address, with the port that was chosen.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Whether only processes on this machine (in this pod) can reach it.
    pub fn is_loopback(&self) -> bool {
        self.0
            .local_addr()
            .is_ok_and(|address| host::is_loopback(address.ip()))
    }

    /// Serves until `stop` is done; requests that run then have half a second to finish. Dropping it ends all
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
                    // A client that is gone already, or no file descriptor left for now: not the end of the server.
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        continue;
                    }
                },
            };
            by_age.retain(|connection: &AbortHandle| !connection.is_finished());
            if by_age.len() >= MOST_CONNECTIONS
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
                            return Ok::<_, Infallible>(answer::text(StatusCode::FORBIDDEN, FOREIGN_HOST));
                        }
                        Ok(endpoints.answer(&request).await)
                    }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIMEOUT)
                    .serve_connection(TokioIo::new(stream), service);
                // What goes wrong on a connection is its client's to see.
                let _ = watcher.watch(connection).await;
            }));
        }
        // Nobody new is let in while the last ones leave.
        drop(self.0);
        tokio::time::timeout(GRACE, graceful.shutdown()).await.ok();
        connections.shutdown().await;
    }
}
