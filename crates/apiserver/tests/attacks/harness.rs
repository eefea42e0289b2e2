//! A server on a socket, and raw clients that can send malformed or incomplete requests.

use std::{sync::Arc, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use windlass_apiserver::{Builder, Limits, Tls};

/// Limit for every expected event; far longer than any of them takes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// A listening server, stopped on drop.
pub(crate) struct TestServer {
    ca: Issuer<'static, KeyPair>,
    ca_certificate: CertificateDer<'static>,
    address: std::net::SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn params(name: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params
}

impl TestServer {
    pub(crate) async fn start(builder: Builder, limits: Limits) -> Self {
        let mut ca_params = params("authority", None);
        ca_params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let ca_certificate = ca_params.self_signed(&key).expect("a certificate").der().clone();
        let ca = Issuer::new(ca_params, key);
        let (chain, key) = issue_certificate(&ca, "server", None);
        let tls = Tls::new(chain, key, vec![ca_certificate.clone()]).expect("they belong together");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let server = builder.limits(limits).build();
        let task = tokio::spawn(async move {
            server
                .serve(listener, tls, std::future::pending())
                .await
                .expect("it serves");
        });
        Self {
            ca,
            ca_certificate,
            address,
            task,
        }
    }

    pub(crate) async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("it listens")
    }

    /// Opens an anonymous connection over HTTP/1.
    pub(crate) async fn anonymous(&self) -> Client {
        self.connect("http/1.1", None).await
    }

    /// Opens a connection with a client certificate.
    pub(crate) async fn user(&self, name: &str, group: Option<&str>) -> Client {
        self.connect("http/1.1", Some((name, group))).await
    }

    pub(crate) async fn administrator(&self) -> Client {
        self.user("admin", Some("system:masters")).await
    }

    /// Opens a connection and completes the TLS handshake; `protocol` is offered by ALPN unless it is empty.
    pub(crate) async fn connect(&self, protocol: &str, user: Option<(&str, Option<&str>)>) -> Client {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.ca_certificate.clone()).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = match user {
            Some((name, group)) => {
                let (chain, key) = issue_certificate(&self.ca, name, group);
                config
                    .with_client_auth_cert(chain, key)
                    .expect("they belong together")
            }
            None => config.with_no_client_auth(),
        };
        if !protocol.is_empty() {
            config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        }
        let name = ServerName::try_from("localhost").expect("a name");
        let connector = TlsConnector::from(Arc::new(config));
        let stream = tokio::time::timeout(TIMEOUT, connector.connect(name, self.tcp().await)).await;
        Client {
            stream: stream.expect("TLS handshake timed out").expect("TLS"),
            unread: Vec::new(),
        }
    }
}

fn issue_certificate(
    ca: &Issuer<'static, KeyPair>,
    name: &str,
    group: Option<&str>,
) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let key = KeyPair::generate().expect("a key");
    let certificate = params(name, group).signed_by(&key, ca).expect("a certificate");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    (vec![certificate.der().clone()], key)
}

/// One connection.
pub(crate) struct Client {
    pub(crate) stream: TlsStream<TcpStream>,
    /// Bytes that were received and not consumed yet.
    unread: Vec<u8>,
}

impl Client {
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let written = async {
            self.stream.write_all(bytes.as_ref()).await?;
            self.stream.flush().await
        };
        let written = tokio::time::timeout(TIMEOUT, written).await;
        written.expect("the server stopped reading").expect("it is open");
    }

    /// Sends a whole request.
    pub(crate) async fn send(&mut self, method: &str, path: &str, body: &str) {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        self.write(format!("{head}{body}")).await;
    }

    /// Reads the next response's status code and head, and leaves its body on the connection.
    pub(crate) async fn read_head(&mut self) -> (u16, String) {
        let end = loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                break at + 4;
            }
            assert!(
                self.read_more().await,
                "closed before a response: {:?}",
                self.text()
            );
        };
        let head: Vec<u8> = self.unread.drain(..end).collect();
        let head = String::from_utf8(head).expect("text").to_ascii_lowercase();
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (code.expect("a status line"), head)
    }

    /// Sends a request and reads its response, which must have a content length.
    pub(crate) async fn call(&mut self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.send(method, path, body).await;
        self.read_response().await
    }

    /// Reads the next response, which must have a content length.
    pub(crate) async fn read_response(&mut self) -> (u16, String) {
        let (code, head) = self.read_head().await;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.expect("a length").trim().parse().expect("a number");
        while self.unread.len() < length {
            assert!(self.read_more().await, "closed within a response");
        }
        let body: Vec<u8> = self.unread.drain(..length).collect();
        (code, String::from_utf8(body).expect("text"))
    }

    /// Waits until the server sends `text`.
    pub(crate) async fn wait_for(&mut self, text: &str) {
        while find(&self.unread, text.as_bytes()).is_none() {
            assert!(
                self.read_more().await,
                "closed before {text:?}: {:?}",
                self.text()
            );
        }
        self.unread.clear();
    }

    /// Waits until the server closes the connection, and returns what it sent before.
    pub(crate) async fn wait_until_closed(&mut self) -> Vec<u8> {
        while self.read_more().await {}
        std::mem::take(&mut self.unread)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.unread).into_owned()
    }

    /// Reads once more from the connection; false at its end.
    async fn read_more(&mut self) -> bool {
        let mut buffer = vec![0; 16 * 1024];
        let read = tokio::time::timeout(TIMEOUT, self.stream.read(&mut buffer)).await;
        let read = read.expect("the server neither responds nor closes the connection");
        let read = read.unwrap_or(0);
        self.unread.extend_from_slice(&buffer[..read]);
        read > 0
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}
