//! The program as a process that a test starts, listens to and ends.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
};

use windlass::kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// The program with these arguments, heard by nobody but the test.
pub(crate) fn windlass(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(arguments);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A process that runs; killed if a test fails before it ends it.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        // Nobody reads it while the process runs, and it must not stand still for that.
        Self(command.stderr(Stdio::null()).spawn().expect("it starts"))
    }

    /// What it says from now on; once.
    pub(crate) fn stdout(&mut self) -> ChildStdout {
        self.0.stdout.take().expect("it is piped, and read once")
    }

    /// Reads the line with which it says that its cluster is there, and gives the kubeconfig.
    pub(crate) fn kubeconfig(&mut self) -> PathBuf {
        let mut lines = BufReader::new(self.stdout())
            .lines()
            .map(|line| line.expect("text"));
        let line = lines.find(|line| line.starts_with("export KUBECONFIG="));
        let line = line.expect("a line to paste before the output ends");
        let path = line.strip_prefix("export KUBECONFIG=");
        let path = path.and_then(|rest| rest.split("   #").next());
        PathBuf::from(path.expect("a path and a comment"))
    }

    /// Ends it as Ctrl-C does.
    pub(crate) fn interrupt(mut self) -> ExitStatus {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status();
        assert!(sent.expect("there is a `kill`").success());
        self.0.wait().expect("it ends")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client for the cluster of a kubeconfig.
pub(crate) async fn client(kubeconfig: &std::path::Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}
