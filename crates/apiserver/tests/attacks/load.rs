//! Slow work delays neither health checks nor the administrator.

use std::{
    pin::Pin,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use http::Request;
use http_body::Frame;
use tokio::{io::AsyncWriteExt, runtime::Runtime};
use tower::Service;
use windlass_apiserver::{Limits, Server, User};

use crate::{
    attacks::{
        harness::{Client, TestServer},
        storage::HookedStorage,
    },
    client,
};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
    /// Whether to count scans.
    counts: AtomicBool,
    /// Scans on threads that serve no other request.
    scans_off_workers: AtomicUsize,
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

    fn count_scan(&self) {
        // tokio does not block on a future on a thread that serves other requests.
        let block = || tokio::runtime::Handle::current().block_on(async {});
        if self.counts.load(Ordering::SeqCst) && std::panic::catch_unwind(block).is_ok() {
            self.scans_off_workers.fetch_add(1, Ordering::SeqCst);
        }
    }

    async fn wait_until_reached(&self) {
        while self.waiting.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

/// Storage whose writes of objects named `slow…` block their thread until the gate opens, and which finds out where
/// ConfigMaps and disruption budgets are scanned.
fn slow_storage(gate: &Arc<Gate>) -> HookedStorage {
    let (scans, writes) = (gate.clone(), gate.clone());
    HookedStorage::default()
        .on_snapshot(move |table| {
            if matches!(&**table, "configmaps" | "poddisruptionbudgets.policy") {
                scans.count_scan();
            }
        })
        .on_commit(move |key| {
            if key.name.starts_with("slow") {
                writes.wait_until_open();
            }
        })
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
    let storage = slow_storage(&gate);
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

/// Binds a policy about ConfigMaps whose cost grows with the square of their entries. Reading its parameters shows where it is
/// evaluated.
async fn bind_expensive_policy(administrator: &mut Client) {
    let group = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";
    let expression = "object.data.all(a, object.data.all(b, a + b != 'x'))";
    let policy = format!(
        r#"{{"metadata":{{"name":"p"}},"spec":{{"paramKind":{{"apiVersion":"v1","kind":"ConfigMap"}},
            "matchConstraints":{{"resourceRules":[{{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["configmaps"]}}]}},
            "validations":[{{"expression":"{expression}"}}]}}}}"#
    );
    let binding = r#"{"metadata":{"name":"p"},"spec":{"policyName":"p","validationActions":["Deny"],
        "paramRef":{"selector":{"matchLabels":{"p":"p"}},"parameterNotFoundAction":"Allow"}}}"#;
    let param = r#"{"metadata":{"name":"param","labels":{"p":"p"}},"data":{"k":"v"}}"#;
    for (path, object) in [
        (CONFIG_MAPS, param),
        (&format!("{group}ies"), &*policy),
        (&format!("{group}ybindings"), binding),
    ] {
        let (code, answer) = administrator.call("POST", path, object).await;
        assert_eq!(code, 201, "{answer}");
    }
}

