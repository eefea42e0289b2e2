//! `windlass up`: its output, its kubeconfig and its cleanup.

use crate::process;

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
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

#[test]
fn address_in_use_is_reported_with_the_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let error = expect_error(&["--nodes", "0", "--listen", &address]);
    assert!(error.contains(&address) && error.contains("--listen"), "{error}");
}
