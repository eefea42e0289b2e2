//! The server on a socket.
//!
//! ```text
//!   TcpListener ─► Connections: limits them ─► TLS ─► HTTP/1 or HTTP/2, by ALPN ─► ConnectionService ─► Server
//!                    closes idle ones                    exchange: detects clients that do not read
//! ```
//!
//! [`Limits`](crate::Limits) bounds everything that a client can make the server hold or wait for.

mod connections;
mod exchange;
mod open_files;

use std::{future::Future, io, pin::pin, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use hyper::server::conn::{http1, http2};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulConnection,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::{
    io::BufReader,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use self::{
    connections::{CloseMode, ConnectionGuard, Connections},
    exchange::{ConnectionService, ReadProgress, StreamExecutor, TrackedStream},
};
use crate::{
    Server,
    auth::{ClientVerifier, Peer},
    limits::Limits,
};

pub(crate) use connections::{Connection, ConnectionLimitReached};

/// How long open requests may continue after the stop; watches would not end.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(200);

/// Pause after a failure to accept a connection.
const ACCEPT_ERROR_PAUSE: Duration = Duration::from_millis(10);

/// The size of a connection's read buffer: most requests fit. TLS alone reads 4 KB at a time.
const READ_BUFFER: usize = 8 * 1024;

/// The size from which an HTTP/1 connection's unsent bytes are flushed before more are buffered. hyper's default, 400 KB, is
/// a third of the largest object.
const WRITE_BUFFER: usize = 64 * 1024;

/// The server's certificate, and the authorities of its clients' certificates.
#[derive(Clone, Debug)]
pub struct Tls {
    config: rustls::ServerConfig,
    clients: Option<ClientVerifier>,
}

impl Tls {
    /// Serves this chain; `key` is the first certificate's key. Client certificates must be issued by one of
    /// `authorities`: the common name is the user, the organizations are its groups. With no authorities, clients are
    /// not asked for a certificate.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        authorities: Vec<CertificateDer<'static>>,
    ) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let clients = match &authorities[..] {
            [] => None,
            _ => Some(ClientVerifier::new(authorities)?),
        };
        let builder = match &clients {
            Some(clients) => builder.with_client_cert_verifier(Arc::new(clients.clone())),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config, clients })
    }
}

impl Server {
    /// Serves HTTPS until `stop` is done, then closes the open connections.
    ///
    /// Users authenticate with a certificate, a bearer token of [`Builder::token`](crate::Builder::token) or a service
    /// account's token. Others are anonymous, or rejected with
    /// [`Builder::without_anonymous`](crate::Builder::without_anonymous). [`Builder::rbac`](crate::Builder::rbac) limits
    /// what users may do; without it they may do everything.
    ///
    /// Raises the process's limit on open files (`ulimit -n`) as far as it may. If that is not enough for
    /// [`Limits::connections`], there are fewer.
    ///
    /// Fails for a [seeded](Server::seeded) server, whose keys can be guessed.
    ///
    /// All work happens inside this future: dropping it stops serving and closes every connection.
    pub async fn serve(
        self,
        listener: TcpListener,
        tls: Tls,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        if self.is_seeded() {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "a seeded API server does not listen on a socket, because its keys can be guessed: use `Server::builder`",
            ));
        }
        let connections = Connections::new(open_files::fit_connections(self.limits().clone()));
        let acceptor = Acceptor {
            server: self.on_socket(),
            tls: TlsAcceptor::from(Arc::new(tls.config)),
            clients: tls.clients,
        };
        let (stopping, stopped) = watch::channel(());
        let mut tasks = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            let stream = tokio::select! {
                () = &mut stop => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    // The client has disconnected, or there is no free file descriptor: the server continues.
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        connections.close_one();
                        tokio::time::sleep(ACCEPT_ERROR_PAUSE).await;
                        continue;
                    }
                },
                Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            };
            let guard = connections.open();
            tasks.spawn(acceptor.clone().serve(stream, guard, stopped.clone()));
        }
        drop(stopping);
        let ended = async { while tasks.join_next().await.is_some() {} };
        tokio::time::timeout(SHUTDOWN_GRACE, ended).await.ok();
        tasks.shutdown().await;
        Ok(())
    }
}