/// Creates a ConfigMap with this many entries.
async fn create_with_entries(client: &mut Client, name: &str, entries: usize) {
    let data: Vec<_> = (0..entries).map(|index| format!(r#""k{index}":"v""#)).collect();
    let map = format!(
        r#"{{"metadata":{{"name":"{name}"}},"data":{{{}}}}}"#,
        data.join(",")
    );
    let (code, answer) = client.call("POST", CONFIG_MAPS, &map).await;
    assert_eq!(code, 201, "{answer}");
}

#[tokio::test]
async fn first_expensive_evaluation_of_a_policy_runs_where_it_delays_no_other_request() {
    let runtime = ServerRuntime::new(2);
    let (served, gate) = runtime.run(serve(Limits::default())).await;
    bind_expensive_policy(&mut served.administrator().await).await;
    let mut alice = served.user("alice", None).await;
    let gate = &gate.0;
    gate.counts.store(true, Ordering::SeqCst);
    for (name, entries, is_expensive) in [("cheap", 3, false), ("dear", 300, true), ("more", 300, true)] {
        create_with_entries(&mut alice, name, entries).await;
        let scans = gate.scans_off_workers.swap(0, Ordering::SeqCst);
        assert_eq!(scans > 0, is_expensive, "{name}");
    }
    gate.counts.store(false, Ordering::SeqCst);
}

#[tokio::test]
async fn expensive_evaluation_ends_where_no_work_is_large() {
    let mut limits = Limits::default();
    limits.large_work_bytes = usize::MAX;
    let runtime = ServerRuntime::new(2);
    let (served, _gate) = runtime.run(serve(limits)).await;
    bind_expensive_policy(&mut served.administrator().await).await;
    create_with_entries(&mut served.user("alice", None).await, "dear", 300).await;
}

#[tokio::test]
async fn decision_need_not_read_what_others_have_written_of_roles_policies_and_webhooks() {
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = looks.clone();
    let storage = HookedStorage::default().on_events(move |table| {
        if table.ends_with(".rbac.authorization.k8s.io") || table.ends_with(".admissionregistration.k8s.io") {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let server = Server::builder().storage(storage).rbac().build();
    let alice = server.as_user(User::new("alice", ["system:masters"]));
    let rules = r#"[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]"#;
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let admission = "/apis/admissionregistration.k8s.io/v1";
    for (path, object) in [
        (format!("{rbac}/clusterroles"), format!(r#"{{"metadata":{{"name":"a"}},"rules":{rules}}}"#)),
        (format!("{rbac}/namespaces/default/roles"), format!(r#"{{"metadata":{{"name":"a"}},"rules":{rules}}}"#)),
        (
            format!("{rbac}/namespaces/default/rolebindings"),
            r#"{"metadata":{"name":"a"},"roleRef":{"kind":"Role","name":"a"}}"#.to_owned(),
        ),
        (
            format!("{admission}/validatingadmissionpolicies"),
            r#"{"metadata":{"name":"a"},"spec":{"matchConstraints":{"resourceRules":[
                {"apiGroups":["x"],"apiVersions":["v1"],"operations":["*"],"resources":["x"]}]},"validations":[{"expression":"true"}]}}"#
                .to_owned(),
        ),
        (
            format!("{admission}/mutatingwebhookconfigurations"),
            r#"{"metadata":{"name":"a"},"webhooks":[{"name":"a.b.c","sideEffects":"None","admissionReviewVersions":["v1"],
                "clientConfig":{"url":"https://127.0.0.1:1"},"rules":[
                {"apiGroups":["x"],"apiVersions":["v1"],"operations":["*"],"resources":["x"]}]}]}"#
                .to_owned(),
        ),
    ] {
        let (code, answer) = client::read(client::send(&alice, "POST", &path, None, object).await).await;
        assert_eq!(code, 201, "{answer}");
        looks.store(0, Ordering::SeqCst);
        let (code, _) = client::read(client::send(&alice, "POST", CONFIG_MAPS, None, r#"{"metadata":{"generateName":"x"}}"#).await).await;
        assert_eq!(code, 201);
        let bob = server.as_user(User::new("bob", ["system:authenticated"]));
        let (code, _) = client::read(client::send(&bob, "GET", CONFIG_MAPS, None, "").await).await;
        assert_eq!(code, 403);
        assert_eq!(looks.load(Ordering::SeqCst), 0, "after a write to {path}");
    }
}

#[tokio::test]
async fn large_reads_run_where_they_delay_no_other_request() {
    let mut limits = Limits::default();
    // 128 entries.
    limits.large_work_bytes = 8 * 1024;
    let runtime = ServerRuntime::new(2);
    let (served, gate) = runtime.run(serve(limits)).await;
    let mut alice = served.user("alice", None).await;
    let create = async |client: &mut Client, index: usize| {
        let map = config_map(&format!("m{index}"), 1);
        assert_eq!(client.call("POST", CONFIG_MAPS, &map).await.0, 201);
    };
    for index in 0..20 {
        create(&mut alice, index).await;
    }
    let gate = &gate.0;
    gate.counts.store(true, Ordering::SeqCst);
    let scans = || gate.scans_off_workers.swap(0, Ordering::SeqCst);
    // Few objects, each compared with many terms.
    let terms: Vec<_> = (0..8_000).map(|index| format!("k{index}")).collect();
    let long = format!("{CONFIG_MAPS}?labelSelector={}", terms.join(","));
    for (path, is_large) in [(CONFIG_MAPS, false), (&*long, true), ("/metrics", true)] {
        alice.send("GET", path, "").await;
        assert_eq!(alice.read_head().await.0, 200);
        alice = served.user("alice", None).await;
        assert_eq!(scans() > 0, is_large, "{}", &path[..path.len().min(60)]);
    }
    gate.counts.store(false, Ordering::SeqCst);
    for index in 20..150 {
        create(&mut alice, index).await;
    }
    gate.counts.store(true, Ordering::SeqCst);
    for (query, is_large) in [
        ("watch=1", true),
        ("watch=1&resourceVersion=1", false),
        (
            "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
            false,
        ),
    ] {
        let mut watch = served.user("alice", None).await;
        watch.send("GET", &format!("{CONFIG_MAPS}?{query}"), "").await;
        assert_eq!(watch.read_head().await.0, 200);
        assert_eq!(scans() > 0, is_large, "{query}");
    }
}

#[tokio::test]
async fn evictions_beside_many_budgets_run_where_they_delay_no_other_request() {
    let mut limits = Limits::default();
    limits.large_work_bytes = 8 * 1024;
    let runtime = ServerRuntime::new(2);
    let (served, gate) = runtime.run(serve(limits)).await;
    let mut alice = served.user("alice", None).await;
    let mut write = async |method: &str, path: &str, body: &str| {
        let (code, answer) = alice.call(method, path, body).await;
        assert!((200..300).contains(&code), "{answer}");
    };
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    write("POST", accounts, r#"{"metadata":{"name":"default"}}"#).await;
    let pods = "/api/v1/namespaces/default/pods";
    let gate = &gate.0;
    for (first, last, is_large) in [(0, 2, false), (2, 40, true)] {
        for index in first..last {
            let budget = format!(
                r#"{{"metadata":{{"name":"b{index}"}},"spec":{{"minAvailable":1,"selector":{{"matchLabels":{{"b":"{index}"}}}}}}}}"#
            );
            write(
                "POST",
                "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
                &budget,
            )
            .await;
        }
        let pod = r#"{"metadata":{"name":"p"},"spec":{"terminationGracePeriodSeconds":0,"containers":[{"name":"c","image":"i"}]},"status":{"phase":"Running"}}"#;
        write("POST", pods, pod).await;
        // The budgets do not matter to a pod that has not started.
        write("PUT", &format!("{pods}/p/status"), pod).await;
        gate.counts.store(true, Ordering::SeqCst);
        write(
            "POST",
            &format!("{pods}/p/eviction"),
            r#"{"metadata":{"name":"p"}}"#,
        )
        .await;
        gate.counts.store(false, Ordering::SeqCst);
        let scans = gate.scans_off_workers.swap(0, Ordering::SeqCst);
        assert_eq!(scans > 0, is_large, "beside {last} budgets");
    }
}

/// A role whose rules never allow what is asked.
fn useless_role(names: usize) -> String {
    let names: Vec<_> = (0..names).map(|number| format!("\"n{number}\"")).collect();
    let rule = format!(
        r#"{{"apiGroups":[""],"resources":["pods"],"verbs":["get"],"resourceNames":[{}]}}"#,
        names.join(",")
    );
    format!(r#"{{"metadata":{{"name":"many"}},"rules":[{rule}]}}"#)
}

#[tokio::test]
async fn requests_of_users_with_many_rules_are_authorized_where_they_delay_no_other_request() {
    let runtime = ServerRuntime::new(2);
    let gate = Arc::new(Gate::default());
    let storage = slow_storage(&gate);
    let start =
        async move { TestServer::start(Server::builder().rbac().storage(storage), Limits::default()).await };
    let served = runtime.run(start).await;
    let _gate = OpenGateOnDrop(gate.clone());
    let mut administrator = served.administrator().await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let binding = r#"{"metadata":{"name":"many"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"many"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"mallory"}]}"#;
    for (path, body) in [("roles", &*useless_role(30_000)), ("rolebindings", binding)] {
        let (code, answer) = administrator.call("POST", &format!("{rbac}/{path}"), body).await;
        assert_eq!(code, 201, "{answer}");
    }
    // While all threads for large work are busy, requests that need one wait, and others do not.
    let mut writers = Vec::new();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).max(2);
    for index in 0..threads {
        let mut writer = served.administrator().await;
        let map = config_map(&format!("slow-{index}"), 1_000_000);
        writer.send("POST", CONFIG_MAPS, &map).await;
        writers.push(writer);
    }
    while gate.waiting.load(Ordering::SeqCst) < threads {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let mut mallory = served.user("mallory", None).await;
    mallory.send("GET", CONFIG_MAPS, "").await;
    let mut alice = served.user("alice", None).await;
    for _ in 0..3 {
        assert_eq!(alice.call("GET", CONFIG_MAPS, "").await.0, 403);
    }
    let wait = std::time::Duration::from_millis(200);
    let early = tokio::time::timeout(wait, mallory.read_head()).await;
    assert!(
        early.is_err(),
        "authorized on a thread that serves other requests"
    );
    gate.open();
    assert_eq!(mallory.read_head().await.0, 403);
}

#[tokio::test]
async fn table_of_large_objects_lets_other_tasks_run() {
    let server = Server::new();
    for index in 0..20 {
        let map = config_map(&format!("m{index:02}"), 1_000_000);
        let response = client::send(&server, "POST", CONFIG_MAPS, None, map).await;
        assert_eq!(response.status(), 201);
    }
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    // The list shows a hundred bytes of each object, and the watch as well.
    for (query, encodings) in [("", ""), ("", "gzip"), ("&watch=1&timeoutSeconds=1", "")] {
        let request = http::Request::get(format!("{CONFIG_MAPS}?includeObject=None{query}"))
            .header("accept", table)
            .header("accept-encoding", encodings)
            .body(http_body_util::Empty::<bytes::Bytes>::new())
            .expect("a request");
        let response = tower::ServiceExt::oneshot(server.clone(), request).await;
        let mut body = response.expect("infallible").into_body();
        let (mut rows, mut pauses) = (0, 0);
        while rows < 20 {
            match futures::poll!(http_body_util::BodyExt::frame(&mut body)) {
                std::task::Poll::Pending => pauses += 1,
                std::task::Poll::Ready(frame) => {
                    let frame = frame.expect("more rows").expect("never fails");
                    let text = String::from_utf8_lossy(frame.data_ref().expect("data")).into_owned();
                    rows += text.matches("\"cells\"").count();
                }
            }
        }
        // After every second object but those that were read before the answer.
        assert!(pauses >= 6, "{query} {encodings}: {pauses}");
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
    // A write counts until its answer is sent.
    assert_eq!(writers[0].read_response().await.0, 201);
    let mut tries = 0;
    while alice.call("POST", CONFIG_MAPS, &config_map("a", 1)).await.0 != 201 {
        tries += 1;
        assert!(tries < 1_000, "the write still counts after its answer was read");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
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
    // One gets the answer that says why. Others may only see that the connection is closed, while they still send.
    let mut closed: FuturesUnordered<_> = slow
        .iter_mut()
        .map(|client| client.wait_until_closed().boxed())
        .collect();
    loop {
        let rejected = closed.next().await.expect("one of them gets 429");
        let rejected = String::from_utf8_lossy(&rejected).into_owned();
        if rejected.contains(" 429 ") {
            break;
        }
        assert_eq!(rejected, "");
    }
    drop(closed);
    let mut administrator = served.administrator().await;
    assert_eq!(
        administrator
            .call("POST", CONFIG_MAPS, &config_map("b", 900_000))
            .await
            .0,
        201
    );
}

/// A body that never ends after its first part.
struct Unfinished(Option<Bytes>);

impl http_body::Body for Unfinished {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.0.take() {
            Some(part) => Poll::Ready(Some(Ok(Frame::data(part)))),
            None => Poll::Pending,
        }
    }
}

#[tokio::test]
async fn unfinished_bodies_of_one_user_leave_memory_for_others() {
    let mut limits = Limits::default();
    limits.received_bytes = 16 * 1024 * 1024;
    let server = Server::builder().limits(limits).build();
    let part = Bytes::from(vec![b'x'; 2 * 1024 * 1024]);
    let send = |name: &str| {
        let request = Request::post(CONFIG_MAPS)
            .header("content-type", "application/json")
            .body(Unfinished(Some(part.clone())));
        let mut user = server.as_user(User::new(name, [] as [&str; 0]));
        user.call(request.expect("a request"))
    };
    let mut held = Vec::new();
    loop {
        let mut answer = send("mallory");
        match (&mut answer).now_or_never() {
            None => held.push(answer),
            Some(answer) => {
                let Ok(answer) = answer;
                assert_eq!(answer.status(), 429);
                break;
            }
        }
        assert!(held.len() < 8, "one user has all of it");
    }
    for name in ["alice", "bob"] {
        let mut answer = send(name);
        assert!(
            (&mut answer).now_or_never().is_none(),
            "{name} cannot send a body"
        );
        held.push(answer);
    }
}

#[tokio::test]
async fn unread_errors_of_one_user_are_bounded_and_leave_room_for_others() {
    let mut limits = Limits::default();
    limits.answer_bytes = 8 * 1024 * 1024;
    let most = limits.answer_bytes;
    let administrator = Server::builder().limits(limits).build();
    let mallory = administrator.as_user(User::new("mallory", [] as [&str; 0]));
    let invalid = format!(
        r#"{{"metadata":{{"name":"a","labels":{{{}}}}}}}"#,
        (0..800)
            .map(|number| format!(r#""{}{number}":"""#, "!".repeat(70)))
            .collect::<Vec<_>>()
            .join(",")
    );
    let escaped = format!("/version?timeout={}", "%01".repeat(10_000));
    let requests = [
        (mallory.clone(), "POST", CONFIG_MAPS, &*invalid),
        // Fails before the client is authenticated.
        (administrator.authenticated(), "GET", &escaped, ""),
    ];
    let mut held = Vec::new();
    for (server, method, path, body) in &requests {
        let (mut bytes, mut refused) = (0, false);
        while !refused && bytes < most {
            let answer = client::send(server, method, path, None, (*body).to_owned()).await;
            bytes += usize::try_from(http_body::Body::size_hint(answer.body()).lower()).expect("small");
            refused = answer.status() == 429;
            held.push(answer);
        }
        assert!(refused, "{bytes} bytes of errors are not read");
    }
    let alice = administrator.as_user(User::new("alice", [] as [&str; 0]));
    let answer = client::send(&alice, "POST", CONFIG_MAPS, None, invalid.clone()).await;
    assert_eq!(answer.status(), 422);
    drop(held);
    let answer = client::send(&mallory, "POST", CONFIG_MAPS, None, invalid.clone()).await;
    assert_eq!(answer.status(), 422);
}

#[tokio::test]
async fn unread_documents_count_as_reads() {
    let mut limits = Limits::default();
    limits.reads = 1;
    let server = Server::builder().limits(limits).build();
    let alice = server.as_user(User::new("alice", [] as [&str; 0]));
    for path in ["/metrics", "/apis", "/openapi/v2", "/openapi/v3"] {
        let unread = client::send(&alice, "GET", path, None, "").await;
        assert_eq!(unread.status(), 200, "{path}");
        let further = client::send(&alice, "GET", path, None, "").await;
        assert_eq!(further.status(), 429, "{path}");
    }
}

#[tokio::test]
async fn long_selectors_of_watches_count_against_the_limit() {
    let mut limits = Limits::default();
    limits.watches = 1_000;
    let server = Server::builder().limits(limits).build();
    let mallory = server.as_user(User::new("mallory", [] as [&str; 0]));
    let terms: Vec<_> = (0..8_000).map(|number| format!("!k{number}")).collect();
    let path = format!("{CONFIG_MAPS}?watch=1&labelSelector={}", terms.join(","));
    let mut open = Vec::new();
    loop {
        let answer = client::send(&mallory, "GET", &path, None, "").await;
        if answer.status() != 200 {
            assert_eq!(answer.status(), 429);
            break;
        }
        open.push(answer);
        assert!(
            open.len() < 10,
            "selectors of {} bytes each are held in memory",
            path.len()
        );
    }
    assert!(!open.is_empty());
}

#[tokio::test(start_paused = true)]
async fn reads_that_wait_for_a_future_revision_take_no_place_of_other_reads() {
    let mut limits = Limits::default();
    limits.reads = 4;
    let server = Server::builder().limits(limits).build();
    let user = |name| server.as_user(User::new(name, [] as [&str; 0]));
    let (mallory, alice) = (user("mallory"), user("alice"));
    let future = "resourceVersion=9999999999999";
    for path in [
        format!("/api/v1/namespaces/default?{future}"),
        format!("{CONFIG_MAPS}?{future}&resourceVersionMatch=NotOlderThan"),
    ] {
        let wait = async || {
            let response = client::send(&mallory, "GET", &path, None, "").await;
            response.status().as_u16()
        };
        let mut waiting: FuturesUnordered<_> = (0..10).map(|_| wait()).collect();
        // Those beyond the limit on waiting requests are answered at once; then all others wait.
        let mut rejected = 0;
        while let Some(Some(code)) = waiting.next().now_or_never() {
            assert_eq!(code, 429);
            rejected += 1;
        }
        assert!((6..10).contains(&rejected), "{rejected}");
        for read in ["/api/v1/namespaces/default", CONFIG_MAPS] {
            let response = client::send(&alice, "GET", read, None, "").await;
            assert_eq!(response.status(), 200, "{read}");
        }
        while let Some(code) = waiting.next().await {
            assert_eq!(code, 504);
        }
    }
}

#[tokio::test]
async fn watches_of_one_user_leave_room_for_others_and_administrators_need_none() {
    let mut limits = Limits::default();
    limits.watches = 8;
    let served = TestServer::start(Server::builder(), limits).await;
    let watch = async |mut client: Client| {
        client.send("GET", &format!("{CONFIG_MAPS}?watch=1"), "").await;
        (client.read_head().await.0, client)
    };
    let mut open = Vec::new();
    let mut take_all = async |name: &str| {
        let mut count = 0;
        loop {
            let (code, client) = watch(served.user(name, None).await).await;
            if code != 200 {
                assert_eq!(code, 429);
                return count;
            }
            open.push(client);
            count += 1;
        }
    };
    // Half of all, and half of the rest.
    assert_eq!(take_all("mallory").await, 6);
    for (user, count) in [("alice", 1), ("bob", 1), ("carol", 0)] {
        assert_eq!(take_all(user).await, count, "{user}");
    }
    let (code, _watch) = watch(served.administrator().await).await;
    assert_eq!(code, 200);
}

#[tokio::test]
async fn logs_count_as_reads_and_followed_ones_as_watches() {
    let mut limits = Limits::default();
    (limits.reads, limits.watches) = (1, 1);
    let builder = Server::builder().without_service_accounts().limits(limits);
    let administrator = builder.build();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = r#"{"metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}"#;
    let created = client::send(&administrator, "POST", pods, None, pod).await;
    assert_eq!(created.status(), 201);
    let alice = administrator.as_user(User::new("alice", [] as [&str; 0]));
    let get = async |path: &str| client::send(&alice, "GET", path, None, "").await;
    let (log, watch) = (format!("{pods}/p/log"), format!("{pods}?watch=1"));
    for (first, second) in [
        (log.clone(), pods.to_owned()),
        (format!("{log}?follow=true"), watch),
    ] {
        let open = get(&first).await;
        assert_eq!(open.status(), 200, "{first}");
        for path in [&first, &second] {
            assert_eq!(get(path).await.status(), 429, "{path} after {first}");
        }
        drop(open);
        assert_eq!(get(&second).await.status(), 200, "{second}");
    }
}
