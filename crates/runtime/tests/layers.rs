//! The client layers, on a paused clock, with a scripted server.

use crate::scripted;

use std::{
    future::pending,
    io,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::future::join_all;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use scripted::{Reply, Scripted, get, request};
use tokio::time::{Instant, sleep, timeout};
use tower::service_fn;
use windlass_runtime::{
    layers::{ClientOptions, RateLimit, RetryPolicy, wrap},
    metrics::{Format, Metrics},
};

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("not zero")
}

fn limited(server: &Scripted, per_second: u32, burst: u32) -> Client {
    let limit = RateLimit::per_second(number(per_second)).burst(number(burst));
    let options = ClientOptions {
        rate_limit: Some(limit),
        retry_policy: None,
        metrics: None,
        ..ClientOptions::default()
    };
    wrap(server.client(), options)
}

/// How long after `start`, in milliseconds, each request reached the server.
fn arrivals(server: &Scripted, start: Instant) -> Vec<u128> {
    let requests = server.requests();
    requests
        .iter()
        .map(|request| (request.at - start).as_millis())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn burst_is_sent_at_once_and_the_rest_at_the_rate() {
    let server = Scripted::new([]);
    let client = limited(&server, 10, 3);
    let start = Instant::now();
    join_all((0..6).map(|_| client.send(get("/version")))).await;
    assert_eq!(arrivals(&server, start), [0, 0, 0, 100, 200, 300]);

    // After a pause the bucket is full again, but not overfull.
    sleep(Duration::from_mins(1)).await;
    let start = Instant::now();
    join_all((0..5).map(|_| client.send(get("/version")))).await;
    assert_eq!(arrivals(&server, start)[6..], [0, 0, 0, 100, 200]);
}

#[tokio::test(start_paused = true)]
async fn rate_limited_requests_keep_their_order() {
    let server = Scripted::new([]);
    let client = limited(&server, 10, 1);
    let paths: Vec<_> = (0..20).map(|index| format!("/version?{index}")).collect();
    join_all(paths.iter().map(|path| client.send(get(path)))).await;
    let uris: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.uri.clone())
        .collect();
    assert_eq!(uris, paths);
}

#[tokio::test(start_paused = true)]
async fn request_cancelled_while_waiting_takes_no_token() {
    let server = Scripted::new([]);
    let client = limited(&server, 1, 1);
    let start = Instant::now();
    client.send(get("/version")).await.expect("response");
    let given_up = timeout(Duration::from_millis(300), client.send(get("/version?gone"))).await;
    assert!(given_up.is_err());
    client.send(get("/version")).await.expect("response");
    assert_eq!(
        arrivals(&server, start),
        [0, 1000],
        "the third request got the second token"
    );
}

#[tokio::test(start_paused = true)]
async fn watch_needs_no_token() {
    let server = Scripted::new([]);
    let client = limited(&server, 1, 1);
    let start = Instant::now();
    for _ in 0..3 {
        client
            .send(get("/api/v1/pods?watch=true"))
            .await
            .expect("response");
    }
    client
        .send(get("/api/v1/pods?watch=false"))
        .await
        .expect("response");
    client.send(get("/api/v1/pods")).await.expect("response");
    assert_eq!(arrivals(&server, start), [0, 0, 0, 0, 1000]);
}

fn retrying(server: &Scripted, retries: RetryPolicy) -> Client {
    let options = ClientOptions {
        retry_policy: Some(retries),
        ..ClientOptions::default()
    };
    wrap(server.client(), options)
}

