//! A webhook against failing servers: in-process on a paused clock, and on real sockets.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::{Ready, ready};
use http::Response;
use http_body_util::{BodyExt as _, Either, StreamBody};
use hyper::{
    body::{Frame, Incoming},
    rt::{Read, ReadBufCursor, Write},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use parking_lot::Mutex;
use rustls::pki_types::PrivateKeyDer;
use serde_json::Value;
use tokio::{io::DuplexStream, net::TcpListener, task::JoinSet, time::Instant};

use super::*;
use crate::{delivery::testing::pod, notice::EventType};

/// What the server does with the next request.
#[derive(Clone)]
enum ScriptedAnswer {
    Answer(u16, &'static [(&'static str, &'static str)], &'static str),
    /// Responds with a body of this many bytes.
    AnswerLong(usize),
    /// Responds with a body that never ends.
    AnswerEndless,
    Hang,
    /// Closes the connection without a response.
    Close,
    /// Refuses the connection.
    Unreachable,
}

/// A server that records its requests.
#[derive(Clone)]
struct Server(Arc<Mutex<Inner>>);

struct Inner {
    /// The last one is repeated.
    acts: VecDeque<ScriptedAnswer>,
    connections: usize,
    requests: Vec<(http::request::Parts, Value)>,
    tasks: JoinSet<()>,
}

type Body = Either<Full<Bytes>, StreamBody<futures::stream::Pending<Result<Frame<Bytes>, Infallible>>>>;

impl Server {
    fn new(acts: impl IntoIterator<Item = ScriptedAnswer>) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            acts: acts.into_iter().collect(),
            connections: 0,
            requests: Vec::new(),
            tasks: JoinSet::new(),
        })))
    }

    fn next(&self) -> ScriptedAnswer {
        let mut inner = self.0.lock();
        match inner.acts.len() {
            1 => inner.acts[0].clone(),
            _ => inner.acts.pop_front().expect("an act"),
        }
    }

    async fn serve(self, stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static) {
        let service = service_fn(move |request: http::Request<Incoming>| {
            let server = self.clone();
            async move { server.answer(request).await }
        });
        let _ = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await;
    }

    async fn answer(&self, request: http::Request<Incoming>) -> Result<Response<Body>, &'static str> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| "no body")?.to_bytes();
        let body = serde_json::from_slice(&body).expect("JSON");
        self.0.lock().requests.push((head, body));
        let full = |bytes: Vec<u8>| Either::Left(Full::new(Bytes::from(bytes)));
        let answer = match self.next() {
            ScriptedAnswer::Hang => std::future::pending().await,
            ScriptedAnswer::Close | ScriptedAnswer::Unreachable => return Err("closes"),
            ScriptedAnswer::AnswerLong(size) => Response::new(full(vec![b'x'; size])),
            ScriptedAnswer::AnswerEndless => {
                Response::new(Either::Right(StreamBody::new(futures::stream::pending())))
            }
            ScriptedAnswer::Answer(status, headers, text) => {
                let mut answer = Response::builder().status(status);
                for (name, value) in headers {
                    answer = answer.header(*name, *value);
                }
                answer.body(full(text.as_bytes().to_vec())).expect("an answer")
            }
        };
        Ok(answer)
    }

    fn webhook(&self, settings: Settings) -> Webhook {
        let clock = Clock::starting_at("2026-01-02T03:04:05Z".parse().expect("a time"));
        Webhook::with_connector(
            self.clone(),
            "http://hook.example/path?x=1".parse().expect("an address"),
            settings,
            clock,
        )
    }
}

/// In-process connections.
impl tower::Service<Uri> for Server {
    type Response = InProcessConnection;
    type Error = io::Error;
    type Future = Ready<io::Result<InProcessConnection>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let mut inner = self.0.lock();
        if matches!(inner.acts[0], ScriptedAnswer::Unreachable) {
            return ready(Err(io::ErrorKind::ConnectionRefused.into()));
        }
        inner.connections += 1;
        let (here, there) = tokio::io::duplex(1 << 16);
        inner.tasks.spawn(self.clone().serve(there));
        ready(Ok(InProcessConnection(TokioIo::new(here))))
    }
}

struct InProcessConnection(TokioIo<DuplexStream>);

