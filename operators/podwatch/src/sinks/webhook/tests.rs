//! A webhook whose server fails in every way: in the process on a paused clock, and on real sockets.

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
use http_body_util::{Either, StreamBody};
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
use crate::{delivery::testing::pod, notice::What};

/// What the server does with the next request.
#[derive(Clone)]
enum Act {
    Answer(u16, &'static [(&'static str, &'static str)], &'static str),
    /// So many bytes.
    AnswerLong(usize),
    /// The status comes, the body never ends.
    AnswerForEver,
    Hang,
    /// The connection ends without an answer.
    Close,
    /// Nobody listens.
    Unreachable,
}

/// A server, and what it was asked.
#[derive(Clone)]
struct Server(Arc<Mutex<Inner>>);

struct Inner {
    /// The last one stays.
    acts: VecDeque<Act>,
    connections: usize,
    asked: Vec<(http::request::Parts, Value)>,
    tasks: JoinSet<()>,
}

type Body = Either<Full<Bytes>, StreamBody<futures::stream::Pending<Result<Frame<Bytes>, Infallible>>>>;

impl Server {
    fn new(acts: impl IntoIterator<Item = Act>) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            acts: acts.into_iter().collect(),
            connections: 0,
            asked: Vec::new(),
            tasks: JoinSet::new(),
        })))
    }

    fn next(&self) -> Act {
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
        self.0.lock().asked.push((head, body));
        let full = |bytes: Vec<u8>| Either::Left(Full::new(Bytes::from(bytes)));
        let answer = match self.next() {
            Act::Hang => std::future::pending().await,
            Act::Close | Act::Unreachable => return Err("closes"),
            Act::AnswerLong(size) => Response::new(full(vec![b'x'; size])),
            Act::AnswerForEver => Response::new(Either::Right(StreamBody::new(futures::stream::pending()))),
            Act::Answer(status, headers, text) => {
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
        Webhook::over(
            self.clone(),
            "http://hook.example/path?x=1".parse().expect("an address"),
            settings,
            clock,
        )
    }
}

/// Connections within the process.
impl tower::Service<Uri> for Server {
    type Response = Wire;
    type Error = io::Error;
    type Future = Ready<io::Result<Wire>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let mut inner = self.0.lock();
        if matches!(inner.acts[0], Act::Unreachable) {
            return ready(Err(io::ErrorKind::ConnectionRefused.into()));
        }
        inner.connections += 1;
        let (here, there) = tokio::io::duplex(1 << 16);
        inner.tasks.spawn(self.clone().serve(there));
        ready(Ok(Wire(TokioIo::new(here))))
    }
}

struct Wire(TokioIo<DuplexStream>);

