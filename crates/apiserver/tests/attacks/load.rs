//! Work that takes long holds up neither health checks nor the administrator.

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

use crate::line::{Client, Served};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A storage that takes until the gate is opened to write what is called `slow…`, and keeps its thread busy meanwhile.
struct Slow {
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
    fn pass(&self) {
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

    async fn reached(&self) {
        while self.waiting.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

impl Storage for Slow {
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
            self.gate.pass();
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

/// Opens the gate however the test ends, so that no thread is left behind.
struct Opened(Arc<Gate>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// The server's own threads, so that a test goes on when all of them are held up.
struct Threads(Option<Runtime>);

impl Threads {
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

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(limits: Limits) -> (Served, Opened) {
    let gate = Arc::new(Gate::default());
    let storage = Slow {
        inner: Memory::default(),
        gate: gate.clone(),
    };
    let served = Served::start(Server::builder().storage(storage), limits).await;
    (served, Opened(gate))
}

fn map(name: &str, size: usize) -> String {
    let data = "x".repeat(size);
    format!(r#"{{"metadata":{{"name":"{name}"}},"data":{{"k":"{data}"}}}}"#)
}

/// Requests that are all on the way, on a connection each.
async fn large_writes(served: &Served, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for index in 0..count {
        let mut client = served.user("mallory", None).await;
        client
            .send("POST", MAPS, &map(&format!("slow-{index}"), 1_000_000))
            .await;
        clients.push(client);
    }
    clients
}

#[tokio::test]
async fn health_checks_are_answered_while_large_writes_are_worked_on() {
    let threads = Threads::new(2);
    let (served, gate) = threads.run(serve(Limits::default())).await;
    let mut writers = large_writes(&served, 6).await;
    gate.0.reached().await;
    // More of them than there are threads that could be held up, on old connections and on new ones.
    for _ in 0..10 {
        let mut check = served.anonymous().await;
        for path in ["/livez", "/readyz", "/healthz", "/livez"] {
            assert_eq!(check.ask("GET", path, "").await, (200, "ok".to_owned()));
        }
    }
    let mut small = served.user("alice", None).await;
    assert_eq!(small.ask("POST", MAPS, &map("small", 10)).await.0, 201);
    drop(gate);
    for writer in &mut writers {
        assert_eq!(writer.head().await.0, 201);
    }
}

#[tokio::test]
async fn writes_and_reads_have_limits_of_their_own_that_administrators_pass() {
    let mut limits = Limits::default();
    (limits.writes, limits.reads) = (1, 1);
    let threads = Threads::new(2);
    let (served, gate) = threads.run(serve(limits)).await;
    let mut writers = large_writes(&served, 1).await;
    gate.0.reached().await;

    let mut alice = served.user("alice", None).await;
    alice.send("POST", MAPS, &map("a", 1)).await;
    let (code, head) = alice.head().await;
    assert_eq!(code, 429, "{head}");
    assert!(head.contains("retry-after: 1"), "{head}");
    alice.expect("Too many requests, please try again later.").await;
    // Reads are counted apart.
    assert_eq!(alice.ask("GET", MAPS, "").await.0, 200);
    let mut administrator = served.administrator().await;
    assert_eq!(administrator.ask("POST", MAPS, &map("b", 1)).await.0, 201);
    // Neither watches nor health checks count.
    let mut watch = served.user("alice", None).await;
    watch.send("GET", &format!("{MAPS}?watch=1"), "").await;
    assert_eq!(watch.head().await.0, 200);
    assert_eq!(alice.ask("GET", "/livez", "").await.0, 200);
    assert_eq!(alice.ask("GET", MAPS, "").await.0, 200);

    drop(gate);
    assert_eq!(writers[0].head().await.0, 201);
    assert_eq!(alice.ask("POST", MAPS, &map("a", 1)).await.0, 201);
}

#[tokio::test]
async fn list_that_nobody_reads_counts_until_it_is_cut() {
    let mut limits = Limits::default();
    limits.reads = 1;
    limits.unread = std::time::Duration::from_millis(200);
    let served = Served::start(Server::builder(), limits).await;
    let mut administrator = served.administrator().await;
    for index in 0..40 {
        let map = map(&format!("m{index}"), 1_000_000);
        assert_eq!(administrator.ask("POST", MAPS, &map).await.0, 201);
    }
    let mut deaf = served.user("mallory", None).await;
    deaf.send("GET", MAPS, "").await;
    assert_eq!(deaf.head().await.0, 200);
    let mut alice = served.user("alice", None).await;
    assert_eq!(alice.ask("GET", &format!("{MAPS}/m0"), "").await.0, 429);
    let mut tries = 0;
    while alice.ask("GET", &format!("{MAPS}/m0"), "").await.0 != 200 {
        tries += 1;
        assert!(tries < 1_000, "its place is never free again");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn bodies_that_are_held_back_do_not_fill_the_memory_or_the_places() {
    let mut limits = Limits::default();
    (limits.writes, limits.received) = (1, 1_000_000);
    limits.body = std::time::Duration::from_hours(1);
    let served = Served::start(Server::builder(), limits).await;
    let head = |length: usize| {
        format!(
            "POST {MAPS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    // They hold no place among those that are worked on, and of the memory what they have sent.
    let mut slow = Vec::new();
    for _ in 0..9 {
        let mut client = served.user("mallory", None).await;
        client.say(head(2_000_000) + &"x".repeat(100_000)).await;
        slow.push(client);
    }
    let mut alice = served.user("alice", None).await;
    assert_eq!(alice.ask("POST", MAPS, &map("a", 1)).await.0, 201);
    for client in &mut slow {
        // Some are refused and disconnected before they have said it all.
        let _ = client.stream.write_all(&vec![b'x'; 100_000]).await;
        let _ = client.stream.flush().await;
    }
    let (refused, ..) =
        futures::future::select_all(slow.iter_mut().map(|client| client.closed().boxed())).await;
    let refused = String::from_utf8_lossy(&refused).into_owned();
    assert!(refused.is_empty() || refused.contains(" 429 "), "{refused}");
    let mut administrator = served.administrator().await;
    assert_eq!(administrator.ask("POST", MAPS, &map("b", 900_000)).await.0, 201);
}
