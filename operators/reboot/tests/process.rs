//! Both programs as a stranger meets them: what they say of themselves, what they say when something is wrong, and the agent's
//! whole life on a machine that is a folder.

use std::{path::Path, process::Stdio, time::Duration};

use tokio::{process::Command, time::timeout};
use windlass::{
    cache::{Cache, Selection},
    k8s_openapi::api::core::v1::Node,
    kube::{
        Api, Client,
        api::{Patch, PatchParams, PostParams},
    },
    prelude::*,
};
use windlass_cluster::Cluster;
use windlass_reboot::state::{Names, Progress};
use windlass_suite::{DEADLINE, output, program};

fn reboot(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_reboot"), arguments)
}

fn agent(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_reboot-agent"), arguments)
}

#[tokio::test]
async fn their_help_tells_every_flag_and_its_default() {
    for (command, parts) in [
        (
            reboot(&["--help"]),
            &[
                "Usage: reboot [OPTIONS]",
                "Reboots nodes in turn",
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
                "Reboots the node that it runs on",
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
async fn flags_that_cannot_be_meant_are_refused_with_a_hint() {
    for (command, hint) in [
        (reboot(&["--annotation-prefix", "A b"]), "--annotation-prefix"),
        (agent(&["--reboot-with", "hammer"]), "systemctl"),
        (agent(&["--reboot-command", " "]), "a program at least"),
        (agent(&["--trigger-interval", "5"]), "as in `30s`"),
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
async fn without_a_cluster_one_line_says_where_they_looked_and_what_to_do() {
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

/// The machine of the agent is a folder: its boot ID is a file there, and it reboots by a command that leaves one.
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
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Starts the agent in this boot.
    fn boots(&self, boot_id: &str) -> tokio::process::Child {
        let [file, reboots, checks, good] =
            ["boot_id", "reboots", "checks", "good"].map(|name| self.path(name));
        std::fs::write(&file, format!("{boot_id}\n")).expect("written");
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
    let lister = Cache::<Node>::start(client, &Selection::all())
        .synced(DEADLINE)
        .await
        .expect("nodes can be watched");
    let (mut changes, key) = (lister.subscribe(), ObjectKey::cluster(NODE));
    let found = async {
        loop {
            let node = lister.get(&key);
            let text = node
                .as_ref()
                .and_then(|node| node.annotations().get(&Names::default().in_progress));
            let progress = text.map(|text| windlass::serde_json::from_str(text).expect("readable"));
            if let Some(progress) = progress.filter(&holds) {
                return progress;
            }
            changes.next().await.expect("the watch goes on");
        }
    };
    timeout(DEADLINE, found).await.expect("its agent says so")
}

/// Waits until a command has left a line there.
async fn written(path: &Path) {
    let written = async {
        while lines(path) == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(DEADLINE, written).await.expect("the command is run");
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_reboots_its_machine_once_and_proves_it_in_the_next_boot() {
    let machine = Machine::new().await;
    let client = machine.cluster.client();
    let names = Names::default();
    let mut first = machine.boots("boot-a");
    let state = json!({
        "phase": "Armed", "policy": "default", "epoch": 3, "since": "2026-01-01T00:00:00Z",
    });
    let order = json!({"bootID": "boot-a", "epoch": 3});
    machine
        .annotate(json!({names.state: state.to_string(), names.now: order.to_string()}))
        .await;
    let claim = until(client.clone(), |progress| progress.attempt == 1).await;
    assert_eq!((claim.boot_id.as_str(), claim.epoch), ("boot-a", 3));
    let reboots = machine.folder.path().join("reboots");
    written(&reboots).await;

    // The process is started anew, and the machine is not.
    first.kill().await.expect("killed");
    let mut again = machine.boots("boot-a");
    tokio::time::sleep(Duration::from_secs(1)).await;
    again.kill().await.expect("killed");
    let unproved = until(client.clone(), |_| true).await;
    assert_eq!((unproved.attempt, unproved.proved), (1, None));

    let mut second = machine.boots("boot-b");
    let proof = until(client.clone(), |progress| progress.proved.is_some()).await;
    assert_eq!(proof.proved.as_deref(), Some("boot-b"));
    assert_eq!(lines(&reboots), 1, "exactly once");

    // Its own check fails at first, and passes when what it looks for is there.
    written(&machine.folder.path().join("checks")).await;
    second.kill().await.expect("killed");
    assert_eq!(until(client.clone(), |_| true).await.checked, None);
    std::fs::write(machine.path("good"), "").expect("written");
    let mut third = machine.boots("boot-b");
    let passed = until(client, |progress| progress.checked.is_some()).await;
    assert_eq!(passed.checked, passed.proved);
    third.kill().await.expect("killed");
}
