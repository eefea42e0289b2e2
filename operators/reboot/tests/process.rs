//! Both programs from the outside: help texts, error messages, and an agent's whole lifecycle on a machine that is a
//! folder.

use std::{path::Path, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    time::timeout,
};
use windlass::{
    cache::{Cache, WatchScope},
    k8s_openapi::api::core::v1::Node,
    kube::{
        Api, Client,
        api::{Patch, PatchParams, PostParams},
    },
    prelude::*,
};
use windlass_cluster::Cluster;
use windlass_reboot::state::{AnnotationKeys, Progress};
use windlass_suite::{STEP_TIMEOUT, output, program};

fn reboot(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_reboot"), arguments)
}

fn agent(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_reboot-agent"), arguments)
}

#[tokio::test]
async fn help_lists_every_flag_and_default() {
    for (command, parts) in [
        (
            reboot(&["--help"]),
            &[
                "Usage: reboot [OPTIONS]",
                "Reboots nodes one after another",
                "--annotation-prefix <DOMAIN>",
                "[default: reboot.windlass.dev]",
                "--own-node <NAME>",
                "--simulated-agents",
                "--leader-elect",
                "--install",
            ][..],
        ),
        (
            agent(&["--help"]),
            &[
                "Usage: reboot-agent [OPTIONS]",
                "Reboots the node it runs on",
                "--annotation-prefix <DOMAIN>",
                "--node <NAME>",
                "[default: NODE_NAME]",
                "--reboot-with <HOW>",
                "logind",
                "--reboot-command <COMMAND>",
                "--allow-root",
                "[default: /proc/sys/kernel/random/boot_id]",
                "--check-command <COMMAND>",
                "--trigger-file <FILE>",
                "--trigger-command <COMMAND>",
                "[default: 5m]",
            ],
        ),
    ] {
        let (code, help, _) = output(command).await;
        assert_eq!(code, Some(0));
        for part in parts {
            assert!(help.contains(part), "`{part}` in:\n{help}");
        }
    }
}

#[tokio::test]
async fn invalid_flags_are_rejected_with_a_hint() {
    for (command, hint) in [
        (reboot(&["--annotation-prefix", "A b"]), "--annotation-prefix"),
        (
            reboot(&["--prometheus-url", "prometheus:9090"]),
            "http://prometheus.monitoring:9090",
        ),
        (reboot(&["--prometheus-ca", "/ca.pem"]), "--prometheus-url"),
        (agent(&["--reboot-with", "hammer"]), "systemctl"),
        (agent(&["--reboot-command", " "]), "the command is empty"),
        (agent(&["--trigger-interval", "5"]), "for example `30s`"),
        (
            agent(&["--trigger-file", "/a", "--trigger-command", "b"]),
            "cannot be used with",
        ),
    ] {
        let (code, _, error) = output(command).await;
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(hint), "`{hint}` in:\n{error}");
    }
}

#[tokio::test]
async fn missing_cluster_error_names_kubeconfig_and_fix() {
    for command in [reboot(&[]), agent(&[])] {
        let (code, _, error) = output(command).await;
        assert_eq!(code, Some(1), "{error}");
        let last = error.lines().last().unwrap_or_default();
        assert!(
            last.starts_with("reboot") && last.contains("kubeconfig"),
            "{error}"
        );
        assert!(!error.contains("panicked"), "{error}");
    }
}

/// Right after a boot the API server often cannot be reached. The runtime logs that once, with the next attempt.
#[tokio::test]
async fn agent_without_server_logs_the_outage_once() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let [config, boot_id] = ["config", "boot_id"].map(|name| folder.path().join(name).display().to_string());
    // Bound and not listening: connections are refused, and no other process gets the port.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket
        .bind("127.0.0.1:0".parse().expect("an address"))
        .expect("a port");
    let server = format!("http://{}", socket.local_addr().expect("an address"));
    let named = |key: &str, value: windlass::serde_json::Value| json!([{ "name": "it", key: value }]);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": named("cluster", json!({ "server": server })),
        "users": named("user", json!({})),
        "contexts": named("context", json!({ "cluster": "it", "user": "it" })),
    });
    std::fs::write(&config, kubeconfig.to_string()).expect("the file is written");
    std::fs::write(&boot_id, "boot-a").expect("the file is written");
    let flags = [
        "--kubeconfig",
        &config,
        "--no-listen",
        "--node",
        NODE,
        "--boot-id-file",
        &boot_id,
        "--reboot-with",
        "systemctl",
    ];
    let mut agent = agent(&flags)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut log = BufReader::new(agent.stderr.take().expect("it is piped")).lines();
    let mut lines = Vec::new();
    let reported = async {
        while let Some(line) = log.next_line().await.expect("text") {
            let is_report = line.contains("cannot reach");
            lines.push(line);
            if is_report {
                return;
            }
        }
    };
    timeout(STEP_TIMEOUT, reported)
        .await
        .expect("the outage is logged");
    agent.kill().await.expect("killed");
    while let Some(line) = log.next_line().await.expect("text") {
        lines.push(line);
    }
    let own = lines.iter().filter(|line| line.contains("cannot read the node"));
    assert_eq!(own.count(), 0, "{lines:#?}");
}

