//! The server on a socket.

use std::{future::Future, io, sync::Arc, time::Duration};

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::{io::BufReader, net::TcpListener, task::JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::{
    Server,
    auth::{Clients, Peer},
};

/// How long a handshake may take: a client that connects and says nothing must not hold anything for ever.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long open requests may go on after the stop; watches never end by themselves.
const GRACE: Duration = Duration::from_millis(200);

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
    /// With [`Builder::rbac`](crate::Builder::rbac), users prove who they are: with a certificate, a bearer token of
    /// [`Builder::token`](crate::Builder::token), or a service account's token. Who does not is anonymous.
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
        let Tls { config, clients } = tls;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        let mut stop = std::pin::pin!(stop);
        loop {
            let stream = tokio::select! {
                () = &mut stop => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    // A client that is gone already, or no file descriptor left for now: not the end of the server.
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        continue;
                    }
                },
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            };
            let (server, acceptor, watcher) = (self.clone(), acceptor.clone(), graceful.watcher());
            let clients = clients.clone();
            connections.spawn(async move {
                stream.set_nodelay(true).ok();
                let stream = BufReader::with_capacity(READ, stream);
                let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
                    return;
                };
                let peer = clients.map_or(Peer::Unknown, |clients| {
                    clients.peer(stream.get_ref().1.peer_certificates())
                });
                let server = server.behind(peer);
                let http = auto::Builder::new(TokioExecutor::new());
                let connection = http
                    .serve_connection(TokioIo::new(stream), TowerToHyperService::new(server))
                    .into_owned();
                // What goes wrong on a connection is its client's to see.
                let _ = watcher.watch(connection).await;
            });
        }
        tokio::time::timeout(GRACE, graceful.shutdown()).await.ok();
        connections.shutdown().await;
        Ok(())
    }
}
