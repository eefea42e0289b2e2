//! A client that costs as little as one can, so that what is measured is the server. It is what load generators do, and
//! the same for every server that has a socket:
//!
//! - the bytes of every request are ready before the clock starts;
//! - connections of its own, HTTP/1.1, on each one request at a time, all of them on one thread;
//! - every answer is read to its end and its status is checked; what is in its body is not looked at.

use std::{fmt::Write, sync::Arc};

use anyhow::{Context, bail, ensure};
use http::Request;
use kube::{Client, Config, client::ConfigExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream, rustls::pki_types::ServerName};

use super::answer;

/// More than most answers have.
const ANSWER: usize = 32 * 1024;

/// How requests come to a server.
#[derive(Clone)]
pub(super) enum Wire {
    /// Over HTTPS, as a kubeconfig says.
    Https(Box<Config>),
    /// The server is in this process.
    Inside(Client),
}

/// A request that only needs to be sent.
pub(super) enum Prepared {
    /// All its bytes, on a wire.
    Bytes(Vec<u8>),
    Inside(Box<Request<Vec<u8>>>),
}

/// Takes one request after the other.
pub(super) enum Line {
    Https(Box<Connection>),
    Inside(Client),
}

impl Wire {
    pub(super) fn prepare(&self, request: Request<Vec<u8>>) -> anyhow::Result<Prepared> {
        let Self::Https(config) = self else {
            return Ok(Prepared::Inside(Box::new(request)));
        };
        let authority = config.cluster_url.authority().context("a server's address")?;
        let (parts, body) = request.into_parts();
        let mut head = format!("{} {} HTTP/1.1\r\nhost: {authority}\r\n", parts.method, parts.uri);
        for (name, value) in &parts.headers {
            write!(head, "{name}: {}\r\n", value.to_str()?)?;
        }
        write!(head, "content-length: {}\r\n\r\n", body.len())?;
        Ok(Prepared::Bytes([head.into_bytes(), body].concat()))
    }

    /// A connection of the runtime that this is called in.
    pub(super) async fn open(&self) -> anyhow::Result<Line> {
        let config = match self {
            Self::Https(config) => config,
            Self::Inside(client) => return Ok(Line::Inside(client.clone())),
        };
        let authority = config.cluster_url.authority().context("a server's address")?;
        let stream = TcpStream::connect(authority.as_str()).await?;
        stream.set_nodelay(true)?;
        let host = authority.host().trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned())?;
        let connector = TlsConnector::from(Arc::new(config.rustls_client_config()?));
        // TLS asks for 4 KB at a time, however much there is.
        let stream = BufReader::with_capacity(ANSWER, stream);
        Ok(Line::Https(Box::new(Connection {
            stream: connector.connect(name, stream).await?,
            answer: Vec::with_capacity(ANSWER),
        })))
    }
}

impl Line {
    /// Sends a request that must succeed, and reads the answer to its end.
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
                let answer = client.request_text(*request).await;
                answer.with_context(|| format!("{method} {uri}"))?;
                Ok(())
            }
            _ => bail!("a request that was prepared for another wire"),
        }
    }
}

/// A connection that has one request on it at a time.
pub(super) struct Connection {
    stream: TlsStream<BufReader<TcpStream>>,
    /// What has come of the answer.
    answer: Vec<u8>,
}

impl Connection {
    async fn send(&mut self, request: &[u8]) -> anyhow::Result<()> {
        let Self { stream, answer } = self;
        stream.write_all(request).await?;
        stream.flush().await?;
        answer.clear();
        loop {
            ensure!(
                stream.read_buf(answer).await? > 0,
                "the server closed the connection"
            );
            let Some(read) = answer::read(answer)? else {
                continue;
            };
            ensure!(
                (200..300).contains(&read.status),
                "{}: {}",
                read.status,
                String::from_utf8_lossy(&answer[read.head..])
            );
            return Ok(());
        }
    }
}
