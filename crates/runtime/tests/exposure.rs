//! Exposure of a manager's endpoints: debug pages on loopback only, and loopback only for `localhost`.

use crate::harness;
use crate::model;
use crate::served::get;

use harness::{Running, controller, done, server};
use model::Server;
use tokio::net::{TcpListener, TcpStream};
use windlass_runtime::{Manager, ManagerError, Options};

const DEBUG_PAGES: [&str; 2] = ["/debug/controllers", "/debug/caches"];

/// A free port. If another process takes it meanwhile, the manager's error fails the test.
async fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").await.expect("free port");
    free.local_addr().expect("local address").port()
}

fn manager(server: &Server) -> Manager {
    Manager::new(server.client()).controller(controller().reconcile(done))
}

#[tokio::test]
async fn loopback_listener_serves_all_pages() {
    let (server, port) = (server(), free_port().await);
    let running = Running::start(manager(&server).listen(format!("127.0.0.1:{port}")));
    for path in ["/healthz", "/metrics", DEBUG_PAGES[0], DEBUG_PAGES[1]] {
        assert_eq!(get(port, "localhost", path).await.0, 200, "{path}");
    }
    running.stop().await.expect("stops cleanly");
}

#[tokio::test]
async fn loopback_listener_rejects_requests_for_other_hosts() {
    let (server, port) = (server(), free_port().await);
    let running = Running::start(manager(&server).listen(format!("127.0.0.1:{port}")));
    for path in ["/healthz", "/metrics", DEBUG_PAGES[0], DEBUG_PAGES[1]] {
        let (status, body) = get(port, "rebind.example", path).await;
        assert_eq!(status, 403, "{path}");
        assert!(body.contains("`localhost`"), "{body}");
    }
    running.stop().await.expect("stops cleanly");
}

#[tokio::test]
async fn listener_on_all_addresses_serves_no_debug_pages() {
    let (server, port) = (server(), free_port().await);
    let running = Running::start(manager(&server).listen(format!("0.0.0.0:{port}")));
    // Requests to a pod have its address as `Host`, those to a Service its name.
    for host in ["10.1.2.3:8080", "reboot.windlass-reboot.svc", "localhost"] {
        for path in ["/healthz", "/readyz/ping", "/metrics"] {
            assert_ne!(get(port, host, path).await.0, 403, "{host} {path}");
        }
        for path in DEBUG_PAGES {
            assert_eq!(get(port, host, path).await.0, 404, "{host} {path}");
        }
    }
    running.stop().await.expect("stops cleanly");
}

#[tokio::test]
async fn debug_listener_serves_only_debug_pages() {
    let (server, port, debug_port) = (server(), free_port().await, free_port().await);
    let manager = manager(&server)
        .listen(format!("0.0.0.0:{port}"))
        .debug_listen(format!("127.0.0.1:{debug_port}"));
    let running = Running::start(manager);
    for path in DEBUG_PAGES {
        assert_eq!(get(debug_port, "localhost", path).await.0, 200, "{path}");
        assert_eq!(get(debug_port, "rebind.example", path).await.0, 403, "{path}");
        assert_eq!(get(port, "localhost", path).await.0, 404, "{path}");
    }
    assert_eq!(get(debug_port, "localhost", "/metrics").await.0, 404);
    running.stop().await.expect("stops cleanly");
    let closed = TcpStream::connect(("127.0.0.1", debug_port)).await;
    assert!(closed.is_err(), "closed with the manager");
}

#[tokio::test]
async fn debug_listener_must_be_loopback() {
    let server = server();
    let refused = manager(&server)
        .debug_listen("0.0.0.0:0")
        .run_until(std::future::pending())
        .await
        .expect_err("refused");
    assert!(matches!(refused, ManagerError::DebugAddress { .. }), "{refused}");
    let refused = refused.to_string();
    for part in ["`0.0.0.0:0`", "`Manager::debug_listen`", "kubectl port-forward"] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
}

#[test]
fn options_listen_on_loopback_by_default() {
    let address = Options::default().listen().expect("listening");
    assert!(address.ip().is_loopback(), "{address}");
}
