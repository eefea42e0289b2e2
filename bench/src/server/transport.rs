//! A client that costs as little as possible, so that the server is what is measured. It works like a load generator,
//! and is the same for every server with a socket:
//!
//! - the bytes of every request are prepared before the clock starts;
//! - its own HTTP/1.1 connections, each with one request at a time, all on one thread;
//! - every response is read to its end and its status is checked, but its body is not parsed.

use std::{fmt::Write, sync::Arc};

use anyhow::{Context, bail, ensure};
use http::Request;
use kube::{Client, Config, client::ConfigExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream, rustls::pki_types::ServerName};

use super::response;

/// Initial buffer size, more than most responses need.
const INITIAL_BUFFER: usize = 32 * 1024;

/// How to reach a server.
#[derive(Clone)]
pub(super) enum Transport {
    /// Over HTTPS, with a kubeconfig.
    Https(Box<Config>),
    /// A server in this process.
    Inside(Client),
}

/// A request that is ready to be sent.
pub(super) enum Prepared {
    /// The bytes of an HTTP/1.1 request.
    Bytes(Vec<u8>),
    Inside(Box<Request<Vec<u8>>>),
}

/// Sends one request after the other.
pub(super) enum RequestSender {
    Https(Box<Connection>),
    Inside(Client),
}

impl Transport {
    pub(super) fn prepare(&self, request: Request<Vec<u8>>) -> anyhow::Result<Prepared> {
        let Self::Https(config) = self else {
            return Ok(Prepared::Inside(Box::new(request)));
        };
        let authority = config
            .cluster_url
            .authority()
            .context("the server URL has no host")?;
        let (parts, body) = request.into_parts();
        let mut head = format!("{} {} HTTP/1.1\r\nhost: {authority}\r\n", parts.method, parts.uri);
        for (name, value) in &parts.headers {
            write!(head, "{name}: {}\r\n", value.to_str()?)?;
        }
        write!(head, "content-length: {}\r\n\r\n", body.len())?;
        Ok(Prepared::Bytes([head.into_bytes(), body].concat()))
    }

    /// Opens a connection on the current runtime.
    pub(super) async fn open(&self) -> anyhow::Result<RequestSender> {
        let config = match self {
            Self::Https(config) => config,
            Self::Inside(client) => return Ok(RequestSender::Inside(client.clone())),
        };
        let authority = config
            .cluster_url
            .authority()
            .context("the server URL has no host")?;
        let stream = TcpStream::connect(authority.as_str()).await?;
        stream.set_nodelay(true)?;
        let host = authority.host().trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned())?;
        let connector = TlsConnector::from(Arc::new(config.rustls_client_config()?));
        // The TLS library reads only 4 KB at a time.
        let stream = BufReader::with_capacity(INITIAL_BUFFER, stream);
        Ok(RequestSender::Https(Box::new(Connection {
            stream: connector.connect(name, stream).await?,
            buffer: Vec::with_capacity(INITIAL_BUFFER),
        })))
    }
}

impl RequestSender {
    /// Sends a request that must succeed, and reads the response to its end.
    pub(super) async fn send(&mut self, request: Prepared) -> anyhow::Result<()> {
        match (self, request) {
            (Self::Https(connection), Prepared::Bytes(bytes)) => {
                connection.send(&bytes).await.with_context(|| {
                    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
                    String::from_utf8_lossy(line).into_owned()
                })
            }
            (Self::Inside(client), Prepared::Inside(request)) => {
                let (method, uri) = (request.method().clone(), request.uri().clone());
                let response = client.request_text(*request).await;
                response.with_context(|| format!("{method} {uri}"))?;
                Ok(())
            }
            _ => bail!("the request was prepared for another kind of connection"),
        }
    }
}

/// A connection with one request at a time.
pub(super) struct Connection {
    stream: TlsStream<BufReader<TcpStream>>,
    /// Received bytes of the response.
    buffer: Vec<u8>,
}

impl Connection {
    async fn send(&mut self, request: &[u8]) -> anyhow::Result<()> {
        let Self { stream, buffer } = self;
        stream.write_all(request).await?;
        stream.flush().await?;
        buffer.clear();
        loop {
            ensure!(
                stream.read_buf(buffer).await? > 0,
                "the server closed the connection"
            );
            let Some(parsed) = response::parse(buffer)? else {
                continue;
            };
            ensure!(
                (200..300).contains(&parsed.status),
                "{}: {}",
                parsed.status,
                String::from_utf8_lossy(&buffer[parsed.head..])
            );
            return Ok(());
        }
    }
}
