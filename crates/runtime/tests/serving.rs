//! The HTTP endpoints of a manager, over a socket.
//!
//! Metrics, health checks with subpaths and exclusions, shutdown, and a port in use.
//! The expected texts are the responses of kube-apiserver 1.36 and controller-runtime 0.24.

use crate::exposition;
use crate::served;

use std::{
    future::pending,
    io::ErrorKind,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use served::Served;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use windlass_runtime::{
    metrics::Metrics,
    serving::{Checks, Endpoints, Listener},
};

#[tokio::test]
async fn checks_respond_like_kube_apiserver_and_controller_runtime() {
    let served = Served::start(
        Endpoints::new()
            .health(
                Checks::new()
                    .add("ping", || async { Ok(()) })
                    .add("bad", || async { Err("broken".into()) }),
            )
            .ready(
                Checks::new()
                    .add("ping", || async { Ok(()) })
                    .add("poststarthook/caches", || async { Ok(()) }),
            ),
    )
    .await;
    let all_ready = "[+]ping ok\n[+]poststarthook/caches ok\nreadyz check passed\n";
    let failing = "[-]bad failed: reason withheld\n[+]ping ok\nhealthz check failed\n";
    for (path, status, body) in [
        ("/readyz", 200, "ok"),
        ("/readyz/", 200, "ok"),
        ("/readyz?verbose", 200, all_ready),
        ("/readyz?verbose=true", 200, all_ready),
        ("/readyz/ping", 200, "ok"),
        ("/readyz/poststarthook/caches", 200, "ok"),
        ("/readyz/no", 404, "404 page not found\n"),
        ("/readyz/poststarthook", 404, "404 page not found\n"),
        ("/healthz", 500, failing),
        ("/healthz?verbose", 500, failing),
        ("/healthz/ping", 200, "ok"),
        ("/healthz/bad", 500, "internal server error: broken\n"),
        ("/healthz?exclude=bad", 200, "ok"),
        (
            "/healthz?verbose&exclude=bad&exclude=z%20z",
            200,
            "[+]bad excluded: ok\n[+]ping ok\n\
             warn: some health checks cannot be excluded: no matches for \"z z\"\nhealthz check passed\n",
        ),
        (
            "/healthz?exclude=zz",
            500,
            "[-]bad failed: reason withheld\n[+]ping ok\n\
             warn: some health checks cannot be excluded: no matches for \"zz\"\nhealthz check failed\n",
        ),
        ("/readyz?exclude=zz", 200, "ok"),
        ("/", 404, "404 page not found\n"),
        ("/metrics", 404, "404 page not found\n"),
        ("/debug/controllers", 404, "404 page not found\n"),
        ("/debug/caches", 404, "404 page not found\n"),
    ] {
        assert_eq!(served.get(path).await, (status, body.to_owned()), "{path}");
    }
    let answer = served.request("GET", "/healthz", "").await;
    assert!(
        answer.head.contains("content-type: text/plain; charset=utf-8"),
        "{}",
        answer.head
    );
    assert!(
        answer.head.contains("x-content-type-options: nosniff"),
        "{}",
        answer.head
    );
    served.stop().await;
}

#[tokio::test]
async fn endpoint_without_checks_succeeds() {
    let served = Served::start(Endpoints::new()).await;
    for (path, status, body) in [
        ("/healthz", 200, "ok"),
        ("/healthz/ping", 200, "ok"),
        ("/readyz?verbose", 200, "[+]ping ok\nreadyz check passed\n"),
        ("/readyz/pong", 404, "404 page not found\n"),
    ] {
        assert_eq!(served.get(path).await, (status, body.to_owned()), "{path}");
    }
    served.stop().await;
}

#[tokio::test]
async fn only_get_and_head_are_allowed() {
    let served = Served::start(Endpoints::new()).await;
    let head = served.request("HEAD", "/healthz", "").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let post = served.request("POST", "/healthz", "Content-Length: 0\r\n").await;
    assert_eq!(post.status, 405);
    assert!(post.head.contains("allow: get, head"), "{}", post.head);
    served.stop().await;
}

#[tokio::test]
async fn check_that_hangs_or_panics_does_not_affect_others() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let checks = Checks::new()
        .timeout(Duration::from_millis(20))
        .add("hangs", pending)
        .add("panics", || async { panic!("no") })
        .add("panics-early", || -> std::future::Ready<_> { panic!("no") })
        .add("works", move || {
            counter.fetch_add(1, Ordering::Relaxed);
            async { Ok(()) }
        });
    let served = Served::start(Endpoints::new().health(checks)).await;
    let (status, body) = served.get("/healthz").await;
    assert_eq!(status, 500);
    assert_eq!(
        body,
        "[-]hangs failed: reason withheld\n[-]panics failed: reason withheld\n\
         [-]panics-early failed: reason withheld\n[+]works ok\nhealthz check failed\n"
    );
    assert_eq!(
        served.get("/healthz/hangs").await.1,
        "internal server error: the check took longer than 20ms\n"
    );
    assert_eq!(
        served.get("/healthz/panics").await.1,
        "internal server error: the check panicked\n"
    );
    // Checks run at each request; excluded ones do not.
    assert_eq!(served.get("/healthz/works").await.1, "ok");
    served.get("/healthz?exclude=works").await;
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    served.stop().await;
}

#[tokio::test]
async fn check_runs_at_each_request() {
    let ready = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ready);
    let checks = Checks::new().add("caches", move || {
        let ready = seen.load(Ordering::Relaxed);
        async move { ready.then_some(()).ok_or_else(|| "waiting for Foo".into()) }
    });
    let served = Served::start(Endpoints::new().ready(checks)).await;
    assert_eq!(served.get("/readyz").await.0, 500);
    ready.store(true, Ordering::Relaxed);
    assert_eq!(served.get("/readyz").await.0, 200);
    served.stop().await;
}

