//! The server on a socket.

use std::{future::Future, io, sync::Arc, time::Duration};

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::Server;

/// How long a handshake may take: a client that connects and says nothing must not hold anything for ever.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long open requests may go on after the stop; watches never end by themselves.
const GRACE: Duration = Duration::from_millis(200);

impl Server {
    /// Serves HTTPS until `stop` is done, then ends the open connections.
    ///
    /// All work happens inside this future: dropping it ends the serving and every connection.
    pub async fn serve(
        self,
        listener: TcpListener,
        mut tls: rustls::ServerConfig,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
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
            connections.spawn(async move {
                stream.set_nodelay(true).ok();
                let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
                    return;
                };
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
