//! Retries over real sockets: errors of lost connections are distinguished from others.

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
    layers::{ClientOptions, RateLimit, RetryPolicy, wrap},
    metrics::{Format, Metrics},
};

/// How a server loses a connection.
#[derive(Clone, Copy, Debug)]
enum LossPoint {
    /// Closed at once.
    BeforeRequest,
    /// Closed after the request.
    AfterRequest,
    /// Closed within the response headers.
    InResponse,
}

/// A server that loses the first `lost` connections. Lives as long as the set.
async fn lossy_server(lost: usize, how: LossPoint) -> (String, Arc<AtomicUsize>, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("free port");
    let url = format!("http://{}", listener.local_addr().expect("local address"));
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                return;
            };
            let is_lost = counter.fetch_add(1, Ordering::SeqCst) < lost;
            if is_lost && matches!(how, LossPoint::BeforeRequest) {
                continue;
            }
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let read = stream.read_buf(&mut request).await.expect("valid request");
                assert!(read > 0, "the whole request");
            }
            let answer: &[u8] = match (is_lost, how) {
                (true, LossPoint::InResponse) => b"HTTP/1.1 200 O",
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
        .expect("valid request")
}

fn quick() -> RetryPolicy {
    let mut retries = RetryPolicy::with_max_retries(3);
    retries.backoff = Duration::from_millis(1);
    retries
}

fn retrying(retries: RetryPolicy) -> ClientOptions {
    ClientOptions {
        retry_policy: Some(retries),
        ..ClientOptions::default()
    }
}

#[tokio::test]
async fn reads_are_retried_after_lost_connections_but_writes_are_not() {
    for how in [
        LossPoint::BeforeRequest,
        LossPoint::AfterRequest,
        LossPoint::InResponse,
    ] {
        let (url, connections, _tasks) = lossy_server(2, how).await;
        let answer = client(&url, retrying(quick())).send(request(Method::GET)).await;
        let answer = answer.unwrap_or_else(|error| panic!("{how:?}: {error:?}"));
        assert_eq!(answer.status(), StatusCode::OK, "{how:?}");
        assert_eq!(connections.load(Ordering::SeqCst), 3, "{how:?}");

        let (url, connections, _tasks) = lossy_server(2, how).await;
        let answer = client(&url, retrying(quick())).send(request(Method::PATCH)).await;
        assert!(answer.is_err(), "{how:?}");
        assert_eq!(connections.load(Ordering::SeqCst), 1, "{how:?}");
    }
}

#[tokio::test]
async fn unreachable_server_is_tried_up_to_the_retry_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("free port");
    let url = format!("http://{}", listener.local_addr().expect("local address"));
    drop(listener);
    let metrics = Metrics::new();
    let options = ClientOptions {
        rate_limit: Some(RateLimit::per_second(NonZeroU32::MAX)),
        metrics: Some(metrics.requests("down")),
        ..retrying(quick())
    };
    client(&url, options)
        .send(request(Method::GET))
        .await
        .expect_err("the server is down");
    let line = r#"rest_client_requests_total{code="<error>",host="down",method="GET"} 4"#;
    let text = metrics.scrape(Format::Prometheus);
    assert!(text.lines().any(|found| found == line), "{text}");
}