impl Connection for Wire {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for Wire {
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

async fn deliver(webhook: &mut Webhook) -> Result<(), Trouble> {
    let notice = Arc::new(pod("web", "1", 7).what(What::Updated).build());
    webhook.deliver(&notice).await
}

const OK: Act = Act::Answer(204, &[], "");

#[tokio::test(start_paused = true)]
async fn a_notice_is_posted_as_a_cloud_event_and_the_connection_is_used_again() {
    let server = Server::new([Act::Answer(200, &[], "thanks"), OK]);
    let mut webhook = server.webhook(Settings::default());
    for _ in 0..5 {
        deliver(&mut webhook).await.expect("delivered");
    }
    let inner = server.0.lock();
    assert_eq!((inner.asked.len(), inner.connections), (5, 1));
    let (head, event) = &inner.asked[0];
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
async fn the_status_decides() {
    enum Expected {
        Down(Option<u64>),
        Failed,
        Refused,
    }
    use Expected::{Down, Failed, Refused};
    let cases: [(Act, Expected, &str); 13] = [
        (
            Act::Answer(400, &[], "bad\nworse"),
            Refused,
            "answered 400 Bad Request (bad)",
        ),
        (
            Act::Answer(401, &[], ""),
            Refused,
            "answered 401 Unauthorized: give it a token that it accepts with `token-file=`",
        ),
        (
            Act::Answer(404, &[], ""),
            Refused,
            "answered 404 Not Found: is the path right?",
        ),
        (
            Act::Answer(415, &[], ""),
            Refused,
            "answered 415 Unsupported Media Type",
        ),
        (
            Act::Answer(301, &[("location", "https://new.example/")], ""),
            Refused,
            "answered 301 Moved Permanently, which leads elsewhere to https://new.example/: name that address",
        ),
        (
            Act::Answer(408, &[], ""),
            Down(None),
            "answered 408 Request Timeout",
        ),
        (
            Act::Answer(429, &[("retry-after", "17")], ""),
            Down(Some(17)),
            "answered 429 Too Many Requests",
        ),
        (
            Act::Answer(429, &[("retry-after", "soon")], ""),
            Down(None),
            "answered 429 Too Many Requests",
        ),
        (
            Act::Answer(503, &[("retry-after", "999999")], ""),
            Down(Some(600)),
            "answered 503 Service Unavailable",
        ),
        (
            // A minute after the test's clock.
            Act::Answer(503, &[("retry-after", "Fri, 02 Jan 2026 03:05:05 GMT")], ""),
            Down(Some(60)),
            "answered 503 Service Unavailable",
        ),
        (Act::Answer(502, &[], ""), Down(None), "answered 502 Bad Gateway"),
        (
            Act::Answer(500, &[], "oops"),
            Failed,
            "answered 500 Internal Server Error (oops)",
        ),
        (
            Act::Answer(500, &[("retry-after", "0")], ""),
            Down(Some(0)),
            "answered 500 Internal Server Error",
        ),
    ];
    for (act, expected, why) in cases {
        let why = why.to_owned();
        let expected = match expected {
            Down(after) => Trouble::Down {
                why,
                after: after.map(Duration::from_secs),
            },
            Failed => Trouble::Failed { why },
            Refused => Trouble::Refused { why },
        };
        let trouble = deliver(&mut Server::new([act]).webhook(Settings::default())).await;
        assert_eq!(trouble, Err(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_is_left_after_the_timeout() {
    let server = Server::new([Act::Hang]);
    let mut webhook = server.webhook(Settings {
        timeout: Duration::from_secs(3),
        ..Settings::default()
    });
    let start = Instant::now();
    let trouble = deliver(&mut webhook).await.expect_err("no answer");
    assert_eq!(trouble.why(), "no answer within 3s; `timeout=` allows more");
    assert!(matches!(trouble, Trouble::Down { .. }));
    assert_eq!(start.elapsed().as_secs(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_or_does_not_listen_is_down_and_can_come_back() {
    let server = Server::new([Act::Close, Act::Unreachable]);
    let mut webhook = server.webhook(Settings::default());
    for _ in 0..2 {
        let trouble = deliver(&mut webhook).await.expect_err("nobody there");
        assert!(trouble.why().starts_with("cannot be reached: "), "{trouble:?}");
        assert!(
            trouble
                .why()
                .ends_with("; is the address right, and does it listen?"),
            "{trouble:?}"
        );
        assert!(matches!(trouble, Trouble::Down { .. }));
    }
    server.0.lock().acts = [OK].into();
    deliver(&mut webhook).await.expect("delivered");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_long_or_never_ends_is_cut_and_its_status_counts() {
    let server = Server::new([Act::AnswerLong(10 << 20), Act::AnswerForEver, OK]);
    let mut webhook = server.webhook(Settings::default());
    let start = Instant::now();
    for _ in 0..3 {
        deliver(&mut webhook).await.expect("delivered");
    }
    assert!(
        start.elapsed() <= Duration::from_millis(1010),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(
        server.0.lock().connections,
        3,
        "a connection with a rest on it is not used again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_is_sent_as_it_is_now() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("token");
    let server = Server::new([OK]);
    let mut webhook = server.webhook(Settings {
        token_file: Some(path.clone()),
        ..Settings::default()
    });
    let trouble = deliver(&mut webhook).await.expect_err("no file");
    assert!(
        trouble.why().starts_with("cannot read `token-file` "),
        "{trouble:?}"
    );
    for token in ["one", "two"] {
        std::fs::write(&path, format!("{token}\n")).expect("written");
        deliver(&mut webhook).await.expect("delivered");
    }
    std::fs::write(&path, "a\nb").expect("written");
    let trouble = deliver(&mut webhook).await.expect_err("two lines");
    assert!(trouble.why().contains("is no token"), "{trouble:?}");
    let inner = server.0.lock();
    let sent: Vec<_> = inner
        .asked
        .iter()
        .map(|(head, _)| head.headers["authorization"].to_str().expect("text"))
        .collect();
    assert_eq!(sent, ["Bearer one", "Bearer two"]);
}

#[test]
fn webhook_with_token_refuses_plain_http() {
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
            error.contains("use an address with https://, or add `insecure-token=allow`"),
            "{error}"
        );
        assert_eq!(made(url, settings(true)), Ok(()), "{url}");
        assert_eq!(made(url, Settings::default()), Ok(()), "{url}");
    }
    assert_eq!(made("https://h/", settings(false)), Ok(()));
}

#[tokio::test]
async fn redirect_does_not_carry_the_token_elsewhere() {
    let folder = tempfile::tempdir().expect("a folder");
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, "s3cret").expect("written");
    for status in [301, 302, 303, 307, 308] {
        let other = Server::new([OK]);
        let place = format!("http://127.0.0.1:{}/", listen(other.clone(), None).await);
        let place: &'static str = Box::leak(place.into_boxed_str());
        let location: &'static [_] = Box::leak(Box::new([("location", place)]));
        let first = Server::new([Act::Answer(status, location, "")]);
        let port = listen(first.clone(), None).await;
        let settings = Settings {
            token_file: Some(token_file.clone()),
            insecure_token: true,
            ..Settings::default()
        };
        let url = format!("http://127.0.0.1:{port}/").parse().expect("an address");
        let mut webhook = Webhook::new(url, settings, Clock::system()).expect("a webhook");
        let trouble = deliver(&mut webhook).await.expect_err("it leads elsewhere");
        assert!(
            matches!(trouble, Trouble::Refused { .. }),
            "{status}: {trouble:?}"
        );
        assert_eq!(first.0.lock().asked.len(), 1, "{status}");
        assert_eq!(other.0.lock().asked.len(), 0, "{status}");
    }
}

/// Serves on a socket of the machine, with TLS if there is a certificate.
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
async fn http_and_https_on_real_sockets() {
    let server = Server::new([OK]);
    let port = listen(server.clone(), None).await;
    deliver(&mut system(&format!("http://127.0.0.1:{port}/"), None))
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
    let trouble = deliver(&mut system(&url, None))
        .await
        .expect_err("nobody trusts it");
    assert!(trouble.why().contains("certificate"), "{trouble:?}");
    deliver(&mut system(&url, Some(ca.clone())))
        .await
        .expect("delivered");
    assert_eq!(server.0.lock().asked.len(), 2);

    std::fs::write(&ca, "").expect("written");
    let settings = Settings {
        ca: Some(ca),
        ..Settings::default()
    };
    let error = Webhook::new(url.parse().expect("an address"), settings, Clock::system()).err();
    let error = error.expect("no certificate").to_string();
    assert!(
        error.ends_with("there is none in it; name a PEM file with `ca=FILE`"),
        "{error}"
    );
}

#[tokio::test]
async fn an_address_where_nobody_listens_says_so() {
    let port = {
        let free = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        free.local_addr().expect("an address").port()
    };
    let trouble = deliver(&mut system(&format!("http://127.0.0.1:{port}/s3cret"), None)).await;
    let trouble = trouble.expect_err("nobody listens");
    assert!(trouble.why().contains("Connection refused"), "{trouble:?}");
    assert!(!trouble.why().contains("s3cret"), "{trouble:?}");
}
