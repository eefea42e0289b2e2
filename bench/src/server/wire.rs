//! A client that costs as little as one can, so that what is measured is the server: connections of its own, on each one
//! request at a time, and nothing is done with an answer but to read it.

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use kube::{Client, Config, client::ConfigExt};
use tower::ServiceExt;

/// How requests come to a server.
#[derive(Clone)]
pub(super) enum Wire {
    /// Over HTTPS, as a kubeconfig says.
    Https(Box<Config>),
    /// The server is in this process.
    Inside(Client),
}

/// Takes one request after the other.
pub(super) enum Line {
    Https(SendRequest<Full<Bytes>>, HeaderValue),
    Inside(Client),
}

impl Wire {
    pub(super) async fn open(&self) -> anyhow::Result<Line> {
        let config = match self {
            Self::Https(config) => config,
            Self::Inside(client) => return Ok(Line::Inside(client.clone())),
        };
        let server: &Uri = &config.cluster_url;
        let host = server.authority().context("a server's address")?.as_str();
        let stream = config.rustls_https_connector()?.oneshot(server.clone()).await;
        let stream = stream.map_err(anyhow::Error::from_boxed)?;
        let (sender, connection) = http1::handshake(stream).await?;
        // It ends with the sender.
        tokio::spawn(connection);
        Ok(Line::Https(sender, HeaderValue::from_str(host)?))
    }
}

impl Line {
    /// Sends a request that must succeed, and reads the answer to its end.
    pub(super) async fn send(&mut self, mut request: Request<Vec<u8>>) -> anyhow::Result<()> {
        let (sender, host) = match self {
            Self::Https(sender, host) => (sender, host),
            Self::Inside(client) => {
                client.request_text(request).await?;
                return Ok(());
            }
        };
        request.headers_mut().insert(header::HOST, host.clone());
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
