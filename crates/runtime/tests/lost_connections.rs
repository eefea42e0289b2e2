//! Retries over real sockets: the errors that a client's libraries give for a lost connection are told from others.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::{Method, Request, StatusCode};
use kube::{Client, Config, client::Body};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
};
use windlass_runtime::{
    layers::{ClientOptions, RateLimit, Retries, wrap},
    metrics::{Format, Metrics},
};

/// How a server treats the connections that it gets before it begins to answer.
#[derive(Clone, Copy, Debug)]
enum Loses {
    /// Closed at once.
    BeforeTheRequest,
    /// Closed when the request has come.
    AfterTheRequest,
    /// Closed in the midst of the answer's head.
    InTheAnswer,
}

/// A server that loses the first `lost` connections. Lives as long as the set.
async fn losing(lost: usize, how: Loses) -> (String, Arc<AtomicUsize>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                return;
            };
            let is_lost = counter.fetch_add(1, Ordering::SeqCst) < lost;
            if is_lost && matches!(how, Loses::BeforeTheRequest) {
                continue;
            }
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let read = stream.read_buf(&mut request).await.expect("a request");
                assert!(read > 0, "the whole request");
            }
            let answer: &[u8] = match (is_lost, how) {
                (true, Loses::InTheAnswer) => b"HTTP/1.1 200 O",
                (true, _) => b"",
                (false, _) => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
            };
            stream.write_all(answer).await.expect("it is read");
        }
    });
    (url, connections, tasks)
}

fn client(url: &str, options: ClientOptions) -> Client {
    let mut config = Config::new(url.parse().expect("a URL"));
    config.default_retry = false;
    wrap(Client::try_from(config).expect("a client"), options)
}

fn request(method: Method) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri("/api/v1/nodes/x")
        .body(Body::empty())
        .expect("a request")
}

fn quick() -> Retries {
    let mut retries = Retries::at_most(3);
    retries.backoff = Duration::from_millis(1);
    retries
}

fn retrying(retries: Retries) -> ClientOptions {
    ClientOptions {
        retries: Some(retries),
        ..ClientOptions::default()
    }
}

#[tokio::test]
async fn a_read_survives_lost_connections_and_a_write_reports_them() {
    for how in [
        Loses::BeforeTheRequest,
        Loses::AfterTheRequest,
        Loses::InTheAnswer,
    ] {
        let (url, connections, _tasks) = losing(2, how).await;
        let answer = client(&url, retrying(quick())).send(request(Method::GET)).await;
        let answer = answer.unwrap_or_else(|error| panic!("{how:?}: {error:?}"));
        assert_eq!(answer.status(), StatusCode::OK, "{how:?}");
        assert_eq!(connections.load(Ordering::SeqCst), 3, "{how:?}");

        let (url, connections, _tasks) = losing(2, how).await;
        let answer = client(&url, retrying(quick())).send(request(Method::PATCH)).await;
        assert!(answer.is_err(), "{how:?}");
        assert_eq!(connections.load(Ordering::SeqCst), 1, "{how:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_down_is_asked_as_often_as_allowed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let metrics = Metrics::new();
    let options = ClientOptions {
        limit: Some(RateLimit::per_second(NonZeroU32::MAX)),
        metrics: Some(metrics.requests("down")),
        ..retrying(quick())
    };
    client(&url, options)
        .send(request(Method::GET))
        .await
        .expect_err("nobody is there");
    let line = r#"rest_client_requests_total{code="<error>",host="down",method="GET"} 4"#;
    let text = metrics.scrape(Format::Prometheus);
    assert!(text.lines().any(|found| found == line), "{text}");
}
