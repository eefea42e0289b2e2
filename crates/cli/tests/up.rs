//! `windlass up`: its output, its kubeconfig and its cleanup.

use crate::process;

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use process::{Running, client, windlass};
use windlass::{
    k8s_openapi::api::core::v1::Node,
    kube::{Api, Client, api::ListParams, config::Kubeconfig},
};

fn command(arguments: &[&str]) -> Command {
    let mut command = windlass(&["up", "--speed", "instant"]);
    command.args(arguments);
    command
}

/// A running cluster.
struct Up {
    running: Running,
    kubeconfig: PathBuf,
}

impl Up {
    /// Starts a cluster, and waits for the line that announces it.
    fn start(arguments: &[&str]) -> Self {
        let mut running = Running::start(command(arguments));
        let kubeconfig = running.kubeconfig();
        Self { running, kubeconfig }
    }

    async fn client(&self) -> Client {
        client(&self.kubeconfig).await
    }

    fn interrupt(self) -> ExitStatus {
        self.running.interrupt()
    }
}

fn expect_error(arguments: &[&str]) -> String {
    let output = command(arguments).output().expect("it runs");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    String::from_utf8(output.stderr).expect("text")
}

#[tokio::test]
async fn up_serves_nodes_and_cleans_up() {
    let up = Up::start(&["--nodes", "2"]);
    let folder = up.kubeconfig.parent().map(Path::to_owned).expect("a folder");
    let nodes = Api::<Node>::all(up.client().await)
        .list(&ListParams::default())
        .await
        .expect("a list");
    let names: Vec<_> = nodes
        .items
        .into_iter()
        .filter_map(|node| node.metadata.name)
        .collect();
    assert_eq!(names, ["node-1", "node-2"]);
    assert!(up.interrupt().success());
    assert!(!folder.exists(), "{} still exists", folder.display());
}

#[tokio::test]
async fn kubeconfig_flag_writes_the_file_and_stop_deletes_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("it's a config");
    let named = file.to_str().expect("text");
    let up = Up::start(&["--nodes", "0", "--kubeconfig", named]);
    assert_eq!(
        up.kubeconfig.to_str().expect("text"),
        format!("'{}'", named.replace('\'', r"'\''"))
    );
    assert!(Kubeconfig::read_from(&file).is_ok());
    assert!(up.interrupt().success());
    assert!(!file.exists());
}

#[test]
fn foreign_kubeconfig_is_not_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config");
    std::fs::write(&file, "precious").expect("a file");
    let error = expect_error(&["--nodes", "0", "--kubeconfig", file.to_str().expect("text")]);
    assert!(
        error.contains("not written by windlass") && error.contains("--kubeconfig"),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(&file).expect("it exists"), "precious");
}

/// The names in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn second_up_with_the_same_kubeconfig_is_refused_and_the_first_keeps_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config");
    let named = file.to_str().expect("text");
    let first = Up::start(&["--nodes", "0", "--kubeconfig", named]);
    let written = std::fs::read(&file).expect("a file");
    let error = expect_error(&["--nodes", "0", "--kubeconfig", named]);
    assert!(
        error.contains(&format!("process {}", first.running.id())) && error.contains("--kubeconfig"),
        "{error}"
    );
    assert_eq!(std::fs::read(&file).expect("it exists"), written);
    let nodes = Api::<Node>::all(first.client().await);
    nodes
        .list(&ListParams::default())
        .await
        .expect("the first serves");
    assert!(first.interrupt().success());
    assert_eq!(names(folder.path()), [] as [&str; 0]);
}

#[tokio::test]
async fn closed_terminal_cleans_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config");
    // Under `nohup` the test, and so what it starts, ignores the signal.
    let mut command = Command::new("env");
    if cfg!(target_os = "linux") {
        command.arg("--default-signal=HUP");
    }
    command.arg(env!("CARGO_BIN_EXE_windlass"));
    command.args(["up", "--speed", "instant", "--nodes", "0", "--kubeconfig"]);
    command.arg(&file).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut running = Running::start(command);
    running.kubeconfig();
    assert!(running.end_with("HUP").success());
    assert_eq!(names(folder.path()), [] as [&str; 0]);
}

#[tokio::test]
async fn nohup_survives_a_closed_terminal() {
    let mut command = Command::new("nohup");
    command
        .arg(env!("CARGO_BIN_EXE_windlass"))
        .args(["up", "--nodes", "0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut running = Running::start(command);
    let kubeconfig = running.kubeconfig();
    running.send("HUP");
    let nodes = Api::<Node>::all(client(&kubeconfig).await);
    nodes.list(&ListParams::default()).await.expect("it still serves");
    assert!(running.interrupt().success());
}

/// The administrator's key must not stay on the disk of a machine whose `up` was killed.
#[tokio::test]
async fn next_up_removes_what_a_killed_one_left_and_nothing_of_a_living_one() {
    let (temp, folder) = (
        tempfile::tempdir().expect("a folder"),
        tempfile::tempdir().expect("a folder"),
    );
    let file = folder.path().join("config");
    let start = |arguments: &[&str]| {
        let mut command = command(arguments);
        command.env("TMPDIR", temp.path());
        let mut running = Running::start(command);
        let kubeconfig = running.kubeconfig();
        Up { running, kubeconfig }
    };
    let living = start(&["--nodes", "0"]);
    let killed = start(&["--nodes", "0", "--kubeconfig", file.to_str().expect("text")]);
    killed.running.end_with("KILL");
    assert_eq!(names(temp.path()).len(), 2);
    assert_eq!(names(folder.path()), [".config.windlass-lock", "config"]);

    let next = start(&["--nodes", "0"]);
    let folder_of = |up: &Up| {
        let folder = up.kubeconfig.parent().and_then(Path::file_name).expect("a name");
        folder.to_string_lossy().into_owned()
    };
    let mut expected = [folder_of(&living), folder_of(&next)];
    expected.sort();
    assert_eq!(names(temp.path()), expected);
    assert_eq!(names(folder.path()), [] as [&str; 0]);
    assert!(living.interrupt().success() && next.interrupt().success());
    assert_eq!(names(temp.path()), [] as [&str; 0]);
}

#[test]
fn redirected_log_has_no_colours() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config");
    std::fs::write(&file, "precious").expect("a file");
    let mut command = command(&["--nodes", "1", "--kubeconfig", file.to_str().expect("text")]);
    let output = command.env("RUST_LOG", "debug").output().expect("it runs");
    let log = String::from_utf8(output.stderr).expect("text");
    assert!(log.contains("DEBUG"), "{log}");
    assert!(!log.contains('\x1b'), "{log}");
}

#[test]
fn address_in_use_is_reported_with_the_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let error = expect_error(&["--nodes", "0", "--listen", &address]);
    assert!(error.contains(&address) && error.contains("--listen"), "{error}");
}