/// Sets up each connection.
#[derive(Clone)]
struct Acceptor {
    server: Server,
    tls: TlsAcceptor,
    clients: Option<ClientVerifier>,
}

impl Acceptor {
    async fn serve(self, stream: TcpStream, guard: ConnectionGuard, stopped: watch::Receiver<()>) {
        let entry = &guard.0;
        let limits = self.server.limits().clone();
        stream.set_nodelay(true).ok();
        let stream = BufReader::with_capacity(READ_BUFFER, stream);
        let handshake = tokio::time::timeout(limits.handshake_timeout, self.tls.accept(stream));
        let stream = tokio::select! {
            shaken = handshake => match shaken {
                Ok(Ok(stream)) => stream,
                // Timed out, or failed.
                _ => return,
            },
            _ = entry.must_close() => return,
        };
        let tls = stream.get_ref().1;
        let peer = self.clients.map_or(Peer::NoCertificate, |clients| {
            clients.peer(tls.peer_certificates())
        });
        let is_http2 = tls.alpn_protocol() == Some(b"h2");
        let server = self.server.for_peer(peer).on_connection(entry.clone());
        let service = ConnectionService::new(server, entry.clone());
        if is_http2 {
            let connection = http2(&limits).serve_connection(TokioIo::new(stream), service);
            drive(connection, Watchdog::new(&guard, stopped)).await;
        } else {
            let stream = TokioIo::new(TrackedStream::new(stream, entry.clone()));
            let connection = http1(&limits).serve_connection(stream, service);
            let progress = ReadProgress::default();
            let watchdog = Watchdog::new(&guard, stopped).unread(progress.clone(), limits.unread_timeout);
            progress.scope(drive(connection, watchdog)).await;
        }
    }
}

fn http1(limits: &Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    // hyper's timeout does not distinguish an idle connection from a slow head; `Connection` has timeouts for both.
    http.timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_header_size(limits.header_bytes as usize)
        // The same buffer limit applies to received heads.
        .max_buf_size(WRITE_BUFFER.max(limits.header_bytes as usize + READ_BUFFER));
    http
}

fn http2(limits: &Limits) -> http2::Builder<StreamExecutor> {
    let mut http = http2::Builder::new(StreamExecutor::new(limits.unread_timeout));
    http.timer(TokioTimer::new())
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.ping_timeout)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(limits.header_bytes);
    http
}

/// What can end a connection besides its client.
///
/// A connection's task is woken for each of its requests, and polls of several timers and signals would cost as much as a
/// small request; this polls only those that woke the task.
struct Watchdog {
    entry: Arc<Connection>,
    waiting: FuturesUnordered<BoxFuture<'static, CloseMode>>,
}

impl Watchdog {
    /// Waits until the connection has to be closed, or the server stops.
    fn new(ConnectionGuard(entry): &ConnectionGuard, mut stopped: watch::Receiver<()>) -> Self {
        let waiting = FuturesUnordered::new();
        let closed = entry.clone();
        waiting.push(async move { closed.must_close().await }.boxed());
        waiting.push(
            async move {
                stopped.changed().await.ok();
                CloseMode::Drain(SHUTDOWN_GRACE)
            }
            .boxed(),
        );
        Self {
            entry: entry.clone(),
            waiting,
        }
    }

    /// Waits also until the client has not read for too long.
    fn unread(self, progress: ReadProgress, limit: Duration) -> Self {
        self.waiting.push(
            async move {
                progress.stalled(limit).await;
                CloseMode::Immediate
            }
            .boxed(),
        );
        self
    }
}

/// Drives a connection until it ends or has to be closed. Errors concern only its client and are ignored.
async fn drive<C: GracefulConnection>(connection: C, mut watchdog: Watchdog) {
    let mut connection = pin!(connection);
    let mode = tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        Some(mode) = watchdog.waiting.next() => mode,
    };
    let CloseMode::Drain(limit) = mode else {
        return;
    };
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        biased;
        _ = connection => {}
        () = watchdog.entry.must_close_immediately() => {}
        () = tokio::time::sleep(limit) => {}
    }
}
