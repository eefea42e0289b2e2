//! Calls of webhooks over HTTPS: connections, certificates, and the messages about failures.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;
use windlass_apiserver::{InProcessWebhook, Server};

use crate::client::{read, send};

const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// How a webhook responds to a request with this uid: the whole HTTP response, and whether it then closes the connection.
type Respond = fn(&str) -> (String, bool);

/// A webhook on a port of its own.
struct Webhook {
    port: u16,
    /// The certificate that clients have to trust, as PEM.
    ca: String,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Webhook {
    /// Starts a webhook with a certificate for this name; without one, it speaks plain HTTP, and rejects the
    /// beginning of TLS as an HTTP server does.
    async fn start(name: Option<&str>, respond: Respond) -> Self {
        Self::start_valid(name, (1975, 4096), respond).await
    }

    /// Starts a webhook with a certificate that is valid between these years.
    async fn start_valid(name: Option<&str>, (since, until): (i32, i32), respond: Respond) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let params = rcgen::CertificateParams::new(vec![name.unwrap_or("plain").to_owned()]);
        let mut params = params.expect("a name");
        params.not_before = rcgen::date_time_ymd(since, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS 1.3")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("a certificate with its key");
        let acceptor = name.is_some().then(|| TlsAcceptor::from(Arc::new(config)));
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    match acceptor {
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(stream, respond).await;
                            }
                        }
                        None => reject(stream).await,
                    }
                });
            }
        });
        Self {
            port,
            ca: certificate.pem(),
            connections,
            task,
        }
    }

    /// The client configuration with a CA bundle.
    fn client(&self, ca: &str) -> Value {
        json!({"url": format!("https://127.0.0.1:{}/x", self.port), "caBundle": STANDARD.encode(ca)})
    }
}

/// Answers anything with an error of HTTP.
async fn reject(mut stream: tokio::net::TcpStream) {
    if stream.read(&mut [0; 1024]).await.is_ok() {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    }
}

/// Answers the requests of a connection.
async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, respond: Respond) {
    let mut received = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let Ok(length @ 1..) = stream.read(&mut chunk).await else {
            return;
        };
        received.extend_from_slice(&chunk[..length]);
        let text = String::from_utf8_lossy(&received).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if length.is_some_and(|length: usize| body.len() < length) {
            continue;
        }
        let review: Value = serde_json::from_str(body).unwrap_or_default();
        let (response, closes) = respond(review["request"]["uid"].as_str().unwrap_or_default());
        if stream.write_all(response.as_bytes()).await.is_err() || closes {
            let _ = stream.shutdown().await;
            return;
        }
        received.clear();
    }
}

fn http(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn allow(uid: &str) -> (String, bool) {
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": uid, "allowed": true},
    });
    (http("200 OK", &answer.to_string()), false)
}

/// A server with a webhook for ConfigMaps, called with this client configuration.
async fn server_with(client: Value) -> Server {
    let server = Server::new();
    configure(&server, client).await;
    server
}

async fn configure(server: &Server, client: Value) {
    let configuration = json!({"metadata": {"name": "c"}, "webhooks": [{
        "name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
        "clientConfig": client,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}],
    }]});
    let (code, answer) = request(server, "POST", CONFIGURATIONS, &configuration).await;
    assert_eq!(code, 201, "{answer}");
}

async fn request(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
    read(send(server, method, path, None, body.to_string()).await).await
}

/// Creates a ConfigMap. Returns what follows the common beginning of the message of a failed call, without the port.
async fn failure(server: &Server, port: u16) -> String {
    let map = json!({"metadata": {"generateName": "x-"}});
    let (code, answer) = request(server, "POST", MAPS, &map).await;
    let message = answer["message"]
        .as_str()
        .unwrap_or_default()
        .replace(&port.to_string(), "PORT");
    if code == 201 {
        return "created".to_owned();
    }
    assert_eq!(code, 500, "{answer}");
    let start = "Internal error occurred: failed calling webhook \"a.example.com\": ";
    message.strip_prefix(start).expect("a failed call").to_owned()
}

