//! A server that cannot be reached: what a manager logs, and whether it is ready. In a process of its own, because it sets
//! the log subscriber.

mod harness;
mod lines;
#[path = "../../cache/tests/model/mod.rs"]
mod model;
mod served;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use harness::{Running, controller, server, settle};
use http::{Request, Response};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, api::ListParams, client::Body};
use lines::Lines;
use model::{CONFIG_MAPS, Server, config_map};
use served::get;
use tokio::net::TcpListener;
use windlass_runtime::{Action, Context, Error, Manager, Request as ReconcileRequest};

/// A connection to a model server that can be refused.
#[derive(Clone)]
struct Connection {
    server: Server,
    is_down: Arc<AtomicBool>,
}

impl Connection {
    fn new() -> Self {
        let server = server();
        server.put(CONFIG_MAPS, config_map("a", "1"));
        Self {
            server,
            is_down: Arc::default(),
        }
    }

    fn client(&self) -> Client {
        let (client, is_down) = (self.server.client(), Arc::clone(&self.is_down));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, is_down) = (client.clone(), is_down.load(Ordering::SeqCst));
            async move {
                if is_down {
                    let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
                    return Err::<Response<Body>, tower::BoxError>(refused.into());
                }
                Ok(client.send(request).await?)
            }
        });
        Client::new(service, "default")
    }

    fn interrupt(&self) {
        self.is_down.store(true, Ordering::SeqCst);
        self.server.break_watches();
    }

    fn restore(&self) {
        self.is_down.store(false, Ordering::SeqCst);
    }
}

/// Reads from the server every second, so that reconciles fail too.
async fn read_every_second(_: ReconcileRequest, ctx: Context) -> Result<Action, Error> {
    let maps = Api::<ConfigMap>::all(ctx.client().clone());
    maps.list(&ListParams::default()).await?;
    Ok(Action::requeue_after(Duration::from_secs(1)))
}

#[tokio::test(start_paused = true)]
async fn outage_is_logged_once_then_at_growing_intervals_and_at_its_end() {
    let (lines, _guard) = Lines::start();
    let connection = Connection::new();
    let manager = Manager::new(connection.client())
        .server_url("https://10.0.0.1:6443")
        .controller(controller().reconcile(read_every_second));
    let running = Running::start(manager);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(lines.take("WARN"), [] as [String; 0]);

    connection.interrupt();
    tokio::time::sleep(Duration::from_secs(9)).await;
    let [line] = &lines.take("WARN")[..] else {
        panic!("one line: {:?}", lines.take(""));
    };
    for part in [
        "cannot reach the API server",
        "server=\"https://10.0.0.1:6443\"",
        "connection refused",
        "retry_after=",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    // After 10, 30, 70, 150, 310 seconds, and then every five minutes; with the next failure, up to half a minute later.
    tokio::time::sleep(Duration::from_secs(200)).await;
    let repeated = lines.take("WARN");
    assert_eq!(repeated.len(), 4, "{repeated:#?}");
    for part in ["still cannot reach the API server", "failures=", "seconds="] {
        assert!(repeated[3].contains(part), "{part}: {}", repeated[3]);
    }
    tokio::time::sleep(Duration::from_hours(1)).await;
    let repeated = lines.take("WARN");
    assert!((10..=13).contains(&repeated.len()), "{repeated:#?}");

    connection.restore();
    tokio::time::sleep(Duration::from_mins(2)).await;
    let logged = lines.take("windlass");
    let again: Vec<_> = logged
        .iter()
        .filter(|line| line.contains("reached the API server again"))
        .collect();
    assert_eq!(again.len(), 1, "{logged:#?}");
    assert!(!logged.iter().any(|line| line.contains("WARN")), "{logged:#?}");
    running.stop().await.expect("stops cleanly");
}

/// The same for a process that starts meanwhile: what it waits for is the server, and that is logged already.
#[tokio::test(start_paused = true)]
async fn start_during_an_outage_logs_the_connection_alone() {
    let (lines, _guard) = Lines::start();
    let connection = Connection::new();
    connection.interrupt();
    let manager = Manager::new(connection.client()).controller(controller().reconcile(read_every_second));
    let running = Running::start(manager);
    tokio::time::sleep(Duration::from_mins(2)).await;
    let warnings = lines.take("WARN");
    assert!((3..=5).contains(&warnings.len()), "{warnings:#?}");
    for line in &warnings {
        assert!(line.contains("cannot reach the API server"), "{line}");
    }
    connection.restore();
    tokio::time::sleep(Duration::from_mins(2)).await;
    let logged = lines.take("windlass");
    assert!(
        logged.iter().any(|line| line.contains("started workers")),
        "{logged:#?}"
    );
    assert!(!logged.iter().any(|line| line.contains("WARN")), "{logged:#?}");
    running.stop().await.expect("stops cleanly");
}

/// A server behind a load balancer with one bad replica.
#[tokio::test(start_paused = true)]
async fn unstable_connection_does_not_flood_the_log() {
    let (lines, _guard) = Lines::start();
    let connection = Connection::new();
    let manager = Manager::new(connection.client()).controller(controller().reconcile(read_every_second));
    let running = Running::start(manager);
    settle().await;
    for _ in 0..100 {
        connection.interrupt();
        tokio::time::sleep(Duration::from_secs(2)).await;
        connection.restore();
        tokio::time::sleep(Duration::from_secs(4)).await;
    }
    let warnings = lines.take("WARN");
    assert!((3..=8).contains(&warnings.len()), "{warnings:#?}");
    running.stop().await.expect("stops cleanly");
}

#[tokio::test]
async fn stale_caches_make_a_process_unready_but_not_unhealthy() {
    let (lines, _guard) = Lines::start();
    let free = TcpListener::bind("127.0.0.1:0").await.expect("free port");
    let port = free.local_addr().expect("local address").port();
    drop(free);
    let connection = Connection::new();
    let manager = |limit| {
        Manager::new(connection.client())
            .max_staleness(limit)
            .listen(format!("127.0.0.1:{port}"))
            .controller(controller().reconcile(|_, _| async { Ok(Action::done()) }))
    };
    for limit in [Duration::ZERO, Duration::from_hours(1)] {
        connection.restore();
        let running = Running::start(manager(limit));
        while get(port, "localhost", "/readyz").await.0 != 200 {}
        connection.interrupt();
        if limit.is_zero() {
            while get(port, "localhost", "/readyz").await.0 != 500 {}
            let (_, reason) = get(port, "localhost", "/readyz/caches").await;
            assert!(
                reason.contains("ConfigMap") && reason.contains("connection refused"),
                "{reason}"
            );
        } else {
            // Until the failure is known.
            while !get(port, "localhost", "/debug/caches")
                .await
                .1
                .contains("connection refused")
            {}
            assert_eq!(
                get(port, "localhost", "/readyz").await.0,
                200,
                "not stale for long enough"
            );
        }
        assert_eq!(get(port, "localhost", "/healthz").await.0, 200);
        running.stop().await.expect("stops cleanly");
    }
    // However often it was probed.
    let failed = lines.take("health check failed");
    assert!(failed.len() <= 3, "{failed:#?}");
}
