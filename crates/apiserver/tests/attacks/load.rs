//! Slow work delays neither health checks nor the administrator.

use std::sync::{
    Arc, Condvar, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use futures::FutureExt;
use tokio::{io::AsyncWriteExt, runtime::Runtime};
use windlass_apiserver::{
    Encoded, Limits, Server,
    storage::{
        Change, Conflict, Entry, Event, Expect, Expired, Key, Memory, Revision, Snapshot, Storage, TableName,
    },
};

use crate::attacks::harness::{Client, TestServer};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Storage whose writes of objects named `slow…` block their thread until the gate opens.
struct SlowStorage {
    inner: Memory,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn wait_until_open(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut is_open = self.is_open.lock().expect("not poisoned");
        while !*is_open {
            is_open = self.opened.wait(is_open).expect("not poisoned");
        }
    }

    fn open(&self) {
        *self.is_open.lock().expect("not poisoned") = true;
        self.opened.notify_all();
    }

    async fn wait_until_reached(&self) {
        while self.waiting.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

impl Storage for SlowStorage {
    fn revision(&self) -> Revision {
        self.inner.revision()
    }

    fn get(&self, table: &TableName, key: &Key) -> Option<Arc<Entry>> {
        self.inner.get(table, key)
    }

    fn snapshot(&self, table: &TableName, at: Option<Revision>) -> Result<Snapshot, Expired> {
        self.inner.snapshot(table, at)
    }

    fn commit(
        &self,
        table: &TableName,
        key: &Key,
        expect: Expect,
        change: Change,
        encode: &mut dyn FnMut(Revision) -> Encoded,
    ) -> Result<Arc<Entry>, Conflict> {
        if key.name.starts_with("slow") {
            self.gate.wait_until_open();
        }
        self.inner.commit(table, key, expect, change, encode)
    }

    fn subscribe(&self, table: &TableName) -> tokio::sync::watch::Receiver<Revision> {
        self.inner.subscribe(table)
    }

    fn events(&self, table: &TableName, after: Revision, limit: usize) -> Result<Vec<Arc<Event>>, Expired> {
        self.inner.events(table, after, limit)
    }
}

/// Opens the gate on drop, so that no thread stays blocked, even if the test fails.
struct OpenGateOnDrop(Arc<Gate>);

impl Drop for OpenGateOnDrop {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// The server's own runtime, so that the test continues while all of its threads are blocked.
struct ServerRuntime(Option<Runtime>);

impl ServerRuntime {
    fn new(count: usize) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(count).enable_all().build();
        Self(Some(runtime.expect("threads")))
    }

    async fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T {
        let runtime = self.0.as_ref().expect("until it is dropped");
        runtime.spawn(task).await.expect("no panic")
    }
}

impl Drop for ServerRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(limits: Limits) -> (TestServer, OpenGateOnDrop) {
    let gate = Arc::new(Gate::default());
    let storage = SlowStorage {
        inner: Memory::default(),
        gate: gate.clone(),
    };
    let served = TestServer::start(Server::builder().storage(storage), limits).await;
    (served, OpenGateOnDrop(gate))
}

fn config_map(name: &str, size: usize) -> String {
    let data = "x".repeat(size);
    format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"k":"{data}"}}}}"#)
}

/// Starts large writes, each on its own connection, without reading the responses.
async fn large_writes(served: &TestServer, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for index in 0..count {
        let mut client = served.user("mallory", None).await;
        client
            .send(
                "POST",
                CONFIG_MAPS,
                &config_map(&format!("slow-{index}"), 1_000_000),
            )
            .await;
        clients.push(client);
    }
    clients
}

#[tokio::test]
async fn health_checks_are_answered_during_slow_writes() {
    let runtime = ServerRuntime::new(2);
    let (served, gate) = runtime.run(serve(Limits::default())).await;
    let mut writers = large_writes(&served, 6).await;
    gate.0.wait_until_reached().await;
    // More health checks than the server has threads, on existing and on new connections.
    for _ in 0..10 {
        let mut check = served.anonymous().await;
        for path in ["/livez", "/readyz", "/healthz", "/livez"] {
            assert_eq!(check.call("GET", path, "").await, (200, "ok".to_owned()));
        }
    }
    let mut small = served.user("alice", None).await;
    assert_eq!(
        small.call("POST", CONFIG_MAPS, &config_map("small", 10)).await.0,
        201
    );
    drop(gate);
    for writer in &mut writers {
        assert_eq!(writer.read_head().await.0, 201);
    }
}

