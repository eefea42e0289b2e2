//! The soak test's own HTTPS connections, HTTP/1.1 or HTTP/2, which can stall and die.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::{
    Config,
    client::ConfigExt,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;
use tokio::{net::TcpStream, task::JoinHandle, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream, rustls::ClientConfig, rustls::pki_types::ServerName};

/// Timeout of a request.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// Address of the server and credentials.
#[derive(Clone)]
pub(crate) struct Endpoint {
    config: Config,
    token: Option<Arc<str>>,
}

/// A connection with one request at a time.
pub(crate) struct Connection {
    endpoint: Endpoint,
    sender: Sender,
    /// Task that drives the connection, aborted on drop.
    driver: JoinHandle<()>,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A response that was read to its end.
#[derive(Debug)]
pub(crate) struct ReadResponse {
    pub(crate) code: u16,
    pub(crate) body: Bytes,
}

impl ReadResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn revision(&self) -> Option<u64> {
        revision(&self.json())
    }
}

/// Returns the revision of an object or list.
pub(crate) fn revision(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

impl Endpoint {
    /// Uses the administrator's credentials of the kubeconfig.
    pub(crate) async fn open(kubeconfig: &str) -> anyhow::Result<Self> {
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &options).await?;
        config.proxy_url = None;
        Ok(Self { config, token: None })
    }

    /// Uses this token instead of the administrator's certificate.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        let mut config = self.config.clone();
        config.auth_info = AuthInfo::default();
        Self {
            config,
            token: Some(token.into()),
        }
    }

    fn authority(&self) -> anyhow::Result<&http::uri::Authority> {
        self.config
            .cluster_url
            .authority()
            .context("the server URL has no host")
    }

    pub(crate) async fn tcp(&self) -> anyhow::Result<TcpStream> {
        let stream = timeout(REQUEST_TIMEOUT, TcpStream::connect(self.authority()?.as_str())).await??;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Opens a connection and completes the TLS handshake.
    pub(crate) async fn tls(&self, protocol: Protocol) -> anyhow::Result<TlsStream<TcpStream>> {
        let mut tls: ClientConfig = self.config.rustls_client_config()?;
        tls.alpn_protocols = vec![match protocol {
            Protocol::Http1 => b"http/1.1".to_vec(),
            Protocol::Http2 => b"h2".to_vec(),
        }];
        let host = self.authority()?.host().trim_matches(['[', ']']).to_owned();
        let connector = TlsConnector::from(Arc::new(tls));
        let stream = self.tcp().await?;
        Ok(timeout(
            REQUEST_TIMEOUT,
            connector.connect(ServerName::try_from(host)?, stream),
        )
        .await??)
    }

    pub(crate) async fn connect(&self, protocol: Protocol) -> anyhow::Result<Connection> {
        let stream = TokioIo::new(self.tls(protocol).await?);
        let (sender, driver) = match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(stream).await?;
                let driver = tokio::spawn(async move {
                    connection.await.ok();
                });
                (Sender::Http1(sender), driver)
            }
            Protocol::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                let driver = tokio::spawn(async move {
                    connection.await.ok();
                });
                (Sender::Http2(sender), driver)
            }
        };
        Ok(Connection {
            endpoint: self.clone(),
            sender,
            driver,
        })
    }

    pub(crate) fn request(
        &self,
        method: &str,
        target: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Request<Full<Bytes>>> {
        let authority = self.authority()?;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://{authority}{target}"))
            .header("host", authority.as_str())
            .header("user-agent", "windlass-soak")
            .header("accept", "application/json");
        if !content_type.is_empty() {
            request = request.header("content-type", content_type);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        Ok(request.body(Full::new(body.into()))?)
    }

    /// Returns the head of an HTTP/1.1 request, for clients that send incomplete requests.
    pub(crate) fn head(&self, method: &str, target: &str, length: usize) -> anyhow::Result<String> {
        let token = self.token.as_deref().unwrap_or_default();
        Ok(format!(
            "{method} {target} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n",
            self.authority()?
        ))
    }
}

impl Connection {
    pub(crate) async fn send(
        &mut self,
        method: &str,
        target: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<ReadResponse> {
        let work = async {
            let response = self.start(method, target, content_type, body).await?;
            let code = response.status().as_u16();
            let body = response.into_body().collect().await?.to_bytes();
            anyhow::Ok(ReadResponse { code, body })
        };
        match timeout(REQUEST_TIMEOUT, work).await {
            Ok(response) => response,
            Err(_) => bail!("no response within {} s", REQUEST_TIMEOUT.as_secs()),
        }
    }

    pub(crate) async fn get(&mut self, target: &str) -> anyhow::Result<ReadResponse> {
        self.send("GET", target, "", Bytes::new()).await
    }

    /// Sends a request and returns the response with its body unread.
    pub(crate) async fn start(
        &mut self,
        method: &str,
        target: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Response<Incoming>> {
        let mut request = self.endpoint.request(method, target, content_type, body)?;
        Ok(match &mut self.sender {
            Sender::Http1(sender) => {
                // The request line of HTTP/1.1 contains only the path.
                *request.uri_mut() = target.parse()?;
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Sender::Http2(sender) => {
                request.headers_mut().remove("host");
                sender.ready().await?;
                sender.send_request(request).await?
            }
        })
    }

    /// Returns another handle to the same HTTP/2 connection; `None` for HTTP/1.1.
    pub(crate) fn multiplexed(&self) -> Option<http2::SendRequest<Full<Bytes>>> {
        match &self.sender {
            Sender::Http1(_) => None,
            Sender::Http2(sender) => Some(sender.clone()),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
