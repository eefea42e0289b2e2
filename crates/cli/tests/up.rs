//! `windlass up` as a person starts it: what it says, what it leaves alone, and that it ends without a trace.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use windlass::{
    k8s_openapi::api::core::v1::Node,
    kube::{
        Api, Client, Config,
        api::ListParams,
        config::{KubeConfigOptions, Kubeconfig},
    },
};

fn windlass(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.arg("up").args(arguments).args(["--speed", "instant"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A cluster that runs; killed if a test fails before it ends it.
struct Up {
    child: Child,
    kubeconfig: PathBuf,
}

impl Up {
    /// Starts one, and reads the line that it says when it is ready.
    fn start(arguments: &[&str]) -> Self {
        let mut child = windlass(arguments).spawn().expect("it starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let kubeconfig = line
            .strip_prefix("export KUBECONFIG=")
            .and_then(|rest| rest.split("   #").next());
        let kubeconfig =
            PathBuf::from(kubeconfig.unwrap_or_else(|| panic!("not the line to paste: {line:?}")));
        Self { child, kubeconfig }
    }

    async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Client::try_from(config.expect("a configuration")).expect("a client")
    }

    /// Ends it as Ctrl-C does.
    fn interrupt(mut self) -> Output {
        let id = self.child.id().to_string();
        let sent = Command::new("kill")
            .args(["-INT", &id])
            .status()
            .expect("kill runs");
        assert!(sent.success());
        let status = self.child.wait().expect("it ends");
        Output {
            status,
            stdout: Vec::new(),
            stderr: Vec::new(),
        }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn refused(arguments: &[&str]) -> String {
    let output = windlass(arguments).output().expect("it runs");
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
    assert!(up.interrupt().status.success());
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
    assert!(up.interrupt().status.success());
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