#[tokio::test]
async fn metrics_format_is_negotiated() {
    let metrics = Metrics::new();
    metrics.controller("settings", NonZeroUsize::MIN);
    let served = Served::start(Endpoints::new().metrics(metrics)).await;
    let plain = served.request("GET", "/metrics", "Accept: */*\r\n").await;
    assert!(
        plain.head.contains("content-type: text/plain; version=0.0.4"),
        "{}",
        plain.head
    );
    assert!(exposition::parse(&plain.body).contains_key("controller_runtime_reconcile_total"));
    let open = served
        .request(
            "GET",
            "/metrics",
            "Accept: application/openmetrics-text;version=1.0.0\r\n",
        )
        .await;
    assert!(
        open.head.contains("application/openmetrics-text; version=1.0.0"),
        "{}",
        open.head
    );
    assert!(open.body.ends_with("# EOF\n"));
    served.stop().await;
}

#[tokio::test]
async fn port_in_use_is_an_error_with_the_address_and_the_option() {
    let first = Listener::bind("127.0.0.1:0", "--listen")
        .await
        .expect("free port");
    let address = first.local_addr().expect("local address").to_string();
    let second = Listener::bind(&address, "--metrics-address").await;
    assert_eq!(
        second.expect_err("it is in use").to_string(),
        format!(
            "cannot listen on {address}: the port is in use; choose another address with `--metrics-address`"
        )
    );
    let nonsense = Listener::bind("8080", "--listen")
        .await
        .expect_err("no port")
        .to_string();
    assert!(nonsense.starts_with("cannot listen on 8080: "), "{nonsense}");
}

#[tokio::test]
async fn stop_finishes_running_requests_and_closes_idle_connections() {
    let (started, mut starting) = tokio::sync::mpsc::channel(1);
    let gate = Arc::new(tokio::sync::Notify::new());
    let opened = Arc::clone(&gate);
    let checks = Checks::new().add("slow", move || {
        let (started, opened) = (started.clone(), Arc::clone(&opened));
        async move {
            started.send(()).await.ok();
            opened.notified().await;
            Ok(())
        }
    });
    let served = Served::start(Endpoints::new().health(checks)).await;
    let address = served.address;
    // An idle connection, and one within a request.
    let mut idle = TcpStream::connect(address).await.expect("listening");
    let mut busy = TcpStream::connect(address).await.expect("listening");
    busy.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .expect("request sent");
    starting.recv().await.expect("the check runs");

    let stopping = tokio::spawn(served.stop());
    let mut answer = String::new();
    // No new connection is accepted.
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    gate.notify_one();
    busy.read_to_string(&mut answer).await.expect("response received");
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    stopping.await.expect("stops cleanly");
    assert!(
        matches!(idle.read(&mut [0; 8]).await, Ok(0) | Err(_)),
        "the idle connection is closed"
    );
}

#[tokio::test]
async fn endless_request_does_not_block_the_stop() {
    let checks = Checks::new()
        .timeout(Duration::from_hours(1))
        .add("hangs", pending);
    let served = Served::start(Endpoints::new().health(checks)).await;
    let mut busy = TcpStream::connect(served.address).await.expect("listening");
    busy.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .expect("request sent");
    tokio::task::yield_now().await;
    tokio::time::timeout(Duration::from_secs(20), served.stop())
        .await
        .expect("stops without help");
    let mut rest = Vec::new();
    let closed = busy.read_to_end(&mut rest).await;
    assert!(matches!(closed, Ok(0)) || closed.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
}

/// The data of a check is dropped with the server, even during a request.
#[tokio::test]
async fn dropped_server_leaves_nothing() {
    let kept = Arc::new(());
    let (started, mut starting) = tokio::sync::mpsc::channel(1);
    let held = Arc::clone(&kept);
    let checks = Checks::new()
        .timeout(Duration::from_hours(1))
        .add("hangs", move || {
            let (held, started) = (Arc::clone(&held), started.clone());
            async move {
                started.send(()).await.ok();
                pending::<()>().await;
                drop(held);
                Ok(())
            }
        });
    let listener = Listener::bind("127.0.0.1:0", "--listen")
        .await
        .expect("free port");
    let address = listener.local_addr().expect("local address");
    let serving = tokio::spawn(listener.serve(Endpoints::new().health(checks), pending()));
    let mut busy = TcpStream::connect(address).await.expect("listening");
    busy.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .expect("request sent");
    starting.recv().await.expect("the check runs");
    assert!(Arc::strong_count(&kept) > 1);
    serving.abort();
    assert!(serving.await.expect_err("aborted").is_cancelled());
    while Arc::strong_count(&kept) > 1 {
        tokio::task::yield_now().await;
    }
}

/// A client with the maximum number of connections, all silent.
#[tokio::test]
async fn silent_connections_do_not_block_others() {
    let served = Served::start(Endpoints::new()).await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(served.address).await.expect("listening"));
    }
    let asked = tokio::time::timeout(Duration::from_secs(20), served.get("/healthz")).await;
    assert_eq!(asked.expect("it is answered").0, 200);
    // The oldest were closed, and no more than necessary.
    let (oldest, rest) = silent.split_at_mut(200 + 1 - 128);
    for connection in oldest {
        let read = tokio::time::timeout(Duration::from_secs(20), connection.read(&mut [0; 1])).await;
        assert!(matches!(read, Ok(Ok(0) | Err(_))), "closed");
    }
    for connection in rest {
        let read = tokio::time::timeout(Duration::from_millis(1), connection.read(&mut [0; 1])).await;
        assert!(read.is_err(), "still open");
    }
    served.stop().await;
}
