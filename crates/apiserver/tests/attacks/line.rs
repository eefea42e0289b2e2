//! A server on a socket, and clients of it that speak as badly as they like.

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

/// How long anything may take that should happen; far more than it does.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A server that listens, until it is dropped.
pub(crate) struct Served {
    authority: Issuer<'static, KeyPair>,
    trusted: CertificateDer<'static>,
    address: std::net::SocketAddr,
    serving: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.abort();
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

impl Served {
    pub(crate) async fn start(builder: Builder, limits: Limits) -> Self {
        let mut own = params("authority", None);
        own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let trusted = own.self_signed(&key).expect("a certificate").der().clone();
        let authority = Issuer::new(own, key);
        let (chain, key) = signed(&authority, "server", None);
        let tls = Tls::new(chain, key, vec![trusted.clone()]).expect("they belong together");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let server = builder.limits(limits).build();
        let serving = tokio::spawn(async move {
            server
                .serve(listener, tls, std::future::pending())
                .await
                .expect("it serves");
        });
        Self {
            authority,
            trusted,
            address,
            serving,
        }
    }

    pub(crate) async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("it listens")
    }

    /// An anonymous connection, over HTTP/1.
    pub(crate) async fn anonymous(&self) -> Client {
        self.connect("http/1.1", None).await
    }

    /// A connection with a client certificate.
    pub(crate) async fn user(&self, name: &str, group: Option<&str>) -> Client {
        self.connect("http/1.1", Some((name, group))).await
    }

    pub(crate) async fn administrator(&self) -> Client {
        self.user("admin", Some("system:masters")).await
    }

    /// A connection of which TLS is done; `protocol` is offered by ALPN, unless it is empty.
    pub(crate) async fn connect(&self, protocol: &str, user: Option<(&str, Option<&str>)>) -> Client {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.trusted.clone()).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = match user {
            Some((name, group)) => {
                let (chain, key) = signed(&self.authority, name, group);
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
        let stream = tokio::time::timeout(PATIENCE, connector.connect(name, self.tcp().await)).await;
        Client {
            stream: stream.expect("the server does not shake hands").expect("TLS"),
            read: Vec::new(),
        }
    }
}

fn signed(
    authority: &Issuer<'static, KeyPair>,
    name: &str,
    group: Option<&str>,
) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let key = KeyPair::generate().expect("a key");
    let certificate = params(name, group)
        .signed_by(&key, authority)
        .expect("a certificate");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    (vec![certificate.der().clone()], key)
}

/// One connection.
pub(crate) struct Client {
    pub(crate) stream: TlsStream<TcpStream>,
    /// What came and was not looked at.
    read: Vec<u8>,
}

impl Client {
    pub(crate) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        let said = async {
            self.stream.write_all(bytes.as_ref()).await?;
            self.stream.flush().await
        };
        let said = tokio::time::timeout(PATIENCE, said).await;
        said.expect("the server does not listen").expect("it is open");
    }

    /// Sends a whole request.
    pub(crate) async fn send(&mut self, method: &str, path: &str, body: &str) {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        self.say(format!("{head}{body}")).await;
    }

    /// The next answer's code and head; its body is left on the connection.
    pub(crate) async fn head(&mut self) -> (u16, String) {
        let end = loop {
            if let Some(at) = find(&self.read, b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.more().await, "closed before an answer: {:?}", self.text());
        };
        let head: Vec<u8> = self.read.drain(..end).collect();
        let head = String::from_utf8(head).expect("text").to_ascii_lowercase();
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        (code.expect("a status line"), head)
    }

    /// Sends a request and reads its answer, which has a known length.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.send(method, path, body).await;
        let (code, head) = self.head().await;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.expect("a length").trim().parse().expect("a number");
        while self.read.len() < length {
            assert!(self.more().await, "closed within an answer");
        }
        let body: Vec<u8> = self.read.drain(..length).collect();
        (code, String::from_utf8(body).expect("text"))
    }

    /// Waits until this comes.
    pub(crate) async fn expect(&mut self, text: &str) {
        while find(&self.read, text.as_bytes()).is_none() {
            assert!(self.more().await, "closed before {text:?}: {:?}", self.text());
        }
        self.read.clear();
    }

    /// Waits until the server closes the connection; what it said before.
    pub(crate) async fn closed(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.read)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.read).into_owned()
    }

    /// Reads more; false at the end.
    async fn more(&mut self) -> bool {
        let mut buffer = vec![0; 16 * 1024];
        let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut buffer)).await;
        let read = read.expect("the server neither answers nor closes the connection");
        let read = read.unwrap_or(0);
        self.read.extend_from_slice(&buffer[..read]);
        read > 0
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}
