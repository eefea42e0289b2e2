//! What a running manager shows over HTTP, through a socket.
//!
//! Statement 159 (metrics, health with subpaths and exclusions served and closed; port in use) and 160 (nothing left).
//! The texts are those that kube-apiserver 1.36 and controller-runtime 0.24 answer with.

mod exposition;
mod served;

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
async fn checks_answer_as_kube_apiserver_and_controller_runtime_do() {
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
    let answer = served.ask("GET", "/healthz", "").await;
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
async fn without_checks_answering_is_enough() {
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
async fn only_reading_is_allowed() {
    let served = Served::start(Endpoints::new()).await;
    let head = served.ask("HEAD", "/healthz", "").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let post = served.ask("POST", "/healthz", "Content-Length: 0\r\n").await;
    assert_eq!(post.status, 405);
    assert!(post.head.contains("allow: get, head"), "{}", post.head);
    served.stop().await;
}

#[tokio::test]
async fn a_check_that_hangs_or_panics_fails_alone() {
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
    // Checks are asked anew each time; an excluded one not at all.
    assert_eq!(served.get("/healthz/works").await.1, "ok");
    served.get("/healthz?exclude=works").await;
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    served.stop().await;
}

#[tokio::test]
async fn a_check_sees_the_present() {
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
async fn metrics_come_in_the_format_that_is_asked_for() {
    let metrics = Metrics::new();
    metrics.controller("settings", NonZeroUsize::MIN);
    let served = Served::start(Endpoints::new().metrics(metrics)).await;
    let plain = served.ask("GET", "/metrics", "Accept: */*\r\n").await;
    assert!(
        plain.head.contains("content-type: text/plain; version=0.0.4"),
        "{}",
        plain.head
    );
    assert!(exposition::parse(&plain.body).contains_key("controller_runtime_reconcile_total"));
    let open = served
        .ask(
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
async fn a_port_in_use_is_an_early_error_that_names_the_address_and_the_option() {
    let first = Listener::bind("127.0.0.1:0", "--listen")
        .await
        .expect("a free port");
    let address = first.local_addr().expect("an address").to_string();
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
async fn a_stop_lets_a_running_request_finish_and_closes_the_rest() {
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
    // One that keeps its connection and says nothing, and one in the midst of a request.
    let mut idle = TcpStream::connect(address).await.expect("it listens");
    let mut busy = TcpStream::connect(address).await.expect("it listens");
    busy.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .expect("it reads");
    starting.recv().await.expect("the check runs");

    let stopping = tokio::spawn(served.stop());
    let mut answer = String::new();
    // No new one is let in.
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    gate.notify_one();
    busy.read_to_string(&mut answer).await.expect("it answers");
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    stopping.await.expect("it stops");
    assert!(
        matches!(idle.read(&mut [0; 8]).await, Ok(0) | Err(_)),
        "the idle one is closed"
    );
}

#[tokio::test]
async fn a_request_without_an_end_does_not_hold_up_the_stop() {
    let checks = Checks::new()
        .timeout(Duration::from_hours(1))
        .add("hangs", pending);
    let served = Served::start(Endpoints::new().health(checks)).await;
    let mut busy = TcpStream::connect(served.address).await.expect("it listens");
    busy.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .expect("it reads");
    tokio::task::yield_now().await;
    tokio::time::timeout(Duration::from_secs(20), served.stop())
        .await
        .expect("it stops by itself");
    let mut rest = Vec::new();
    let closed = busy.read_to_end(&mut rest).await;
    assert!(matches!(closed, Ok(0)) || closed.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
}

/// Whatever served keeps is gone with it: a check's data is dropped when serving is, also in the midst of a request.
#[tokio::test]
async fn nothing_outlives_a_server_that_is_dropped() {
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
        .expect("a free port");
    let address = listener.local_addr().expect("an address");
    let serving = tokio::spawn(listener.serve(Endpoints::new().health(checks), pending()));
    let mut busy = TcpStream::connect(address).await.expect("it listens");
    busy.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .expect("it reads");
    starting.recv().await.expect("the check runs");
    assert!(Arc::strong_count(&kept) > 1);
    serving.abort();
    assert!(serving.await.expect_err("aborted").is_cancelled());
    while Arc::strong_count(&kept) > 1 {
        tokio::task::yield_now().await;
    }
}

/// A client with as many connections as there may be, none of which says anything.
#[tokio::test]
async fn silent_connections_do_not_keep_others_out() {
    let served = Served::start(Endpoints::new()).await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(served.address).await.expect("it listens"));
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
