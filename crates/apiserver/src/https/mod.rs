//! The server on a socket.
//!
//! ```text
//!   TcpListener ─► Connections: a seat each ─► TLS ─► HTTP/1 or HTTP/2, by ALPN ─► Connected ─► Server
//!                    who stays, who goes                 exchange: who waits for whom
//! ```
//!
//! [`Limits`](crate::Limits) bounds everything that a client can make the server hold or wait for.

mod connections;
mod exchange;

use std::{future::Future, io, pin::pin, sync::Arc, time::Duration};

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
    connections::{Connections, Ending, Place},
    exchange::{Connected, Heard, Progress, Streams},
};
use crate::{
    Server,
    auth::{Clients, Peer},
    limits::Limits,
};

pub(crate) use connections::{Full, Seat};

/// How long open requests may go on after the stop; watches never end by themselves.
const GRACE: Duration = Duration::from_millis(200);

/// How long accepting pauses after it failed.
const PAUSE: Duration = Duration::from_millis(10);

/// What is read from a connection at once, as far as it is there: most requests as a whole. TLS by itself asks for 4 KB.
const READ: usize = 8 * 1024;

/// What the server shows to its clients, and what it asks of them.
#[derive(Clone, Debug)]
pub struct Tls {
    config: rustls::ServerConfig,
    clients: Option<Clients>,
}

impl Tls {
    /// Shows this chain, of which `key` is the first certificate's key. `authorities` are those whose client certificates
    /// are good: the common name is the user, the organizations are its groups. With none, nobody is asked for one.
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
            _ => Some(Clients::of(authorities)?),
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
    /// Serves HTTPS until `stop` is done, then ends the open connections.
    ///
    /// Users prove who they are: with a certificate, a bearer token of [`Builder::token`](crate::Builder::token), or a service
    /// account's token. Who does not is anonymous, or refused with
    /// [`Builder::without_anonymous`](crate::Builder::without_anonymous). What they may do is decided by
    /// [`Builder::rbac`](crate::Builder::rbac); without it they may do everything, as themselves.
    ///
    /// A [seeded](Server::seeded) server refuses: its keys can be guessed.
    ///
    /// All work happens inside this future: dropping it ends the serving and every connection.
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
        let connections = Connections::new(self.limits().clone());
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
                    // A client that is gone already, or no file descriptor left for now: not the end of the server.
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        connections.relieve();
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                },
                Some(_) = tasks.join_next(), if !tasks.is_empty() => continue,
            };
            if let Some(place) = connections.open() {
                tasks.spawn(acceptor.clone().serve(stream, place, stopped.clone()));
            }
        }
        drop(stopping);
        let ended = async { while tasks.join_next().await.is_some() {} };
        tokio::time::timeout(GRACE, ended).await.ok();
        tasks.shutdown().await;
        Ok(())
    }
}

/// What every connection of a socket begins with.
#[derive(Clone)]
struct Acceptor {
    server: Server,
    tls: TlsAcceptor,
    clients: Option<Clients>,
}

impl Acceptor {
    async fn serve(self, stream: TcpStream, place: Place, stopped: watch::Receiver<()>) {
        let seat = &place.0;
        let limits = self.server.limits().clone();
        stream.set_nodelay(true).ok();
        let stream = BufReader::with_capacity(READ, stream);
        let handshake = tokio::time::timeout(limits.handshake, self.tls.accept(stream));
        let stream = tokio::select! {
            shaken = handshake => match shaken {
                Ok(Ok(stream)) => stream,
                // Too slow, or no TLS.
                _ => return,
            },
            _ = seat.ended() => return,
        };
        let tls = stream.get_ref().1;
        let peer = self
            .clients
            .map_or(Peer::Unknown, |clients| clients.peer(tls.peer_certificates()));
        let is_http2 = tls.alpn_protocol() == Some(b"h2");
        let server = self.server.behind(peer).on_connection(seat.clone());
        let service = Connected::new(server, seat.clone());
        if is_http2 {
            let connection = http2(&limits).serve_connection(TokioIo::new(stream), service);
            until_ended(connection, &place, stopped).await;
        } else {
            let stream = TokioIo::new(Heard::new(stream, seat.clone()));
            let connection = http1(&limits).serve_connection(stream, service);
            let connection = until_ended(connection, &place, stopped);
            Progress::default().drive(connection, limits.unread).await;
        }
    }
}

fn http1(limits: &Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    // The seat has timeouts for heads that tell an idle connection from a slow one.
    http.timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_header_size(limits.head as usize);
    http
}

fn http2(limits: &Limits) -> http2::Builder<Streams> {
    let mut http = http2::Builder::new(Streams::new(limits.unread));
    http.timer(TokioTimer::new())
        .keep_alive_interval(limits.ping)
        .keep_alive_timeout(limits.pong)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(limits.head);
    http
}

/// Drives a connection to its end, and sees that it has one. What goes wrong on a connection is its client's to see.
async fn until_ended<C: GracefulConnection>(
    connection: C,
    Place(seat): &Place,
    mut stopped: watch::Receiver<()>,
) {
    let mut connection = pin!(connection);
    let limit = tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        ending = seat.ended() => match ending {
            Ending::Cut => return,
            Ending::Drain(limit) => limit,
        },
        _ = stopped.changed() => GRACE,
    };
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        biased;
        _ = connection => {}
        () = seat.cut() => {}
        () = tokio::time::sleep(limit) => {}
    }
}