#[tokio::test(start_paused = true)]
async fn write_is_retried_after_retry_after_with_its_body() {
    for status in [429, 503] {
        let server = Scripted::new([Reply::after(status, "7"), Reply::after(status, "0")]);
        let client = retrying(&server, RetryPolicy::default());
        let start = Instant::now();
        let write = request(Method::POST, "/api/v1/namespaces/n/configmaps", "{\"a\":1}");
        let answer = client.send(write).await.expect("response");
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(arrivals(&server, start), [0, 7000, 7000]);
        for request in server.requests() {
            assert_eq!(request.body, "{\"a\":1}");
            assert_eq!(request.method, Method::POST);
            assert_eq!(request.uri, "/api/v1/namespaces/n/configmaps");
            assert_eq!(request.content_type.as_deref(), Some("application/json"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_safe_requests_are_retried() {
    let table = [
        (Method::POST, Reply::Status(429), 1),
        (Method::POST, Reply::Status(503), 1),
        (Method::POST, Reply::after(504, "1"), 1),
        (Method::PATCH, Reply::after(500, "1"), 1),
        (Method::DELETE, Reply::Broken(io::ErrorKind::ConnectionReset), 1),
        (Method::PUT, Reply::Broken(io::ErrorKind::ConnectionRefused), 1),
        (Method::POST, Reply::Status(409), 1),
        (Method::GET, Reply::Status(503), 1),
        (Method::GET, Reply::after(404, "1"), 1),
        (Method::GET, Reply::after(429, "soon"), 1),
        (Method::GET, Reply::Broken(io::ErrorKind::PermissionDenied), 1),
        // Safe to retry.
        (Method::PUT, Reply::after(429, "1"), 2),
        (Method::GET, Reply::after(504, "1"), 2),
        (Method::GET, Reply::Broken(io::ErrorKind::ConnectionReset), 2),
        (Method::GET, Reply::Broken(io::ErrorKind::ConnectionRefused), 2),
        (Method::GET, Reply::Broken(io::ErrorKind::UnexpectedEof), 2),
    ];
    for (method, reply, attempts) in table {
        let case = format!("{method} {reply:?}");
        let server = Scripted::new([reply]);
        let client = retrying(&server, RetryPolicy::default());
        let answer = client.send(request(method, "/api/v1/nodes/x", "{}")).await;
        assert_eq!(server.requests().len(), attempts, "{case}");
        let succeeded = answer.is_ok_and(|answer| answer.status() == StatusCode::OK);
        assert_eq!(succeeded, attempts == 2, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn last_response_is_returned_when_retries_run_out() {
    let server = Scripted::new((0..9).map(|_| Reply::after(429, "1")));
    let client = retrying(&server, RetryPolicy::with_max_retries(3));
    let start = Instant::now();
    let answer = client.send(get("/version")).await.expect("response");
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(arrivals(&server, start), [0, 1000, 2000, 3000]);
    let body = answer.into_body().collect_bytes().await.expect("the body");
    assert_eq!(body, "429", "with its body");
}

/// A PDB that does not allow an eviction answers 429 too, maybe for hours.
#[tokio::test(start_paused = true)]
async fn eviction_is_not_retried() {
    let server = Scripted::new([Reply::after(429, "1")]);
    let client = retrying(&server, RetryPolicy::default());
    let eviction = request(Method::POST, "/api/v1/namespaces/n/pods/p/eviction", "{}");
    let answer = client.send(eviction).await.expect("response");
    assert_eq!((answer.status().as_u16(), server.requests().len()), (429, 1));
}

#[tokio::test(start_paused = true)]
async fn retry_after_above_the_maximum_is_not_awaited() {
    for seconds in ["31", "86400", "18446744073709551615"] {
        let server = Scripted::new([Reply::after(429, seconds)]);
        let client = retrying(&server, RetryPolicy::default());
        let start = Instant::now();
        let answer = client.send(get("/version")).await.expect("response");
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(start.elapsed(), Duration::ZERO, "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_connection_is_retried_with_growing_backoff() {
    let server = Scripted::new((0..7).map(|_| Reply::Broken(io::ErrorKind::ConnectionRefused)));
    let client = retrying(&server, RetryPolicy::default());
    let start = Instant::now();
    client.send(get("/version")).await.expect("the eighth succeeds");
    let at = arrivals(&server, start);
    let waits: Vec<_> = at.windows(2).map(|two| two[1] - two[0]).collect();
    for (wait, longest) in waits.iter().zip([50, 100, 200, 400, 800, 800, 800]) {
        assert!((longest / 2..=longest + 1).contains(wait), "{waits:?}");
    }
    assert_eq!(waits.len(), 7);
}

#[tokio::test(start_paused = true)]
async fn watch_is_not_retried() {
    let server = Scripted::new([Reply::after(429, "1")]);
    let client = retrying(&server, RetryPolicy::default());
    let answer = client.send(get("/api/v1/pods?watch=1")).await.expect("response");
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(server.requests().len(), 1);
}

/// The response to a watch never ends: a layer that reads it would hang here.
#[tokio::test(start_paused = true)]
async fn response_is_streamed_frame_by_frame() {
    let server = Scripted::new([Reply::Endless, Reply::Endless]);
    let metrics = Metrics::new();
    let options = ClientOptions {
        rate_limit: Some(RateLimit::per_second(number(1))),
        metrics: Some(metrics.requests("server")),
        ..ClientOptions::default()
    };
    let client = wrap(server.client(), options);
    for path in [
        "/api/v1/pods?watch=true",
        "/api/v1/namespaces/n/pods/p/log?follow=true",
    ] {
        let answer = timeout(Duration::from_secs(9), client.send(get(path))).await;
        let mut body = answer.expect("in time").expect("response").into_body();
        let frame = body.frame().await.expect("a frame").expect("data");
        assert_eq!(frame.into_data().expect("data"), "first");
    }
}

/// An error response whose body never ends does not delay the next attempt.
#[tokio::test(start_paused = true)]
async fn endless_error_body_does_not_delay_the_retry() {
    let server = Scripted::new([Reply::EndlessRefusal]);
    let client = retrying(&server, RetryPolicy::default());
    let start = Instant::now();
    client.send(get("/version")).await.expect("response");
    assert_eq!(arrivals(&server, start), [0, 1000]);
}

#[tokio::test(start_paused = true)]
async fn streaming_body_is_not_retried() {
    let server = Scripted::new([Reply::after(429, "1")]);
    let client = retrying(&server, RetryPolicy::default());
    // A body from another client's response is a stream.
    let echo = Client::new(
        service_fn(|request: Request<Body>| async {
            Ok::<_, kube::Error>(http::Response::new(request.into_body()))
        }),
        "default",
    );
    let streamed = echo
        .send(request(Method::POST, "/", "once"))
        .await
        .expect("an echo");
    let answer = client
        .send(request(Method::POST, "/api/v1/nodes", "").map(|_| streamed.into_body()))
        .await
        .expect("response");
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(server.requests().len(), 1);
    assert_eq!(server.requests()[0].body, "once");
}

#[tokio::test(start_paused = true)]
async fn each_attempt_is_rate_limited_and_counted() {
    let server = Scripted::new([
        Reply::after(429, "0"),
        Reply::Broken(io::ErrorKind::ConnectionReset),
    ]);
    let metrics = Metrics::new();
    let options = ClientOptions {
        rate_limit: Some(RateLimit::per_second(number(1))),
        retry_policy: Some(RetryPolicy::default()),
        metrics: Some(metrics.requests("10.0.0.1:443")),
        ..ClientOptions::default()
    };
    let client = wrap(server.client(), options);
    let start = Instant::now();
    client.send(get("/version")).await.expect("response");
    assert_eq!(arrivals(&server, start), [0, 1000, 2000]);
    let text = metrics.scrape(Format::Prometheus);
    for code in ["200", "429", "<error>"] {
        let line =
            format!(r#"rest_client_requests_total{{code="{code}",host="10.0.0.1:443",method="GET"}} 1"#);
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
}

/// A write fence must check every attempt, right before it is sent.
#[tokio::test(start_paused = true)]
async fn inner_layer_sees_every_attempt() {
    let server = Scripted::new([Reply::after(503, "5")]);
    let passed = Arc::new(AtomicUsize::new(0));
    let (inner, counter) = (server.client(), Arc::clone(&passed));
    let fence = service_fn(move |request: Request<Body>| {
        let (inner, counter) = (inner.clone(), Arc::clone(&counter));
        async move {
            if counter.fetch_add(1, Ordering::Relaxed) > 0 {
                return Err(kube::Error::Service("the lease is lost".into()));
            }
            inner.send(request).await
        }
    });
    let client = wrap(Client::new(fence, "team-a"), ClientOptions::default());
    let refused = client.send(request(Method::PUT, "/api/v1/nodes/x", "{}")).await;
    assert!(
        refused
            .expect_err("refused")
            .to_string()
            .contains("the lease is lost")
    );
    assert_eq!(passed.load(Ordering::Relaxed), 2);
    assert_eq!(
        server.requests().len(),
        1,
        "the second attempt did not get past the fence"
    );
    assert_eq!(client.default_namespace(), "team-a");
}

#[tokio::test(start_paused = true)]
async fn cancelled_request_ends_its_retries() {
    let server = Scripted::new((0..9).map(|_| Reply::after(429, "1")));
    let client = retrying(&server, RetryPolicy::default());
    let given_up = timeout(Duration::from_millis(1500), client.send(get("/version"))).await;
    assert!(given_up.is_err());
    sleep(Duration::from_mins(1)).await;
    assert_eq!(server.requests().len(), 2);
    // No timer is left that would keep the paused clock busy.
    assert!(timeout(Duration::from_secs(1), pending::<Bytes>()).await.is_err());
}
