//! reboot in two processes: `windlass up`, and `windlass run reboot --simulated-agents`.

use crate::process;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Command, Output},
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

use process::{Running, client, windlass};
use tokio::time::timeout;
use windlass::{
    cache::{Cache, WatchScope},
    k8s_openapi::api::core::v1::Node,
    kube::{
        Api, Client,
        api::{Patch, PatchParams, PostParams},
    },
    prelude::*,
};
use windlass_reboot::{RebootPolicy, state::AnnotationKeys};

/// Longer than any step takes, so that only a hang exceeds it.
const DEADLINE: Duration = Duration::from_mins(2);

fn run(kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = windlass(&[&["run"], arguments, &["--no-listen", "--kubeconfig"]].concat());
    command.arg(kubeconfig).env_remove("NODE_NAME");
    command
}

fn boot_id(node: &Node) -> &str {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.map(|info| info.boot_id.as_str()).unwrap_or_default()
}

/// Waits until the condition holds for a node.
async fn wait_for_node(client: &Client, name: &str, holds: impl Fn(&Node) -> bool) -> Arc<Node> {
    let lister = Cache::<Node>::start(client.clone(), &WatchScope::all())
        .synced(DEADLINE)
        .await
        .expect("nodes can be watched");
    let (mut changes, key) = (lister.subscribe(), ObjectKey::cluster_scoped(name));
    let found = async {
        loop {
            if let Some(found) = lister.get(&key).filter(|node| holds(node)) {
                return found;
            }
            changes.next().await.expect("the watch continues");
        }
    };
    timeout(DEADLINE, found)
        .await
        .unwrap_or_else(|_| panic!("timed out; {name} is {:#?}", lister.get(&key)))
}

#[tokio::test(flavor = "multi_thread")]
async fn annotated_node_of_another_process_reboots() {
    let mut up = Running::start(windlass(&["up", "--nodes", "2", "--speed", "instant"]));
    let kubeconfig = up.kubeconfig();
    let client = client(&kubeconfig).await;
    let reboot = Running::start(run(&kubeconfig, &["reboot", "--simulated-agents"]));

    let before = wait_for_node(&client, "node-1", |_| true).await;
    let needed = AnnotationKeys::default().reboot_needed;
    let request = json!({"metadata": {"annotations": {&needed: ""}}});
    let nodes = Api::<Node>::all(client.clone());
    nodes
        .patch("node-1", &PatchParams::default(), &Patch::Merge(request))
        .await
        .expect("annotated");
    let done = |node: &Node| boot_id(node) != boot_id(&before) && !node.annotations().contains_key(&needed);
    let after = wait_for_node(&client, "node-1", done).await;
    let ours: Vec<_> = after
        .annotations()
        .keys()
        .filter(|key| key.starts_with("reboot.windlass.dev/"))
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
    let unschedulable = after.spec.as_ref().and_then(|spec| spec.unschedulable);
    assert_ne!(unschedulable, Some(true));
    let policy = Api::<RebootPolicy>::all(client).get("default").await;
    assert_eq!(
        policy.expect("it was made").metadata.name.as_deref(),
        Some("default")
    );

    assert_eq!(reboot.interrupt().code(), Some(0));
    assert_eq!(up.interrupt().code(), Some(0));
}

/// Starts a webhook, and returns its address and the bodies of the requests.
fn webhook() -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (bodies, received) = channel();
    std::thread::spawn(move || {
        for connection in listener.incoming().map_while(Result::ok) {
            let bodies = bodies.clone();
            std::thread::spawn(move || answer_requests(&connection, &bodies));
        }
    });
    (address, received)
}

/// Confirms every request of a connection.
fn answer_requests(connection: &TcpStream, bodies: &Sender<String>) -> Option<()> {
    let mut reader = BufReader::new(connection);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let line = line.trim().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        bodies.send(String::from_utf8_lossy(&body).into_owned()).ok()?;
        let mut writer = connection;
        writer.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").ok()?;
    }
}

/// The chat notices of docs/reboot.md.
#[tokio::test(flavor = "multi_thread")]
async fn podwatch_reports_reboots_to_a_webhook() {
    let mut up = Running::start(windlass(&["up", "--nodes", "1", "--speed", "instant"]));
    let kubeconfig = up.kubeconfig();
    let client = client(&kubeconfig).await;
    let (address, received) = webhook();
    let filter = "object.source.component == 'windlass-reboot' && (object.type == 'Warning' || object.reason == 'RebootCompleted')";
    let sink = format!("webhook:http://{address}/hook");
    let arguments = [
        "reboot",
        "podwatch",
        "--simulated-agents",
        "--kind",
        "events.v1",
        "--filter",
        filter,
    ];
    let sinks = ["--events", "added,updated", "--sink", &sink];
    let running = Running::start(run(&kubeconfig, &[&arguments[..], &sinks[..]].concat()));
    wait_for_node(&client, "node-1", |_| true).await;
    let request = json!({"metadata": {"annotations": {AnnotationKeys::default().reboot_needed: ""}}});
    let nodes = Api::<Node>::all(client.clone());
    nodes
        .patch("node-1", &PatchParams::default(), &Patch::Merge(request))
        .await
        .expect("annotated");
    let first = tokio::task::spawn_blocking(move || received.recv_timeout(DEADLINE));
    let notice = first.await.expect("it is not cancelled").expect("a notice");
    assert!(
        notice.contains("RebootCompleted") && notice.contains("node node-1: rebooted and healthy again"),
        "only what the filter selects: {notice}"
    );
    assert_eq!(running.interrupt().code(), Some(0));
    assert_eq!(up.interrupt().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_without_a_matching_node_are_rejected() {
    let mut up = Running::start(windlass(&["up", "--nodes", "1", "--speed", "instant"]));
    let kubeconfig = up.kubeconfig();
    let client = client(&kubeconfig).await;
    let mut real = Node::default();
    real.metadata.name = Some("metal".to_owned());
    Api::<Node>::all(client)
        .create(&PostParams::default(), &real)
        .await
        .expect("created");
    for (arguments, node_name, hints) in [
        (
            &["reboot", "--simulated-agents"][..],
            None,
            &["not simulated: metal", "windlass up", "reboot-agent"][..],
        ),
        (
            &["reboot-agent"],
            None,
            &["NODE_NAME is not set", "fieldPath: spec.nodeName"],
        ),
        (
            &["reboot-agent"],
            Some("nowhere"),
            &["node `nowhere` not found", "NODE_NAME"],
        ),
        (
            &["reboot-agent", "--reboot-with", "simulated"],
            Some("metal"),
            &["not simulated: metal"],
        ),
        (
            &["reboot-agent", "--boot-id-file", "/nonexistent/boot_id"],
            Some("metal"),
            &["/nonexistent/boot_id", "--boot-id-file"],
        ),
    ] {
        let mut command = run(&kubeconfig, arguments);
        command.envs(node_name.map(|name| ("NODE_NAME", name)));
        let output = tokio::task::spawn_blocking(move || command.output());
        let output = timeout(DEADLINE, output).await.expect("it ends at once");
        let Output { status, stderr, .. } = output.expect("it is not cancelled").expect("it runs");
        let error = String::from_utf8_lossy(&stderr);
        assert_eq!(status.code(), Some(1), "{arguments:?}: {error}");
        for hint in hints {
            assert!(error.contains(hint), "{arguments:?}: `{hint}` in:\n{error}");
        }
    }
    assert_eq!(up.interrupt().code(), Some(0));
}
