//! The socket of the webhooks, and clients that mean no good.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use windlass_apiserver::Server;

use crate::{
    manager::{Running, free_address, namespace, refuses, service_options},
    server,
};

/// A request over plain HTTP.
pub(crate) async fn plain_get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

struct Hooks {
    address: SocketAddr,
    tls: TlsConnector,
    client: Client,
    running: Running,
}

impl Hooks {
    async fn start(change: impl FnOnce(&mut windlass_webhook::ServerLimits)) -> Self {
        let address = free_address();
        let client = server::client(
            Server::builder()
                .webhook_address("hooks.system.svc", address)
                .build(),
        );
        namespace(&client).await;
        let mut options = service_options(address);
        change(&mut options.limits);
        let running = Running::start(&client, options);
        refuses(&client).await;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), "system");
        let secret = secrets.get("hooks-webhook-certificates").await.expect("a Secret");
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(&secret.data.expect("data")["ca.crt"].0) {
            roots.add(root.expect("PEM")).expect("a root");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tls = TlsConnector::from(Arc::new(config));
        Self {
            address,
            tls,
            client,
            running,
        }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.expect("connected");
        let name = ServerName::try_from("hooks.system.svc").expect("a name");
        self.tls
            .connect(name, stream)
            .await
            .expect("a trusted certificate")
    }

    /// Sends bytes, and returns all of the answer until the connection ends.
    async fn send(&self, request: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request).await.ok();
        read(&mut stream).await
    }
}

async fn read(stream: &mut TlsStream<TcpStream>) -> String {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer));
    read.await.expect("the server closes the connection").ok();
    String::from_utf8_lossy(&answer).into_owned()
}

fn post(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[tokio::test]
async fn requests_that_are_no_reviews_are_refused() {
    let hooks = Hooks::start(|_| {}).await;
    let path = "/validate.configmaps.hooks";
    let deep = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"x","operation":"CREATE","object":{}1{}}}}}"#,
        "[".repeat(500_000),
        "]".repeat(500_000)
    );
    for (request, code) in [
        (post("/nothing", "{}"), 404),
        (
            b"GET /validate.configmaps.hooks HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec(),
            405,
        ),
        (post(path, ""), 400),
        (post(path, "{}"), 400),
        (post(path, "null"), 400),
        (
            post(
                path,
                r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{}}"#,
            ),
            400,
        ),
        (
            post(
                path,
                r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#,
            ),
            400,
        ),
        // Deep documents are read without a stack, and refused when they are decoded.
        (post(path, &deep), 200),
        (
            format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n").into_bytes(),
            413,
        ),
    ] {
        let shown = String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
        let answer = hooks.send(&request).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {code}")),
            "{shown}: {answer:.300}"
        );
    }
    refuses(&hooks.client).await;
    hooks.running.stop().await;
}

#[tokio::test]
async fn silent_and_slow_clients_are_dropped_and_others_are_served() {
    let hooks = Hooks::start(|limits| {
        limits.connections = 8;
        limits.header_timeout = Duration::from_millis(400);
        limits.body_timeout = Duration::from_millis(400);
        limits.handshake_timeout = Duration::from_millis(400);
        limits.idle_timeout = Duration::from_millis(800);
    })
    .await;
    // More connections than there may be, which say nothing.
    let mut silent = Vec::new();
    for _ in 0..30 {
        silent.push(TcpStream::connect(hooks.address).await.expect("connected"));
    }
    refuses(&hooks.client).await;
    for stream in &mut silent {
        let mut buffer = [0; 1];
        let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut buffer)).await;
        assert!(!matches!(read.expect("closed"), Ok(1..)), "nothing is said");
    }
    // Nothing after the handshake; half a head; a body that does not come.
    let half_head = b"POST / HTTP/1.1\r\nHost:".as_slice();
    let half_body =
        b"POST /validate.configmaps.hooks HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{".as_slice();
    for (sent, code) in [(b"".as_slice(), ""), (half_head, ""), (half_body, "HTTP/1.1 408")] {
        let answer = hooks.send(sent).await;
        assert!(answer.starts_with(code), "{answer}");
    }
    refuses(&hooks.client).await;
    hooks.running.stop().await;
}
