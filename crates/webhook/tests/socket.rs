//! The socket of the webhooks, and hostile clients.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{Api, Client};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};
use tokio::{sync::Notify, time::Instant};
use tokio_rustls::{TlsConnector, client::TlsStream};
use windlass_apiserver::Server;
use windlass_runtime::{CrdInstaller, Manager};
use windlass_webhook::{ManagerExt, Target, Verdict, Webhooks, validate_async};

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

fn connector(
    roots: &RootCertStore,
    versions: &[&'static rustls::SupportedProtocolVersion],
    protocols: &[&[u8]],
) -> TlsConnector {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("versions")
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

struct Hooks {
    address: SocketAddr,
    roots: RootCertStore,
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
        Self {
            address,
            tls: connector(&roots, rustls::ALL_VERSIONS, &[]),
            roots,
            client,
            running,
        }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.expect("connected");
        self.handshake(stream).await
    }

    /// A connection of another pod, from 127.0.0.2.
    async fn connect_as_pod(&self) -> TlsStream<TcpStream> {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket
            .bind("127.0.0.2:0".parse().expect("an address"))
            .expect("an address of this machine");
        let stream = socket.connect(self.address).await.expect("connected");
        self.handshake(stream).await
    }

    async fn handshake(&self, stream: TcpStream) -> TlsStream<TcpStream> {
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
    let large_options = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"x","operation":"CREATE","options":[{}0]}}}}"#,
        "0,".repeat(200_000)
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
        (post(path, &large_options), 400),
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

#[tokio::test]
async fn pods_that_announce_large_bodies_do_not_delay_reviews() {
    let hooks = Hooks::start(|_| {}).await;
    let head = b"POST /validate.configmaps.hooks?timeout=30s HTTP/1.1\r\nHost: x\r\nContent-Length: 16777216\r\n\r\n{";
    let mut pods = Vec::new();
    for _ in 0..20 {
        let mut pod = hooks.connect_as_pod().await;
        pod.write_all(head).await.expect("sent");
        pods.push(pod);
    }
    let started = Instant::now();
    refuses(&hooks.client).await;
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    // What is sent counts: an address has half of the memory.
    let piece = vec![b' '; 1 << 20];
    let mut refused = 0;
    for pod in &mut pods {
        for _ in 0..15 {
            // A refused connection is closed.
            if pod.write_all(&piece).await.is_err() {
                break;
            }
        }
        let mut answer = [0; 12];
        let read = tokio::time::timeout(Duration::from_millis(50), pod.read_exact(&mut answer)).await;
        refused += usize::from(matches!(read, Ok(Ok(_))) && answer.ends_with(b"429"));
    }
    assert!(refused > 10, "{refused} of 20");
    refuses(&hooks.client).await;
    hooks.running.stop().await;
}

#[tokio::test]
async fn flood_of_one_pod_does_not_close_the_connection_of_the_api_server() {
    let hooks = Hooks::start(|limits| limits.connections = 16).await;
    let request = b"POST /validate.configmaps.hooks HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}";
    let mut kept = hooks.connect().await;
    let mut answer = vec![0; 4096];
    for _ in 0..2 {
        kept.write_all(request).await.expect("the connection is open");
        let length = kept.read(&mut answer).await.expect("an answer");
        assert!(answer[..length].starts_with(b"HTTP/1.1 400"));
        let mut pods = Vec::new();
        for _ in 0..40 {
            pods.push(hooks.connect_as_pod().await);
        }
    }
    hooks.running.stop().await;
}

#[tokio::test]
async fn time_for_an_answer_includes_the_time_for_the_body() {
    let hooks = Hooks::start(|_| {}).await;
    let started = Instant::now();
    let head =
        b"POST /validate.configmaps.hooks?timeout=1s HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{";
    let answer = hooks.send(head).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    hooks.running.stop().await;
}

#[tokio::test]
async fn old_and_new_protocols_are_spoken() {
    let hooks = Hooks::start(|_| {}).await;
    let name = || ServerName::try_from("hooks.system.svc").expect("a name");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let stream = TcpStream::connect(hooks.address).await.expect("connected");
        let tls = connector(&hooks.roots, &[version], &[b"http/1.1"]);
        let mut stream = tls.connect(name(), stream).await.expect("a handshake");
        stream
            .write_all(&post("/validate.configmaps.hooks", "{}"))
            .await
            .expect("sent");
        assert!(read(&mut stream).await.starts_with("HTTP/1.1 400"));
    }
    let stream = TcpStream::connect(hooks.address).await.expect("connected");
    let tls = connector(&hooks.roots, rustls::ALL_VERSIONS, &[b"h2", b"http/1.1"]);
    let stream = tls.connect(name(), stream).await.expect("a handshake");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut client, connection) = hyper::client::conn::http2::handshake(
        hyper_util::rt::TokioExecutor::new(),
        hyper_util::rt::TokioIo::new(stream),
    )
    .await
    .expect("HTTP/2");
    let connection = tokio::spawn(connection);
    // Several at a time, and one larger than the window.
    let answers = (0..20).map(|index| {
        let body = " ".repeat(if index == 0 { 1 << 20 } else { 2 });
        let request = http::Request::post("https://x/validate.configmaps.hooks").body(body);
        client.send_request(request.expect("a request"))
    });
    for answer in futures::future::join_all(answers).await {
        assert_eq!(answer.expect("an answer").status(), 400);
    }
    connection.abort();
    hooks.running.stop().await;
}

#[tokio::test]
async fn stop_answers_what_is_under_way() {
    let (called, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (entered, released) = (called.clone(), release.clone());
    let slow = validate_async(
        Target::of::<ConfigMap>(),
        move |_: Option<ConfigMap>, _: Option<ConfigMap>, _| {
            let (entered, released) = (entered.clone(), released.clone());
            async move {
                entered.notify_one();
                released.notified().await;
                Verdict::deny("answered")
            }
        },
    );
    let address = free_address();
    let client = server::client(
        Server::builder()
            .webhook_address("hooks.system.svc", address)
            .build(),
    );
    namespace(&client).await;
    let manager = Manager::new(client.clone())
        .install(CrdInstaller::new([]).apply())
        .webhooks(Webhooks::new("hooks").with(slow), service_options(address));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let task = tokio::spawn(manager.run_until(async {
        stopped.await.ok();
    }));
    // Once it is called, there is a request under way.
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let request = tokio::spawn(async move {
        loop {
            let map: ConfigMap =
                serde_json::from_value(serde_json::json!({"metadata": {"generateName": "a"}}))
                    .expect("valid");
            match maps.create(&kube::api::PostParams::default(), &map).await {
                Err(kube::Error::Api(status)) if status.message.ends_with("answered") => break,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    });
    called.notified().await;
    stop.send(()).expect("it runs");
    // The listener is closed before the answer is sent.
    while TcpStream::connect(address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    release.notify_one();
    task.await.expect("no panic").expect("a graceful stop");
    let answered = tokio::time::timeout(Duration::from_secs(5), request).await;
    answered.expect("the request is answered").expect("no panic");
}
