//! A client that costs as little as one can, so that what is measured is the server. It talks to all servers as client-go does,
//! with all requests on one HTTP/2 connection, and does nothing with an answer but to read it.

use std::sync::Arc;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{Request, Uri, uri::PathAndQuery};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::{Client, Config, client::ConfigExt};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How requests come to a server.
#[derive(Clone)]
pub(super) enum Wire {
    /// Over HTTPS, as a kubeconfig says.
    Https(Box<Config>),
    /// The server is in this process.
    Inside(Client),
}

/// Takes one request after the other; clones share the connection.
#[derive(Clone)]
pub(super) enum Line {
    Https(SendRequest<Full<Bytes>>, Uri),
    Inside(Client),
}

impl Wire {
    pub(super) async fn open(&self) -> anyhow::Result<Line> {
        let config = match self {
            Self::Https(config) => config,
            Self::Inside(client) => return Ok(Line::Inside(client.clone())),
        };
        let server: &Uri = &config.cluster_url;
        let (host, port) = (server.host().context("a host")?, server.port_u16().unwrap_or(443));
        let mut tls = config.rustls_client_config()?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(host.to_owned())?;
        let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await?;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        // It ends with the last sender.
        tokio::spawn(connection);
        Ok(Line::Https(sender, server.clone()))
    }
}

impl Line {
    /// Sends a request that must succeed, and reads the answer to its end.
    pub(super) async fn send(&mut self, mut request: Request<Vec<u8>>) -> anyhow::Result<()> {
        let (sender, server) = match self {
            Self::Https(sender, server) => (sender, server),
            Self::Inside(client) => {
                client.request_text(request).await?;
                return Ok(());
            }
        };
        let mut address = server.clone().into_parts();
        address.path_and_query = request.uri().path_and_query().map(PathAndQuery::clone);
        *request.uri_mut() = Uri::from_parts(address)?;
        sender.ready().await?;
        let response = sender
            .send_request(request.map(|body| Full::new(body.into())))
            .await?;
        let status = response.status();
        let answer = response.into_body().collect().await?.to_bytes();
        ensure!(
            status.is_success(),
            "{status}: {}",
            String::from_utf8_lossy(&answer)
        );
        Ok(())
    }
}