const POST: &str = "failed to call webhook: Post \"https://127.0.0.1:PORT/x?timeout=1s\": ";

#[tokio::test]
async fn connection_is_used_again() {
    let webhook = Webhook::start(Some("127.0.0.1"), allow).await;
    let server = server_with(webhook.client(&webhook.ca)).await;
    for _ in 0..20 {
        assert_eq!(failure(&server, webhook.port).await, "created");
    }
    assert_eq!(webhook.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn certificate_has_to_be_valid_at_the_time_of_the_server() {
    let at = async |epoch: &str| {
        let webhook = Webhook::start_valid(Some("127.0.0.1"), (2040, 2042), allow).await;
        let builder = Server::builder().epoch(epoch.parse().expect("a time"));
        let server = builder.build();
        configure(&server, webhook.client(&webhook.ca)).await;
        failure(&server, webhook.port).await
    };
    assert_eq!(at("2041-01-01T00:00:00Z").await, "created");
    let expired = at("2043-01-01T00:00:00Z").await;
    assert!(
        expired.contains("current time 2043-01-01T00:00:00Z is after 2042-01-01T00:00:00Z"),
        "{expired}"
    );
}

#[tokio::test]
async fn connection_that_the_webhook_has_closed_is_opened_again() {
    let respond = |uid: &str| (allow(uid).0, true);
    let webhook = Webhook::start(Some("127.0.0.1"), respond).await;
    let server = server_with(webhook.client(&webhook.ca)).await;
    for _ in 0..5 {
        assert_eq!(failure(&server, webhook.port).await, "created");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(webhook.connections.load(Ordering::Relaxed), 5);
}

#[tokio::test]
async fn failed_connections_have_the_real_servers_messages() {
    let webhook = Webhook::start(Some("127.0.0.1"), allow).await;
    let other = Webhook::start(Some("127.0.0.1"), allow).await;
    let named = Webhook::start(Some("example.com"), allow).await;
    let plain = Webhook::start(None, allow).await;
    let mail = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let mail_port = mail.local_addr().expect("an address").port();
    let greeting = tokio::spawn(async move {
        while let Ok((mut stream, _)) = mail.accept().await {
            let _ = stream.write_all(b"220 mail.example.com ready\r\n").await;
            let _ = stream.read(&mut [0; 1024]).await;
        }
    });
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let closed_port = closed.local_addr().expect("an address").port();
    drop(closed);
    let unreachable = json!({"url": format!("https://127.0.0.1:{closed_port}/x")});
    for (client, port, expected) in [
        (
            unreachable,
            closed_port,
            format!("{POST}dial tcp 127.0.0.1:PORT: connect: connection refused"),
        ),
        (
            webhook.client(&other.ca),
            webhook.port,
            format!("{POST}tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        ),
        (
            plain.client(&plain.ca),
            plain.port,
            format!("{POST}http: server gave HTTP response to HTTPS client"),
        ),
        (
            json!({"url": format!("https://127.0.0.1:{mail_port}/x")}),
            mail_port,
            format!("{POST}tls: first record does not look like a TLS handshake"),
        ),
        (
            webhook.client("no certificate"),
            webhook.port,
            "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block".to_owned(),
        ),
        (
            json!({"service": {"namespace": "default", "name": "nope", "path": "/x"}}),
            1,
            "failed to call webhook: Post \"https://nope.default.svc:443/x?timeout=PORTs\": service \"nope\" not found"
                .to_owned(),
        ),
    ] {
        let server = server_with(client).await;
        assert_eq!(failure(&server, port).await, expected);
    }
    greeting.abort();
    let server = server_with(named.client(&named.ca)).await;
    let why = failure(&server, named.port).await;
    assert!(
        why.starts_with(&format!("{POST}tls: failed to verify certificate: x509: ")),
        "{why}"
    );
}

#[tokio::test]
async fn responses_that_are_no_success_have_the_real_servers_messages() {
    let server_error = "an error on the server (\"unknown\") has prevented the request from succeeding";
    let cases: [(Respond, &str); 10] = [
        (|_| (http("500 Internal Server Error", ""), false), server_error),
        (
            |_| (http("400 Bad Request", ""), false),
            "the server rejected our request for an unknown reason",
        ),
        (|_| (http("403 Forbidden", ""), false), "unknown"),
        (
            |_| (http("404 Not Found", ""), false),
            "the server could not find the requested resource",
        ),
        (
            |_| (http("429 Too Many Requests", ""), false),
            "the server has received too many requests and has asked us to try again later",
        ),
        (
            |_| (http("503 Service Unavailable", ""), false),
            "the server is currently unable to handle the request",
        ),
        (
            |_| {
                (
                    http(
                        "418 Teapot",
                        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"short and stout"}"#,
                    ),
                    false,
                )
            },
            "short and stout",
        ),
        (
            |_| (http("200 OK", ""), false),
            "0-length response with status code: 200 and content type: application/json",
        ),
        (
            |_| (http("200 OK", "{"), false),
            "couldn't get version/kind; json parse error: unexpected end of JSON input",
        ),
        (
            |uid| {
                let answer = json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview",
                    "response": {"uid": uid, "allowed": true}});
                (http("200 OK", &answer.to_string()), false)
            },
            "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
        ),
    ];
    for (respond, expected) in cases {
        let webhook = Webhook::start(Some("127.0.0.1"), respond).await;
        let server = server_with(webhook.client(&webhook.ca)).await;
        assert_eq!(
            failure(&server, webhook.port).await,
            format!("failed to call webhook: {expected}")
        );
    }
}

#[tokio::test]
async fn hostile_connections_end_within_the_timeout_and_in_bounded_memory() {
    let cases: [(Respond, &[&str]); 5] = [
        (|_| (String::new(), false), &["context deadline exceeded"]),
        (|_| (String::new(), true), &["EOF"]),
        (
            |_| {
                (
                    "HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n{".to_owned(),
                    false,
                )
            },
            &["context deadline exceeded", "length limit exceeded"],
        ),
        (
            |_| (http("200 OK", &" ".repeat(40 * 1024 * 1024)), false),
            &["length limit exceeded"],
        ),
        (|_| ("nonsense\r\n\r\n".to_owned(), false), &["invalid HTTP"]),
    ];
    for (respond, expected) in cases {
        let webhook = Webhook::start(Some("127.0.0.1"), respond).await;
        let server = server_with(webhook.client(&webhook.ca)).await;
        let why = failure(&server, webhook.port).await;
        assert!(expected.iter().any(|end| why.contains(end)), "{why}");
    }
}

#[tokio::test(start_paused = true)]
async fn paused_clock_waits_for_a_webhook_on_a_socket() {
    let webhook = Webhook::start(Some("127.0.0.1"), allow).await;
    let server = server_with(webhook.client(&webhook.ca)).await;
    for _ in 0..5 {
        assert_eq!(failure(&server, webhook.port).await, "created");
    }
}

#[tokio::test]
async fn redirect_to_another_path_is_followed_with_the_review() {
    let webhook = tower::service_fn(|request: Request<Bytes>| async move {
        let target = request.uri().to_string();
        if target.starts_with("/hook?") {
            let moved = Response::builder().status(307).header("Location", "/target");
            return Ok::<_, Infallible>(moved.body(Bytes::new()).expect("a response"));
        }
        assert_eq!((request.method().as_str(), &*target), ("POST", "/target"));
        assert_eq!(
            request.headers()["Referer"],
            "https://a.default.svc:443/hook?timeout=1s"
        );
        let review: Value = serde_json::from_slice(request.body()).expect("a review");
        let answer = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": review["request"]["uid"], "allowed": true},
        });
        Ok(Response::new(answer.to_string().into()))
    });
    let server = Server::builder()
        .webhook("a.default.svc", InProcessWebhook::new(webhook))
        .build();
    // The paths of envtest begin with two slashes.
    configure(&server, json!({"url": "https://a.default.svc:443//hook"})).await;
    assert_eq!(failure(&server, 0).await, "created");
}