impl Connection for InProcessConnection {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for InProcessConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for InProcessConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

async fn deliver(webhook: &Webhook) -> Result<(), DeliveryError> {
    let notice = Arc::new(pod("web", "1", 7).what(EventType::Updated).build());
    webhook.deliver(&notice).await
}

const OK: ScriptedAnswer = ScriptedAnswer::Answer(204, &[], "");

#[tokio::test(start_paused = true)]
async fn notice_is_posted_as_cloud_event_over_reused_connection() {
    let server = Server::new([ScriptedAnswer::Answer(200, &[], "thanks"), OK]);
    let webhook = server.webhook(Settings::default());
    for _ in 0..5 {
        deliver(&webhook).await.expect("delivered");
    }
    let inner = server.0.lock();
    assert_eq!((inner.requests.len(), inner.connections), (5, 1));
    let (head, event) = &inner.requests[0];
    assert_eq!(
        (head.method.as_str(), head.uri.to_string()),
        ("POST", "/path?x=1".to_owned())
    );
    assert_eq!(head.headers["host"], "hook.example");
    assert_eq!(
        head.headers["content-type"],
        "application/cloudevents+json; charset=utf-8"
    );
    assert_eq!(
        (&event["specversion"], &event["type"]),
        (&"1.0".into(), &"dev.windlass.podwatch.updated".into())
    );
    assert_eq!(event["data"]["name"], "web");
}

#[tokio::test(start_paused = true)]
async fn response_status_decides_the_outcome() {
    enum Expected {
        Down(Option<u64>),
        Failed,
        Refused,
    }
    use Expected::{Down, Failed, Refused};
    let cases: [(ScriptedAnswer, Expected, &str); 12] = [
        (
            ScriptedAnswer::Answer(400, &[], "bad\nworse"),
            Refused,
            "answered 400 Bad Request (bad)",
        ),
        (
            ScriptedAnswer::Answer(401, &[], ""),
            Refused,
            "answered 401 Unauthorized: pass a valid token with `token-file=`",
        ),
        (
            ScriptedAnswer::Answer(404, &[], ""),
            Refused,
            "answered 404 Not Found: check the URL's path",
        ),
        (
            ScriptedAnswer::Answer(415, &[], ""),
            Refused,
            "answered 415 Unsupported Media Type",
        ),
        (
            ScriptedAnswer::Answer(408, &[], ""),
            Failed,
            "answered 408 Request Timeout",
        ),
        (
            ScriptedAnswer::Answer(429, &[("retry-after", "17")], ""),
            Down(Some(17)),
            "answered 429 Too Many Requests",
        ),
        (
            ScriptedAnswer::Answer(429, &[("retry-after", "soon")], ""),
            Down(None),
            "answered 429 Too Many Requests",
        ),
        (
            ScriptedAnswer::Answer(503, &[("retry-after", "999999")], ""),
            Down(Some(600)),
            "answered 503 Service Unavailable",
        ),
        (
            // A minute after the test's clock.
            ScriptedAnswer::Answer(503, &[("retry-after", "Fri, 02 Jan 2026 03:05:05 GMT")], ""),
            Down(Some(60)),
            "answered 503 Service Unavailable",
        ),
        (
            ScriptedAnswer::Answer(502, &[], ""),
            Failed,
            "answered 502 Bad Gateway",
        ),
        (
            ScriptedAnswer::Answer(500, &[], "oops"),
            Failed,
            "answered 500 Internal Server Error (oops)",
        ),
        (
            ScriptedAnswer::Answer(500, &[("retry-after", "0")], ""),
            Down(Some(0)),
            "answered 500 Internal Server Error",
        ),
    ];
    for (act, expected, reason) in cases {
        let reason = reason.to_owned();
        let expected = match expected {
            Down(after) => DeliveryError::Unavailable {
                reason,
                retry_after: after.map(Duration::from_secs),
            },
            Failed => DeliveryError::Failed { reason },
            Refused => DeliveryError::Rejected { reason },
        };
        let error = deliver(&Server::new([act]).webhook(Settings::default())).await;
        assert_eq!(error, Err(expected));
    }
}

/// Both are often the password of a webhook.
#[tokio::test(start_paused = true)]
async fn reason_contains_neither_a_redirects_nor_the_own_path() {
    for (answer, reason) in [
        (
            ScriptedAnswer::Answer(
                301,
                &[("location", "https://new.example:8443/s3cret?t=s3cret")],
                "",
            ),
            "answered 301 Moved Permanently, a redirect to https://new.example:8443 (its path is not shown: it may be a secret): use \
             that URL",
        ),
        (
            // Many servers repeat the address in the body.
            ScriptedAnswer::Answer(
                308,
                &[("location", "https://me:s3cret@new.example/")],
                "<a href=\"https://new.example/s3cret\">moved</a>",
            ),
            "answered 308 Permanent Redirect, a redirect to https://new.example (its path is not shown: it may be a secret): use that URL",
        ),
        (
            ScriptedAnswer::Answer(302, &[("location", "/s3cret")], ""),
            "answered 302 Found, a redirect to another path of this server: check the URL",
        ),
        (
            ScriptedAnswer::Answer(300, &[], "s3cret"),
            "answered 300 Multiple Choices, a redirect to an unknown place: check the URL",
        ),
        (
            // And the path in errors.
            ScriptedAnswer::Answer(404, &[], "no /path?x=1, no /path"),
            "answered 404 Not Found (no …, no …): check the URL's path",
        ),
    ] {
        let reason = reason.to_owned();
        let error = deliver(&Server::new([answer]).webhook(Settings::default())).await;
        assert_eq!(error, Err(DeliveryError::Rejected { reason }));
    }
}

#[tokio::test(start_paused = true)]
async fn template_is_posted_as_json() {
    let server = Server::new([OK]);
    let template = r#"{ "text": "{{event}} {{key}}" }"#.parse().expect("a template");
    let webhook = server
        .webhook(Settings::default())
        .with_payload(Payload::Template(template));
    deliver(&webhook).await.expect("delivered");
    let inner = server.0.lock();
    let (head, message) = &inner.requests[0];
    assert_eq!(head.headers["content-type"], "application/json");
    assert_eq!(message, &serde_json::json!({ "text": "updated default/web" }));
}

#[tokio::test(start_paused = true)]
async fn otlp_receiver_decides_by_status_and_partial_success() {
    let rejected = r#"{"partialSuccess":{"rejectedLogRecords":"1","errorMessage":"no"}}"#;
    for (answer, expected) in [
        (ScriptedAnswer::Answer(200, &[], "{}"), None),
        (ScriptedAnswer::Answer(200, &[], rejected), Some("rejected")),
        (ScriptedAnswer::Answer(500, &[], ""), Some("rejected")),
        (ScriptedAnswer::Answer(408, &[], ""), Some("rejected")),
        (ScriptedAnswer::Answer(503, &[], ""), Some("failed")),
        (
            ScriptedAnswer::Answer(503, &[("retry-after", "3")], ""),
            Some("unavailable"),
        ),
        (ScriptedAnswer::Answer(429, &[], ""), Some("unavailable")),
    ] {
        let server = Server::new([answer]);
        let webhook = server.webhook(Settings::default()).with_payload(Payload::OtlpLog);
        let outcome = deliver(&webhook).await.err().map(|error| match error {
            DeliveryError::Rejected { .. } => "rejected",
            DeliveryError::Failed { .. } => "failed",
            DeliveryError::Unavailable { .. } => "unavailable",
        });
        assert_eq!(outcome, expected);
        let inner = server.0.lock();
        let (head, request) = &inner.requests[0];
        assert_eq!(head.headers["content-type"], "application/json");
        assert!(request["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]["body"].is_object());
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_server_times_out() {
    let server = Server::new([ScriptedAnswer::Hang]);
    let webhook = server.webhook(Settings {
        timeout: Duration::from_secs(3),
        ..Settings::default()
    });
    let start = Instant::now();
    let error = deliver(&webhook).await.expect_err("no answer");
    assert_eq!(
        error.reason(),
        "did not answer within 3s; `timeout=` sets the limit"
    );
    assert!(matches!(error, DeliveryError::Failed { .. }));
    assert_eq!(start.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn unreachable_server_fails_the_notice_and_recovers() {
    let server = Server::new([ScriptedAnswer::Close, ScriptedAnswer::Unreachable]);
    let webhook = server.webhook(Settings::default());
    for _ in 0..2 {
        let error = deliver(&webhook).await.expect_err("unreachable");
        assert!(error.reason().starts_with("cannot be reached: "), "{error:?}");
        assert!(
            error
                .reason()
                .ends_with("; check that the URL is right and the server runs"),
            "{error:?}"
        );
        assert!(matches!(error, DeliveryError::Failed { .. }));
    }
    server.0.lock().acts = [OK].into();
    deliver(&webhook).await.expect("delivered");
}

#[tokio::test(start_paused = true)]
async fn oversized_or_endless_body_is_cut_and_status_counts() {
    let server = Server::new([
        ScriptedAnswer::AnswerLong(10 << 20),
        ScriptedAnswer::AnswerEndless,
        OK,
    ]);
    let webhook = server.webhook(Settings::default());
    let start = Instant::now();
    for _ in 0..3 {
        deliver(&webhook).await.expect("delivered");
    }
    assert!(
        start.elapsed() <= Duration::from_millis(1010),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(
        server.0.lock().connections,
        3,
        "a connection with an unread body is not reused"
    );
}

#[tokio::test(start_paused = true)]
async fn token_file_is_read_for_each_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("token");
    let server = Server::new([OK]);
    let webhook = server.webhook(Settings {
        token_file: Some(path.clone()),
        ..Settings::default()
    });
    let error = deliver(&webhook).await.expect_err("no file");
    assert!(
        error.reason().starts_with("cannot read `token-file` "),
        "{error:?}"
    );
    for token in ["one", "two"] {
        std::fs::write(&path, format!("{token}\n")).expect("written");
        deliver(&webhook).await.expect("delivered");
    }
    std::fs::write(&path, "a\nb").expect("written");
    let error = deliver(&webhook).await.expect_err("two lines");
    assert!(
        error.reason().contains("must contain a token on one line"),
        "{error:?}"
    );
    let inner = server.0.lock();
    let sent: Vec<_> = inner
        .requests
        .iter()
        .map(|(head, _)| head.headers["authorization"].to_str().expect("text"))
        .collect();
    assert_eq!(sent, ["Bearer one", "Bearer two"]);
}

#[test]
fn webhook_with_token_rejects_plain_http() {
    let settings = |insecure_token| Settings {
        token_file: Some("/t".into()),
        insecure_token,
        ..Settings::default()
    };
    let made = |url: &str, settings| {
        Webhook::new(url.parse().expect("an address"), settings, Clock::system())
            .map(drop)
            .map_err(|error| error.to_string())
    };
    for url in ["http://h/", "http://127.0.0.1/", "http://localhost/"] {
        let error = made(url, settings(false)).expect_err(url);
        assert!(
            error.contains("use an https:// URL, or add `insecure-token=allow`"),
            "{error}"
        );
        assert_eq!(made(url, settings(true)), Ok(()), "{url}");
        assert_eq!(made(url, Settings::default()), Ok(()), "{url}");
    }
    assert_eq!(made("https://h/", settings(false)), Ok(()));
}

#[tokio::test]
async fn redirect_is_not_followed_with_the_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, "s3cret").expect("written");
    for status in [301, 302, 303, 307, 308] {
        let other = Server::new([OK]);
        let place = format!("http://127.0.0.1:{}/", listen(other.clone(), None).await);
        let place: &'static str = Box::leak(place.into_boxed_str());
        let location: &'static [_] = Box::leak(Box::new([("location", place)]));
        let first = Server::new([ScriptedAnswer::Answer(status, location, "")]);
        let port = listen(first.clone(), None).await;
        let settings = Settings {
            token_file: Some(token_file.clone()),
            insecure_token: true,
            ..Settings::default()
        };
        let url = format!("http://127.0.0.1:{port}/").parse().expect("an address");
        let webhook = Webhook::new(url, settings, Clock::system()).expect("a webhook");
        let error = deliver(&webhook).await.expect_err("a redirect");
        assert!(
            matches!(error, DeliveryError::Rejected { .. }),
            "{status}: {error:?}"
        );
        assert_eq!(first.0.lock().requests.len(), 1, "{status}");
        assert_eq!(other.0.lock().requests.len(), 0, "{status}");
    }
}

/// Serves on a real socket, with TLS if given.
async fn listen(server: Server, tls: Option<tokio_rustls::TlsAcceptor>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let tasks = server.clone();
    tasks.0.lock().tasks.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            match &tls {
                None => server.clone().serve(stream).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        server.clone().serve(stream).await;
                    }
                }
            }
        }
    });
    port
}