/// The agent's machine is a folder: a file holds its boot ID, and the reboot command leaves another file.
struct Machine {
    cluster: Cluster,
    nodes: Api<Node>,
    folder: tempfile::TempDir,
}

const NODE: &str = "metal";

impl Machine {
    async fn new() -> Self {
        let cluster = Cluster::embedded().start().await.expect("a cluster");
        let nodes = Api::<Node>::all(cluster.client());
        let mut node = Node::default();
        node.metadata.name = Some(NODE.to_owned());
        nodes
            .create(&PostParams::default(), &node)
            .await
            .expect("created");
        Self {
            cluster,
            nodes,
            folder: tempfile::tempdir().expect("a temporary directory"),
        }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Starts the agent in this boot.
    fn boots(&self, boot_id: &str) -> tokio::process::Child {
        let [file, reboots, checks, good] =
            ["boot_id", "reboots", "checks", "good"].map(|name| self.path(name));
        std::fs::write(&file, format!("{boot_id}\n")).expect("the file is written");
        let kubeconfig = self.cluster.kubeconfig().expect("a file").display().to_string();
        let script = format!("echo once >> {reboots}");
        let command = json!(["/bin/sh", "-c", script]).to_string();
        let script = format!("echo once >> {checks}; test -e {good}");
        let check = json!(["/bin/sh", "-c", script]).to_string();
        let flags = [
            "--kubeconfig",
            &kubeconfig,
            "--no-listen",
            "--boot-id-file",
            &file,
            "--reboot-command",
            &command,
            "--check-command",
            &check,
        ];
        agent(&flags)
            .env("NODE_NAME", NODE)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts")
    }

    async fn annotate(&self, annotations: windlass::serde_json::Value) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        let annotated = self.nodes.patch(NODE, &PatchParams::default(), &patch).await;
        annotated.expect("annotated");
    }
}

async fn until(client: Client, holds: impl Fn(&Progress) -> bool) -> Progress {
    let lister = Cache::<Node>::start(client, &WatchScope::all())
        .synced(STEP_TIMEOUT)
        .await
        .expect("the watch starts");
    let (mut changes, key) = (lister.subscribe(), ObjectKey::cluster_scoped(NODE));
    let found = async {
        loop {
            let node = lister.get(&key);
            let text = node.as_ref().and_then(|node| {
                node.annotations()
                    .get(&AnnotationKeys::default().reboot_in_progress)
            });
            let progress = text.map(|text| windlass::serde_json::from_str(text).expect("readable"));
            if let Some(progress) = progress.filter(&holds) {
                return progress;
            }
            changes.next().await.expect("the watch continues");
        }
    };
    timeout(STEP_TIMEOUT, found)
        .await
        .expect("the agent reports progress")
}

/// Waits until a command has written a line to the file.
async fn written(path: &Path) {
    let written = async {
        while lines(path) == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(STEP_TIMEOUT, written).await.expect("the command ran");
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_reboots_once_and_proves_it_in_the_next_boot() {
    let machine = Machine::new().await;
    let client = machine.cluster.client();
    let names = AnnotationKeys::default();
    let mut first = machine.boots("boot-a");
    let state = json!({
        "phase": "Armed", "policy": "default", "epoch": 3, "since": "2026-01-01T00:00:00Z",
    });
    let order = json!({"bootID": "boot-a", "epoch": 3});
    machine
        .annotate(json!({names.state: state.to_string(), names.reboot_now: order.to_string()}))
        .await;
    let claim = until(client.clone(), |progress| progress.attempt == 1).await;
    assert_eq!((claim.boot_id.as_str(), claim.epoch), ("boot-a", 3));
    let reboots = machine.folder.path().join("reboots");
    written(&reboots).await;

    // The process is restarted, the machine is not.
    first.kill().await.expect("killed");
    let mut again = machine.boots("boot-a");
    tokio::time::sleep(Duration::from_secs(1)).await;
    again.kill().await.expect("killed");
    let unproved = until(client.clone(), |_| true).await;
    assert_eq!((unproved.attempt, unproved.new_boot_id), (1, None));

    let mut second = machine.boots("boot-b");
    let proof = until(client.clone(), |progress| progress.new_boot_id.is_some()).await;
    assert_eq!(proof.new_boot_id.as_deref(), Some("boot-b"));
    assert_eq!(lines(&reboots), 1, "exactly once");

    // The health check fails at first, and passes once its file exists.
    written(&machine.folder.path().join("checks")).await;
    second.kill().await.expect("killed");
    assert_eq!(until(client.clone(), |_| true).await.checked_boot_id, None);
    std::fs::write(machine.path("good"), "").expect("the file is written");
    let mut third = machine.boots("boot-b");
    let passed = until(client, |progress| progress.checked_boot_id.is_some()).await;
    assert_eq!(passed.checked_boot_id, passed.new_boot_id);
    third.kill().await.expect("killed");
}