#[tokio::test]
async fn read_and_write_limits_are_separate_and_do_not_apply_to_administrators() {
    let mut limits = Limits::default();
    (limits.writes, limits.reads) = (1, 1);
    let runtime = ServerRuntime::new(2);
    let (served, gate) = runtime.run(serve(limits)).await;
    let mut writers = large_writes(&served, 1).await;
    gate.0.wait_until_reached().await;

    let mut alice = served.user("alice", None).await;
    alice.send("POST", CONFIG_MAPS, &config_map("a", 1)).await;
    let (code, head) = alice.read_head().await;
    assert_eq!(code, 429, "{head}");
    assert!(head.contains("retry-after: 1"), "{head}");
    alice.wait_for("Too many requests, please try again later.").await;
    // Reads have a separate limit.
    assert_eq!(alice.call("GET", CONFIG_MAPS, "").await.0, 200);
    let mut administrator = served.administrator().await;
    assert_eq!(
        administrator
            .call("POST", CONFIG_MAPS, &config_map("b", 1))
            .await
            .0,
        201
    );
    // Watches and health checks do not count.
    let mut watch = served.user("alice", None).await;
    watch.send("GET", &format!("{CONFIG_MAPS}?watch=1"), "").await;
    assert_eq!(watch.read_head().await.0, 200);
    assert_eq!(alice.call("GET", "/livez", "").await.0, 200);
    assert_eq!(alice.call("GET", CONFIG_MAPS, "").await.0, 200);

    drop(gate);
    assert_eq!(writers[0].read_head().await.0, 201);
    assert_eq!(alice.call("POST", CONFIG_MAPS, &config_map("a", 1)).await.0, 201);
}

#[tokio::test]
async fn unread_list_counts_against_the_limit_until_it_is_cut() {
    let mut limits = Limits::default();
    limits.reads = 1;
    limits.unread_timeout = std::time::Duration::from_millis(200);
    let served = TestServer::start(Server::builder(), limits).await;
    let mut administrator = served.administrator().await;
    for index in 0..40 {
        let config_map = config_map(&format!("m{index}"), 1_000_000);
        assert_eq!(administrator.call("POST", CONFIG_MAPS, &config_map).await.0, 201);
    }
    let mut slow_reader = served.user("mallory", None).await;
    slow_reader.send("GET", CONFIG_MAPS, "").await;
    assert_eq!(slow_reader.read_head().await.0, 200);
    let mut alice = served.user("alice", None).await;
    assert_eq!(alice.call("GET", &format!("{CONFIG_MAPS}/m0"), "").await.0, 429);
    let mut tries = 0;
    while alice.call("GET", &format!("{CONFIG_MAPS}/m0"), "").await.0 != 200 {
        tries += 1;
        assert!(tries < 1_000, "the unread list still counts against the limit");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn slow_request_bodies_exhaust_neither_memory_nor_the_write_limit() {
    let mut limits = Limits::default();
    (limits.writes, limits.received_bytes) = (1, 1_000_000);
    limits.body_timeout = std::time::Duration::from_hours(1);
    let served = TestServer::start(Server::builder(), limits).await;
    let head = |length: usize| {
        format!(
            "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    // Incomplete requests do not count as writes; only the bytes received so far count against memory.
    let mut slow = Vec::new();
    for _ in 0..9 {
        let mut client = served.user("mallory", None).await;
        client.write(head(2_000_000) + &"x".repeat(100_000)).await;
        slow.push(client);
    }
    let mut alice = served.user("alice", None).await;
    assert_eq!(alice.call("POST", CONFIG_MAPS, &config_map("a", 1)).await.0, 201);
    for client in &mut slow {
        // The server rejects and disconnects some before they have sent everything.
        let _ = client.stream.write_all(&vec![b'x'; 100_000]).await;
        let _ = client.stream.flush().await;
    }
    let (rejected, ..) =
        futures::future::select_all(slow.iter_mut().map(|client| client.wait_until_closed().boxed())).await;
    let rejected = String::from_utf8_lossy(&rejected).into_owned();
    assert!(rejected.is_empty() || rejected.contains(" 429 "), "{rejected}");
    let mut administrator = served.administrator().await;
    assert_eq!(
        administrator
            .call("POST", CONFIG_MAPS, &config_map("b", 900_000))
            .await
            .0,
        201
    );
}
