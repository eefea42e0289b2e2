//! `windlass up` as a person starts it: what it says, what it leaves alone, and that it ends without a trace.

mod process;

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

/// A cluster that runs.
struct Up {
    running: Running,
    kubeconfig: PathBuf,
}

impl Up {
    /// Starts one, and reads the line that it says when it is ready.
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

fn refused(arguments: &[&str]) -> String {
    let output = command(arguments).output().expect("it runs");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    String::from_utf8(output.stderr).expect("text")
}

#[tokio::test]
async fn it_says_one_line_serves_its_nodes_and_leaves_nothing_behind() {
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
    assert!(!folder.exists(), "{} is still there", folder.display());
}

#[tokio::test]
async fn a_kubeconfig_goes_where_it_is_asked_for_and_goes_with_the_cluster() {
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
fn a_file_of_somebody_else_is_not_touched() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config");
    std::fs::write(&file, "precious").expect("a file");
    let said = refused(&["--nodes", "0", "--kubeconfig", file.to_str().expect("text")]);
    assert!(
        said.contains("not one of ours") && said.contains("--kubeconfig"),
        "{said}"
    );
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "precious");
}

#[test]
fn an_address_that_is_taken_is_named_with_the_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let said = refused(&["--nodes", "0", "--listen", &address]);
    assert!(said.contains(&address) && said.contains("--listen"), "{said}");
}