fn system(url: &str, ca: Option<PathBuf>) -> Webhook {
    let settings = Settings {
        ca,
        ..Settings::default()
    };
    Webhook::new(url.parse().expect("an address"), settings, Clock::system()).expect("a webhook")
}

#[tokio::test]
async fn webhook_works_over_real_http_and_https() {
    let server = Server::new([OK]);
    let port = listen(server.clone(), None).await;
    deliver(&system(&format!("http://127.0.0.1:{port}/"), None))
        .await
        .expect("delivered");

    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("ca.pem");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    std::fs::write(&ca, made.cert.pem()).expect("written");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a config");
    let port = listen(server.clone(), Some(Arc::new(config).into())).await;
    let url = format!("https://localhost:{port}/");
    let error = deliver(&system(&url, None))
        .await
        .expect_err("an untrusted certificate");
    assert!(error.reason().contains("certificate"), "{error:?}");
    deliver(&system(&url, Some(ca.clone()))).await.expect("delivered");
    assert_eq!(server.0.lock().requests.len(), 2);

    std::fs::write(&ca, "").expect("written");
    let settings = Settings {
        ca: Some(ca),
        ..Settings::default()
    };
    let error = Webhook::new(url.parse().expect("an address"), settings, Clock::system()).err();
    let error = error.expect("no certificate").to_string();
    assert!(
        error.ends_with("no certificate found; pass a PEM file with `ca=FILE`"),
        "{error}"
    );
}

#[tokio::test]
async fn refused_connection_is_reported_without_the_path() {
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        free.local_addr().expect("an address").port()
    };
    let error = deliver(&system(&format!("http://127.0.0.1:{port}/s3cret"), None)).await;
    let error = error.expect_err("no listener");
    assert!(error.reason().contains("Connection refused"), "{error:?}");
    assert!(!error.reason().contains("s3cret"), "{error:?}");
}
